"""A feed takes over the table of Iceberg's Kafka Connect sink, which may have been killed, and returns it."""

import json
import random
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.groups import group_offsets
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ConfigError, ResourceMissing, Unreachable
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.pipeline import Pipeline
from lakefeed_adopt.export import ExportTarget, execute_export, plan_export
from lakefeed_adopt.iceberg_connect import sink_groups
from lakefeed_adopt.plan import AdoptionPlan
from lakefeed_repair.backfill import BackfillRequest, backfill
from packages.adopt.tests.adoption import DECODE, assert_each_once, plan, send, take_over
from tests.support.cli import lakefeed
from tests.support.feed import Feed, ids, until
from tests.support.servers.kafka_connect import IcebergSink

COLUMNS = "topic,part,at"
LOST = re.compile(r"(\S+)-(\d+): the sink has lost the records from (its first record|\d+) to (\d+)")
SETTLES = ("has members", "stopped within a transaction", "an open transaction has locked")


def new_sink(lake: SparkSession, feed: Feed, *, keeps_offsets: bool = False, **options: Any) -> IcebergSink:
    """Create the topic, the control topic and the table; return a sink from the topic into the table."""
    feed.create_topic(partitions=3)
    Topics(feed.stack.bootstrap_servers).create(f"{feed.name}.control", partitions=2)
    columns = "id BIGINT, topic STRING, part INT, at BIGINT" if keeps_offsets else "id BIGINT"
    lake.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{feed.name}")
    lake.sql(f"CREATE TABLE {feed.table} ({columns}) USING iceberg")
    return IcebergSink(
        feed.stack, feed.name, feed.topic, feed.table, f"{feed.name}.control", keeps_offsets=keeps_offsets, **options
    )


@contextmanager
def sending(feed: Feed) -> Iterator[list[int]]:
    """Send some hundred records a second until the block ends; yield a list with one item, the number sent."""
    sent, stop = [0], threading.Event()

    def run() -> None:
        while not stop.is_set():
            send(feed, range(sent[0], sent[0] + 40))
            sent[0] += 40
            stop.wait(0.1)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield sent
    finally:
        stop.set()
        thread.join(60)


@contextmanager
def commits_held(sink: IcebergSink) -> Iterator[None]:
    """Block commits to all tables of the catalog until the block ends; reads still work."""
    connection = sqlite3.connect(sink.stack.catalog_file, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.close()


def wait_for_announcements(sink: IcebergSink, count: int) -> None:
    """Wait for `count` events ``DataComplete`` in the control topic, even in open transactions."""
    settings = {
        "bootstrap.servers": sink.stack.bootstrap_servers,
        "group.id": f"{sink.name}-watch",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_uncommitted",
        "fetch.wait.max.ms": 10,
    }
    consumer, end = Consumer(settings), time.monotonic() + 120
    consumer.subscribe([sink.control_topic])
    try:
        while count:
            assert time.monotonic() < end
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                count -= b"DataComplete" in (message.value() or b"")
    finally:
        consumer.close()


def wait_for_commit(feed: Feed) -> None:
    until(lambda: sink_groups(open_table(feed.table, connections=feed.connections).metadata.snapshots))


def wait_for_rows(feed: Feed, count: int) -> None:
    until(lambda: len(feed.rows()) >= count)


def wait_for_group(sink: IcebergSink, records: int) -> None:
    """Wait until the sink's group has committed this number of records."""
    source = KafkaSource(bootstrap_servers=sink.stack.bootstrap_servers, topics=[sink.topic])
    until(lambda: sum(group_offsets(source, sink.group).values()) >= records)


def when_settled(pipeline: Pipeline, origin: str, **options: Any) -> AdoptionPlan:
    """Wait until the broker has removed the killed tasks from the group; return the plan."""
    end = time.monotonic() + 90
    while True:
        try:
            return plan(pipeline, origin, **options)
        except (ConfigError, Unreachable) as error:
            if not any(text in str(error) for text in SETTLES) or time.monotonic() > end:
                raise
            time.sleep(1)


def kill_at_random(sink: IcebergSink, feed: Feed, dice: random.Random) -> int:
    """Kill the sink at a random moment after its first commit; return the number of records sent."""
    with sending(feed) as sent, sink.running() as worker:
        wait_for_commit(feed)
        for _ in range(dice.randint(0, 1)):
            worker.kill()
            worker.start_again()
        wait_for_announcements(sink, dice.randint(4, 12))
        time.sleep(dice.choice((0.0, dice.uniform(0, 0.3), dice.uniform(0, 1.2))))
        worker.kill()
    return sent[0]


def lost_by_sink(agreed: AdoptionPlan) -> tuple[OffsetRange, ...]:
    """Return the ranges of records that the sink lost, from the plan's notes."""
    found = [match for note in agreed.notes if (match := LOST.match(note))]
    return tuple(
        OffsetRange(topic, int(partition), 0 if begin == "its first record" else int(begin), int(end))
        for topic, partition, begin, end in (match.groups() for match in found)
    )


def take_over_from_sink(lake: SparkSession, feed: Feed, seed: int) -> None:
    dice = random.Random(seed)
    sink = new_sink(lake, feed, keeps_offsets=bool(seed % 2), tasks=dice.randint(1, 3))
    sent = kill_at_random(sink, feed, dice)
    options = {"offset_columns": COLUMNS} if sink.keeps_offsets else {}
    pipeline = feed.pipeline(decode=DECODE)
    when_settled(pipeline, "iceberg-connect", **options)
    landed = len(feed.rows())
    agreed = take_over(pipeline, lake, "iceberg-connect", **options)
    assert plan(pipeline, "iceberg-connect", **options).is_done
    summary = pipeline.run(spark=lake, once=True)
    lost = lost_by_sink(agreed)
    print(f"seed {seed}: {landed} of {sent} records by the sink, {summary.rows} by the feed, {lost}; {agreed.notes}")
    # The sink may have lost records. The plan names their ranges, and a backfill of the ranges lands them.
    if lost:
        assert backfill(pipeline, BackfillRequest(ranges=lost), spark=lake).rows == sum(each.records for each in lost)
    assert_each_once(feed, pipeline, sent)


@pytest.mark.slow
def test_a_feed_takes_over_from_a_killed_sink(lake: SparkSession, feed: Feed) -> None:
    take_over_from_sink(lake, feed, seed=1)


@pytest.mark.slow
def test_records_of_announced_but_uncommitted_files_are_read_again(lake: SparkSession, feed: Feed) -> None:
    sink, pipeline = new_sink(lake, feed, commit_ms=500), feed.pipeline(decode=DECODE)
    send(feed, range(200))
    with sink.running() as worker:
        wait_for_rows(feed, 200)
        with commits_held(sink):
            send(feed, range(200, 300))
            wait_for_group(sink, 300)
            worker.kill()
    when_settled(pipeline, "iceberg-connect")
    send(feed, range(300, 350))
    agreed = take_over(pipeline, lake, "iceberg-connect")
    assert sum(part.offset for part in agreed.partitions) == len(feed.rows()) == 200
    assert any("with 100 rows that it never committed" in note for note in agreed.notes)
    assert pipeline.run(spark=lake, once=True).rows == 150
    assert_each_once(feed, pipeline, 350)


@pytest.mark.slow
def test_the_plan_names_records_that_the_sink_has_lost(lake: SparkSession, feed: Feed) -> None:
    sink, pipeline = new_sink(lake, feed, commit_ms=500), feed.pipeline(decode=DECODE)
    send(feed, range(100), partition=0)
    with sink.running() as worker:
        with commits_held(sink):
            wait_for_group(sink, 100)
            worker.kill()
        with pytest.raises(ResourceMissing, match="no snapshot of the table was committed by Iceberg's sink"):
            plan(pipeline, "iceberg-connect")
        worker.start_again()
        send(feed, range(100, 150), partition=0)
        wait_for_group(sink, 150)
        wait_for_commit(feed)
        worker.kill()
    when_settled(pipeline, "iceberg-connect")
    assert ids(feed) == list(range(100, 150))
    agreed = take_over(pipeline, lake, "iceberg-connect")
    assert [part.offset for part in agreed.partitions] == [150, 0, 0]
    assert any("the sink has lost the records from its first record to 100" in note for note in agreed.notes)
    send(feed, range(150, 170))
    assert pipeline.run(spark=lake, once=True).rows == 20
    # A backfill without a range lands nothing, because it would repeat records that the sink has landed.
    assert backfill(pipeline, spark=lake).rows == 0
    assert lost_by_sink(agreed) == (OffsetRange(feed.topic, 0, 0, 100),)
    missing = BackfillRequest(ranges=lost_by_sink(agreed))
    assert backfill(pipeline, missing, spark=lake).rows == 100
    assert_each_once(feed, pipeline, 170)


@pytest.mark.slow
def test_a_feed_takes_over_a_table_from_a_sink_and_returns_it(lake: SparkSession, feed: Feed) -> None:
    sink, pipeline = new_sink(lake, feed, commit_ms=500), feed.pipeline(decode=DECODE)
    send(feed, range(100))
    with sink.running():
        wait_for_rows(feed, 100)
        with pytest.raises(ConfigError, match=f"the consumer group {sink.group} has members"):
            plan(pipeline, "iceberg-connect")
        with pytest.raises(ConfigError, match="may be ahead of the table"):
            plan(pipeline, f"group:{sink.group}")
    send(feed, range(100, 160))
    file = feed.folder / f"{feed.name}.yaml"
    command: list[str | Path] = ["adopt", file, "--from", f"iceberg-connect:{sink.name}", "--stopped", "--dry-run"]
    planned = lakefeed(*command, "--output", "json", environment=feed.environment)
    assert planned.returncode == 0, planned.stderr
    assert sum(part["offset"] for part in json.loads(planned.stdout)["partitions"]) == 100
    take_over(pipeline, lake, f"iceberg-connect:{sink.group}")
    assert pipeline.run(spark=lake, once=True).rows == 60
    assert_each_once(feed, pipeline, 160)
    with pytest.raises(ResourceMissing, match=r"the table has commits of .*\.control\.connect-"):
        plan(feed.pipeline(name=f"{feed.name}b", decode=DECODE, checkpoint=""), "iceberg-connect:other")
    # After an export, the sink continues in the same table.
    target = ExportTarget.parse(f"group:{sink.group}")
    execute_export(pipeline.feed, plan_export(pipeline.feed, target, is_stopped=True))
    send(feed, range(160, 220))
    with sink.running():
        wait_for_rows(feed, 220)
    assert ids(feed) == list(range(220))
