"""Whatever a producer has written to the topic, each record becomes an unchanged row or a dead letter."""

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.problem import raise_first_error
from lakefeed.errors import ConfigError
from lakefeed.operations.preflight.connect import preflight
from tests.support.feed import Feed

METADATA = ["topic", "partition", "offset", "timestamp", "key", "headers"]
LARGE = {"max.message.bytes": str(20 * 1024 * 1024)}
Record = dict[str, Any]


def producing(feed: Feed, **settings: Any) -> Producer:
    brokers = {"bootstrap.servers": feed.stack.bootstrap_servers, "message.max.bytes": 20 * 1024 * 1024}
    return Producer({**brokers, "linger.ms": 5, **settings})


def fill(feed: Feed) -> list[str]:
    """Create topics of many kinds, each with odd records; return the names of the topics."""
    topics, names = Topics(feed.stack.bootstrap_servers), []

    def create(name: str, config: dict[str, str] | None = None, *, partitions: int = 1) -> str:
        names.append(f"{feed.name}.{name}")
        topics.create(names[-1], partitions=partitions, config={**LARGE, **(config or {})})
        return names[-1]

    odd = create("Dots.and_UNDER-scores", partitions=3)
    producer = producing(feed)
    headers: list[tuple[Sequence[tuple[str, bytes | None]], bytes | None, bytes | None]] = [
        ([("a", None), ("a", b"1"), ("a", b""), ("", b"no name"), ("é\u0000", b"\xff")], b"k", b"duplicate keys"),
        ([(f"h{number}", str(number).encode()) for number in range(1_000)], b"", b"1,000 headers"),
        ([("large", b"x" * 1024 * 1024)], None, b"1 MB"),
        ([], None, None),
        ([], None, b""),
        ([], b"\x00\xff", b"x" * 10 * 1024 * 1024),
    ]
    for own, key, value in headers:
        producer.produce(odd, value, key, partition=1, headers=list(own))
    assert producer.flush(60) == 0

    times = create("log-append-time", {"message.timestamp.type": "LogAppendTime"})
    producer.produce(times, b"1", timestamp=1)
    assert producer.flush(30) == 0

    packed = create("compressed")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        one = producing(feed, **{"compression.type": codec})
        for number in range(20):
            one.produce(packed, f"{codec} {number} {'x' * 500}".encode())
        assert one.flush(30) == 0

    for name, ends in (("committed-last", "cacc"), ("aborted-last", "caca"), ("aborted-only", "a")):
        feed.send_transactions(ends, count=3, topic=create(name), values=b"no JSON %d")

    cut = create("begins-late")
    for number in range(10):
        producer.produce(cut, str(number).encode())
    assert producer.flush(30) == 0
    feed.remove_records(4, topic=cut)
    create("empty", partitions=4)
    return names


def consumed(feed: Feed, topics: list[str]) -> dict[tuple[str, int, int], Record]:
    """Return all committed records, read with librdkafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": feed.stack.bootstrap_servers,
            "group.id": feed.name,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    described = Topics(feed.stack.bootstrap_servers).describe_all(topics).values()
    parts = [TopicPartition(each.name, part.id, 0) for each in described for part in each.partitions]
    for part in parts:
        part.offset = consumer.get_watermark_offsets(part, timeout=30)[0]
    consumer.assign(parts)
    found: dict[tuple[str, int, int], Record] = {}
    left = {(part.topic, part.partition) for part in parts}
    while left:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            left.discard((str(message.topic()), int(message.partition() or 0)))
            continue
        own: Any = message.headers() or ()
        headers = [{"key": key, "value": value} for key, value in own]
        at = (str(message.topic()), int(message.partition() or 0), int(message.offset() or 0))
        found[at] = {
            "key": message.key(),
            "value": message.value(),
            "headers": headers or None,
            "timestamp": message.timestamp()[1],
        }
    consumer.close()
    return found


def kept(feed: Feed, table: str, prefix: str = "") -> dict[tuple[str, int, int], Record]:
    """Return the rows of a table, by topic, partition and offset of the record."""
    rows = open_table(table, connections=feed.connections).scan().to_arrow().to_pylist()
    return {
        (row[f"{prefix}topic"], row[f"{prefix}partition"], row[f"{prefix}offset"]): {
            "key": row[f"{prefix}key"],
            "value": row["value"],
            # pyiceberg reads a null list as an empty list, so treat an empty list of headers as null.
            "headers": row[f"{prefix}headers"] or None,
            "timestamp": round(row[f"{prefix}timestamp"].timestamp() * 1000),
        }
        for row in rows
    }


def test_records_of_every_kind_become_complete_rows_or_dead_letters(lake: SparkSession, feed: Feed) -> None:
    topics = fill(feed)
    expected = consumed(feed, topics)
    assert len(expected) == 6 + 1 + 100 + 9 + 6 + 6
    source = {"kafka": {"bootstrap_servers": feed.stack.bootstrap_servers, "topics": topics}}
    landed = feed.pipeline(source=source, decode={"raw": {}, "metadata": METADATA, "on_null": "keep"})
    summary = landed.run(spark=lake, once=True)
    assert (summary.records, summary.rows) == (len(expected), len(expected))
    assert kept(feed, feed.table, "kafka_") == expected
    assert lake.table(feed.table).where("size(kafka_headers) = 0").count() == 0
    assert not landed.verify(deep=True).faults
    # Only transaction markers are left in the topics, so the next batch has no records.
    assert landed.run(spark=lake, once=True).records == 0

    dead = f"lake.{feed.name}.dead"
    lettered = feed.pipeline(
        name=f"{feed.name}_dead",
        source=source,
        decode={"json": {"schema_ddl": "id BIGINT"}, "metadata": METADATA, "on_null": "dead_letter"},
        dead_letters={"table": dead},
        sink={"iceberg": {"table": f"lake.{feed.name}.none"}},
        checkpoint=f"{feed.checkpoint}-dead",
    )
    assert lettered.run(spark=lake, once=True).dead_letters == len(expected)
    assert kept(feed, dead) == expected


@pytest.mark.slow
def test_a_compacted_topic_with_gaps_lands_without_losses(lake: SparkSession, feed: Feed) -> None:
    settings = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    Topics(feed.stack.bootstrap_servers).create(feed.topic, partitions=1, config=settings)
    producer, deadline = producing(feed), time.monotonic() + 120
    for number in range(300):
        producer.produce(feed.topic, json.dumps({"id": number}).encode(), str(number % 7).encode())
        if number % 50 == 49:
            assert producer.flush(30) == 0
            time.sleep(0.2)
    while len(expected := consumed(feed, [feed.topic])) >= 300:
        assert time.monotonic() < deadline
        time.sleep(2)
    landed = feed.pipeline(decode={"raw": {}, "metadata": METADATA})
    assert landed.run(spark=lake, once=True).rows == len(expected)
    assert kept(feed, feed.table, "kafka_") == expected
    assert not landed.verify(deep=True).faults


STOPS: dict[str, tuple[dict[str, Any], bytes | None, bytes | None, str]] = {
    "value": ({}, b"x", b"{", ""),
    "null": ({}, b"x", None, "the value is null"),
    "expectation": ({"expect": {"small": {"rule": "id < 5"}}}, b"x", b'{"id": 7}', "expectation small: id < 5"),
    "rule that fails": ({"expect": {"small": {"rule": "1 / id > 0"}}}, b"x", b'{"id": 0}', "expectation small"),
    "key": (
        {"decode": {"json": {"schema_ddl": "id BIGINT"}, "key": {"json": {"schema_ddl": "k BIGINT"}}}},
        b"{",
        b'{"id": 1}',
        "key: ",
    ),
    "key of an upsert": (
        {"sink": {"iceberg": {"table": "{table}", "mode": "upsert", "keys": ["id"]}}},
        b"x",
        b'{"other": 1}',
        "",
    ),
    "budget": ({"dead_letters": {"table": "{table}_dead", "budget": {"max_rows": 0}}}, b"x", b"{", ""),
}


QUICK = ("value", "key")


@pytest.mark.quick
@pytest.mark.parametrize(
    "kind", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in STOPS]
)
def test_the_error_of_a_stopped_feed_names_the_record(lake: SparkSession, feed: Feed, kind: str) -> None:
    blocks, key, value, why = STOPS[kind]
    feed.create_topic(partitions=2)
    producer = producing(feed)
    for _ in range(3):
        producer.produce(feed.topic, b'{"id": 1}', b'{"k": 1}', partition=1)
    producer.produce(feed.topic, value, key, partition=1)
    assert producer.flush(30) == 0
    own = {"decode": {"json": {"schema_ddl": "id BIGINT"}}, **blocks}
    text = json.loads(json.dumps(own).replace("{table}", feed.table))
    with pytest.raises(Exception) as stopped:  # noqa: PT011  # The class does not matter here.
        feed.pipeline(**text).run(spark=lake, once=True)
    said = str(stopped.value)
    assert why in said
    assert "partition 1, offset 3" in said or f"{feed.topic}:1:3" in said, said
    assert feed.topic in said


def test_a_sink_to_the_feeds_own_topic_is_refused_even_under_another_address(feed: Feed) -> None:
    feed.create_topic(partitions=1)
    port = feed.stack.bootstrap_servers.rpartition(":")[2]
    own = {"decode": {"json": {"schema_ddl": "id BIGINT"}}, "sink": {"kafka": {"topic": feed.topic}}}
    own["sink"]["kafka"]["bootstrap_servers"] = f"localhost:{port}"
    with pytest.raises(ConfigError, match="read its own rows"):
        raise_first_error(preflight(feed.pipeline(**own).config, connections=feed.connections))
