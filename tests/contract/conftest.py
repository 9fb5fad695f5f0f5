"""One Spark session, and each object store in turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from pyspark.sql import SparkSession

from lakefeed.local import Endpoints
from tests.contract.checkpoint import checkpoint_session, introduce
from tests.contract.stores import Bucket, built_store, new_bucket


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two threads; the buckets are made known to it one by one."""
    with checkpoint_session(tmp_path_factory.mktemp("spark")) as running:
        yield running


STORES = [
    "s3proxy",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("minio", "minio-versioned", "versitygw", "versitygw-versioned")
    ),
]


@pytest.fixture(scope="package", params=STORES)
def bucket(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bucket]:
    """A bucket of each store, plain and versioned."""
    name, _, versioned = request.param.partition("-")
    with ExitStack() as running:
        if name == "s3proxy":
            stack: Endpoints = request.getfixturevalue("stack")
            made = new_bucket(
                stack.s3_endpoint,
                access_key=stack.access_key,
                secret_key=stack.secret_key.get_secret_value(),
                versioned=False,
            )
        else:
            endpoint = running.enter_context(built_store(name, tmp_path_factory.mktemp(name)))
            made = new_bucket(endpoint, access_key="test", secret_key="test-secret", versioned=bool(versioned))
        introduce(spark, made)
        yield made
