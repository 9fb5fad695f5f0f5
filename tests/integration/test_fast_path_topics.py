"""Both paths land what Spark's source reads from topics with gaps, transactions, tombstones and huge records."""

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from pyspark.sql import SparkSession

from lakefeed.clients.kafka.topics import Topics
from lakefeed.errors import LakefeedError
from lakefeed.feed.progress import FinishedBatch
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed_local.stack import Stack
from tests.support.feed import Feed, until

HUGE = 3 * 1024 * 1024
LIMIT = 70
DECODE = {
    "json": {"schema_ddl": "id BIGINT, text STRING"},
    "metadata": ["topic", "partition", "offset", "timestamp", "key", "headers"],
}
Record = tuple[str, int, int]
"""Topic, partition and offset."""


def producing(feed: Feed) -> Producer:
    brokers = {"bootstrap.servers": feed.stack.bootstrap_servers, "message.max.bytes": 2 * HUGE}
    return Producer({**brokers, "linger.ms": 5})


def value(number: int, text: str = "t") -> bytes:
    return json.dumps({"id": number, "text": text}).encode()


def fill(feed: Feed) -> list[str]:
    """Create a topic with odd records, and a compacted topic with gaps; return the two names."""
    odd, compacted = f"{feed.name}.odd", f"{feed.name}.compacted"
    topics = Topics(feed.stack.bootstrap_servers)
    topics.create(odd, partitions=5, config={"max.message.bytes": str(2 * HUGE)})
    for partition, ends in ((0, "cacca"), (1, "aa"), (4, "aaaaaaaac")):  # Partition 2 stays empty.
        feed.send_transactions(ends, topic=odd, partition=partition)
    producer = producing(feed)
    for number in range(150):
        own: dict[int, bytes | None] = {20: None, 40: b"", 60: b"{"}
        own |= {61: value(61, "x" * HUGE), 62: value(62, "y" * HUGE)}
        headers: list[tuple[str, str | bytes | None]] = [("h", b"1"), ("n", None), ("h", b"")] if number % 3 else []
        producer.produce(odd, own.get(number, value(number)), partition=3, headers=headers)
    assert producer.flush(60) == 0
    settings = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    topics.create(compacted, partitions=1, config=settings)
    for number in range(200):
        producer.produce(compacted, value(number) if number % 5 else None, str(number % 7).encode())
        if number % 50 == 49:
            assert producer.flush(30) == 0
            time.sleep(0.2)
    return [odd, compacted]


def read_by_spark(spark: SparkSession, feed: Feed, topics: list[str]) -> dict[Record, bytes | None]:
    """Read the records with Spark's own source."""
    servers = {"kafka.bootstrap.servers": feed.stack.bootstrap_servers, "kafka.isolation.level": "read_committed"}
    frame = spark.read.format("kafka").options(**servers, subscribe=",".join(topics)).load()
    rows = frame.select("topic", "partition", "offset", "value").collect()
    return {(row.topic, row.partition, row.offset): row.value and bytes(row.value) for row in rows}


def wait_for_gaps(spark: SparkSession, feed: Feed, topic: str) -> None:
    """Wait until the broker has compacted the topic; then disable compaction, so that the topic stays as it is."""
    until(lambda: len(read_by_spark(spark, feed, [topic])) < 200)
    setting = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", topic, incremental_configs=[setting])
    admin = AdminClient({"bootstrap.servers": feed.stack.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(30)


def landed(spark: SparkSession, feed: Feed, topics: list[str], path: str) -> dict[str, Any]:
    """Land the topics on one path, in several batches; return the results that must be equal on both paths."""
    table, letters = f"lake.{feed.name}.{path}", f"lake.{feed.name}.{path}_letters"
    shown: list[str] = []
    monitor = FeedMonitor(f"{feed.name}_{path}")
    monitor.show_path = shown.append
    pipeline = feed.pipeline(
        name=f"{feed.name}_{path}",
        source=feed.source(topics=topics, max_records_per_batch=LIMIT),
        decode={**DECODE, "on_null": "keep"},
        fast_path=path,
        dead_letters={"table": letters},
        sink={"iceberg": {"table": table}},
        checkpoint=f"{feed.checkpoint}-{path}",
    )
    summary = pipeline.run(spark=spark, once=True, monitor=monitor)
    [reader_and_encoder] = shown
    assert ("decodes each record as it reads it" in reader_and_encoder) == (path == "auto")
    assert not pipeline.verify(deep=True).faults
    commits = spark.table(f"{table}.snapshots").select("summary").collect()
    ranges = [commit.summary.get("lakefeed.ranges") for commit in commits]
    rows = {
        (row.kafka_topic, row.kafka_partition, row.kafka_offset): (
            row.id,
            row.text and len(row.text),
            row.kafka_timestamp,
            row.kafka_key and bytes(row.kafka_key),
            row.kafka_headers and [(each.key, each.value and bytes(each.value)) for each in row.kafka_headers],
        )
        for row in spark.table(table).collect()
    }
    assert len(rows) == summary.rows
    dead = spark.table(letters).select("partition", "offset", "reason").collect()
    return {
        "rows": rows,
        "ranges": ranges,
        "letters": sorted(map(tuple, dead)),
        "summary": (summary.batches, summary.records, summary.rows, summary.dead_letters, summary.skipped),
    }


def test_both_paths_read_the_same_records_as_sparks_source(lake: SparkSession, feed: Feed) -> None:
    topics = fill(feed)
    wait_for_gaps(lake, feed, topics[1])
    fast, general = landed(lake, feed, topics, "auto"), landed(lake, feed, topics, "off")
    assert fast["rows"].keys() == general["rows"].keys()
    assert fast == general
    assert fast["summary"][0] > 3
    records = read_by_spark(lake, feed, topics)
    bad = {at for at, text in records.items() if text in (b"", b"{")}
    assert len(bad) == fast["summary"][3] == 2
    assert fast["rows"].keys() == records.keys() - bad
    expected = {
        at: json.loads(text) if text else {"id": None, "text": None} for at, text in records.items() if at not in bad
    }
    assert {at: row[0] for at, row in fast["rows"].items()} == {at: row["id"] for at, row in expected.items()}
    assert sorted(row[1] for row in fast["rows"].values() if row[1])[-2:] == [HUGE, HUGE]


@pytest.mark.slow
def test_no_record_is_lost_if_a_broker_is_killed_during_a_batch(lake: SparkSession, feed: Feed, tmp_path: Path) -> None:
    own = Stack(tmp_path / "stack")
    try:
        brokers = own.up().bootstrap_servers
        topics, count = Topics(brokers), 60_000
        topics.create(feed.topic, partitions=2)
        producer = Producer({"bootstrap.servers": brokers, "linger.ms": 50})
        for number in range(count):
            producer.produce(feed.topic, value(number), partition=number % 2)
            producer.poll(0)
        assert producer.flush(60) == 0
        # Fetches are small, so that the batch sends requests to the broker until its end.
        fetches = {"kafka.max.partition.fetch.bytes": 2_000, "kafka.fetch.max.bytes": 2_000}
        source = feed.source(bootstrap_servers=brokers, max_records_per_batch=20_000, options=fetches)
        pipeline = feed.pipeline(source=source, decode=DECODE, fast_path="auto")
        restarts: list[threading.Timer] = []

        def kill(progress: FinishedBatch) -> None:
            if restarts:
                return
            [pid] = [part.pid for part in own.status() if part.part == "kafka" and part.pid is not None]

            def restart() -> None:
                os.kill(pid, signal.SIGKILL)
                time.sleep(3)
                own.up()

            # After half a second, the next batch has begun: kill the broker then, and start it again.
            restarts.append(threading.Timer(0.5, restart))
            restarts[0].start()

        try:
            pipeline.run(spark=lake, once=True, on_batch=kill)
        except LakefeedError as error:
            print(f"the run ended: {error}")
        restarts[0].join(120)
        pipeline.run(spark=lake, once=True)
        rows = lake.table(feed.table)
        assert rows.count() == rows.select("id").distinct().count() == count
        assert not pipeline.verify(deep=True).faults
    finally:
        own.down(erase=True)
