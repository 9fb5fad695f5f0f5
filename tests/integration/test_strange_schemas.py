"""Whatever schema a producer registers, a running feed lands its records as rows or dead letters, and loses none."""

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.errors import DecodeError
from lakefeed.records.decode.registry import SchemaRegistry
from tests.support.avro_documents import bomb, deep, field, record
from tests.support.feed import Feed
from tests.support.protos import message_class
from tests.support.records import avro_bytes

ID = field("id", "int")
V1 = record(ID, field("zone"), name="Trip", namespace="nyc")
EMPTY = {"type": "record", "name": "Nothing", "fields": []}
CASH, CARD = (record(field(name, "int"), name=name.title()) for name in ("coins", "digits"))


def version(*fields: Any) -> Any:
    return {**V1, "fields": [*V1["fields"], *fields]}


WITH_EMPTY = version(field("e", ["null", EMPTY], default=None), field("nulls", {"type": "array", "items": "null"}))
WITH_MORE = version(field("e", ["null", record(field("x", "int"), name="Nothing")], default=None))
WITH_UNION = {**version(field("paid", ["null", CASH, CARD], default=None)), "namespace": "nyc.v2"}
FOREIGN = record(field("amount", "int"), name="Payment")
TAKEN = version(field("KAFKA_offset", "long"))
BOMB = version(field("b", bomb(12)))
DEEP = version(field("d", deep(200)))
ROW = {"id": 1, "zone": "a"}


def header(feed: Feed, schema: Any, *, subject: str) -> bytes:
    """Register a producer's schema under a separate subject; return the header of its records."""
    registry = SchemaRegistry(feed.stack.schema_registry_url)
    return b"\0" + registry.register(f"{feed.topic}-{subject}", json.dumps(schema)).to_bytes(4, "big")


def framed(feed: Feed, schema: Any, value: dict[str, Any], *, subject: str) -> bytes:
    return header(feed, schema, subject=subject) + avro_bytes(schema, value)


def test_strange_schemas_become_columns_or_dead_letters(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send(feed.avro([ROW], V1))
    letters = f"lake.{feed.name}.dead_letters"
    pipeline = feed.pipeline(
        decode={"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}, "metadata": ["partition", "offset"]},
        dead_letters={"table": letters},
    )
    pipeline.run(spark=lake, once=True)

    feed.send(
        [
            framed(feed, FOREIGN, {"amount": 5}, subject="foreign"),
            framed(feed, WITH_EMPTY, {**ROW, "id": 2, "e": {}, "nulls": [None, None]}, subject="empty"),
            framed(feed, WITH_UNION, {**ROW, "id": 3, "paid": ("nyc.v2.Digits", {"digits": 4})}, subject="union"),
            framed(feed, TAKEN, {**ROW, "KAFKA_offset": 9}, subject="taken"),
            header(
                feed, BOMB, subject="bomb"
            ),  # A value is not needed: the decoder refuses the schema before it reads the value.
            header(feed, DEEP, subject="deep"),
            *feed.avro([{**ROW, "id": 4}], V1),
        ]
    )
    summary = pipeline.run(spark=lake, once=True)
    assert (summary.rows, summary.dead_letters, summary.records) == (3, 4, 7)

    feed.send([framed(feed, WITH_MORE, {**ROW, "id": 5, "e": {"x": 6}}, subject="more")])
    pipeline.run(spark=lake, once=True)
    rows = sorted(feed.rows(), key=lambda row: row["id"])
    assert [{name: row[name] for name in row if name != "kafka_partition"} for row in rows] == [
        {"id": 1, "zone": "a", "kafka_offset": 0, "paid": None, "e": None},
        {"id": 2, "zone": "a", "kafka_offset": 2, "paid": None, "e": None},
        {"id": 3, "zone": "a", "kafka_offset": 3, "paid": {"member0": None, "member1": {"digits": 4}}, "e": None},
        {"id": 4, "zone": "a", "kafka_offset": 7, "paid": None, "e": None},
        {"id": 5, "zone": "a", "kafka_offset": 8, "paid": None, "e": {"x": 6}},
    ]
    found = open_table(letters, connections=feed.connections).scan().to_arrow().sort_by("offset").to_pylist()
    assert [each["offset"] for each in found] == [1, 4, 5, 6]
    for each, words in zip(
        found, ["is a Payment", "field KAFKA_offset has the name", "columns", "levels"], strict=True
    ):
        assert words in each["reason"]
    assert not pipeline.verify(deep=True).faults


def test_records_of_a_protobuf_schema_that_protoc_refuses_become_dead_letters(lake: SparkSession, feed: Feed) -> None:
    trip = 'syntax = "proto3";\nmessage Trip { int64 id = 1; string zone = 2; }'
    broken = 'syntax = "proto3";\nmessage Trip { int64 id = 1;\n int64 again = 1; map<bytes, int32> m = 19000; }'
    value = message_class({"trip.proto": trip}, "Trip")(id=7, zone="a").SerializeToString()
    registry = SchemaRegistry(feed.stack.schema_registry_url)
    right = b"\0" + registry.register(f"{feed.topic}-value", trip, kind="PROTOBUF").to_bytes(4, "big") + b"\0"
    wrong_id = registry.register(f"{feed.topic}-broken", broken, kind="PROTOBUF")
    wrong = b"\0" + wrong_id.to_bytes(4, "big") + b"\0"
    why = f"schema id {wrong_id}: The Protobuf schema cannot be used: "
    why += "line 3: id and again of message Trip have the number 1"
    feed.create_topic(partitions=1)
    feed.send([right + value, wrong + value, right + value])
    letters = f"lake.{feed.name}.dead_letters"
    decode = {"protobuf": {"registry": "${SCHEMA_REGISTRY_URL}"}, "metadata": ["partition", "offset"]}
    with pytest.raises(DecodeError) as stopped:
        feed.pipeline(decode=decode).run(spark=lake, once=True)
    assert why in str(stopped.value)
    assert f"topic {feed.topic}, partition 0, offset 1" in str(stopped.value)

    pipeline = feed.pipeline(decode=decode, dead_letters={"table": letters})
    summary = pipeline.run(spark=lake, once=True)
    assert (summary.rows, summary.dead_letters, summary.records) == (2, 1, 3)
    [letter] = open_table(letters, connections=feed.connections).scan().to_arrow().to_pylist()
    assert letter["offset"] == 1
    assert letter["reason"].startswith(why)
    assert not pipeline.verify(deep=True).faults
