"""The request meter counts every attempt that was sent, also those that failed.

After each test of this folder, the fixture ``bucket`` compares the meter's counts by operation with the proxy's.
"""

from dataclasses import replace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lakefeed.feed.s3_requests import s3_requests
from lakefeed_local.part import choose_free
from tests.support.checkpoint import Checkpoint, introduce
from tests.support.faults.s3_fault_proxy import FaultProxy, Kind, on
from tests.support.stores import REGION, Bucket


@pytest.mark.parametrize("kind", ["503", "reset", "lost reply"])
def test_a_request_without_a_valid_answer_counts_as_a_request_and_an_error(
    spark: SparkSession, log: Checkpoint, bucket: Bucket, proxy: FaultProxy, kind: Kind
) -> None:
    before = s3_requests(spark).below([bucket.name])
    proxy.spoil(kind, on("ListObjectsV2"))
    assert Checkpoint.at(log.root, spark=spark).names() == ["0", "1", "2"]
    asked = s3_requests(spark).below([bucket.name]) - before
    assert asked.by_operation == {"ListObjectsV2": 2}
    assert asked.errors == 1


def test_a_request_that_reaches_no_server_counts_as_a_request_and_an_error(
    spark: SparkSession, bucket: Bucket, proxy: FaultProxy
) -> None:
    unreachable = replace(
        bucket, name="nobody", store=replace(bucket.store, endpoint=f"http://127.0.0.1:{choose_free(avoid=())}")
    )
    introduce(spark, unreachable)
    with pytest.raises(Py4JJavaError):
        Checkpoint.at(unreachable.url("c"), spark=spark).exists("metadata")
    tried = s3_requests(spark).below([unreachable.name])
    assert tried.total == tried.errors > 1
    assert (tried.bytes_in, proxy.counted()) == (0, {})


@pytest.mark.parametrize("kind", ["503", "reset", "lost reply"])
def test_failed_requests_of_icebergs_client_are_counted(
    spark: SparkSession, bucket: Bucket, proxy: FaultProxy, kind: Kind
) -> None:
    gateway: Any = spark._jvm
    files = gateway.org.apache.iceberg.aws.s3.S3FileIO()
    files.initialize(
        {
            "s3.endpoint": proxy.endpoint,
            "s3.path-style-access": "true",
            "s3.access-key-id": bucket.store.access_key,
            "s3.secret-access-key": bucket.store.secret_key,
            "client.region": REGION,
            "s3.client-factory-impl": "io.lakefeed.sink.SharedHttpClients",
            "http-client.type": "urlconnection",
        }
    )
    fault = proxy.spoil(kind, on("PutObject"))
    out = files.newOutputFile(f"s3://{bucket.name}/warehouse/t/data/0.parquet").createOrOverwrite()
    out.write(b"content")
    out.close()
    assert fault.done == 1
    assert s3_requests(spark).below([bucket.name]).by_key_class == {"data": 2}
    files.close()
