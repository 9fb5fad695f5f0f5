"""Pipelines end to end: Confluent's serialisers write records, lakefeed lands them, pyiceberg reads the rows."""

import io
import itertools
import json
import threading
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from lakefeed.errors import ConfigError, DecodeError
from lakefeed.feed.progress import FinishedBatch
from lakefeed.ledger.continuity import violations
from lakefeed.ledger.iceberg import IcebergLedger
from tests.support.cli import Running
from tests.support.feed import TRIP, Feed, trips

REGISTRY = {"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}}


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.quick
def test_confluent_avro_lands_row_by_row_with_its_metadata(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic()
    feed.send(feed.avro(trips(0, 500)), headers=[("source", b"test")])
    pipeline = feed.pipeline(
        decode={**REGISTRY, "metadata": ["topic", "partition", "offset", "timestamp", "key", "headers"]}
    )
    summary = pipeline.run(spark=lake, once=True)
    rows = by_id(feed.rows())
    assert [{"id": row["id"], "zone": row["zone"]} for row in rows] == trips(0, 500)
    assert {row["kafka_topic"] for row in rows} == {feed.topic}
    assert {row["kafka_partition"] for row in rows} == {0, 1, 2}
    assert len({(row["kafka_partition"], row["kafka_offset"]) for row in rows}) == 500
    assert [row["kafka_key"] for row in rows] == [str(number).encode() for number in range(500)]
    assert rows[0]["kafka_headers"] == [{"key": "source", "value": b"test"}]
    assert (summary.records, summary.rows, summary.batches) == (500, 500, 1)
    assert sum(summary.s3_requests.values()) > 0


@pytest.mark.quick
def test_each_record_is_read_with_the_schema_of_its_id(lake: SparkSession, feed: Feed) -> None:
    newer = {**TRIP, "fields": [{"name": "fare", "type": "double", "default": 0.0}, *TRIP["fields"]]}
    feed.create_topic()
    old, new = feed.avro(trips(0, 100)), feed.avro([{**row, "fare": 1.5} for row in trips(100, 200)], newer)
    assert old[0][:5] != new[0][:5]
    feed.send([value for pair in zip(old, new, strict=True) for value in pair])
    feed.pipeline().run(spark=lake, once=True)
    expected = [{"fare": 0.0, **row} for row in trips(0, 100)] + [{"fare": 1.5, **row} for row in trips(100, 200)]
    assert by_id(feed.rows()) == expected


@pytest.mark.quick
def test_avro_without_a_header_lands_with_a_given_schema(lake: SparkSession, feed: Feed) -> None:
    schema = fastavro.parse_schema(TRIP)
    (feed.folder / "trip.avsc").write_text(json.dumps(TRIP))
    values = []
    for row in trips(0, 50):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, schema, row)
        values.append(buffer.getvalue())
    feed.create_topic()
    feed.send(values)
    feed.pipeline(decode={"avro": {"schema_file": "trip.avsc"}}).run(spark=lake, once=True)
    assert by_id(feed.rows()) == trips(0, 50)


@pytest.mark.quick
def test_json_and_raw_values_land(lake: SparkSession, feed: Feed, tmp_path: Any) -> None:
    other = Feed(feed.stack, tmp_path)
    values = [json.dumps(row).encode() for row in trips(0, 50)]
    for each in (feed, other):
        each.create_topic()
        each.send(values)
    feed.pipeline(decode={"json": {"schema_ddl": "id BIGINT, zone STRING"}}).run(spark=lake, once=True)
    assert by_id(feed.rows()) == trips(0, 50)
    other.pipeline(decode="raw").run(spark=lake, once=True)
    assert sorted(row["value"] for row in other.rows()) == sorted(values)


@pytest.mark.quick
def test_a_topic_pattern_reads_all_matching_topics(lake: SparkSession, feed: Feed) -> None:
    for number in (1, 2):
        topic = f"{feed.name}-part{number}"
        feed.create_topic(topic=topic, partitions=1)
        feed.send([json.dumps(row).encode() for row in trips(number * 10, number * 10 + 5)], topic=topic)
    feed.pipeline(
        source=feed.source(topics=None, topics_pattern=f"{feed.name}-part.*"),
        decode={"json": {"schema_ddl": "id BIGINT, zone STRING"}, "metadata": ["topic"]},
    ).run(spark=lake, once=True)
    assert sorted((row["kafka_topic"][-5:], row["id"]) for row in feed.rows()) == [
        *(("part1", number) for number in range(10, 15)),
        *(("part2", number) for number in range(20, 25)),
    ]


@pytest.mark.quick
def test_the_ledgers_ranges_have_no_gap_after_a_restart(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic()
    pipeline = feed.pipeline(source=feed.source(max_records_per_batch=100))
    batches: list[FinishedBatch] = []
    for start in (0, 250, 500):
        feed.send(feed.avro(trips(start, start + 250)))
        pipeline.run(spark=lake, once=True, on_batch=batches.append)
    assert by_id(feed.rows()) == trips(0, 750)
    commits = list(IcebergLedger(lake, feed.table, feed.name).commits())[::-1]
    assert not any(violations(earlier.ranges, later) for earlier, later in itertools.pairwise(commits))
    assert sum(commit.ranges.records for commit in commits) == sum(commit.rows for commit in commits) == 750
    assert all(commit.ranges.topic_ids[feed.topic] for commit in commits)
    assert len(batches) == len(commits) >= 9
    assert max(batch.records for batch in batches) <= 100
    assert batches[-1].lag == 0


def test_the_error_names_a_missing_partition_column(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic()
    feed.send(feed.avro(trips(0, 1)))
    with pytest.raises(ConfigError, match="'nowhere'"):
        feed.pipeline(sink={"iceberg": {"table": feed.table, "partition_by": ["nowhere"]}}).run(spark=lake, once=True)


@pytest.mark.quick
def test_the_error_of_a_broken_record_names_its_offset_and_nothing_is_written(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send([*feed.avro(trips(0, 5)), b"{not avro}", *feed.avro(trips(5, 9))])
    with pytest.raises(DecodeError) as caught:
        feed.pipeline().run(spark=lake, once=True)
    assert caught.value.where == f"topic {feed.topic}, partition 0, offset 5"
    assert feed.rows() == []


def test_tombstones_stop_the_feed_or_are_skipped_as_configured(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send([*feed.avro(trips(0, 5)), None, *feed.avro(trips(5, 9))])
    with pytest.raises(DecodeError, match="tombstone"):
        feed.pipeline().run(spark=lake, once=True)
    summary = feed.pipeline(decode={**REGISTRY, "on_null": "skip"}).run(spark=lake, once=True)
    assert (summary.records, summary.rows) == (10, 9)
    assert by_id(feed.rows()) == trips(0, 9)


@pytest.mark.quick
def test_a_parquet_sink_resumes_after_a_restart(lake: SparkSession, feed: Feed) -> None:
    path = f"s3a://{feed.stack.bucket}/files/{feed.name}"
    feed.create_topic()
    pipeline = feed.pipeline(sink={"parquet": {"path": path, "partition_by": ["zone"]}})
    for start in (0, 100):
        feed.send(feed.avro(trips(start, start + 100)))
        summary = pipeline.run(spark=lake, once=True)
        assert (summary.batches, summary.records) == (1, 100)
    read = [row.asDict() for row in lake.read.parquet(path).select("id", "zone").collect()]
    assert by_id(read) == trips(0, 200)


@pytest.mark.parametrize("kind", ["iceberg", pytest.param("parquet", marks=pytest.mark.slow)])
def test_a_run_that_is_stopped_finishes_its_batch(lake: SparkSession, feed: Feed, kind: str) -> None:
    path = f"s3a://{feed.stack.bucket}/files/{feed.name}"
    sink = {"iceberg": {"table": feed.table}} if kind == "iceberg" else {"parquet": {"path": path}}
    feed.create_topic()
    feed.send(feed.avro(trips(0, 1000)))
    pipeline = feed.pipeline(source=feed.source(max_records_per_batch=100), sink=sink, trigger="1 second")
    stop = threading.Event()
    batches: list[FinishedBatch] = []

    def on_batch(progress: FinishedBatch) -> None:
        batches.append(progress)
        if len(batches) == 2:
            stop.set()

    pipeline.run(spark=lake, stop=stop, on_batch=on_batch)
    assert 2 <= len(batches) < 10
    pipeline.run(spark=lake, once=True)
    found = feed.rows() if kind == "iceberg" else [row.asDict() for row in lake.read.parquet(path).collect()]
    assert by_id(found) == trips(0, 1000)


@pytest.mark.quick
def test_a_killed_run_resumes_and_lands_each_record_once(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic()
    feed.send(feed.avro(trips(0, 1000)))
    file = feed.write_file(source=feed.source(max_records_per_batch=100))
    run = Running(["run", file, "--once"], feed.environment, feed.folder / "run.log")
    run.wait_until_it_says(": batch ", times=2)
    run.kill()
    assert 0 < len(feed.rows()) < 1000
    feed.pipeline(source=feed.source()).run(spark=lake, once=True)
    assert by_id(feed.rows()) == trips(0, 1000)
