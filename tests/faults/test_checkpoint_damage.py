"""Damaged or missing checkpoint entries stop the query or the readers of its output; foreign files do not."""

import uuid
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakefeed.records.transform import ROCKSDB
from tests.contract.test_checkpoint_queries import assert_every_number_once, numbers, run_until, settings, writing
from tests.support.checkpoint import introduce
from tests.support.stores import Bucket, Store

STOPPED = "Failed to read log|MALFORMED_LOG|Incomplete log|end-of-input|CONCURRENT_STREAM|doesn't exist|BATCH_METADATA"
UNREADABLE = "STATE"
PACKAGE = "org.apache.spark.sql.execution.streaming.state"
MEMORY = f"{PACKAGE}.HDFSBackedStateStoreProvider"


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("c/offsets", "empty"),
        ("c/offsets", "truncated"),
        ("c/offsets", "foreign"),
        ("c/offsets", "missing"),
        ("c/commits", "empty"),
        ("c/commits", "truncated"),
        ("c/commits", "foreign"),
        ("c/metadata", "truncated"),
    ],
)
def test_a_damaged_entry_stops_the_query(spark: SparkSession, bucket: Bucket, file: str, damage: str) -> None:
    start = writing(numbers(spark), bucket.url("c"), bucket.url("table"))
    run_until(start, 2)
    done = {int(name.rpartition("/")[2]) for name in bucket.keys("c/commits/")}
    last = max(done)
    # Remove the last commit, so that the query seems to have stopped between two batches.
    bucket.remove(f"c/offsets/{last + 1}")
    spoil(bucket, file if file == "c/metadata" else f"{file}/{last}", damage)
    with pytest.raises((AssertionError, PySparkException, Py4JJavaError), match=STOPPED):
        run_until(start, last + 3)
    assert {int(name.rpartition("/")[2]) for name in bucket.keys("c/commits/")} <= done


@pytest.mark.parametrize("damage", ["empty", "truncated", "foreign", "missing"])
def test_a_damaged_sink_log_stops_its_readers(spark: SparkSession, bucket: Bucket, damage: str) -> None:
    start = writing(numbers(spark), bucket.url("c"), bucket.url("table"))
    with settings(spark, fileSink__log__compactInterval=4):
        run_until(start, 4)
        last = max(int(Path(name).stem) for name in bucket.keys("table/_spark_metadata/"))
        compact = last - (last + 1) % 4
        assert f"table/_spark_metadata/{compact}.compact" in bucket.keys("table/_spark_metadata/")
        spoil(bucket, f"table/_spark_metadata/{compact}.compact", damage)
        with pytest.raises((PySparkException, Py4JJavaError), match=STOPPED):
            spark.read.parquet(bucket.url("table")).count()
        with pytest.raises((AssertionError, PySparkException, Py4JJavaError), match=STOPPED):
            run_until(start, last + 8)


@pytest.mark.parametrize(
    "damage", ["truncated", "missing", *(pytest.param(each, marks=pytest.mark.slow) for each in ("empty", "foreign"))]
)
@pytest.mark.parametrize(("kept", "end"), [(MEMORY, "delta"), (ROCKSDB, "changelog")], ids=["memory", "RocksDB"])
def test_damaged_state_stops_the_query(spark: SparkSession, store: Store, kept: str, end: str, damage: str) -> None:
    """Spark notices the damage although no checksum files lie beside the state's files."""
    # Use a bucket without the proxy: Spark maintains state in the background, so the fixture's comparison of meter and
    # proxy could differ by a request.
    bucket = store.new_bucket()
    introduce(spark, bucket)

    start = writing(numbers(spark).dropDuplicates(["value"]), bucket.url("c"), bucket.url("table"))
    with settings(spark, stateStore__providerClass=kept):
        run_until(start, 3)
        done = {int(name.rpartition("/")[2]) for name in bucket.keys("c/commits/")}
        last = max(done)
        bucket.remove(f"c/offsets/{last + 1}")
        state = [name for name in bucket.keys("c/state/") if name.endswith(f"/{last + 1}.{end}")]
        assert len(state) == 2
        for name in state:
            spoil(bucket, name, damage)
        with pytest.raises((AssertionError, PySparkException, Py4JJavaError), match=UNREADABLE):
            run_until(start, last + 3)
    assert {int(name.rpartition("/")[2]) for name in bucket.keys("c/commits/")} <= done


def spoil(bucket: Bucket, key: str, damage: str) -> None:
    """Damage the object of this key, as a faulty copy might."""
    content = bucket.request("GET", key)
    if damage == "missing":
        bucket.remove(key)
    else:
        bucket.put(key, {"empty": b"", "truncated": content[: len(content) // 2], "foreign": b"\x00PNG"}[damage])


def test_files_of_other_programs_in_the_checkpoint_do_not_stop_the_query(spark: SparkSession, bucket: Bucket) -> None:
    start = writing(numbers(spark), bucket.url("c"), bucket.url("table"))
    run_until(start, 2)
    for folder in ("c", "c/offsets", "c/commits", "table/_spark_metadata"):
        bucket.put(f"{folder}/README-{uuid.uuid4().hex[:4]}.txt", b"not Spark's")
    run_until(start, 6)
    assert_every_number_once(spark.read.parquet(bucket.url("table")), batches=6)
