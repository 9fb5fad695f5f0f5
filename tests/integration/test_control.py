"""On real servers, operators pause, resume, change and stop a running feed; each record still lands once."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.errors import CheckpointMismatch, ConfigError, FeedPaused, RecordsLost
from lakefeed.ledger.pauses import LocalPauses
from lakefeed.pipeline import Pipeline
from lakefeed_repair.rewind import plan_rewind, rewind
from tests.support.background import Background
from tests.support.feed import JSON_ROWS, Feed, records, until


class Run(Background):
    """A feed that runs in a thread; the test reads its status and sends it requests as an operator does."""

    @property
    def state(self) -> str:
        return self.monitor.snapshot().state

    @property
    def records(self) -> int:
        return self.monitor.snapshot().totals.records

    def ask(self, action: str, **values: Any) -> None:
        self.monitor.control.request(action, by="ben", **values)

    def pause(self, reason: str = "") -> None:
        self.ask("pause", reason=reason)
        until(lambda: self.monitor.control.pause is not None)

    def events(self) -> tuple[Any, ...]:
        return self.monitor.events.after()


@contextmanager
def running(pipeline: Pipeline, spark: SparkSession, **options: Any) -> Iterator[Run]:
    run = Run(pipeline, spark, **options)
    try:
        yield run
    finally:
        run.stop.set()
        run.thread.join(120)
    run.end()


def test_pauses_between_many_small_batches_lose_and_repeat_no_record(lake: SparkSession, feed: Feed) -> None:
    """The pauses come before and after the query plans a batch, while it writes, and while it waits."""
    feed.create_topic(partitions=2)
    feed.send(records(1200))
    pipeline = feed.pipeline(source=feed.source(max_records_per_batch=10), decode=JSON_ROWS)
    with running(pipeline, lake) as run:
        until(lambda: run.records > 0)
        for number in range(8):
            time.sleep(0.37 * (number % 3))
            run.pause(f"number {number}")
            before = run.records
            run.ask("change", trigger="0 seconds", max_records_per_batch=10 + 7 * number)
            time.sleep(0.3)
            assert run.records == before
            run.ask("resume")
            until(partial(lambda before: run.records > before, before))
        until(lambda: run.records >= 1200)
    assert all(not batch.replayed for batch in run.monitor.batches())
    assert pipeline.verify(deep=True).faults == ()
    assert lake.table(feed.table).count() == 1200


def test_a_resume_is_refused_if_the_topic_was_recreated_during_the_pause(lake: SparkSession, feed: Feed) -> None:
    """The new topic has more records than the feed has read, so Spark would silently skip its first records."""
    feed.create_topic(partitions=1)
    feed.send(records(50))
    pipeline = feed.pipeline(source=feed.source(), decode=JSON_ROWS)
    run = Run(pipeline, lake)
    until(lambda: run.records == 50)
    run.pause()
    feed.recreate_topic()
    feed.send(records(80, first=1000))
    run.ask("resume")
    run.thread.join(120)
    assert isinstance(run.failure, RecordsLost)
    assert "recreated" in str(run.failure)
    assert lake.table(feed.table).count() == 50


def test_a_resume_is_refused_if_the_feeds_position_was_changed_during_the_pause(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send(records(50))
    pipeline = feed.pipeline(source=feed.source(), decode=JSON_ROWS)
    run = Run(pipeline, lake)
    until(lambda: run.records == 50)
    run.pause()
    rewind(pipeline, plan_rewind(pipeline, "earliest", delete_rows=True), spark=lake)
    run.ask("resume")
    run.thread.join(120)
    assert isinstance(run.failure, CheckpointMismatch)
    pipeline.run(spark=lake, once=True, resume=True)
    assert pipeline.verify(deep=True).faults == ()
    assert lake.table(feed.table).count() == 50


def test_a_run_with_once_can_be_paused_and_resumed(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send(records(200))
    pipeline = feed.pipeline(source=feed.source(max_records_per_batch=5), decode=JSON_ROWS)
    with running(pipeline, lake, once=True) as run:
        until(lambda: run.records > 0)
        run.pause()
        with pytest.raises(ConfigError, match="ends by itself"):
            run.ask("change", trigger="1 minute")
        run.ask("change", max_records_per_batch=500)
        run.ask("resume")
        run.thread.join(120)
    assert run.summary is not None
    assert run.summary.records == 200
    assert pipeline.verify(deep=True).faults == ()


def test_a_query_keeps_its_state_over_a_pause(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send(records(100))
    sql = f"SELECT id % 3 AS rest, count(*) AS n FROM {feed.name} GROUP BY id % 3"
    pipeline = feed.pipeline(
        source=feed.source(max_records_per_batch=10),
        decode=JSON_ROWS,
        transform={"sql": sql, "output_mode": "update"},
        sink={"iceberg": {"table": feed.table, "mode": "upsert", "keys": ["rest"]}},
    )
    with running(pipeline, lake) as run:
        until(lambda: run.records > 0)
        for _ in range(2):
            run.pause()
            run.ask("change", max_records_per_batch=30)
            run.ask("resume")
            time.sleep(1.5)
        until(lambda: run.records >= 100)
        until(lambda: run.state == "waiting")
    assert {row["rest"]: row["n"] for row in lake.table(feed.table).collect()} == {0: 34, 1: 33, 2: 33}


def test_a_pause_stops_all_tables_of_a_job_of_many_topics(lake: SparkSession, feed: Feed) -> None:
    topics = [f"{feed.topic}-{letter}" for letter in "ab"]
    for topic in topics:
        feed.create_topic(partitions=1, topic=topic)
        feed.send(records(10), topic=topic)
    pipeline = feed.pipeline(
        source=feed.source(topics=topics),
        decode=JSON_ROWS,
        sink={"iceberg": {"table": f"lake.{feed.name}.{{topic}}"}},
        checkpoint="",
    )
    with running(pipeline, lake) as run:
        until(lambda: run.records == 20)
        run.pause("repair")
        feed.send(records(10, first=10), topic=topics[0])
        time.sleep(1)
        assert (run.records, run.state) == (20, "paused")
        run.ask("change", max_records_per_batch=4, trigger="0 seconds")
        run.ask("resume")
        until(lambda: run.records == 30)
        assert [batch.records for batch in run.monitor.batches()][-3:] == [4, 4, 2]
        run.pause("and again")
    assert LocalPauses.of(pipeline.config).read() is not None
    with pytest.raises(FeedPaused, match="and again"):
        pipeline.run(spark=lake, once=True)
    pipeline.run(spark=lake, once=True, resume=True)
    assert LocalPauses.of(pipeline.config).read() is None


def test_upkeep_and_a_replay_run_while_the_feed_runs(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send([*records(20), b"no json"])
    letters = {"table": f"lake.{feed.name}.letters"}
    pipeline = feed.pipeline(source=feed.source(), decode=JSON_ROWS, dead_letters=letters)
    with running(pipeline, lake) as run:
        until(lambda: run.records == 21)
        for action in ("upkeep", "replay"):
            run.ask(action)
        until(lambda: sum("action" in event.details and event.kind == "note" for event in run.events()) == 2)
        feed.send(records(5, first=20))
        until(lambda: run.records == 26)
    messages = [event.message for event in run.events() if event.kind == "note"]
    assert any(message == "replay: 0 rows written, 1 records are still dead letters" for message in messages), messages
    assert any(message.startswith(f"upkeep: {feed.table}: ") for message in messages), messages
    assert pipeline.verify(deep=True).faults == ()
