"""Change events of a database, as Debezium writes them, are applied to a table and added to its history."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.sinks.dead_letters.store import DeadLetterFilter
from lakefeed_repair.replay import replay
from tests.support.blocks import ROOT, blocks_of
from tests.support.feed import Feed

Row = dict[str, Any]
LONG, TEXT = {"name": "id", "type": "long"}, {"name": "city", "type": ["null", "string"], "default": None}
KEY = {"type": "record", "name": "Key", "namespace": "shop.customers", "fields": [LONG]}

PAID_AT = "2026-01-02T03:04:05.000006Z"


def envelope(*columns: Row) -> Row:
    """Return the schema that Debezium registers for a table with these columns."""
    value = {"type": "record", "name": "Value", "fields": [LONG, TEXT, *columns]}
    source = {"type": "record", "name": "Source", "fields": [{"name": "ts_ms", "type": "long"}]}
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.customers",
        "fields": [
            {"name": "before", "type": ["null", value], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }


def event(op: str, at: int, *, before: Row | None = None, after: Row | None = None) -> Row:
    return {"before": before, "after": after, "op": op, "source": {"ts_ms": at}, "ts_ms": at + 1}


def send(feed: Feed, events: Sequence[tuple[int, Row | None]], schema: Row) -> None:
    """Send events under their keys; None is a tombstone."""
    client = SchemaRegistryClient({"url": feed.stack.schema_registry_url})
    values, keys = (AvroSerializer(client, json.dumps(each)) for each in (schema, KEY))
    producer = Producer({"bootstrap.servers": feed.stack.bootstrap_servers})
    for key, value in events:
        context = SerializationContext(feed.topic, MessageField.VALUE)
        producer.produce(
            feed.topic,
            key=keys({"id": key}, SerializationContext(feed.topic, MessageField.KEY)),
            value=None if value is None else values(value, context),
        )
    assert producer.flush(30) == 0


def test_debezium_events_become_the_rows_of_the_database_table(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=2)
    first = [
        (1, event("r", 10, after={"id": 1, "city": "amsterdam"})),
        (2, event("c", 11, after={"id": 2, "city": "berlin"})),
        (3, event("c", 12, after={"id": 3, "city": "cairo"})),
        (1, event("u", 13, before={"id": 1, "city": "amsterdam"}, after={"id": 1, "city": "delhi"})),
        (2, event("d", 14, before={"id": 2, "city": None})),
        (2, None),
    ]
    send(feed, first, envelope())
    registry = {"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}}
    history = f"{feed.table}_history"
    pipeline = feed.pipeline(
        decode={**registry, "key": registry, "envelope": "debezium"},
        sink={"iceberg": {"table": feed.table, "mode": "upsert", "keys": ["id"], "history": history}},
    )
    pipeline.run(spark=lake, once=True)
    rows = sorted(feed.rows(), key=lambda row: int(row["id"]))
    assert [(row["id"], row["city"], row["debezium_op"], row["debezium_ts_ms"]) for row in rows] == [
        (1, "delhi", "u", 13),
        (3, "cairo", "c", 12),
    ]
    assert sum(row["lakefeed_deleted"] for row in feed.rows(history)) == 2
    assert len(feed.rows(history)) == len(first)

    # A column is added to the database table: the schema of `after` has one more field.
    mail = {"name": "mail", "type": ["null", "string"], "default": None}
    # Debezium writes a placeholder for a long value that an update did not change.
    lacks = "__debezium_unavailable_value"
    second = [
        (3, event("u", 20, after={"id": 3, "city": "cairo", "mail": "c@x"})),
        (1, None),
        (3, event("u", 21, after={"id": 3, "city": lacks, "mail": lacks})),
    ]
    send(feed, second, envelope(mail))
    pipeline.run(spark=lake, once=True)
    send(feed, [(3, event("u", 22, after={"id": 3, "city": lacks, "mail": None}))], envelope(mail))
    pipeline.run(spark=lake, once=True)
    stored = [(row["id"], row["city"], row["mail"], row["debezium_ts_ms"]) for row in feed.rows()]
    assert stored == [(3, "cairo", None, 22)]
    assert len(feed.rows(history)) == len(first) + 4
    assert lacks not in str(feed.rows(history))
    proof = pipeline.verify(deep=True)
    assert proof.faults == ()
    assert proof.upserts is not None
    assert (proof.upserts.changes, proof.upserts.inserted - proof.upserts.deleted) == (10, 1)


def test_the_postgres_example_of_upserts_md_lands_partitioned_by_day(lake: SparkSession, feed: Feed) -> None:
    [block] = [block for block in blocks_of(ROOT / "docs" / "upserts.md") if block.test is not None]
    shown = yaml.safe_load(block.text)
    shown["sink"]["iceberg"]["table"] = feed.table
    shown["transform"]["sql"] = shown["transform"]["sql"].replace("FROM orders", f"FROM {feed.name}")
    feed.create_topic(partitions=2)

    def change(op: str, key: int, city: str, ordered_at: int) -> tuple[bytes, bytes]:
        row = {"id": key, "city": city, "due": 17_701, "ordered_at": ordered_at, "paid_at": PAID_AT}
        sides = {"before": {**row, "city": "x"}, "after": None} if op == "d" else {"before": None, "after": row}
        found = {**sides, "op": op, "ts_ms": 5, "source": {"ts_ms": 4, "db": "shop"}, "transaction": None}
        return json.dumps({"id": key}).encode(), json.dumps(found).encode()

    ordered = 1_529_507_596_945_104
    changes = [("c", 1, "amsterdam", ordered), ("c", 2, "berlin", ordered), ("r", 3, "cairo", ordered + 86_400_000_000)]
    changes += [("u", 1, "delhi", ordered), ("d", 2, "berlin", ordered)]
    producer = Producer({"bootstrap.servers": feed.stack.bootstrap_servers})
    for each in changes:
        key, value = change(*each)
        producer.produce(feed.topic, key=key, value=value)
    assert producer.flush(30) == 0
    feed.pipeline(**shown).run(spark=lake, once=True)
    rows = sorted(feed.rows(), key=lambda row: int(row["id"]))
    assert [(row["id"], row["city"], row["due"].isoformat(), row["ordered_at"].isoformat()) for row in rows] == [
        (1, "delhi", "2018-06-19", "2018-06-20T15:13:16.945104+00:00"),
        (3, "cairo", "2018-06-19", "2018-06-21T15:13:16.945104+00:00"),
    ]
    assert {row["paid_at"].microsecond for row in rows} == {6}
    table = open_table(feed.table, connections=feed.connections)
    assert [str(each.transform) for each in table.spec().fields] == ["day"]


@pytest.mark.slow
def test_a_replayed_letter_does_not_revert_a_later_change(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    values = [b'{"id": 1, "city": ""}', b'{"id": 2, "city": ""}', b'{"id": 1, "city": "b"}', b'{"id": 3, "city": "c"}']
    feed.send(values, partition=0)
    blocks: dict[str, Any] = {
        "decode": {"json": {"schema_ddl": "id BIGINT, city STRING"}},
        "expect": {"has_city": {"rule": "city <> ''", "on_violation": "dead_letter"}},
        "dead_letters": {"table": f"{feed.table}_letters"},
    }
    upsert = {"table": feed.table, "mode": "upsert", "keys": ["id"], "history": f"{feed.table}_history"}
    sink = {"iceberg": {**upsert, "on_delete": "mark"}}
    feed.pipeline(**blocks, sink=sink).run(spark=lake, once=True)
    assert sorted(row["id"] for row in feed.rows()) == [1, 3]
    # Without the expectation two letters are replayed: one for key 1, whose row has changed since, and one for a new
    # key.
    del blocks["expect"]
    repaired = feed.pipeline(**blocks, sink=sink)
    replayed = replay(repaired, DeadLetterFilter(feed=feed.name), spark=lake)
    assert replayed.rows == 1  # The letter for key 1 changes nothing, because the row of key 1 in the table is newer.
    assert sorted((row["id"], row["city"]) for row in feed.rows()) == [(1, "b"), (2, ""), (3, "c")]
    assert len(feed.rows(f"{feed.table}_history")) == 4
    assert repaired.verify(deep=True).faults == ()
