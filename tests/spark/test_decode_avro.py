"""Values of all Avro types decode as with Spark's from_avro and with fastavro."""

import datetime as dt
import io
import json
import math
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro

from lakefeed.errors import ConfigError
from lakefeed.records.decode import PlainAvro, decoded
from tests.support.records import avro_bytes, records, results

pytestmark = pytest.mark.quick

POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "double"}]}
TYPES: dict[str, Any] = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
    "enum": {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN", "BLUE"]},
    "fixed": {"type": "fixed", "name": "Four", "size": 4},
    "longs": {"type": "array", "items": "long"},
    "optional_strings": {"type": "array", "items": ["null", "string"]},
    "doubles_by_name": {"type": "map", "values": "double"},
    "point": POINT,
    "points": {"type": "array", "items": "Point"},
    "lists_by_name": {"type": "map", "values": {"type": "array", "items": "int"}},
    "optional": ["null", "string"],
    "optional_point": ["Point", "null"],
    "int_or_long": ["int", "long"],
    "float_or_double": ["null", "float", "double"],
    "anything": ["null", "int", "string", "Point"],
    "date": {"type": "int", "logicalType": "date"},
    "millis": {"type": "long", "logicalType": "timestamp-millis"},
    "micros": {"type": "long", "logicalType": "timestamp-micros"},
    "local_micros": {"type": "long", "logicalType": "local-timestamp-micros"},
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    "fixed_decimal": {
        "type": "fixed",
        "name": "Eight",
        "size": 8,
        "logicalType": "decimal",
        "precision": 18,
        "scale": 4,
    },
    "uuid": {"type": "string", "logicalType": "uuid"},
    "time": {"type": "int", "logicalType": "time-millis"},
}
SCHEMA = {
    "type": "record",
    "name": "Everything",
    "namespace": "io.example",
    "fields": [{"name": name, "type": kind} for name, kind in TYPES.items()],
}

ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(width=32)
text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
points = st.fixed_dictionaries({"x": ints, "y": st.floats()})
moments = st.datetimes(dt.datetime(1900, 1, 2), dt.datetime(2200, 1, 1))
utc_moments = moments.map(lambda moment: moment.replace(tzinfo=dt.UTC))
DATA = st.fixed_dictionaries(
    {
        "boolean": st.booleans(),
        "int": ints,
        "long": longs,
        "float": floats,
        "double": st.floats(),
        "string": text,
        "bytes": st.binary(max_size=20),
        "enum": st.sampled_from(["RED", "GREEN", "BLUE"]),
        "fixed": st.binary(min_size=4, max_size=4),
        "longs": st.lists(longs, max_size=5),
        "optional_strings": st.lists(st.none() | text, max_size=5),
        "doubles_by_name": st.dictionaries(text, st.floats(), max_size=4),
        "point": points,
        "points": st.lists(points, max_size=4),
        "lists_by_name": st.dictionaries(text, st.lists(ints, max_size=3), max_size=3),
        "optional": st.none() | text,
        "optional_point": st.none() | points,
        "int_or_long": ints | longs,
        "float_or_double": st.none() | st.floats(),
        "anything": st.none() | ints | text | points,
        "date": st.dates(dt.date(1600, 1, 1), dt.date(2300, 1, 1)),
        "millis": utc_moments.map(lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)),
        "micros": utc_moments,
        "local_micros": moments,
        "decimal": st.decimals(Decimal("-99999999.99"), Decimal("99999999.99"), places=2),
        "fixed_decimal": st.decimals(Decimal("-9999999999.9999"), Decimal("9999999999.9999"), places=4),
        "uuid": st.uuids(),
        "time": st.times().map(lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000)),
    }
)


def plain(value: Any) -> Any:
    """Convert a value of Spark or fastavro to a comparable form."""
    match value:
        case Row():
            return plain(value.asDict())
        case dict():
            return {key: plain(each) for key, each in value.items()}
        case list():
            return [plain(each) for each in value]
        case bytearray():
            return bytes(value)
        case UUID():
            return str(value)
        case dt.time():
            return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
        case float() if math.isnan(value):
            return "NaN"
    return value


def expected(encoded: bytes) -> dict[str, Any]:
    """Return the value that fastavro reads; a union of several types becomes a struct, as in Spark."""
    datum = fastavro.schemaless_reader(io.BytesIO(encoded), fastavro.parse_schema(SCHEMA), None)
    assert isinstance(datum, dict)
    anything = datum["anything"]
    if anything is not None:
        branch = 0 if isinstance(anything, int) else 1 if isinstance(anything, str) else 2
        datum["anything"] = {f"member{at}": anything if at == branch else None for at in range(3)}
    for name in ("millis", "micros"):
        # Spark's collect() returns timestamps as local time without a zone.
        datum[name] = datum[name].astimezone().replace(tzinfo=None)
    result = plain(datum)
    assert isinstance(result, dict)
    return result


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.lists(DATA, min_size=20, max_size=40))
def test_decoded_values_equal_those_of_from_avro_and_of_fastavro(
    spark: SparkSession, data: list[dict[str, Any]]
) -> None:
    spark.conf.set("spark.sql.avro.datetimeRebaseModeInRead", "CORRECTED")
    encoded = [avro_bytes(SCHEMA, datum) for datum in data]
    both = (
        decoded(records(spark, encoded), PlainAvro(writer_schema=json.dumps(SCHEMA)))
        .withColumn("reference", from_avro("value", json.dumps(SCHEMA)))
        .orderBy("offset")
        .collect()
    )
    for row, each in zip(both, encoded, strict=True):
        assert row.decoded.error is None
        assert row.decoded.schema_id is None
        assert plain(row.decoded.value) == plain(row.reference)
        assert plain(row.decoded.value) == expected(each)


def test_the_decoded_type_equals_that_of_from_avro(spark: SparkSession) -> None:
    both = decoded(records(spark, [b""]), PlainAvro(writer_schema=json.dumps(SCHEMA))).select(
        "decoded.value", from_avro("value", json.dumps(SCHEMA)).alias("reference")
    )
    assert both.schema["value"].dataType == both.schema["reference"].dataType


@pytest.mark.parametrize(
    "schema", ['{"type": "record"', '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Unknown"}]}']
)
def test_an_unusable_schema_is_refused_before_decoding(spark: SparkSession, schema: str) -> None:
    with pytest.raises(ConfigError, match="Avro schema cannot be used"):
        decoded(records(spark, [b""]), PlainAvro(writer_schema=schema))


def test_decoded_rows_do_not_share_memory(spark: SparkSession) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}, {"name": "p", "type": POINT}]}
    data = [{"a": at, "p": {"x": at, "y": float(at)}} for at in range(100)]
    frame = decoded(
        records(spark, [avro_bytes(schema, each) for each in data]), PlainAvro(writer_schema=json.dumps(schema))
    )
    collected = frame.select(sf.collect_list("decoded.value").alias("all")).first()
    assert collected is not None
    assert sorted(plain(collected["all"]), key=lambda each: each["a"]) == data
    assert [plain(each.value) for each in sorted(results(frame.cache()), key=lambda each: each.value.a)] == data
