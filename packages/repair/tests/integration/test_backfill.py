"""A backfill runs while the feed runs: each record lands once, even if the backfill is interrupted."""

import json
import threading
import time
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.errors import CheckpointMismatch, ConfigError, ErrorBudgetExceeded, ResourceMissing
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.pipeline import Pipeline
from lakefeed_repair.backfill import BackfillRequest, BackfillSummary, backfill
from tests.support.background import running
from tests.support.cli import Running, lakefeed
from tests.support.deaths import CutOff, cut_off_at
from tests.support.feed import Feed, ids, trips, until

DECODE: dict[str, Any] = {
    "avro": {"registry": "${SCHEMA_REGISTRY_URL}"},
    "metadata": ["topic", "partition", "offset"],
    "on_null": "skip",
}


def blocks(feed: Feed, *, size: int = 100_000, **more: Any) -> dict[str, Any]:
    return {"source": feed.source(start="latest", max_records_per_batch=size), "decode": DECODE, **more}


def assert_proven(pipeline: Pipeline) -> None:
    assert pipeline.verify(deep=True).faults == ()


def begun_at_latest(lake: SparkSession, feed: Feed, **more: Any) -> Pipeline:
    """Return a feed that began at the end of a topic with 60 records, and has landed 10 newer records."""
    feed.create_topic(partitions=2)
    feed.send(feed.avro(trips(0, 30)), partition=0)
    feed.send(feed.avro(trips(30, 60)), partition=1)
    pipeline = feed.pipeline(**blocks(feed, **more))
    pipeline.run(spark=lake, once=True)
    feed.send(feed.avro(trips(60, 70)))
    pipeline.run(spark=lake, once=True)
    assert ids(feed) == list(range(60, 70))
    return pipeline


def test_a_backfill_while_the_feed_runs_lands_each_record_once(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=3)
    feed.send(feed.avro(trips(0, 1000)))
    pipeline = feed.pipeline(**blocks(feed, size=300))
    sent = 1000
    with running(pipeline, lake) as run:
        until(lambda: run.batches)
        # The feed has begun, so it reads all records that the test sends from now on.
        producing = threading.Event()

        def produce() -> None:
            nonlocal sent
            while not producing.is_set():
                feed.send(feed.avro(trips(sent, sent + 20)))
                sent += 20
                time.sleep(0.5)

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            until(lambda: len(feed.rows()) > 0)
            done = backfill(pipeline, spark=lake)
        finally:
            producing.set()
            thread.join(60)
        until(lambda: len(feed.rows()) >= sent)
        assert (done.records, done.rows, done.planned.offsets, done.commits) == (1000, 1000, 1000, 4)
        assert backfill(pipeline, spark=lake).commits == 0
    assert ids(feed) == list(range(sent))
    assert_proven(pipeline)
    commits = [each.batch_id for each in IcebergLedger(lake, feed.table, feed.name).commits()]
    assert commits == sorted(commits, reverse=True)
    feed.send(feed.avro(trips(sent, sent + 5)))
    assert pipeline.run(spark=lake, once=True).rows == 5


def test_an_interrupted_backfill_resumes_without_lost_or_repeated_dead_letters(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send([*feed.avro(trips(0, 20)), b"\x01one", None, *feed.avro(trips(20, 40)), b"\x01two"])
    letters = f"lake.{feed.name}.dead_letters"
    pipeline = feed.pipeline(**blocks(feed, size=15, dead_letters={"table": letters}))
    pipeline.run(spark=lake, once=True)
    feed.send(feed.avro(trips(40, 45)))
    pipeline.run(spark=lake, once=True)

    # Stop after the backfill's second commit, offsets 15 to 30, before its dead letter is written.
    with pytest.raises(CutOff):
        backfill(pipeline, spark=lake, step=cut_off_at("", times=2))
    assert feed.rows(letters) == []
    assert {each.kind for each in pipeline.verify().notes} == {"letters-pending"}
    done = backfill(pipeline, spark=lake)
    assert (done.settled, done.commits, done.records, done.dead_letters, done.skipped) == (1, 1, 13, 1, 0)
    assert sorted(row["value"] for row in feed.rows(letters)) == [b"\x01one", b"\x01two"]
    assert {row["batch_id"] < 0 for row in feed.rows(letters)} == {True}
    again = backfill(pipeline, spark=lake)
    assert (again.settled, again.commits, len(feed.rows(letters))) == (0, 0, 2)
    assert ids(feed) == list(range(45))
    assert_proven(pipeline)
    feed.send([b"\x01three"])
    pipeline.run(spark=lake, once=True)
    assert len(feed.rows(letters)) == 3
    assert_proven(pipeline)


@pytest.mark.quick
def test_the_later_of_two_backfills_lands_the_remaining_records(lake: SparkSession, feed: Feed) -> None:
    pipeline = begun_at_latest(lake, feed, size=20)
    second: list[BackfillSummary] = []

    def overtaken(step: str) -> None:
        if not second:
            second.append(backfill(pipeline, spark=lake))

    with pytest.raises(CheckpointMismatch, match="another driver has taken over"):
        backfill(pipeline, spark=lake, step=overtaken)
    assert (second[0].commits, second[0].records) == (2, 40)
    assert ids(feed) == list(range(70))
    assert_proven(pipeline)


def test_a_backfill_lands_the_requested_ranges_and_refuses_ranges_that_the_feed_reads(
    lake: SparkSession, feed: Feed
) -> None:
    pipeline = begun_at_latest(lake, feed)
    result = backfill(pipeline, BackfillRequest(start=25), spark=lake, dry_run=True)
    assert [(each.partition, each.start, each.end) for each in result.planned.ranges] == [(0, 25, 30), (1, 25, 30)]
    assert len(feed.rows()) == 10
    some = (OffsetRange(feed.topic, 0, 5, 10), OffsetRange(feed.topic, 0, 20, 22))
    done = backfill(pipeline, BackfillRequest(ranges=some), spark=lake)
    assert (done.commits, done.records) == (2, 7)
    assert ids(feed) == [*range(5, 10), 20, 21, *range(60, 70)]
    with pytest.raises(ConfigError, match="reads the later records itself"):
        backfill(pipeline, BackfillRequest(ranges=(OffsetRange(feed.topic, 0, 0, 10_000),)), spark=lake)
    assert backfill(pipeline, BackfillRequest(start=25), spark=lake).records == 10
    assert_proven(pipeline)
    assert backfill(pipeline, spark=lake).records == 60 - 17
    assert ids(feed) == list(range(70))
    assert_proven(pipeline)


def test_a_backfill_is_refused_if_the_covered_ranges_are_unknown(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send(feed.avro(trips(0, 10)))
    with pytest.raises(ResourceMissing, match="there is no table"):
        backfill(feed.pipeline(**blocks(feed)), spark=lake)
    parquet = {"parquet": {"path": f"s3a://{feed.stack.bucket}/parquet/{feed.name}"}}
    with pytest.raises(ConfigError, match="a feed into files cannot be backfilled"):
        backfill(feed.pipeline(**blocks(feed, sink=parquet)), spark=lake)


@pytest.mark.slow
def test_a_backfill_beyond_its_error_budget_lands_no_rows(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send([*feed.avro(trips(0, 10)), b"\x01", b"\x02", b"\x03"])
    dead = {"table": f"lake.{feed.name}.dead_letters", "budget": {"max_rows": 1}}
    pipeline = feed.pipeline(**blocks(feed, size=10, dead_letters=dead))
    pipeline.run(spark=lake, once=True)
    feed.send(feed.avro(trips(40, 45)))
    pipeline.run(spark=lake, once=True)
    with pytest.raises(ErrorBudgetExceeded):
        backfill(pipeline, spark=lake)
    assert ids(feed) == [*range(10), *range(40, 45)]
    assert_proven(pipeline)


@pytest.mark.slow
def test_a_backfill_adds_the_column_of_a_field_that_newer_schemas_lack(lake: SparkSession, feed: Feed) -> None:
    old = {
        "type": "record",
        "name": "Trip",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "zone", "type": "string"},
            {"name": "tip", "type": ["null", "double"], "default": None},
        ],
    }
    feed.create_topic(partitions=1)
    feed.send(feed.avro([{**each, "tip": 1.5} for each in trips(0, 10)], old))
    pipeline = feed.pipeline(**blocks(feed))
    feed.avro([])  # Register the newer schema, which lacks the field tip.
    with running(pipeline, lake) as run:
        until(lambda: run.batches)
        feed.send(feed.avro(trips(10, 20)))
        until(lambda: len(feed.rows()) == 10)
        assert backfill(pipeline, spark=lake).rows == 10
        feed.send(feed.avro(trips(20, 30)))
        until(lambda: len(feed.rows()) == 30)
    assert {row["tip"] for row in feed.rows() if row["id"] < 10} == {1.5}
    assert {row["tip"] for row in feed.rows() if row["id"] >= 10} == {None}
    assert_proven(pipeline)


@pytest.mark.slow
def test_a_killed_backfill_command_resumes(lake: SparkSession, feed: Feed) -> None:
    begun_at_latest(lake, feed, size=5)
    file = feed.write_file(**blocks(feed, size=5))
    result = lakefeed("backfill", file, "--dry-run", "--output", "json", environment=feed.environment)
    document = json.loads(result.stdout)
    assert (document["dry_run"], document["planned"]["offsets"], document["commits"]) == (True, 60, 12)
    assert document["planned"]["ranges"] == [f"{feed.topic}:0:0:30", f"{feed.topic}:1:0:30"]
    first = Running(["backfill", file], feed.environment, feed.folder / "first.log")
    first.wait_until_it_says("commit 3 of 12")
    first.kill()
    lakefeed("backfill", file, environment=feed.environment)
    assert ids(feed) == list(range(70))
    shown = lakefeed("verify", file, "--deep", environment=feed.environment)
    assert "of backfills" in shown.stdout
    nothing = lakefeed("backfill", file, environment=feed.environment)
    assert "the table lacks no record that the topics still have" in nothing.stdout
