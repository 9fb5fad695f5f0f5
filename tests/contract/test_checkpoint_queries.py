"""Real streaming queries on all stores lose no row over many batches, compactions, purges, stops and restarts."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.support.checkpoint import Checkpoint
from tests.support.stores import Bucket

ROWS = 4
PATIENCE = 240


@dataclass(frozen=True)
class Place:
    """The folders of one query in a bucket: the checkpoint and the output of the file sink."""

    bucket: Bucket
    name: str

    @property
    def checkpoint(self) -> str:
        """The checkpoint location."""
        return self.bucket.url(self.name, "checkpoint")

    @property
    def table(self) -> str:
        """The file sink's folder."""
        return self.bucket.url(self.name, "table")

    def count(self, *path: str) -> int:
        """Return the number of objects in a folder."""
        return len(self.bucket.keys("/".join([self.name, *path, ""])))


@pytest.fixture
def place(bucket: Bucket) -> Place:
    return Place(bucket, f"query-{uuid.uuid4().hex[:8]}")


@contextmanager
def settings(spark: SparkSession, **values: object) -> Iterator[None]:
    """Set Spark settings below ``spark.sql.streaming`` until the block ends; ``__`` in a name stands for a dot."""
    keys = {f"spark.sql.streaming.{name.replace('__', '.')}": str(value) for name, value in values.items()}
    for key, value in keys.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in keys:
            spark.conf.unset(key)


def numbers(spark: SparkSession) -> DataFrame:
    """Return a stream that has the next ``ROWS`` numbers in each micro-batch, in one partition."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 1)
    return source.load().select("value")


def writing(frame: DataFrame, checkpoint: str, table: str | None = None) -> Callable[[], StreamingQuery]:
    """Return a function that starts a query; the query writes Parquet files, or nothing if `table` is None."""
    writer = frame.writeStream.format("parquet" if table else "noop").option("checkpointLocation", checkpoint)
    return lambda: writer.trigger(processingTime="0 seconds").start(table)


def run_until(start: Callable[[], StreamingQuery], batch: int) -> None:
    """Run a query until it has finished this batch, and stop the query during a later batch."""
    query = start()
    deadline = time.monotonic() + PATIENCE
    try:
        while query.lastProgress is None or query.lastProgress["batchId"] < batch:
            assert query.exception() is None, query.exception()
            assert time.monotonic() < deadline, f"batch {batch} is not reached"
            time.sleep(0.02)
    finally:
        query.stop()


def assert_every_number_once(table: DataFrame, *, batches: int) -> None:
    """Check that the table has each number once without a gap, and the numbers of at least `batches` batches."""
    values = sorted(row.value for row in table.collect())
    assert values == list(range(len(values)))
    assert len(values) >= batches * ROWS


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("batches", "step"), [(60, 12), pytest.param(1000, 40, marks=pytest.mark.slow)])
def test_a_parquet_query_with_compaction_and_purging_loses_no_row_over_many_restarts(
    spark: SparkSession, place: Place, batches: int, step: int
) -> None:
    start = writing(numbers(spark), place.checkpoint, place.table)
    with settings(spark, minBatchesToRetain=5, fileSink__log__compactInterval=4, fileSink__log__cleanupDelay="1s"):
        for batch in range(step, batches + 1, step):
            run_until(start, batch)
        assert_every_number_once(spark.read.parquet(place.table), batches=batches)
    Checkpoint.at(place.checkpoint, spark=spark).flush()
    assert place.count("checkpoint", "offsets") <= 12
    assert place.count("checkpoint", "commits") <= 12
    # Spark deletes compacted entries only after cleanupDelay: entries of the last second and of two compaction
    # intervals may remain.
    assert place.count("table", "_spark_metadata") <= 40
    if place.bucket.versioned:
        for folder in ("checkpoint", "table/_spark_metadata"):
            versions, markers = place.bucket.versions(f"{place.name}/{folder}/")
            assert markers == []
            assert len(versions) == len(set(versions))


@pytest.mark.parametrize("provider", ["HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"])
def test_a_query_keeps_its_state_over_restarts(spark: SparkSession, place: Place, provider: str) -> None:
    package = "org.apache.spark.sql.execution.streaming.state"
    unique = numbers(spark).selectExpr(f"value div {2 * ROWS} as value").dropDuplicates(["value"])
    start = writing(unique, place.checkpoint, place.table)
    with settings(
        spark,
        stateStore__providerClass=f"{package}.{provider}",
        stateStore__maintenanceInterval="2s",
        stateStore__minDeltasForSnapshot=3,
        minBatchesToRetain=4,
    ):
        for batch in (4, 9, 15, 22):
            run_until(start, batch)
        rows = sorted(row.value for row in spark.read.parquet(place.table).collect())
    # The source repeats each number in the next batch: a query that lost its state would land the number twice.
    assert rows == list(range(len(rows)))
    assert len(rows) >= 11
    assert place.count("checkpoint", "state") > 0
