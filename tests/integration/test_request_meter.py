"""On a real S3 server, the meter counts requests of S3A and of Iceberg's S3FileIO alike, by class of key."""

import uuid

import pytest
from pyspark.sql import SparkSession

from lakefeed.feed.s3_requests import s3_requests
from lakefeed_local.stack import Endpoints


def more(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """Return how much each count has grown between two readings of the meter."""
    return {name: count - before.get(name, 0) for name, count in after.items() if count > before.get(name, 0)}


@pytest.mark.quick
def test_requests_of_s3a_are_counted(lake: SparkSession, stack: Endpoints) -> None:
    folder = stack.warehouse.replace("s3://", "s3a://").rstrip("/") + f"/meter-{uuid.uuid4().hex}"
    before, sent = s3_requests(lake).by_operation, s3_requests(lake).bytes_out
    lake.range(0, 1000, 1, 1).write.parquet(folder)
    counted = more(before, s3_requests(lake).by_operation)
    assert counted["PutObject"] >= 1
    assert counted["HeadObject"] >= 1
    assert s3_requests(lake).bytes_out > sent + 1000
    before = s3_requests(lake).by_operation
    assert lake.read.parquet(folder).count() == 1000
    assert more(before, s3_requests(lake).by_operation)["GetObject"] >= 1


@pytest.mark.quick
def test_requests_of_icebergs_own_client_are_counted(lake: SparkSession) -> None:
    name = f"lake.meter_{uuid.uuid4().hex[:8]}.t"
    lake.sql(f"CREATE NAMESPACE IF NOT EXISTS {name.rpartition('.')[0]}")
    before = s3_requests(lake).by_operation
    lake.range(0, 1000, 1, 1).writeTo(name).create()
    # The write puts a data file, a manifest, a manifest list and a metadata file, and neither renames nor copies.
    counted = more(before, s3_requests(lake).by_operation)
    assert counted["PutObject"] >= 4
    assert "CopyObject" not in counted
    lake.sql(f"DROP TABLE {name} PURGE")
