"""Schema resolution in cases that from_avro does not support."""

import datetime as dt
import json
from typing import Any

from pyspark.sql import Row, SparkSession

from lakefeed.records.decode import PlainAvro, decoded
from tests.support.records import avro_bytes, records, results


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def read(spark: SparkSession, writer: Any, datum: Any, reader: Any) -> Row:
    spec = PlainAvro(writer_schema=json.dumps(writer), reader_schema=json.dumps(reader))
    [result] = results(decoded(records(spark, [avro_bytes(writer, datum)]), spec))
    return result


def test_a_nullable_field_of_the_reader_needs_no_default(spark: SparkSession) -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": ["int", "null"]}]}
    reader = record(a="int", b=["string", "null"], c="null", inner=inner)
    writer = record(a="int", inner={**inner, "fields": []})
    assert read(spark, writer, {"a": 1, "inner": {}}, reader).value.asDict(recursive=True) == {
        "a": 1,
        "b": None,
        "c": None,
        "inner": {"x": None},
    }
    refused = read(spark, writer, {"a": 1, "inner": {}}, record(a="int", b="string"))
    assert "missing required field b" in refused.error


LINK = {
    "type": "record",
    "name": "Link",
    "fields": [
        {"name": "value", "type": {"type": "int", "logicalType": "date"}},
        {"name": "blob", "type": "bytes"},
        {"name": "next", "type": ["null", "Link"]},
        {"name": "tree", "type": {"type": "map", "values": {"type": "array", "items": ["string", "Link"]}}},
    ],
}
DAY = dt.date(2026, 1, 2)


def link(following: Any = None, **tree: Any) -> dict[str, Any]:
    return {"value": DAY, "blob": b"\xff", "next": following, "tree": tree}


def test_a_recursive_record_becomes_json_text(spark: SparkSession) -> None:
    leaf: dict[str, Any] = {"value": "2026-01-02", "blob": "/w==", "next": None, "tree": {}}
    found = read(spark, LINK, link(link(link()), branch=["x", link()]), LINK).value.asDict(recursive=True)
    assert (found["value"], found["blob"]) == (DAY, bytearray(b"\xff"))
    assert json.loads(found["next"]) == {**leaf, "next": leaf}
    text, deeper = found["tree"]["branch"]
    assert text == {"member0": "x", "member1": None}
    assert json.loads(deeper["member1"]) == leaf


def test_recursive_types_are_resolved(spark: SparkSession) -> None:
    writer = {
        "type": "record",
        "name": "Link",
        "fields": [
            {"name": "gone", "type": ["null", "Link"]},
            {"name": "value", "type": "int"},
            {"name": "next", "type": ["null", "Link"]},
        ],
    }
    reader = {
        "type": "record",
        "name": "Link",
        "fields": [
            {"name": "next", "type": ["null", "Link"]},
            {"name": "number", "type": "long", "aliases": ["value"]},
            {"name": "added", "type": "string", "default": "new"},
        ],
    }
    datum = {"gone": None, "value": 1, "next": {"gone": None, "value": 2, "next": None}}
    found = read(spark, writer, {**datum, "gone": datum}, reader).value
    assert (found.number, found.added) == (1, "new")
    assert json.loads(found.next) == {"next": None, "number": 2, "added": "new"}


def test_a_repeated_map_key_keeps_the_last_value(spark: SparkSession) -> None:
    keys = [f"k{at % 12}" for at in range(30)]
    entries = b"".join(avro_bytes("string", key) + avro_bytes("int", at) for at, key in enumerate(keys))
    value = avro_bytes("long", len(keys)) + entries + b"\0"
    schema = json.dumps(record(m={"type": "map", "values": "int"}))
    [result] = results(decoded(records(spark, [value]), PlainAvro(writer_schema=schema)))
    assert result.value.m == dict(zip(keys, range(30), strict=True))
