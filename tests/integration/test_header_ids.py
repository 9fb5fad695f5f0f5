"""Schema ids in headers, from Confluent's own serializers: both read paths use them, and lakefeed writes them."""

import json
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    dual_schema_id_deserializer,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.schema_registry.serde import SchemaId
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.topics import Topics
from lakefeed.errors import LakefeedError
from lakefeed.records.decode.registry import SchemaRegistry
from lakefeed.sinks.dead_letters.store import DeadLetterFilter
from lakefeed_encode.encode import to_records
from lakefeed_local import Topic
from lakefeed_local.init_command import init
from lakefeed_local.stack import Endpoints
from lakefeed_repair.replay import replay
from tests.support.feed import Feed
from tests.support.protos import message_class
from tests.support.records import avro_bytes
from tests.support.registry_with_guids import registry_with_guids

GUID = "__value_schema_id"
IN_HEADER = {"schema.id.serializer": header_schema_id_serializer}
DUAL = {"schema.id.deserializer": dual_schema_id_deserializer}
KINDS = ("avro", "protobuf", "json_schema")
PROTO = 'syntax = "proto3"; message Other { int32 x = 1; } message Trip { int64 id = 1; string name = 2; }'
Header = tuple[str, bytes]
Serialize = Callable[[dict[str, Any]], tuple[bytes, list[Header]]]


def avro(*fields: tuple[str, Any], name: str = "Trip") -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": n, "type": k} for n, k in fields]})


V1 = avro(("id", "long"), ("name", "string"))
V2 = avro(("id", "long"), ("name", "string"), ("zone", ["null", "string"])).replace(
    '["null", "string"]', '["null", "string"], "default": null'
)
JSON_SCHEMA = json.dumps(
    {
        "title": "Trip",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
        "required": ["id", "name"],
    }
)


@pytest.fixture(scope="module")
def registry(stack: Endpoints) -> Iterator[str]:
    """Yield the stack's registry behind a proxy that gives its schemas GUIDs."""
    with registry_with_guids(stack.schema_registry_url) as url:
        yield url


def serializer(
    kind: str, topic: str, registry: str, *, header: bool, field: str = "value", text: str = V1
) -> Serialize:
    """Return a function that serializes with Confluent's serializer, and gives the bytes and the headers."""
    client, more = SchemaRegistryClient({"url": registry}), IN_HEADER if header else {}
    made: Any
    if kind == "protobuf":
        trip: Any = message_class({"trip.proto": PROTO}, "Trip")
        own = ProtobufSerializer(trip, client, {"use.deprecated.format": False, **more})
        made = lambda row, context: own(trip(**row), context)  # noqa: E731
    elif kind == "avro":
        made = AvroSerializer(client, text, conf=more or None)
    else:
        made = JSONSerializer(JSON_SCHEMA, client, conf=more or None)

    def serialize(row: dict[str, Any]) -> tuple[bytes, list[Header]]:
        headers: Any = []
        data = made(
            row, SerializationContext(topic, MessageField.KEY if field == "key" else MessageField.VALUE, headers)
        )
        assert isinstance(data, bytes)
        return data, headers

    return serialize


def send(feed: Feed, value: bytes | None, headers: list[Header], *, key: bytes = b"k") -> None:
    producer = Producer({"bootstrap.servers": feed.stack.bootstrap_servers})
    producer.produce(feed.topic, value=value, key=key, headers=[("other", b"x"), *headers])
    assert producer.flush(30) == 0


def letters_of(feed: Feed) -> list[str]:
    table = open_table(f"lake.{feed.name}.dead_letters", connections=feed.connections)
    return [str(each["reason"]) for each in table.scan().to_arrow().sort_by("offset").to_pylist()]


def pipeline_of(feed: Feed, registry: str, kind: str = "avro", **blocks: Any) -> Any:
    # The records use another message than the schema's first one.
    more = {"message": "Trip"} if kind == "protobuf" else {}
    decode = {kind: {"registry": registry, **more}, "metadata": ["offset"], **blocks.pop("decode", {})}
    return feed.pipeline(decode=decode, dead_letters={"table": f"lake.{feed.name}.dead_letters"}, **blocks)


@pytest.mark.parametrize("fast_path", [pytest.param("auto", marks=pytest.mark.quick), "off"])
@pytest.mark.parametrize("kind", KINDS)
def test_values_with_a_guid_in_a_header_are_read_beside_values_with_a_prefix(
    lake: SparkSession, feed: Feed, registry: str, kind: str, fast_path: str
) -> None:
    feed.create_topic(partitions=1)
    prefixed = serializer(kind, feed.topic, registry, header=False)
    in_header = serializer(kind, feed.topic, registry, header=True)
    for number in range(6):
        value, headers = (prefixed, in_header)[number % 2]({"id": number, "name": f"n{number}"})
        assert [name for name, _ in headers] == [GUID] * (number % 2)
        send(feed, value, headers)
    send(feed, None, [(GUID, b"\x01" + bytes(16))])
    pipeline = pipeline_of(feed, registry, kind, fast_path=fast_path, decode={"on_null": "skip"})
    summary = pipeline.run(spark=lake, once=True)
    assert (summary.rows, summary.dead_letters) == (6, 0)
    assert sorted((row["id"], row["name"]) for row in feed.rows()) == [(at, f"n{at}") for at in range(6)]


@pytest.mark.parametrize("fast_path", ["auto", "off"])
def test_a_schema_that_is_named_only_in_headers_adds_its_column(
    lake: SparkSession, feed: Feed, registry: str, fast_path: str
) -> None:
    feed.create_topic(partitions=1)
    send(feed, *serializer("avro", feed.topic, registry, header=True)({"id": 1, "name": "a"}))
    pipeline = pipeline_of(feed, registry, fast_path=fast_path)
    pipeline.run(spark=lake, once=True)
    send(feed, *serializer("avro", feed.topic, registry, header=True, text=V2)({"id": 2, "name": "b", "zone": "z"}))
    pipeline.run(spark=lake, once=True)
    assert sorted((row["id"], row.get("zone")) for row in feed.rows()) == [(1, None), (2, "z")]


def test_keys_with_a_guid_in_a_header_are_read(lake: SparkSession, feed: Feed, registry: str) -> None:
    feed.create_topic(partitions=1)
    key_schema = avro(("at", "long"), name="Key")
    for number in range(2):
        value, headers = serializer("avro", feed.topic, registry, header=bool(number))({"id": number, "name": "n"})
        key, key_headers = serializer("avro", feed.topic, registry, header=not number, field="key", text=key_schema)(
            {"at": 10 + number}
        )
        send(feed, value, headers + key_headers, key=key)
    decode = {"key": {"avro": {"registry": registry}}, "metadata": ["key"]}
    assert pipeline_of(feed, registry, decode=decode).run(spark=lake, once=True).rows == 2
    assert sorted((row["id"], row["kafka_key"]["at"]) for row in feed.rows()) == [(0, 10), (1, 11)]


@pytest.mark.quick
@pytest.mark.parametrize("fast_path", ["auto", "off"])
def test_unusable_ids_in_headers_become_dead_letters(
    lake: SparkSession, feed: Feed, registry: str, fast_path: str
) -> None:
    feed.create_topic(partitions=1)
    value, [(_, guid)] = serializer("avro", feed.topic, registry, header=True)({"id": 1, "name": "a"})
    _, [(_, others)] = serializer("json_schema", f"{feed.topic}-other", registry, header=True)({"id": 1, "name": "a"})
    unknown = uuid.uuid4().bytes
    reasons = {
        f"the header {GUID} has 16 bytes: a GUID has 17, an id 5": [(GUID, guid[:16])],
        f"the header {GUID} has 0 bytes": [(GUID, b"")],
        f"wrong magic byte 7 in the header {GUID} instead of 0 or 1": [(GUID, b"\x07" + guid[1:])],
        f"unknown schema GUID {uuid.UUID(bytes=unknown)}": [(GUID, b"\x01" + unknown)],
        f"1 byte(s) left over in the header {GUID}": [(GUID, guid + b"\0")],
        "two headers contradict each other": [(GUID, guid), (GUID, others)],
        "JSON, not AVRO": [(GUID, others)],
        "apicurio.value.contentId has 4 bytes: Apicurio's ids have 8": [("apicurio.value.contentId", b"\0\0\0\1")],
    }
    for headers in reasons.values():
        send(feed, value, headers)
    # Duplicate headers, the header of the key and a header without a value do not conflict.
    send(feed, value, [(GUID, guid), (GUID, guid), ("__key_schema_id", b"\0")])
    pipeline = pipeline_of(feed, registry, fast_path=fast_path)
    summary = pipeline.run(spark=lake, once=True)
    assert (summary.rows, summary.dead_letters) == (1, len(reasons))
    for expected, found in zip(reasons, letters_of(feed), strict=True):
        assert expected in found


@pytest.mark.parametrize("fast_path", ["auto", "off"])
def test_ids_in_apicurios_headers_are_read(lake: SparkSession, feed: Feed, stack: Endpoints, fast_path: str) -> None:
    feed.create_topic(partitions=1)
    registry = SchemaRegistry(stack.schema_registry_url)
    own = stack.schema_registry_url.replace("/apis/ccompat/v7", "/apis/registry/v3")
    ids = {}
    # Register the content under two subjects, so that its global id differs from its content id.
    for subject, text in (("before", V1), ("value", V1), ("other", V2)):
        registry.register(f"{feed.topic}-{subject}", text)
        with urllib.request.urlopen(f"{own}/groups/default/artifacts/{feed.topic}-{subject}/versions/1") as answer:
            ids[subject] = json.load(answer)
    content, glob = ("apicurio.value.contentId", "contentId"), ("apicurio.value.globalId", "globalId")
    assert ids["before"]["globalId"] != ids["value"]["globalId"]

    def header(which: tuple[str, str], subject: str = "value") -> Header:
        return which[0], int(ids[subject][which[1]]).to_bytes(8, "big")

    for number, headers in enumerate(
        ([header(content)], [header(glob)], [header(glob), header(content)], [header(glob, "before")])
    ):
        send(feed, avro_bytes(json.loads(V1), {"id": number, "name": "n"}), headers)
    bad = {
        "unknown global id 1099511627776": [("apicurio.value.globalId", (2**40).to_bytes(8, "big"))],
        "unknown schema id 1099511627776": [("apicurio.value.contentId", (2**40).to_bytes(8, "big"))],
        "two headers contradict each other": [header(glob), header(content, "other")],
    }
    for headers in bad.values():
        send(feed, avro_bytes(json.loads(V1), {"id": 9, "name": "n"}), headers)
    summary = pipeline_of(feed, registry.url, fast_path=fast_path).run(spark=lake, once=True)
    assert (summary.rows, summary.dead_letters) == (4, len(bad)), letters_of(feed)
    assert all(expected in found for expected, found in zip(bad, letters_of(feed), strict=True)), letters_of(feed)


def test_the_error_names_a_registry_without_guids(lake: SparkSession, feed: Feed, stack: Endpoints) -> None:
    feed.create_topic(partitions=1)
    SchemaRegistry(stack.schema_registry_url).register(f"{feed.topic}-value", V1)
    send(feed, avro_bytes(json.loads(V1), {"id": 1, "name": "n"}), [(GUID, b"\x01" + bytes(16))])
    with pytest.raises(LakefeedError) as refused:
        pipeline_of(feed, stack.schema_registry_url).run(spark=lake, once=True)
    assert "headers have GUIDs, which not every registry knows" in str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
def test_confluents_deserializers_read_the_headers_of_the_function_to_records(
    lake: SparkSession, feed: Feed, registry: str, kind: str
) -> None:
    feed.create_topic(partitions=1)
    form: Any = {"avro": "confluent-avro", "protobuf": "confluent-protobuf", "json_schema": "json-schema"}[kind]
    schema = {"avro": V1, "protobuf": PROTO, "json_schema": JSON_SCHEMA}[kind]
    name = "Trip" if kind == "protobuf" else None
    rows = lake.createDataFrame([(7, "x" * 9)], "id BIGINT NOT NULL, name STRING NOT NULL")
    records = to_records(
        rows, topic=feed.topic, format=form, registry=registry, schema=schema, message=name, id_place="header"
    )
    [record] = records.collect()
    headers: Any = [(each.key, bytes(each.value)) for each in record.headers]
    client, context = (
        SchemaRegistryClient({"url": registry}),
        SerializationContext(feed.topic, MessageField.VALUE, headers),
    )
    if kind == "protobuf":
        # Confluent's deserializer in Python reads no schemas that are registered as text, so only its header is read.
        trip: Any = message_class({"trip.proto": PROTO}, "Trip")
        found = SchemaId("PROTOBUF")
        message = trip.FromString(dual_schema_id_deserializer(bytes(record.value), context, found).read())
        assert client.get_schema_by_guid(str(found.guid)).schema_type == "PROTOBUF"
        assert (found.message_indexes, message.id, message.name) == ([1], 7, "x" * 9)
        return
    made: Any = AvroDeserializer(client, conf=DUAL)
    if kind == "json_schema":
        made = JSONDeserializer(None, schema_registry_client=client, conf=DUAL)
    assert made(bytes(record.value), context) == {"id": 7, "name": "x" * 9}


@pytest.mark.quick
def test_init_finds_the_subject_by_the_guid_in_a_header(
    feed: Feed, stack: Endpoints, registry: str, tmp_path: Path
) -> None:
    feed.create_topic(partitions=1)
    subject = f"{feed.topic}.Trip"
    text = avro(("id", "long"), name=f"T{uuid.uuid4().hex[:8]}")
    client = SchemaRegistry(registry)
    number = str(client.register(subject, text))
    guid = str(client.found_at("GUID", "schemas", "ids", number, pick=lambda schema: schema["guid"]))
    send(feed, avro_bytes(json.loads(text), {"id": 1}), [(GUID, b"\x01" + uuid.UUID(guid).bytes)])
    path = tmp_path / "pipeline.yaml"
    environment = {**stack.as_environment(), "SCHEMA_REGISTRY_URL": registry}
    result = CliRunner().invoke(init, ["--topic", feed.topic, "--file", str(path), "--output", "json"], env=environment)
    assert result.exit_code == 0, (result.output, result.exception)
    assert json.loads(result.stdout)["subject"] == subject


def test_a_replay_reads_letters_whose_header_names_the_schema(lake: SparkSession, feed: Feed, registry: str) -> None:
    feed.create_topic(partitions=1)
    send(feed, *serializer("avro", feed.topic, registry, header=True)({"id": 1, "name": "a"}))
    expect = {"small": {"rule": "id < 1", "on_violation": "dead_letter"}}
    assert pipeline_of(feed, registry, expect=expect).run(spark=lake, once=True).dead_letters == 1
    done = replay(pipeline_of(feed, registry), DeadLetterFilter(feed=feed.name), spark=lake)
    assert (done.rows, done.still_dead) == (1, 0)
    assert [row["id"] for row in feed.rows()] == [1]


@pytest.mark.quick
def test_the_kafka_sink_writes_guids_into_headers(lake: SparkSession, feed: Feed, registry: str) -> None:
    feed.create_topic(partitions=1)
    target = f"{feed.topic}-target"
    Topics(feed.stack.bootstrap_servers).create(target, partitions=1)
    send(feed, *serializer("avro", feed.topic, registry, header=False)({"id": 1, "name": "a" * 9}))
    value = {"avro": {"registry": registry, "schema_id": "header"}}
    pipeline_of(feed, registry, sink={"kafka": {"topic": target, "value": value}}).run(spark=lake, once=True)
    consumer = Consumer(
        {"bootstrap.servers": feed.stack.bootstrap_servers, "group.id": target, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([target])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert message.error() is None
    read = AvroDeserializer(SchemaRegistryClient({"url": registry}), conf=DUAL)
    found = read(message.value(), SerializationContext(target, MessageField.VALUE, message.headers()))
    assert (found["id"], found["name"]) == (1, "a" * 9)


@pytest.mark.quick
def test_samples_show_records_whose_header_names_the_schema(
    feed: Feed, registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {**feed.environment, "SCHEMA_REGISTRY_URL": registry}.items():
        monkeypatch.setenv(name, text)
    feed.create_topic(partitions=1)
    for kind in KINDS:
        send(feed, *serializer(kind, f"{feed.topic}-{kind}", registry, header=True)({"id": 1, "name": kind}))
    send(feed, b"\x02\x02a", [(GUID, b"\x01" + bytes(16))])
    shown = Topic(feed.topic).sample(4).records
    assert [each.format for each in shown] == [*KINDS, "text"]
    assert [each.value["name"] for each in shown[:3]] == list(KINDS)
    assert all(each.schema_id is not None for each in shown[:3])
