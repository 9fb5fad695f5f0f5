"""A broken record is an error that names its fault; it stops neither the job nor the JVM."""

import json
import struct
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from lakefeed.records.decode import ConfluentAvro, decoded
from tests.support import wire_format
from tests.support.records import avro_bytes, records, results
from tests.support.registry_in_a_thread import RegistryInAThread

pytestmark = pytest.mark.quick

SCHEMA = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": "long"},
        {"name": "b", "type": ["null", "string"]},
        {"name": "c", "type": {"type": "array", "items": "long"}},
        {"name": "d", "type": {"type": "map", "values": "null"}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X"]}},
        {"name": "f", "type": "bytes"},
    ],
}
GOOD = avro_bytes(SCHEMA, {"a": 1, "b": "x", "c": [1, 2], "d": {"k": None}, "e": "X", "f": b"12"})
OTHER = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}


def zigzag(number: int) -> bytes:
    """Encode a number as an Avro long."""
    return avro_bytes("long", number)


def framed(data: bytes, schema_id: int = 1) -> bytes:
    return wire_format.build(schema_id, data)


@pytest.fixture
def registry() -> Iterator[RegistryInAThread]:
    with RegistryInAThread() as running:
        running.put(1, SCHEMA)
        running.put(2, OTHER)
        running.schemas[3] = {"schema": "message M {}", "schemaType": "PROTOBUF"}
        running.schemas[4] = {"schema": '{"type": "record"}'}
        yield running


BROKEN = {
    "empty": (b"", "empty: 0 bytes"),
    "wrong magic": (b"\x01" + framed(GOOD)[1:], "wrong magic byte 1 instead of 0"),
    "JSON": (b'{"a": 1}', "wrong magic byte 123"),
    "half a header": (b"\x00\x00\x00", "truncated: 3 bytes, a header alone has 5"),
    "header alone": (framed(b""), "truncated: 1 more byte(s) expected at byte 5 of 5"),
    "truncated": (framed(GOOD[:-1]), "truncated: bytes of 2 bytes expected"),
    "left over": (framed(GOOD + b"!"), "1 byte(s) left over after byte"),
    "unknown id": (framed(GOOD, 99), "unknown schema id 99"),
    "negative id": (b"\x00\xff\xff\xff\xff" + GOOD, "unknown schema id -1"),
    "another writer": (framed(avro_bytes(OTHER, {"a": "x"}), 2), "the writer's schema does not fit the reader's"),
    "a Protobuf id": (framed(GOOD, 3), "schema id 3 is PROTOBUF, not AVRO"),
    "an id of nonsense": (framed(GOOD, 4), "schema id 4 is not a valid Avro schema"),
    "text that is not UTF-8": (
        framed(zigzag(1) + zigzag(1) + zigzag(3) + b"a\xffb"),
        "a string is not UTF-8: 3 byte(s)",
    ),
    "half a character": (framed(zigzag(1) + zigzag(1) + zigzag(1) + b"\xc3"), "a string is not UTF-8"),
    "a key that is not UTF-8": (framed(zigzag(1) + zigzag(0) * 2 + zigzag(1) * 2 + b"\xff" + zigzag(0)), "not UTF-8"),
    "union branch": (framed(zigzag(1) + zigzag(7)), "b: a union has index 7 of 2"),
    "string of 2^31": (framed(zigzag(1) + zigzag(1) + zigzag(2**31 - 1)), "truncated: a string of 2147483647 bytes"),
    "negative string": (framed(zigzag(1) + zigzag(1) + zigzag(-5)), "negative length -5 of a string"),
    "array of 2^31": (framed(zigzag(1) + zigzag(0) + zigzag(2**31 - 9)), "claims 2147483639 items"),
    "array of 2^62": (framed(zigzag(1) + zigzag(0) + zigzag(2**62)), "claims 4611686018427387904 items"),
    "array of -2^63": (framed(zigzag(1) + zigzag(0) + zigzag(-(2**63)) + zigzag(1) + b"0"), "claims"),
    "map of nulls": (framed(zigzag(1) + zigzag(0) + zigzag(0) + zigzag(2**30)), "claims 1073741824 items"),
    "enum symbol": (framed(zigzag(1) + zigzag(0) * 3 + zigzag(5) + zigzag(0)), "e: an enum has index 5 of 1"),
    "endless number": (framed(b"\xff" * 20), "more than 10 bytes"),
}


def test_a_broken_record_is_an_error_that_names_the_cause(spark: SparkSession, registry: RegistryInAThread) -> None:
    spec = ConfluentAvro(registry_url=registry.url, reader_schema=json.dumps(SCHEMA))
    values = [framed(GOOD), *(value for value, _ in BROKEN.values()), None, framed(GOOD)]
    first, *broken, tombstone, last = results(decoded(records(spark, values), spec))
    assert first == last
    assert first.value.asDict() == {"a": 1, "b": "x", "c": [1, 2], "d": {"k": None}, "e": "X", "f": bytearray(b"12")}
    assert (first.schema_id, first.error) == (1, None)
    assert (tombstone.value, tombstone.schema_id, tombstone.error) == (None, None, None)
    for (name, (value, why)), result in zip(BROKEN.items(), broken, strict=True):
        assert result.value is None, name
        assert why in result.error, name
        header = len(value) >= 5 and value[0] == 0
        assert result.schema_id in ({None, struct.unpack_from(">i", value, 1)[0]} if header else {None}), name
        if name in ("truncated", "unknown id"):
            assert result.schema_id is not None
