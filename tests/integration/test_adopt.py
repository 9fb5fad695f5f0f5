"""A table is taken over from another tool that was stopped at any moment: each record is in it once afterwards."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.spark.errors import translating
from lakefeed.errors import CheckpointMismatch, ConfigError, RecordsLost, ResourceMissing
from lakefeed.operations.adopt.execute import execute_adoption
from lakefeed.operations.adopt.export import ExportTarget, execute_export, plan_export
from lakefeed.operations.adopt.plan import AdoptionPlan, plan_adoption
from lakefeed.operations.adopt.position import Origin
from lakefeed.pipeline import Pipeline
from tests.support.cli import lakefeed
from tests.support.feed import Feed
from tests.support.plain_job import PlainJob, Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DECODE: dict[str, Any] = {"json": {"schema_ddl": "id BIGINT"}, "metadata": ["topic", "partition", "offset"]}
COLUMNS = "topic,partition,offset"


def send(feed: Feed, ids: range, *, partition: int = -1) -> None:
    feed.send([json.dumps({"id": number}).encode() for number in ids], partition=partition)


def ids(feed: Feed) -> list[int]:
    return sorted(row["id"] for row in feed.rows())


def plan(pipeline: Pipeline, origin: str, **options: Any) -> AdoptionPlan:
    return plan_adoption(pipeline.feed, Origin.parse(origin), is_stopped=True, **options)


def take_over(pipeline: Pipeline, lake: SparkSession, origin: str, **options: Any) -> AdoptionPlan:
    agreed = plan(pipeline, origin, **options)
    with translating():
        execute_adoption(pipeline.feed, agreed, lake)
    return agreed


def assert_each_once(feed: Feed, pipeline: Pipeline, count: int) -> None:
    """By the rows' own ids, and by the feed's own proof."""
    assert ids(feed) == list(range(count))
    for deep in (False, True):
        proof = pipeline.verify(deep=deep)
        assert not proof.faults, proof.faults
        assert "adopted" in {note.kind for note in proof.notes}


def stopped_job(feed: Feed, writer: Writer, *, seed: int, records: int = 3000) -> PlainJob:
    """A job that was killed at a random moment, on a topic of which it has written a part."""
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
    assert summary.rows == sum(part.unread for part in agreed.partitions)
    assert_each_once(feed, pipeline, 3300)


@pytest.mark.parametrize("writer", ["stream", "batches"])
def test_a_job_of_spark_that_was_killed(lake: SparkSession, feed: Feed, writer: Writer) -> None:
    take_over_from_spark(lake, feed, writer, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 22))
def test_a_job_of_spark_that_was_killed_at_a_random_moment(lake: SparkSession, feed: Feed, seed: int) -> None:
    take_over_from_spark(lake, feed, "stream" if seed % 2 else "batches", seed)


class PlainConsumer:
    """A consumer of a group that appends records to a table, and commits its offsets afterwards."""

    def __init__(self, feed: Feed, lake: SparkSession) -> None:
        self.feed, self.lake = feed, lake
        self.group = f"{feed.name}-etl"
        lake.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{feed.name}")
        lake.sql(f"CREATE TABLE IF NOT EXISTS {feed.table} (id BIGINT, part INT, at BIGINT) USING iceberg")

    def open(self) -> Consumer:
        settings = {
            "bootstrap.servers": self.feed.stack.bootstrap_servers,
            "group.id": self.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(settings)
        consumer.subscribe([self.feed.topic])
        return consumer

    def write(self, consumer: Consumer, *, records: int) -> dict[int, int]:
        """Append so many records; return the offsets behind them, which are not committed yet."""
        import pyarrow as pa

        rows: list[dict[str, Any]] = []
        until = time.monotonic() + 60
        while len(rows) < records:
            assert time.monotonic() < until
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                number = json.loads(message.value() or b"")["id"]
                rows.append({"id": number, "part": message.partition(), "at": message.offset()})
        columns = pa.schema([("id", pa.int64()), ("part", pa.int32()), ("at", pa.int64())])
        table = open_table(self.feed.table, connections=self.feed.connections)
        table.append(pa.Table.from_pylist(rows, schema=columns))
        return {row["part"]: row["at"] + 1 for row in rows}

    def commit(self, consumer: Consumer, offsets: dict[int, int]) -> None:
        positions = [TopicPartition(self.feed.topic, number, at) for number, at in offsets.items()]
        consumer.commit(offsets=positions, asynchronous=False)


def take_over_from_group(lake: SparkSession, feed: Feed, seed: int) -> None:
    dice = random.Random(seed)
    feed.create_topic(partitions=2)
    send(feed, range(500))
    reader = PlainConsumer(feed, lake)
    consumer = reader.open()
    for _ in range(dice.randint(1, 3)):
        reader.commit(consumer, reader.write(consumer, records=dice.randint(1, 100)))
    was_stopped_between = bool(seed % 2)
    if was_stopped_between:
        reader.write(consumer, records=dice.randint(1, 100))
    pipeline, origin = feed.pipeline(decode=DECODE), f"group:{reader.group}"
    with pytest.raises(ConfigError, match="has members"):
        plan(pipeline, origin)
    consumer.close()
    options: dict[str, Any] = {"offset_columns": "part,at"}
    if was_stopped_between:
        with pytest.raises(CheckpointMismatch, match="rows are at or beyond"):
            plan(pipeline, origin, **options)
        options["by_rows"] = True
    agreed = take_over(pipeline, lake, origin, **options)
    assert sum(part.offset for part in agreed.partitions) == len(feed.rows())
    send(feed, range(500, 600))
    pipeline.run(spark=lake, once=True)
    assert_each_once(feed, pipeline, 600)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_consumer_group_that_was_stopped(lake: SparkSession, feed: Feed, seed: int) -> None:
    take_over_from_group(lake, feed, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 22))
def test_a_consumer_group_that_was_stopped_at_a_random_moment(lake: SparkSession, feed: Feed, seed: int) -> None:
    take_over_from_group(lake, feed, seed)


def landed_feed(lake: SparkSession, feed: Feed) -> Pipeline:
    """A feed of two partitions that has landed 100 records, and stopped."""
    feed.create_topic(partitions=2)
    send(feed, range(60), partition=0)
    send(feed, range(60, 100), partition=1)
    pipeline = feed.pipeline(decode=DECODE)
    assert pipeline.run(spark=lake, once=True).rows == 100
    return pipeline


def test_a_consumer_group_resumes_where_a_feed_has_ended(lake: SparkSession, feed: Feed) -> None:
    pipeline = landed_feed(lake, feed)
    target = ExportTarget.parse(f"group:{feed.name}-next")
    with pytest.raises(ConfigError, match="may still run"):
        plan_export(pipeline.feed, target)
    agreed = plan_export(pipeline.feed, target, is_stopped=True)
    assert (dict(agreed.offsets), agreed.before) == ({(feed.topic, 0): 60, (feed.topic, 1): 40}, {})
    execute_export(pipeline.feed, agreed)
    assert plan_export(pipeline.feed, target, is_stopped=True).before == agreed.offsets
    send(feed, range(100, 110))
    settings = {
        "bootstrap.servers": feed.stack.bootstrap_servers,
        "group.id": f"{feed.name}-next",
        "auto.offset.reset": "error",
    }
    consumer = Consumer(settings)
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


def test_a_job_of_spark_resumes_where_a_feed_has_ended(lake: SparkSession, feed: Feed) -> None:
    landed_feed(lake, feed)
    send(feed, range(100, 150))
    place = f"s3a://{feed.stack.bucket}/plain/{feed.name}"
    command: list[str | Path] = [
        "export-offsets",
        feed.folder / f"{feed.name}.yaml",
        "--to",
        f"spark-checkpoint:{place}",
        "--stopped",
    ]
    for _ in range(2):
        done = lakefeed(*command, "--yes", "--output", "json", environment=feed.environment)
        assert done.returncode == 0, done.stderr
        assert [part["offset"] for part in json.loads(done.stdout)["partitions"]] == [60, 40]
    # Into a table of its own, whose columns are the job's.
    job = PlainJob(feed.topic, f"lake.{feed.name}.next", place, "stream", once=True)
    log = feed.folder / "plain.log"
    with job.running(feed.environment, log) as process:
        assert process.wait(300) == 0, log.read_text()[-4000:]
    found = sorted(row["id"] for row in feed.rows(job.table))
    assert sorted([*ids(feed), *found]) == list(range(150))
    # The job's checkpoint is not overwritten.
    again = lakefeed(*command, "--yes", environment=feed.environment)
    assert again.returncode == 2
    assert "another checkpoint" in again.stderr
    # And back again.
    back = feed.pipeline(name=f"{feed.name}b", decode=DECODE, sink={"iceberg": {"table": job.table}}, checkpoint="")
    send(feed, range(150, 170))
    take_over(back, lake, f"spark-checkpoint:{place}")
    assert back.run(spark=lake, once=True).rows == 20


def test_a_takeover_is_planned_confirmed_and_done_once(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    send(feed, range(40))
    reader = PlainConsumer(feed, lake)
    consumer = reader.open()
    reader.commit(consumer, reader.write(consumer, records=30))
    consumer.close()
    file = feed.write_file(decode=DECODE)
    command: list[str | Path] = ["adopt", file, "--from", f"group:{reader.group}", "--offset-columns", "part,at"]
    early = lakefeed(*command, "--dry-run", environment=feed.environment)
    assert early.returncode == 2
    assert "may still run" in early.stderr
    planned = lakefeed(*command, "--stopped", "--dry-run", environment=feed.environment)
    assert planned.returncode == 0, planned.stderr
    assert "the rows' own offsets agree with this position" in planned.stdout
    assert lakefeed(*command, "--stopped", environment=feed.environment).returncode != 0  # No one confirms it.
    pipeline = feed.pipeline(decode=DECODE)
    assert pipeline.status().position is None
    for _ in range(2):
        done = lakefeed(*command, "--stopped", "--yes", "--output", "json", environment=feed.environment)
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert (document["done"], document["partitions"][0]["offset"]) == (True, 30)
    assert pipeline.run(spark=lake, once=True).rows == 10
    assert_each_once(feed, pipeline, 40)
    with pytest.raises(CheckpointMismatch, match="has commits in the table already"):
        plan(pipeline, f"group:{reader.group}")


def test_a_table_that_another_tool_has_changed_since_the_plan_is_not_adopted(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    send(feed, range(40))
    reader = PlainConsumer(feed, lake)
    consumer = reader.open()
    reader.commit(consumer, reader.write(consumer, records=20))
    consumer.close()
    pipeline = feed.pipeline(decode=DECODE)
    agreed = plan(pipeline, f"group:{reader.group}", offset_columns="part,at")
    lake.sql(f"INSERT INTO {feed.table} VALUES (20, 0, 20)")
    with pytest.raises(CheckpointMismatch, match="was committed after the position"), translating():
        execute_adoption(pipeline.feed, agreed, lake)
    assert pipeline.status().position is None
    with pytest.raises(CheckpointMismatch, match="1 rows are at or beyond 20, up to offset 20"):
        plan(pipeline, f"group:{reader.group}", offset_columns="part,at")
    # A row is missing below the position.
    lake.sql(f"DELETE FROM {feed.table} WHERE at IN (7, 20)")
    with pytest.raises(CheckpointMismatch, match=r"1 of 20 records in \[0, 20\) have no row"):
        plan(pipeline, f"group:{reader.group}", offset_columns="part,at")


def test_a_position_that_cannot_be_taken_over_is_refused(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    send(feed, range(10))
    pipeline = feed.pipeline(decode=DECODE)
    with pytest.raises(ResourceMissing, match="there is no table"):
        plan(pipeline, "group:any")
    reader = PlainConsumer(feed, lake)
    with pytest.raises(ResourceMissing, match="has committed no offsets"):
        plan(pipeline, f"group:{reader.group}")
    consumer = reader.open()
    offsets = reader.write(consumer, records=10)
    reader.commit(consumer, {number: at + 5 for number, at in offsets.items()})
    consumer.close()
    with pytest.raises(RecordsLost, match="ends at 10, before the other tool's position 15"):
        plan(pipeline, f"group:{reader.group}")
    with pytest.raises(ResourceMissing, match="no checkpoint of Structured Streaming"):
        plan(pipeline, f"spark-checkpoint:s3a://{feed.stack.bucket}/nothing/{feed.name}")
    with pytest.raises(ConfigError, match="the table has no column nope"):
        plan(pipeline, f"group:{reader.group}", offset_columns="part,nope")
    files = feed.pipeline(decode=DECODE, sink={"parquet": {"path": f"s3a://{feed.stack.bucket}/p/{feed.name}"}})
    with pytest.raises(ConfigError, match="takes nothing over from another tool"):
        plan(files, f"group:{reader.group}")
