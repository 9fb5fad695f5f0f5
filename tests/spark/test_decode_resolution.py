"""The decoder resolves schemas in cases that from_avro does not support."""

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


def test_the_last_value_of_a_repeated_map_key_is_kept(spark: SparkSession) -> None:
    keys = [f"k{at % 12}" for at in range(30)]
    entries = b"".join(avro_bytes("string", key) + avro_bytes("int", at) for at, key in enumerate(keys))
    value = avro_bytes("long", len(keys)) + entries + b"\0"
    schema = json.dumps(record(m={"type": "map", "values": "int"}))
    [result] = results(decoded(records(spark, [value]), PlainAvro(writer_schema=schema)))
    assert result.value.m == dict(zip(keys, range(30), strict=True))
