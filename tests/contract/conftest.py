"""Fixtures of the contract tests: one Spark session, and a bucket in each object store in turn."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.support.checkpoint import checkpoint_session, introduce
from tests.support.stores import STORES, Bucket, running_store


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a session on two threads; the fixture ``bucket`` configures its stores."""
    with checkpoint_session(tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture(scope="package", params=STORES)
def bucket(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bucket]:
    """Yield a new bucket in each of the stores, plain and versioned."""
    with running_store(
        request.param, embedded=lambda: request.getfixturevalue("stack"), home=tmp_path_factory.mktemp(request.param)
    ) as store:
        made = store.new_bucket()
        introduce(spark, made)
        yield made
