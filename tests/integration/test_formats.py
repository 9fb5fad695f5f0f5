"""Confluent's clients read the records that lakefeed produces in each format, and a pipeline lands them."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession

from lakefeed.clients.kafka.topics import Topics
from lakefeed.errors import ConfigError
from lakefeed_encode.encode import settle, to_records
from lakefeed_local.discover import discover
from lakefeed_local.produce.write import produce
from packages.local.tests.integration.test_produce import read
from tests.support.feed import Feed
from tests.support.protos import message_class

TRIP = 'syntax = "proto3";\npackage nyc;\nmessage Trip { int64 id = 1; string zone = 2; optional double fare = 3; }\n'
DDL = "id BIGINT NOT NULL, zone STRING NOT NULL, fare DOUBLE"


def trips(spark: SparkSession, count: int = 20) -> DataFrame:
    return spark.createDataFrame([(at, f"z{at}", at / 2 if at % 3 else None) for at in range(count)], DDL)


def expected(count: int = 20) -> list[dict[str, Any]]:
    return [{"id": at, "zone": f"z{at}", "fare": at / 2 if at % 3 else None} for at in range(count)]


def landed(feed: Feed, spark: SparkSession, **blocks: Any) -> list[dict[str, Any]]:
    # Spark's active session belongs to a thread. Use a new thread, because a run must not depend on the active session.
    with ThreadPoolExecutor(1) as thread:
        ran = thread.submit(feed.pipeline(**blocks).run, spark=spark, once=True)
        assert ran.result().rows == 20
    return sorted(feed.rows(), key=lambda row: int(row["id"]))


def read_by_confluent(feed: Feed) -> list[Any]:
    """Return the topic's values, read with Confluent's deserialiser of JSON Schema."""
    client = SchemaRegistryClient({"url": feed.stack.schema_registry_url})
    text = client.get_latest_version(f"{feed.topic}-value").schema.schema_str
    deserialize = JSONDeserializer(text, schema_registry_client=client)
    context = SerializationContext(feed.topic, MessageField.VALUE)
    return [deserialize(each.value(), context) for each in read(feed.stack, feed.topic)]


@pytest.mark.quick
def test_protobuf_records_land_and_confluents_client_reads_them(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic()
    records = to_records(
        trips(lake), format="confluent-protobuf", topic=feed.topic, registry=feed.stack.schema_registry_url, schema=TRIP
    )
    assert produce(records, feed.topic, bootstrap_servers=feed.stack.bootstrap_servers).records == 20
    # Decode with the reference library: Confluent's Python deserialiser asks for a descriptor, but this registry
    # answers with the schema's text.
    trip = message_class({"trip.proto": TRIP}, "nyc.Trip")
    values = [bytes(each.value() or b"") for each in read(feed.stack, feed.topic)]
    assert {value[5] for value in values} == {0}
    found = sorted((trip.FromString(value[6:]) for value in values), key=lambda each: int(each.id))
    assert [(each.id, each.zone, each.HasField("fare")) for each in found] == [
        (row["id"], row["zone"], row["fare"] is not None) for row in expected()
    ]
    decode = {"protobuf": {"registry": "${SCHEMA_REGISTRY_URL}"}}
    assert landed(feed, lake, decode=decode) == expected()
    found_by_init = discover(
        feed.topic, bootstrap_servers=feed.stack.bootstrap_servers, registry_url=feed.stack.schema_registry_url
    )
    assert found_by_init.kind == "protobuf"


@pytest.mark.quick
def test_json_schema_records_and_keys_land(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic()
    registry = feed.stack.schema_registry_url
    records = to_records(trips(lake), format="json-schema", topic=feed.topic, registry=registry, key="zone")
    produce(records, feed.topic, bootstrap_servers=feed.stack.bootstrap_servers)
    assert sorted(read_by_confluent(feed), key=lambda row: int(row["id"])) == expected()
    decode = {"json_schema": {"registry": "${SCHEMA_REGISTRY_URL}"}, "key": "string", "metadata": ["key"]}
    assert landed(feed, lake, decode=decode) == [{**row, "kafka_key": row["zone"]} for row in expected()]
    assert (
        discover(feed.topic, bootstrap_servers=feed.stack.bootstrap_servers, registry_url=registry).kind
        == "json_schema"
    )


def test_a_json_schema_derived_from_rows_keeps_names_and_numbers(lake: SparkSession, feed: Feed) -> None:
    """Some of the names and numbers are not allowed in Avro."""
    feed.create_topic(partitions=1)
    registry = feed.stack.schema_registry_url
    rows = lake.sql("SELECT 1.25BD AS `1`, 'x' AS `a b`, 12345678901234567890BD AS large, NULL AS `2`")
    rows = rows.withColumn("2", rows["2"].cast("decimal(5,1)"))
    for _ in range(2):  # The second time, the registry already has the schema.
        records = to_records(rows, format="json-schema", topic=feed.topic, registry=registry)
        produce(records, feed.topic, bootstrap_servers=feed.stack.bootstrap_servers)
    assert read_by_confluent(feed) == [{"1": 1.25, "a b": "x", "large": 12345678901234567890, "2": None}] * 2


def test_a_schema_inferred_from_a_sample_is_reused_by_the_next_run(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send([json.dumps(row).encode() for row in expected()])
    decode = {"json": {"schema": "sample"}}
    assert landed(feed, lake, decode=decode) == expected()
    feed.send([json.dumps({"id": 20 + at, "zone": "z", "later": at}).encode() for at in range(20)])
    assert feed.pipeline(decode=decode).run(spark=lake, once=True).rows == 20
    assert {tuple(row) for row in feed.rows()} == {("id", "zone", "fare")}


def test_property_names_of_any_kind_land_and_are_read_back(lake: SparkSession, feed: Feed) -> None:
    names = ["a b", "a.b", 'a"b', "a`b", "größe", "select", "1st", "a/b", "a,b;c{}()=\t", ""]
    client = SchemaRegistryClient({"url": feed.stack.schema_registry_url})
    feed.create_topic(partitions=1)

    def send(names: list[str], count: int, suffix: str = "") -> None:
        inner = {"type": "object", "properties": {name: {"type": "integer"} for name in names}}
        properties = {"id": {"type": "integer"}, **dict.fromkeys(names, inner)}
        schema = Schema(json.dumps({"type": "object", "properties": properties}), "JSON")
        number = client.register_schema(f"{feed.topic}-value{suffix}", schema)
        rows = [{"id": at, **{name: dict.fromkeys(names, at) for name in names}} for at in range(count)]
        feed.send([b"\0" + number.to_bytes(4, "big") + json.dumps(row).encode() for row in rows])

    decode = {"json_schema": {"registry": "${SCHEMA_REGISTRY_URL}"}}
    send(names, 3)
    assert feed.pipeline(decode=decode).run(spark=lake, once=True).rows == 3
    columns = [name or "_" for name in names]
    assert all(
        row == {"id": row["id"], **{name: dict.fromkeys(columns, row["id"]) for name in columns}} for row in feed.rows()
    )
    # The next version of the schema adds a field with an odd name, at the top and inside the other columns.
    send([*names, "l a.t`er"], 1, "-later")  # Under its own subject the registry would refuse this version.
    assert feed.pipeline(decode=decode).run(spark=lake, once=True).rows == 1
    [new] = [row for row in feed.rows() if row["l a.t`er"] is not None]
    assert new["a b"]["l a.t`er"] == new["_"]["_"] == 0


@pytest.mark.parametrize(
    ("form", "registered", "kind"),
    [
        ("confluent-protobuf", TRIP.replace("int64 id", "string id"), "PROTOBUF"),
        (
            "json-schema",
            json.dumps({"type": "object", "properties": {"id": {"type": "boolean"}}, "additionalProperties": False}),
            "JSON",
        ),
    ],
)
def test_an_incompatible_schema_is_refused_before_anything_is_sent(
    lake: SparkSession, feed: Feed, form: Any, registered: str, kind: str
) -> None:
    feed.create_topic()
    client = SchemaRegistryClient({"url": feed.stack.schema_registry_url})
    client.register_schema(f"{feed.topic}-value", Schema(registered, kind))
    schema = TRIP if kind == "PROTOBUF" else None
    with pytest.raises(ConfigError, match="not compatible") as refused:
        to_records(trips(lake), format=form, topic=feed.topic, registry=feed.stack.schema_registry_url, schema=schema)
    assert refused.value.exit_status == 2
    assert sum(Topics(feed.stack.bootstrap_servers).end_offsets(feed.topic).values()) == 0


@pytest.mark.parametrize(("strategy", "subject"), [("record", "nyc.Trip"), ("topic-record", "{topic}-nyc.Trip")])
def test_the_subject_follows_the_configured_strategy(
    lake: SparkSession, feed: Feed, strategy: Any, subject: str
) -> None:
    encoding = settle(
        trips(lake),
        format="confluent-protobuf",
        topic=feed.topic,
        registry=feed.stack.schema_registry_url,
        strategy=strategy,
        schema=TRIP,
    )
    assert encoding.subject == subject.format(topic=feed.topic)
