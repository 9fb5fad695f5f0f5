"""Fixtures: each object store in turn, and a bucket in it behind a proxy that makes requests fail on demand."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from lakefeed.feed.s3_requests import s3_requests
from lakefeed_local.stack import Endpoints
from tests.support.checkpoint import Checkpoint, checkpoint_session, introduce
from tests.support.faults.drivers import SHORT_LIVED, Driver, driver
from tests.support.faults.s3_fault_proxy import FaultProxy, fault_proxy
from tests.support.stores import STORES, Bucket, Store, running_store


@pytest.fixture(scope="module", params=STORES)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Yield each object store in turn."""
    with running_store(
        request.param, embedded=lambda: request.getfixturevalue("stack"), home=tmp_path_factory.mktemp(request.param)
    ) as running:
        yield running


# The scope is a module, because other modules of the package need another session, and a process has only one.
@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with checkpoint_session(tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture
def proxy(store: Store) -> Iterator[FaultProxy]:
    with fault_proxy(store.endpoint) as running:
        yield running


@pytest.fixture
def bucket(store: Store, proxy: FaultProxy, spark: SparkSession) -> Iterator[Bucket]:
    """Yield a bucket behind the proxy; the test itself can reach the bucket directly.

    After each test the meter must have counted all attempts that the proxy received, answered or not.
    """
    made = store.new_bucket()
    introduce(spark, replace(made, store=replace(store, endpoint=proxy.endpoint)))
    yield made
    assert s3_requests(spark).below([made.name]).by_operation == proxy.counted()


@pytest.fixture
def log(spark: SparkSession, bucket: Bucket) -> Checkpoint:
    """Return a checkpoint manager for a log with three entries; it has already probed the store."""
    Checkpoint.at(bucket.url("c"), spark=spark).java.createCheckpointDirectory()
    made = Checkpoint.at(bucket.url("c", "offsets"), spark=spark)
    assert not made.exists()
    for batch in range(3):
        made.write(f"{batch}", f"batch {batch}".encode())
    return made


@pytest.fixture(scope="module")
def stack_proxy(stack: Endpoints) -> Iterator[FaultProxy]:
    """Yield a proxy in front of the embedded store, for drivers that run in other processes."""
    with fault_proxy(stack.s3_endpoint) as running:
        yield running


@pytest.fixture(scope="module")
def successor(stack: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Yield a driver in a separate process, without faults, which resumes the feed of a killed driver."""
    log = tmp_path_factory.mktemp("successor") / "driver.log"
    environment = {**stack.as_environment(), **SHORT_LIVED}
    with driver("tests.support.faults.driver_child", environment=environment, log=log) as running:
        yield running
