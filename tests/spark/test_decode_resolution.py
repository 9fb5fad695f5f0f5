"""The decoder resolves schemas in cases that from_avro does not support."""

import json
from typing import Any

from pyspark.sql import SparkSession

from lakefeed.records.decode import PlainAvro, decoded
from tests.support.records import avro_bytes, records, results


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def test_the_last_value_of_a_repeated_map_key_is_kept(spark: SparkSession) -> None:
    keys = [f"k{at % 12}" for at in range(30)]
    entries = b"".join(avro_bytes("string", key) + avro_bytes("int", at) for at, key in enumerate(keys))
    value = avro_bytes("long", len(keys)) + entries + b"\0"
    schema = json.dumps(record(m={"type": "map", "values": "int"}))
    [result] = results(decoded(records(spark, [value]), PlainAvro(writer_schema=schema)))
    assert result.value.m == dict(zip(keys, range(30), strict=True))
