"""Protobuf decodes as in the reference library, for all kinds of fields and for broken messages."""

import datetime
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from lakefeed.errors import ConfigError
from lakefeed.records.decode import ConfluentProtobuf, PlainProtobuf, decoded
from lakefeed.records.decode.avro_schema import avro_schema_of_protobuf
from tests.support import wire_format
from tests.support.proto_rows import json_of, row_of
from tests.support.proto_rows import same as equal
from tests.support.protos import MONEY, RICH, descriptor_set, message_class, order
from tests.support.records import records, results
from tests.support.registry_in_a_thread import RegistryInAThread

PLAIN = PlainProtobuf(schema=RICH, references=(MONEY,), message="Order")
FULL: dict[str, Any] = {
    "f_double": 1.5, "f_float": 0.25, "f_int32": -1, "f_int64": -(2**63), "f_uint32": 2**32 - 1,
    "f_uint64": 2**64 - 1, "f_sint32": -(2**31), "f_sint64": 2**63 - 1, "f_fixed32": 2**32 - 1,
    "f_fixed64": 2**63, "f_sfixed32": -5, "f_sfixed64": -6, "f_bool": True, "f_string": "Zürich 🚕",
    "f_bytes": b"\x00\xff", "state": 2, "maybe": 0, "packed": [1, -2, 3], "unpacked": [-4, 5],
    "words": ["a", ""], "states": [0, 1, 7], "first": {"sku": "x", "price": {"currency": "CHF", "cents": 5}},
    "lines": [{"sku": "y", "amount": 3, "tags": ["t"]}, {}], "by_sku": {"k": {"sku": "k"}, "": {}},
    "by_number": {-1: 0.5, 2: 0.0}, "voucher": {"currency": "EUR"},
    "at": datetime.datetime(2026, 1, 2, 3, 4, 5, 678901), "wrapped": {"value": 0},
    "folder": {"name": "top", "inside": [{"name": "one", "inside": [{"name": "two"}]}, {}]},
    "notes": [{"value": "n"}, {}],
}  # fmt: skip


def encoded(**fields: Any) -> bytes:
    return bytes(order()(**fields).SerializeToString())


def canonical(value: Any) -> Any:
    """Convert a value of a row to the form of ``Canonical.java``."""
    if isinstance(value, Row):
        return [[name, canonical(each)] for name, each in value.asDict().items()]
    if isinstance(value, dict):
        return {name: canonical(each) for name, each in value.items()}
    if isinstance(value, list):
        return [canonical(each) for each in value]
    if isinstance(value, datetime.datetime):
        return (value - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return str(value).lower() if isinstance(value, bool) else value


def same(row: Row, message: Any) -> bool:
    """Return whether a decoded row equals the message as the reference library decodes it."""
    return equal(canonical(row), row_of(message, message.DESCRIPTOR))


@pytest.fixture
def registry() -> Iterator[RegistryInAThread]:
    with RegistryInAThread() as running:
        running.schemas[1] = {
            "schema": RICH,
            "schemaType": "PROTOBUF",
            "references": [{"name": "money.proto", "subject": "money.proto", "version": 1}],
        }
        running.versions["money.proto", 1] = {"schema": MONEY, "schemaType": "PROTOBUF"}
        running.put(2, {"type": "string"})
        yield running


@pytest.mark.quick
def test_each_field_type_decodes_as_in_the_reference_library(spark: SparkSession) -> None:
    message = order()(**FULL)
    message.extra.update({"a": [1, None, {"b": "c"}], "d": True})
    full, empty = results(decoded(records(spark, [message.SerializeToString(), b""]), PLAIN))
    assert full.error is None
    assert same(full.value, message)
    assert full.value.f_uint64 == Decimal(2**64 - 1)
    assert full.value.states == ["UNKNOWN", "OPEN", "7"]
    assert (full.value.maybe, full.value.card, full.value.voucher.currency) == (0, None, "EUR")
    assert same(empty.value, order()())


@pytest.mark.quick
def test_a_descriptor_set_decodes_to_the_same_rows_as_the_schema_text(spark: SparkSession) -> None:
    files = descriptor_set({"money.proto": MONEY, "rich.proto": RICH})
    spec = PlainProtobuf(schema=files, message="shop.v1.Order")
    [found] = results(decoded(records(spark, [encoded(**FULL)]), spec))
    assert same(found.value, order()(**FULL))
    by_text = avro_schema_of_protobuf(spark, RICH, references=[MONEY])
    assert avro_schema_of_protobuf(spark, files, message="shop.v1.Order") == by_text


BROKEN = {
    "truncated varint": (b"\x18\xff", "f_int32: truncated: 2 more byte(s)"),
    "truncated text": (b"\x72\x05abc", "f_string: truncated: a length of 5 bytes before byte 2 of 5"),
    "length of 2^63": (b"\x72" + b"\xff" * 9 + b"\x01", "f_string: truncated: a length of 18446744073709551615 bytes"),
    "truncated double": (b"\x09\0\0\0", "f_double: truncated: 8 more byte(s) expected"),
    "wrong wire type": (b"\x1a\x01x", "f_int32: number 3 has the wire type 2 instead of 0"),
    "message as a number": (b"\xb0\x01\x05", "first: number 22 has the wire type 0 instead of 2"),
    "invalid UTF-8": (b"\x72\x02\xff\xfe", "f_string: text that is not UTF-8"),
    "field 0": (b"\x00\x01", "no field at byte 0"),
    "wire type 7": (b"\x1f", "has the wire type 7"),
    "endless number": (b"\x18" + b"\xff" * 11, "a number of more than 10 bytes"),
    "group without an end": (b"\xc3\x3e\x08\x01", "truncated"),
    "groups crossed": (b"\xc3\x3e\xcc\x3e", "group 1000 ends as group 1001"),
    "end without begin": (b"\xc4\x3e", "ends as group 1000"),
    "packed cut": (b"\x92\x01\x02\x01\xff", "truncated"),
    "timestamp out of range": (
        encoded(at={"seconds": 253402300800}),
        "at: a timestamp outside the years 1 to 9999, or with nanoseconds outside",
    ),
    "nanos out of range": (
        b"\xea\x01\x06\x10\x80\x94\xeb\xdc\x03",
        "at: a timestamp outside the years 1 to 9999, or with nanoseconds outside",
    ),
}


@pytest.mark.quick
def test_a_broken_message_is_an_error_with_its_cause(spark: SparkSession) -> None:
    found = results(decoded(records(spark, [value for value, _ in BROKEN.values()]), PLAIN))
    for (name, (_, why)), result in zip(BROKEN.items(), found, strict=True):
        assert result.value is None, name
        assert why in result.error, name


@pytest.mark.quick
def test_an_error_names_the_path_of_the_field(spark: SparkSession) -> None:
    bad = b"\x0a\x02\xff\xfe"
    line = order()(lines=[{"sku": "a"}, {"sku": "b"}]).SerializeToString()
    values = {
        order()(first={"sku": "a"}).SerializeToString()[:2] + b"\x04" + bad: "first.sku: text that is not UTF-8",
        line + line[:2] + b"\x04" + bad: "lines[2].sku: text that is not UTF-8",
    }
    found = results(decoded(records(spark, [*values]), PLAIN))
    assert [result.error.partition(" before")[0] for result in found] == [*values.values()]


def test_pieces_of_a_message_inside_json_text_are_merged(spark: SparkSession) -> None:
    """A message field may come in several pieces, which the decoder merges; at most one member of a oneof remains."""
    text = """syntax = "proto3";
    import "google/protobuf/struct.proto";
    message Node {
      Node next = 1; oneof kind { int32 a = 2; Node b = 3; } map<string, Node> named = 4; repeated Node all = 5;
      google.protobuf.Struct notes = 6; map<string, google.protobuf.Value> values = 7; uint64 big = 8; bytes raw = 9;
    }"""
    node = message_class({"node.proto": text}, "Node")
    pieces = [
        node(next={"next": {"next": {"a": 1}}, "b": {"big": 2**64 - 1}}),
        node(next={"next": {"next": {"b": {"raw": b"x"}}, "a": 5}, "a": 7}),
        node(next={"next": {"named": {"k": {"a": 1}, "": {}}, "all": [{}, {"a": 0}]}}),
        node(notes={"x": 1}),
        node(notes={"y": [None, {"z": False}]}),
    ]
    value = b"".join(each.SerializeToString() for each in pieces)
    [found] = results(decoded(records(spark, [value]), PlainProtobuf(schema=text)))
    assert found.error is None
    whole = node.FromString(value)
    assert json.loads(found.value.next) == json_of(whole.next)
    assert json.loads(found.value.notes) == json_of(whole.notes) == {"x": 1, "y": [None, {"z": False}]}
    assert whole.next.a == 7
    assert {*whole.next.next.named} == {"k", ""}


@pytest.mark.quick
def test_confluents_header_with_message_indexes_is_read(spark: SparkSession, registry: RegistryInAThread) -> None:
    reader = avro_schema_of_protobuf(spark, RICH, references=[MONEY])
    spec = ConfluentProtobuf(registry_url=registry.url, reader_schema=reader)
    body = encoded(**FULL)
    values: list[bytes | None] = [
        wire_format.build(1, b"\0" + body),
        wire_format.build(1, b"\x02\0" + body),
        wire_format.build(1, b"\0"),
        None,
        wire_format.build(1, b"\x02\x02" + b"\x0a\x01x"),
        wire_format.build(1, b"\x02\x7f" + body),
        wire_format.build(1, b"\x01" + body),
        wire_format.build(1),
        wire_format.build(2, b"\0" + body),
        wire_format.build(9, b"\0" + body),
        b"",
    ]
    short, long, unset, null, *wrong = results(decoded(records(spark, values), spec))
    assert short.value == long.value
    assert same(short.value, order()(**FULL))
    assert (short.schema_id, short.error, unset.error) == (1, None, None)
    assert (null.value, null.schema_id, null.error) == (None, None, None)
    required = [
        "the record is a shop.v1.Other, but the table's rows are shop.v1.Order",
        "message indexes [-64] mean no message",
        "the header claims -1 message indexes",
        "truncated: 1 more byte(s) expected at byte 5",
        "schema id 2 is AVRO, not PROTOBUF",
        "unknown schema id 9",
        "empty: 0 bytes",
    ]
    for result, why in zip(wrong, required, strict=True):
        assert result.value is None
        assert why in result.error
    assert registry.requests["/schemas/ids/1"] == 1


@pytest.mark.quick
def test_values_of_another_schema_version_are_resolved_or_refused(
    spark: SparkSession, registry: RegistryInAThread
) -> None:
    old = 'syntax = "proto3"; message Trip { int32 id = 1; string zone = 2; }'
    new = 'syntax = "proto3"; message Trip { int64 id = 1; repeated string zone = 2; double fare = 3; }'
    for number, text in ((11, old), (12, new)):
        registry.schemas[number] = {"schema": text, "schemaType": "PROTOBUF"}
    fields = [
        {"name": "id", "type": "long", "default": 0},
        {"name": "place", "aliases": ["zone"], "type": "string", "default": ""},
        {"name": "fare", "type": ["null", "double"], "default": None},
    ]
    reader = json.dumps({"type": "record", "name": "Trip", "fields": fields})
    spec = ConfluentProtobuf(registry_url=registry.url, reader_schema=reader)
    value = message_class({"old.proto": old}, "Trip")(id=5, zone="z").SerializeToString()
    good, misfit = results(
        decoded(records(spark, [wire_format.build(11, b"\0" + value), wire_format.build(12, b"\0" + value)]), spec)
    )
    assert good.value.asDict() == {"id": 5, "place": "z", "fare": None}
    assert "the writer's schema does not fit the reader's" in misfit.error


def test_proto2_groups_and_required_fields_are_decoded(spark: SparkSession) -> None:
    text = """syntax = "proto2";
    message A {
      required int32 id = 1;
      optional string name = 2 [default = "none"];
      repeated group Item = 3 { optional int32 q = 1; }
    }"""
    message = message_class({"a.proto": text}, "A")(id=1, item=[{"q": 5}, {}])
    values = [message.SerializeToString(), b"\x12\x01x"]
    right, missing = results(decoded(records(spark, values), PlainProtobuf(schema=text)))
    assert right.value.asDict(recursive=True) == {"id": 1, "name": None, "item": [{"q": 5}, {"q": None}]}
    assert missing.error == "id: the required field of A is missing"


@pytest.mark.quick
def test_a_message_type_becomes_the_expected_avro_schema(spark: SparkSession) -> None:
    schema = json.loads(avro_schema_of_protobuf(spark, RICH, references=[MONEY]))
    fields = {field["name"]: field for field in schema["fields"]}
    assert (schema["namespace"], schema["name"]) == ("shop.v1", "Order")
    assert fields["f_int64"] == {"name": "f_int64", "type": "long", "default": 0}
    assert fields["maybe"] == {"name": "maybe", "type": ["null", "long"], "default": None}
    assert fields["state"] == {"name": "state", "type": "string", "default": "UNKNOWN"}
    assert fields["f_uint64"]["type"] == {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0}
    assert fields["at"]["type"] == ["null", {"type": "long", "logicalType": "timestamp-micros"}]
    assert fields["extra"]["type"] == ["null", "string"]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("schema", "message", "why"),
    [
        ("message {", None, "line 1: expected a name, found '{'"),
        ('syntax = "proto4";', None, 'line 1: the syntax "proto4" is unknown'),
        (
            'syntax = "proto3"; message A { B b = 1; }',
            None,
            "line 1: the field b of A has the type B, which is defined nowhere",
        ),
        (
            'syntax = "proto3"; message A { int32 b = 1; int32 c = 1; }',
            None,
            "line 1: b and c of message A have the number 1",
        ),
        ('syntax = "proto3"; message A { int32 b = 1; }', "C", "no message C; there are: A"),
        ('syntax = "proto3";', None, "it defines no message"),
        (b"\xff\xff", None, "not a Protobuf descriptor"),
    ],
)
def test_an_unusable_schema_is_refused(spark: SparkSession, schema: Any, message: str | None, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        decoded(records(spark, [b""]), PlainProtobuf(schema=schema, message=message))
    assert why in refused.value.what
