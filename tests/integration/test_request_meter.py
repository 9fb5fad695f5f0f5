"""Requests of S3A and of Iceberg's S3FileIO are counted alike, on a real S3 server."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from lakefeed import jvm
from lakefeed.local import Endpoints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def more(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """What was counted between two snapshots."""
    return {name: count - before.get(name, 0) for name, count in after.items() if count > before.get(name, 0)}


def test_s3a_is_counted(lake: SparkSession, stack: Endpoints) -> None:
    folder = stack.warehouse.replace("s3://", "s3a://").rstrip("/") + f"/meter-{uuid.uuid4().hex}"
    before, traffic = jvm.s3_requests(lake), jvm.s3_traffic(lake)
    lake.range(0, 1000, 1, 1).write.parquet(folder)
    counted = more(before, jvm.s3_requests(lake))
    assert counted["PutObject"] >= 1
    assert counted["HeadObject"] >= 1
    assert jvm.s3_traffic(lake).bytes_out > traffic.bytes_out + 1000
    before = jvm.s3_requests(lake)
    assert lake.read.parquet(folder).count() == 1000
    assert more(before, jvm.s3_requests(lake))["GetObject"] >= 1


def test_icebergs_own_client_is_counted(lake: SparkSession) -> None:
    name = f"lake.meter_{uuid.uuid4().hex[:8]}.t"
    lake.sql(f"CREATE NAMESPACE IF NOT EXISTS {name.rpartition('.')[0]}")
    before = jvm.s3_requests(lake)
    lake.range(0, 1000, 1, 1).writeTo(name).create()
    # One data file, a manifest, a manifest list, a metadata file; no rename, no copy.
    counted = more(before, jvm.s3_requests(lake))
    assert counted["PutObject"] >= 4
    assert "CopyObject" not in counted
    lake.sql(f"DROP TABLE {name} PURGE")
