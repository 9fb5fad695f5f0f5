"""On a real S3 server, a batch makes the exact number of requests, by operation and class of key."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.errors import CheckpointMismatch
from lakefeed.feed.progress import FinishedBatch
from lakefeed.feed.s3_requests import BatchRequests, S3Requests, s3_requests
from lakefeed.ledger.checkpoint import Claim, Owner
from lakefeed.pipeline import Pipeline, RunSummary
from lakefeed.records.transform import PARTS, ROCKSDB, STATE_STORE
from lakefeed_local.stack import Endpoints
from tests.support.feed import Feed
from tests.support.feed import trips as rows

FILES = 3
BATCHES = 22
LOGS = {"offsets": {"PutObject": 1}, "commits": {"PutObject": 1}}
DATA = {"data": {"PutObject": FILES}}


def run(
    lake: SparkSession, feed: Feed, *, count: int = BATCHES, **blocks: Any
) -> tuple[RunSummary, list[FinishedBatch]]:
    """Run a feed for `count` batches, each of which writes 3 files; return the summary of the run and its batches."""
    feed.create_topic(partitions=FILES)
    values = feed.avro(rows(0, count * 30))
    for partition in range(FILES):
        feed.send(values[partition::FILES], partition=partition)
    return again(lake, bounded(feed, **blocks))


def bounded(feed: Feed, **blocks: Any) -> Pipeline:
    return feed.pipeline(source=feed.source(max_records_per_batch=30), **blocks)


def again(lake: SparkSession, pipeline: Pipeline) -> tuple[RunSummary, list[FinishedBatch]]:
    batches: list[FinishedBatch] = []
    return pipeline.run(spark=lake, once=True, on_batch=batches.append), batches


def calls(batch: FinishedBatch) -> dict[str, dict[str, int]]:
    assert batch.requests is not None
    assert batch.requests.errors == 0
    return S3Requests(batch.requests.counts).calls


def nothing_is_lost(summary: RunSummary, batches: list[FinishedBatch]) -> None:
    """Check that the requests of the start and of the batches add up to all requests of the run."""
    parts: list[S3Requests | BatchRequests] = [summary.startup_requests]
    parts += [batch.requests for batch in batches if batch.requests]
    assert sum(part.total for part in parts) == summary.requests.total
    assert sum(part.bytes_out for part in parts) == summary.requests.bytes_out
    assert summary.requests.total <= sum(summary.s3_requests.values())


def test_an_iceberg_batch_makes_one_request_per_file_and_five_more(lake: SparkSession, feed: Feed) -> None:
    summary, batches = run(lake, feed)
    assert len(batches) == BATCHES
    for batch in batches[1:]:
        # A commit puts three metadata objects: the manifest, the manifest list and the metadata file.
        assert calls(batch) == {**LOGS, **DATA, "metadata": {"PutObject": 3}}
    nothing_is_lost(summary, batches)
    assert summary.files == BATCHES * FILES
    assert sorted(row["id"] for row in feed.rows()) == list(range(BATCHES * 30))


def test_a_feed_appends_to_a_table_although_other_writers_have_changed_it(lake: SparkSession, feed: Feed) -> None:
    run(lake, feed, count=3)
    lake.sql(f"DELETE FROM {feed.table} WHERE id < 10")
    with open_table(feed.table, connections=feed.connections).update_spec() as change:
        change.add_identity("zone")
    assert lake.table(feed.table).count() == 90 - 10
    feed.send(feed.avro(rows(1000, 1010)))
    again(lake, bounded(feed))
    expected = [*range(10, 90), *range(1000, 1010)]
    assert sorted(row["id"] for row in feed.rows()) == expected
    assert sorted(row.id for row in lake.table(feed.table).collect()) == expected


def test_a_parquet_batch_makes_one_request_per_file_and_three_more(lake: SparkSession, feed: Feed) -> None:
    path = f"s3a://{feed.stack.bucket}/parquet/{feed.name}"
    summary, batches = run(lake, feed, sink={"parquet": {"path": path}})
    assert len(batches) == BATCHES
    for batch in batches[1:]:
        assert calls(batch) == {**LOGS, **DATA, "sink_log": {"PutObject": 1}}
    nothing_is_lost(summary, batches)
    # The sink's log has the right file sizes, although no request asked the store for them.
    found = lake.read.parquet(path)
    assert sorted(row.id for row in found.collect()) == list(range(BATCHES * 30))
    listed = lake.read.format("binaryFile").option("pathGlobFilter", "*.parquet").load(path).select("path", "length")
    hadoop: Any = lake._jvm
    for row in listed.limit(FILES).collect():
        place = hadoop.org.apache.hadoop.fs.Path(row.path)
        files = hadoop.org.apache.hadoop.fs.FileSystem.newInstance(
            place.toUri(), lake.sparkContext._jsc.hadoopConfiguration()
        )
        assert files.getFileStatus(place).getLen() == row.length > 0
        files.close()


@pytest.fixture(params=[None, ROCKSDB], ids=["in memory", "RocksDB"])
def plain(lake: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Yield a session with one of Spark's state stores and Spark's default number of shuffle partitions."""
    parts = str(lake.conf.get(PARTS))
    lake.conf.unset(PARTS)
    if request.param:
        lake.conf.set(STATE_STORE, request.param)
    yield lake
    lake.conf.unset(STATE_STORE)
    lake.conf.set(PARTS, parts)


def test_a_batch_with_state_makes_one_request_per_state_partition(plain: SparkSession, feed: Feed) -> None:
    sql = f"SELECT zone, count(*) AS rows FROM {feed.name} GROUP BY zone"
    sink: dict[str, Any] = {"sink": {"memory": {}}, "transform": {"sql": sql, "output_mode": "complete"}}
    _, batches = run(plain, feed, count=5, **sink)
    assert len(batches) == 5
    # By default lakefeed uses two state partitions for each core, here four in total, instead of Spark's 200.
    for batch in batches[1:]:
        made = calls(batch)
        # Spark lists the state once a minute to remove old files, so any batch may have such a request.
        made["state"].pop("ListObjectsV2", None)
        assert made == {**LOGS, "state": {"PutObject": 4}}
    assert PARTS not in plain.conf.getAll


def test_requests_of_partitioned_parquet_files_count_as_data_of_the_feed(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send(feed.avro(rows(0, 14)))
    path = f"s3a://{feed.stack.bucket}/parquet/{feed.name}"
    _, batches = again(lake, feed.pipeline(sink={"parquet": {"path": path, "partition_by": ["zone"]}}))
    assert batches[0].requests is not None
    assert batches[0].requests.by_class["data"] == 7
    assert lake.read.parquet(path).count() == 14


def test_a_batch_that_exceeds_its_request_budget_lands_and_is_reported(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send(feed.avro(rows(0, 10)))
    summary, batches = again(lake, feed.pipeline(budget={"s3_requests_per_batch": 5}))
    assert (summary.batches_over_budget, batches[0].over_budget, summary.rows) == (1, True, 10)
    feed.send(feed.avro(rows(10, 20)))
    summary, batches = again(lake, feed.pipeline(budget={"s3_requests_per_batch": 12}))
    assert (summary.batches_over_budget, batches[0].over_budget) == (0, False)


def file_system(lake: SparkSession, path: str) -> tuple[Any, Any]:
    hadoop: Any = lake._jvm
    place = hadoop.org.apache.hadoop.fs.Path(path)
    return place.getFileSystem(lake.sparkContext._jsc.hadoopConfiguration()), place


def exception_of(call: Callable[[], object]) -> str:
    """Return the class name of the Java exception that a call raises."""
    with pytest.raises(Py4JJavaError) as raised:
        call()
    return str(raised.value.java_exception.getClass().getSimpleName())


def test_an_existing_file_is_not_overwritten(lake: SparkSession, stack: Endpoints) -> None:
    files, path = file_system(lake, f"s3a://{stack.bucket}/plain/{uuid.uuid4().hex}")
    files.create(path, False).close()
    assert exception_of(lambda: files.create(path, False)) == "FileAlreadyExistsException"


def test_a_data_file_costs_one_request_and_no_request_asks_for_its_size(lake: SparkSession, stack: Endpoints) -> None:
    files, path = file_system(lake, f"s3a://{stack.bucket}/once/part-00000-{uuid.uuid4()}-c000.parquet")
    before = s3_requests(lake)
    stream = files.create(path, False)
    stream.write(bytearray(b"x" * 1000))
    stream.close()
    assert files.getFileStatus(path).getLen() == 1000
    after = s3_requests(lake) - before
    assert after.as_dict()["calls"] == {"data": {"PutObject": 1}}
    assert after.bytes_out >= 1000
    # A deleted file, or one whose writer aborted, must not seem to exist only because its size is remembered.
    files.delete(path, False)
    assert exception_of(lambda: files.getFileStatus(path)) == "FileNotFoundException"
    stream = files.create(path, False)
    stream.write(bytearray(b"x" * 1000))
    stream.abort()
    stream.close()
    assert exception_of(lambda: files.getFileStatus(path)) == "FileNotFoundException"


def test_only_one_driver_claims_a_checkpoint(lake: SparkSession, stack: Endpoints) -> None:
    location = f"s3a://{stack.bucket}/claims/{uuid.uuid4().hex}"
    claim = Claim(lake, location, Owner(feed="a", sink="iceberg lake.a.t"))
    Claim(lake, location, Owner(feed="a", sink="iceberg lake.a.t"))
    with pytest.raises(CheckpointMismatch, match="belongs to feed 'a'"):
        Claim(lake, location, Owner(feed="b", sink="iceberg lake.b.t"))
    # Both drivers find no claim and try to create it; the store lets only one of them create it.
    assert claim._create("race.json", "first", overwrite=False)
    assert not claim._create("race.json", "second", overwrite=False)
