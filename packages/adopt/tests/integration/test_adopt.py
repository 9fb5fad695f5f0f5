"""A feed takes over a table from a tool that was stopped or killed; every record lands once."""

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from pyspark.sql import SparkSession

from lakefeed.clients.spark.errors import translating
from lakefeed.errors import CheckpointMismatch, ConfigError, RecordsLost, ResourceMissing
from lakefeed.pipeline import Pipeline
from lakefeed_adopt.export import ExportTarget, execute_export, plan_export
from lakefeed_adopt.plan import execute_adoption
from lakefeed_repair.backfill import backfill
from lakefeed_repair.rewind import plan_rewind
from packages.adopt.tests.adoption import DECODE, assert_each_once, plan, send, take_over
from tests.support.cli import lakefeed
from tests.support.feed import Feed, ids
from tests.support.plain_consumer import COLUMNS as CONSUMER_COLUMNS
from tests.support.plain_consumer import PlainConsumer
from tests.support.plain_job import PlainJob, Writer

COLUMNS = "topic,partition,offset"


def stopped_job(feed: Feed, writer: Writer, *, seed: int, records: int = 3000) -> PlainJob:
    """Return a Spark job that was killed at a random moment, after it had written a part of the topic."""
    dice = random.Random(seed)
    job = PlainJob(feed.topic, feed.table, str(feed.folder / "plain-checkpoint"), writer, records=60)
    feed.create_topic(partitions=3)
    send(feed, range(records))
    log = feed.folder / "plain.log"
    with job.running(feed.environment, log) as process:
        job.kill_at(process, dice.randint(2, 12), then=dice.uniform(0, 0.6), log=log)
    return job


def take_over_from_spark(lake: SparkSession, feed: Feed, writer: Writer, seed: int) -> None:
    job = stopped_job(feed, writer, seed=seed)
    send(feed, range(3000, 3300))
    pipeline = feed.pipeline(decode=DECODE)
    columns = COLUMNS if writer == "batches" else None
    agreed = take_over(pipeline, lake, f"spark-checkpoint:{job.checkpoint}", offset_columns=columns)
    assert sum(part.offset for part in agreed.partitions) == len(feed.rows())
    assert plan(pipeline, f"spark-checkpoint:{job.checkpoint}", offset_columns=columns).is_done
    summary = pipeline.run(spark=lake, once=True)
    landed = sum(part.offset for part in agreed.partitions)
    print(f"seed {seed}: {landed} of 3300 records by the job ({writer}), {summary.rows} by the feed; {agreed.notes}")
    assert summary.rows == sum(part.unread for part in agreed.partitions)
    assert_each_once(feed, pipeline, 3300)


@pytest.mark.parametrize("writer", ["stream", "batches"])
def test_a_feed_takes_over_from_a_killed_spark_job(lake: SparkSession, feed: Feed, writer: Writer) -> None:
    take_over_from_spark(lake, feed, writer, seed=1)


class InProcess:
    """A Kafka consumer without lakefeed that writes the feed's topic into the feed's table in steps."""

    def __init__(self, feed: Feed, lake: SparkSession) -> None:
        self.feed, self.group = feed, f"{feed.name}-etl"
        self.plain = PlainConsumer(feed.topic, feed.table, self.group, feed.stack.bootstrap_servers)
        self.open, self.commit = self.plain.open, self.plain.commit
        lake.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{feed.name}")
        lake.sql(f"CREATE TABLE IF NOT EXISTS {feed.table} ({CONSUMER_COLUMNS}) USING iceberg")

    def write(self, consumer: Consumer, *, records: int) -> dict[int, int]:
        return self.plain.write(consumer, self.feed.connections, records=records)

    def stop_after(self, *, records: int, commit: int) -> None:
        """Write records, then commit the written offsets plus `commit`, and stop."""
        consumer = self.open()
        offsets = self.write(consumer, records=records)
        self.commit(consumer, {number: at + commit for number, at in offsets.items()})
        consumer.close()


def take_over_from_group(lake: SparkSession, feed: Feed, *, between: bool) -> None:
    dice = random.Random(between)
    feed.create_topic(partitions=2)
    send(feed, range(500))
    reader = InProcess(feed, lake)
    consumer = reader.open()
    for _ in range(dice.randint(1, 3)):
        reader.commit(consumer, reader.write(consumer, records=dice.randint(1, 100)))
    if between:
        reader.write(consumer, records=dice.randint(1, 100))
    pipeline, origin = feed.pipeline(decode=DECODE), f"group:{reader.group}"
    with pytest.raises(ConfigError, match="has members"):
        plan(pipeline, origin)
    consumer.close()
    options: dict[str, Any] = {"offset_columns": "part,at"}
    if between:
        with pytest.raises(CheckpointMismatch, match="rows are at or beyond"):
            plan(pipeline, origin, **options)
        options["by_rows"] = True
    agreed = take_over(pipeline, lake, origin, **options)
    assert sum(part.offset for part in agreed.partitions) == len(feed.rows())
    send(feed, range(500, 600))
    pipeline.run(spark=lake, once=True)
    assert_each_once(feed, pipeline, 600)


@pytest.mark.parametrize("between", [False, True])
def test_a_feed_takes_over_from_a_stopped_consumer_group(lake: SparkSession, feed: Feed, between: bool) -> None:
    take_over_from_group(lake, feed, between=between)


def landed_feed(lake: SparkSession, feed: Feed) -> Pipeline:
    """Return a feed of two partitions that landed 100 records and stopped."""
    feed.create_topic(partitions=2)
    send(feed, range(60), partition=0)
    send(feed, range(60, 100), partition=1)
    pipeline = feed.pipeline(decode=DECODE)
    assert pipeline.run(spark=lake, once=True).rows == 100
    return pipeline


def test_a_consumer_group_continues_after_an_exported_feed(lake: SparkSession, feed: Feed) -> None:
    pipeline = landed_feed(lake, feed)
    target = ExportTarget.parse(f"group:{feed.name}-next")
    with pytest.raises(ConfigError, match="may still run"):
        plan_export(pipeline.feed, target)
    agreed = plan_export(pipeline.feed, target, is_stopped=True)
    assert (dict(agreed.offsets), agreed.before) == ({(feed.topic, 0): 60, (feed.topic, 1): 40}, {})
    execute_export(pipeline.feed, agreed)
    assert plan_export(pipeline.feed, target, is_stopped=True).before == agreed.offsets
    send(feed, range(100, 110))
    settings = {"bootstrap.servers": feed.stack.bootstrap_servers, "group.id": f"{feed.name}-next"}
    consumer = Consumer({**settings, "auto.offset.reset": "error"})
    consumer.subscribe([feed.topic])
    found: list[int] = []
    until = time.monotonic() + 60
    while len(found) < 10 and time.monotonic() < until:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None
            found.append(json.loads(message.value() or b"")["id"])
    with pytest.raises(ConfigError, match="has members"):
        plan_export(pipeline.feed, target, is_stopped=True)
    consumer.close()
    assert sorted(found) == list(range(100, 110))


def test_a_spark_job_continues_after_an_exported_feed(lake: SparkSession, feed: Feed) -> None:
    landed_feed(lake, feed)
    send(feed, range(100, 150))
    place = f"s3a://{feed.stack.bucket}/plain/{feed.name}"
    file = feed.folder / f"{feed.name}.yaml"
    command: list[str | Path] = ["offsets", "export", file, "--to", f"spark-checkpoint:{place}", "--stopped"]
    for _ in range(2):
        done = lakefeed(*command, "--yes", "--output", "json", environment=feed.environment)
        assert done.returncode == 0, done.stderr
        assert [part["offset"] for part in json.loads(done.stdout)["partitions"]] == [60, 40]
    # The job writes to another table, with the columns that the job needs.
    job = PlainJob(feed.topic, f"lake.{feed.name}.next", place, "stream", once=True)
    log = feed.folder / "plain.log"
    with job.running(feed.environment, log) as process:
        assert process.wait(300) == 0, log.read_text()[-4000:]
    found = sorted(row["id"] for row in feed.rows(job.table))
    assert sorted([*ids(feed), *found]) == list(range(150))
    # The export does not overwrite the job's checkpoint.
    again = lakefeed(*command, "--yes", environment=feed.environment, status=2)
    assert again.returncode == 2
    assert "another checkpoint" in again.stderr
    # Another feed takes over the table of the job.
    back = feed.pipeline(name=f"{feed.name}b", decode=DECODE, sink={"iceberg": {"table": job.table}}, checkpoint="")
    send(feed, range(150, 170))
    take_over(back, lake, f"spark-checkpoint:{place}")
    assert back.run(spark=lake, once=True).rows == 20


def test_the_command_adopt_asks_for_a_confirmation_and_commits_once(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    send(feed, range(40))
    reader = InProcess(feed, lake)
    reader.stop_after(records=30, commit=0)
    file = feed.write_file(decode=DECODE)
    command: list[str | Path] = ["adopt", file, "--from", f"group:{reader.group}", "--offset-columns", "part,at"]
    early = lakefeed(*command, "--dry-run", environment=feed.environment, status=2)
    assert early.returncode == 2
    assert "may still run" in early.stderr
    planned = lakefeed(*command, "--stopped", "--dry-run", environment=feed.environment)
    assert planned.returncode == 0, planned.stderr
    assert "the rows' own offsets agree with this position" in planned.stdout
    assert (
        lakefeed(*command, "--stopped", environment=feed.environment, status=None).returncode != 0
    )  # Without --yes, the command asks for a confirmation, and gets none here.
    pipeline = feed.pipeline(decode=DECODE)
    assert pipeline.status().position is None
    for _ in range(2):
        done = lakefeed(*command, "--stopped", "--yes", "--output", "json", environment=feed.environment)
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert (document["done"], document["partitions"][0]["offset"]) == (True, 30)
    assert pipeline.run(spark=lake, once=True).rows == 10
    assert_each_once(feed, pipeline, 40)
    # A backfill does not land the other tool's records again.
    assert backfill(pipeline, spark=lake, dry_run=True).planned.offsets == 0
    with pytest.raises(
        ConfigError, match=r"took the table over at offset 30 of .*-0: from .* on, it would land records that"
    ):
        plan_rewind(pipeline, "earliest")
    assert plan_rewind(pipeline, f"{feed.topic}:0:30", delete_rows=True).moves[0].again == 10
    with pytest.raises(CheckpointMismatch, match="has commits in the table already"):
        plan(pipeline, f"group:{reader.group}")


def test_the_takeover_is_refused_if_the_table_has_changed_since_the_plan(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    send(feed, range(40))
    reader = InProcess(feed, lake)
    reader.stop_after(records=20, commit=0)
    pipeline = feed.pipeline(decode=DECODE)
    agreed = plan(pipeline, f"group:{reader.group}", offset_columns="part,at")
    lake.sql(f"INSERT INTO {feed.table} VALUES (20, 0, 20)")
    with pytest.raises(CheckpointMismatch, match="was committed after the position"), translating():
        execute_adoption(pipeline.feed, agreed, lake)
    assert pipeline.status().position is None
    with pytest.raises(CheckpointMismatch, match="1 rows are at or beyond 20, up to offset 20"):
        plan(pipeline, f"group:{reader.group}", offset_columns="part,at")
    # After the deletion, rows below the position are missing.
    lake.sql(f"DELETE FROM {feed.table} WHERE at IN (7, 20)")
    with pytest.raises(CheckpointMismatch, match=r"1 of 20 records in \[0, 20\) have no row"):
        plan(pipeline, f"group:{reader.group}", offset_columns="part,at")


def test_unusable_positions_are_refused(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    send(feed, range(10))
    pipeline = feed.pipeline(decode=DECODE)
    with pytest.raises(ResourceMissing, match="there is no table"):
        plan(pipeline, "group:any")
    reader = InProcess(feed, lake)
    with pytest.raises(ResourceMissing, match="has committed no offsets"):
        plan(pipeline, f"group:{reader.group}")
    reader.stop_after(records=10, commit=5)
    with pytest.raises(RecordsLost, match="ends at 10, before the other tool's position 15"):
        plan(pipeline, f"group:{reader.group}")
    with pytest.raises(ResourceMissing, match="no checkpoint of Structured Streaming"):
        plan(pipeline, f"spark-checkpoint:s3a://{feed.stack.bucket}/nothing/{feed.name}")
    with pytest.raises(ConfigError, match="the table has no column nope"):
        plan(pipeline, f"group:{reader.group}", offset_columns="part,nope")
    files = feed.pipeline(decode=DECODE, sink={"parquet": {"path": f"s3a://{feed.stack.bucket}/p/{feed.name}"}})
    with pytest.raises(ConfigError, match="cannot continue from another tool's position"):
        plan(files, f"group:{reader.group}")
