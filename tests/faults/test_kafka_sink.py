"""A driver is killed while it sends a batch to a topic: no record is lost, and readers recognize repeated records."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import lakefeed
from lakefeed.clients.kafka.topics import Topics
from lakefeed.pipeline import Pipeline
from lakefeed_local.stack import Endpoints
from tests.support.cli import Running
from tests.support.cli import lakefeed as command
from tests.support.faults.drivers import SHORT_LIVED
from tests.support.feed import Feed
from tests.support.lake import spark_on

COUNT = 6_000
# With these options the producer sends almost every record in a separate request, which leaves time for the kill.
SLOW = {"kafka.linger.ms": 0, "kafka.batch.size": 1, "kafka.max.in.flight.requests.per.connection": 1}


@pytest.fixture(scope="module")
def here(stack: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a Spark session in this process, to read the sink's topic."""
    with spark_on(stack, name="kafka-sink-faults", folder=tmp_path_factory.mktemp("spark")) as running:
        yield running


def settings(feed: Feed, mode: str, out: str) -> dict[str, Any]:
    sql = f"SELECT id, kafka_topic, kafka_partition, kafka_offset FROM {feed.name}"
    if mode == "update":
        sql = f"SELECT id DIV 2 AS pair, count(*) AS hits FROM {feed.name} GROUP BY 1"
    key = {"key": "pair"} if mode == "update" else {}
    return {
        "decode": {"json": {"schema_ddl": "id BIGINT"}},
        "transform": {"sql": sql, "output_mode": mode},
        "sink": {"kafka": {"topic": out, "options": SLOW, **key}},
        "spark": {"spark.sql.shuffle.partitions": 2},
    }


def stream_of(feed: Feed, out: str, spark: SparkSession, *, most: int) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", feed.stack.bootstrap_servers)
    reader = reader.option("subscribe", out).option("includeHeaders", "true")
    return reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", most).load()


def read(frame: DataFrame, name: str, *, folder: str) -> list[dict[str, Any]]:
    writer = frame.selectExpr("CAST(value AS STRING) AS value").writeStream.format("memory").queryName(name)
    query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    return [json.loads(each.value) for each in frame.sparkSession.table(name).collect()]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "update"])
def test_a_reader_gets_every_record_once_after_a_kill_during_a_batch(feed: Feed, here: SparkSession, mode: str) -> None:
    out = f"{feed.topic}-out"
    topics = Topics(feed.stack.bootstrap_servers)
    feed.create_topic(partitions=2)
    topics.create(out, partitions=3)

    def sent() -> int:
        return sum(topics.end_offsets(out).values())

    feed.send_ids(range(COUNT))
    file = feed.write_file(**settings(feed, mode, out))
    expected = COUNT if mode == "append" else COUNT // 2

    victim = Running(["run", file, "--once"], {**feed.environment, **SHORT_LIVED}, feed.folder / "killed.log")
    victim.wait_until(lambda: sent() >= expected // 5, timeout=300)
    victim.kill()
    time.sleep(1)
    before = sent()
    assert 0 < before < expected, "killed too late: the batch was whole"

    done = command(
        *("run", file, "--once", "--output", "json"), environment={**feed.environment, **SHORT_LIVED}, timeout=500
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["repeated"] == expected
    assert sent() == before + expected

    name = f"read_{feed.name}"
    frame = lakefeed.deduplicated(stream_of(feed, out, here, most=expected // 3))
    rows = read(frame, name, folder=f"{feed.folder}/read")
    column = "id" if mode == "append" else "pair"
    assert Counter(each[column] for each in rows) == Counter(range(expected))
    # A pipeline with deduplicate lands the same rows; each of its commits stores which copies the feed has read.
    table = f"lake.{feed.name}.copied"
    reader = Pipeline.from_file(
        feed.write_file(
            name=f"{feed.name}_reader",
            source=feed.source(topics=[out], max_records_per_batch=expected // 2, deduplicate=True),
            decode={"json": {"schema_ddl": f"{column} BIGINT"}},
            sink={"iceberg": {"table": table}},
            checkpoint=f"{feed.checkpoint}-reader",
        ),
        environment=feed.environment,
    )
    summary = reader.run(spark=here, once=True)
    assert (summary.records, summary.rows, summary.skipped) == (before + expected, expected, before)
    assert Counter(each[column] for each in feed.rows(table)) == Counter(range(expected))
    assert reader.verify().faults == ()


@pytest.mark.slow
def test_copies_that_are_sent_after_a_kill_in_real_time_are_recognized(feed: Feed, here: SparkSession) -> None:
    out, count = f"{feed.topic}-out", 1_000
    topics = Topics(feed.stack.bootstrap_servers)
    feed.create_topic(partitions=1)
    topics.create(out, partitions=3)
    feed.send_ids(range(count))
    file = feed.write_file(
        decode={"json": {"schema_ddl": "id BIGINT"}}, sink={"kafka": {"topic": out}}, trigger="real-time, 10 minutes"
    )
    victim = Running(["run", file], {**feed.environment, **SHORT_LIVED}, feed.folder / "killed.log")
    victim.wait_until(lambda: sum(topics.end_offsets(out).values()) >= count, timeout=300)
    victim.kill()
    assert "at-least-once" in victim.said()

    # The killed run had not stored its progress, so this run, which reads in batches, sends all records again.
    done = command("run", file, "--once", environment={**feed.environment, **SHORT_LIVED}, timeout=500)
    assert done.returncode == 0, done.stderr
    assert sum(topics.end_offsets(out).values()) == 2 * count
    frame = lakefeed.deduplicated(stream_of(feed, out, here, most=count // 2))
    rows = read(frame, f"read_{feed.name}", folder=f"{feed.folder}/read")
    assert Counter(each["id"] for each in rows) == Counter(range(count))
