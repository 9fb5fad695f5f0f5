"""All formats give the same guarantees, with the real registry and records from Confluent's serialisers."""

import json
import uuid
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession

from lakefeed.records.decode import (
    ConfluentAvro,
    ConfluentJson,
    ConfluentProtobuf,
    DecodeSpec,
    JavaFormat,
    Json,
    PlainAvro,
    PlainProtobuf,
    Raw,
    String,
    decoded,
    rows,
)
from lakefeed.records.decode.avro_schema import avro_schema_of, avro_schema_of_schema
from lakefeed.records.decode.registry import SchemaRegistry
from lakefeed_csv.settings import CsvFormat
from lakefeed_local.stack import Endpoints
from tests.support.protos import message_class
from tests.support.records import avro_bytes, records, results

ROW = {"id": 2**40, "name": "Zürich", "price": 1.5, "tags": ["a", "b"]}
AVRO = {
    "type": "record",
    "name": "Trip",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "price", "type": ["null", "double"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
PROTO = """syntax = "proto3";
message Trip {
  int64 id = 1;
  string name = 2;
  optional double price = 3;
  repeated string tags = 4;
}
"""
JSON_SCHEMA = {
    "title": "Trip",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "price": {"type": ["number", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["id", "name", "tags"],
}
DDL = "id BIGINT NOT NULL, name STRING NOT NULL, price DOUBLE, tags ARRAY<STRING> NOT NULL"
FRAMED = ("confluent-avro", "confluent-protobuf", "json-schema")
FORMATS = (*FRAMED, "avro", "protobuf", "json", "csv", "string", "raw")


@dataclass(frozen=True)
class Case:
    """A format: a valid value, the row of this value, and which odd values the format accepts.

    Attributes:
        spec: the decoder's settings.
        good: a valid value.
        row: the row of the valid value.
        takes_empty: whether an empty value is valid.
        takes_any: whether any bytes are valid.
    """

    spec: DecodeSpec
    good: bytes
    row: dict[str, Any]
    takes_empty: bool = False
    takes_any: bool = False


@pytest.fixture(scope="module")
def registry(stack: Endpoints) -> SchemaRegistry:
    return SchemaRegistry(stack.schema_registry_url)


@pytest.fixture(scope="module", params=FORMATS)
def case(request: pytest.FixtureRequest, spark: SparkSession, registry: SchemaRegistry) -> Case:
    form: str = request.param
    if form in FRAMED:
        return _framed(form, spark, registry)
    proto = message_class({"trip.proto": PROTO}, "Trip")
    cases = {
        "avro": Case(PlainAvro(writer_schema=json.dumps(AVRO)), avro_bytes(AVRO, ROW), ROW),
        "protobuf": Case(PlainProtobuf(schema=PROTO), proto(**ROW).SerializeToString(), ROW, takes_empty=True),
        "json": Case(Json(schema=DDL), json.dumps(ROW).encode(), ROW),
        "csv": Case(
            CsvFormat(schema_ddl="id BIGINT, name STRING, price DOUBLE").decoder(),
            b'1099511627776,"Z\xc3\xbc""rich, 8\n001",\n',
            {"id": 2**40, "name": 'Zü"rich, 8\n001', "price": None},
        ),
        "string": Case(String(), "Zürich".encode(), {"value": "Zürich"}, takes_empty=True),
        "raw": Case(Raw(), b"\xff\x00", {"value": bytearray(b"\xff\x00")}, takes_empty=True, takes_any=True),
    }
    return cases[form]


def _framed(form: str, spark: SparkSession, registry: SchemaRegistry) -> Case:
    topic = f"formats-{uuid.uuid4().hex[:8]}"
    client = SchemaRegistryClient({"url": registry.url})
    context = SerializationContext(topic, MessageField.VALUE)
    spec: type[ConfluentAvro | ConfluentProtobuf | ConfluentJson]
    if form == "confluent-avro":
        spec, value = ConfluentAvro, AvroSerializer(client, json.dumps(AVRO))(ROW, context)
    elif form == "confluent-protobuf":
        trip = message_class({"trip.proto": PROTO}, "Trip")
        serializer = ProtobufSerializer(trip, client, {"use.deprecated.format": False})
        spec, value = ConfluentProtobuf, serializer(trip(**ROW), context)
    else:
        spec, value = ConfluentJson, JSONSerializer(json.dumps(JSON_SCHEMA), client)(ROW, context)
    assert isinstance(value, bytes)
    reader = avro_schema_of(spark, registry, int.from_bytes(value[1:5], "big"))
    return Case(spec(registry_url=registry.url, reader_schema=reader), value, ROW)


def test_a_valid_value_becomes_a_row_and_null_stays_null(spark: SparkSession, case: Case) -> None:
    frame = decoded(records(spark, [case.good, None]), case.spec)
    good, null = results(frame)
    assert good.error is None
    assert good.value.asDict() == case.row
    assert (null.value, null.schema_id, null.error) == (None, None, None)
    assert [row.asDict() for row in rows(frame, on_null="skip").collect()] == [case.row]


def test_an_invalid_value_is_an_error(spark: SparkSession, case: Case) -> None:
    wrong = {
        "empty": b"",
        "truncated": case.good[:-1],
        "garbage": b"\xfe\xfd\xfc" * 9,
        "left over": case.good + b"\x00\xff",
    }
    found = dict(zip(wrong, results(decoded(records(spark, list(wrong.values())), case.spec)), strict=True))
    assert (found["empty"].error is None) == case.takes_empty
    for name in ("truncated", "garbage", "left over"):
        # These formats cannot notice that a value was truncated: half a text is a text, half a line is a line.
        if case.takes_any or (name == "truncated" and isinstance(case.spec, String | JavaFormat)):
            assert found[name].error is None
        else:
            assert found[name].value is None, name
            assert found[name].error, name


def test_a_valid_header_is_read_and_a_wrong_header_is_an_error(
    spark: SparkSession, case: Case, registry: SchemaRegistry
) -> None:
    if not isinstance(case.spec, ConfluentAvro | ConfluentProtobuf | ConfluentJson):
        assert results(decoded(records(spark, [case.good]), case.spec))[0].schema_id is None
        return
    other = "JSON" if isinstance(case.spec, ConfluentAvro) else "AVRO"
    text = json.dumps(JSON_SCHEMA if other == "JSON" else AVRO)
    client = SchemaRegistryClient({"url": registry.url})
    foreign = client.register_schema(f"other-{uuid.uuid4().hex[:8]}", Schema(text, other))
    values: list[bytes | None] = [
        case.good,
        case.good[:5],
        case.good[:3],
        b"\x01" + case.good[1:],
        b"\x00\x7f\xff\xff\xff" + case.good[5:],
        b"\x00" + foreign.to_bytes(4, "big") + case.good[5:],
    ]
    good, header, half, magic, unknown, kind = results(decoded(records(spark, values), case.spec))
    schema_id = int.from_bytes(case.good[1:5], "big")
    assert (good.schema_id, header.schema_id) == (schema_id, schema_id)
    assert header.error
    assert half.error == "truncated: 3 bytes, a header alone has 5"
    assert "wrong magic byte 1" in magic.error
    assert unknown.error == "unknown schema id 2147483647"
    assert f"schema id {foreign} is {other}, not" in kind.error


def test_keys_are_decoded_like_values(spark: SparkSession, case: Case) -> None:
    keys = {0: case.good, 1: None, 2: b"" if not case.takes_empty else b"\xff\xfe"}
    made = spark.createDataFrame(
        [("t", 0, at, bytearray(key) if key is not None else None, bytearray(b"v")) for at, key in keys.items()],
        "topic STRING, partition INT, offset BIGINT, key BINARY, value BINARY",
    ).coalesce(1)
    read = decoded(made, String(), key=case.spec)
    good, null, bad = read.orderBy("offset").collect()
    one_value = isinstance(case.spec, String | Raw)
    expected = case.row["value"] if one_value else case.row
    assert (good.decoded_key if one_value else good.decoded_key.asDict()) == expected
    assert (good.decoded.value.value, null.decoded.value.value, null.decoded_key) == ("v", "v", None)
    if not case.takes_any:
        assert bad.decoded.value is None
        assert bad.decoded.error.startswith("key: ")
    kept = rows(read.filter("offset < 2"), keep=["key"]).collect()
    assert [row.asDict(recursive=True)["kafka_key"] for row in kept] == [expected, None]


def test_references_in_protobuf_and_json_schema_are_resolved(spark: SparkSession, registry: SchemaRegistry) -> None:
    client, mark = SchemaRegistryClient({"url": registry.url}), uuid.uuid4().hex[:8]
    shared = {
        "city.proto": 'syntax = "proto3"; package geo; message City { string name = 1; }',
        "ride.proto": """syntax = "proto3"; import "city.proto";
            message Ride { geo.City home = 1; message Leg { geo.City to = 2; } }""",
    }
    leg = message_class(shared, "Ride.Leg")
    strategy = {"use.deprecated.format": False, "reference.subject.name.strategy": lambda _, ref: f"{ref.name}-{mark}"}
    serializer = ProtobufSerializer(leg, client, strategy)
    value = serializer(leg(to={"name": "Ulm"}), SerializationContext(f"ride-{mark}", MessageField.VALUE))
    assert value is not None
    latest = registry.latest(f"ride-{mark}-value")
    reader = avro_schema_of_schema(spark, latest, message="Ride.Leg")
    [found] = results(
        decoded(records(spark, [value]), ConfluentProtobuf(registry_url=registry.url, reader_schema=reader))
    )
    assert found.error is None
    assert found.value.asDict(recursive=True) == {"to": {"name": "Ulm"}}

    city = {"type": "object", "properties": {"name": {"type": "string"}}}
    client.register_schema(f"city-{mark}", Schema(json.dumps(city), "JSON"))
    ride = {"type": "object", "properties": {"home": {"$ref": "city.json"}}}
    from confluent_kafka.schema_registry import SchemaReference

    text = Schema(json.dumps(ride), "JSON", [SchemaReference("city.json", f"city-{mark}", 1)])
    schema_id = client.register_schema(f"trip-{mark}", text)
    reader = avro_schema_of(spark, registry, schema_id)
    value = b"\x00" + schema_id.to_bytes(4, "big") + b'{"home": {"name": "Ulm"}}'
    [found] = results(decoded(records(spark, [value]), ConfluentJson(registry_url=registry.url, reader_schema=reader)))
    assert found.value.asDict(recursive=True) == {"home": {"name": "Ulm"}}
