"""Decoded records become rows, in batches and streams, by the policies for null and broken values."""

import json
import re
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from lakefeed.errors import ConfigError
from lakefeed.records.decode import Json, PlainAvro, Raw, decode_error_of, decoded, rows
from tests.support.records import avro_bytes, records, results

SCHEMA = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}, {"name": "c", "type": "double"}],
}
AVRO = PlainAvro(writer_schema=json.dumps(SCHEMA))
JSON = Json(schema="a BIGINT NOT NULL, b STRING, c ARRAY<INT>, t TIMESTAMP")

CALL = re.compile(r"\.decode\.\w+\.invoke\(")
"""The decoder in a plan, with its catalog's name."""


def one(at: int) -> bytes:
    return avro_bytes(SCHEMA, {"a": at, "b": str(at), "c": at / 2})


def optimised(frame: DataFrame) -> str:
    java: Any = frame._jdf
    return str(java.queryExecution().executedPlan().toString())


@pytest.mark.quick
@pytest.mark.parametrize("spec", [AVRO, JSON])
def test_each_record_is_decoded_once(spark: SparkSession, spec: Any) -> None:
    frame = rows(decoded(records(spark, [one(1)]), spec), on_null="skip", keep=["topic", "offset"])
    wide = (
        frame.filter("a > 0").select(sf.col("a") + 1, "a", "b", sf.upper("b"), "c", "kafka_offset").filter("b <> 'x'")
    )
    assert len(CALL.findall(optimised(wide))) == 1
    assert len(CALL.findall(optimised(wide.groupBy("b").agg(sf.sum("a"))))) == 1


@pytest.mark.quick
def test_the_decoder_is_part_of_whole_stage_codegen(spark: SparkSession) -> None:
    plan = optimised(rows(decoded(records(spark, [one(1)]), AVRO)))
    [line] = [line for line in plan.splitlines() if CALL.search(line)]
    assert line.lstrip(" :+-").startswith("*(")


def test_a_count_of_rows_also_decodes_the_records(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="cannot decode the record"):
        rows(decoded(records(spark, [one(1), b""]), AVRO)).count()


@pytest.mark.quick
def test_a_broken_record_stops_the_job_and_the_error_has_its_offset(spark: SparkSession) -> None:
    frame = rows(decoded(records(spark, [one(1), one(2), b"\x02"], topic="trips.v1-x"), AVRO))
    with pytest.raises(Exception, match="cannot decode") as stopped:
        frame.collect()
    error = decode_error_of(stopped.value)
    assert error is not None
    assert error.where == "topic trips.v1-x, partition 0, offset 2"
    assert error.what == "A record cannot be decoded: b: truncated: 1 more byte(s) expected at byte 1 of 1"


@pytest.mark.parametrize("spec", [AVRO, JSON, Raw()])
def test_null_values_stop_the_job_unless_on_null_allows_them(spark: SparkSession, spec: Any) -> None:
    value = {AVRO: one(1), JSON: b'{"a": 1}', Raw(): b"x"}[spec]
    frame = decoded(records(spark, [value, None, value]), spec)
    with pytest.raises(Exception, match="tombstone") as stopped:
        rows(frame).collect()
    error = decode_error_of(stopped.value)
    assert error is not None
    assert error.where == "topic t, partition 0, offset 1"
    assert [row.kafka_offset for row in rows(frame, on_null="skip", keep=["offset"]).collect()] == [0, 2]
    kept = rows(frame, on_null="keep", keep=["offset"]).orderBy("kafka_offset").collect()
    assert [row.kafka_offset for row in kept] == [0, 1, 2]
    assert [each for each in kept[1].asDict().values() if each is not None] == [1]


@pytest.mark.quick
def test_rows_have_the_requested_metadata(spark: SparkSession) -> None:
    frame = (
        records(spark, [one(1)])
        .withColumn("key", sf.lit(b"k"))
        .withColumn("timestamp", sf.lit("2026-01-02 03:04:05").cast("timestamp"))
        .withColumn("headers", sf.expr("array(named_struct('key', 'h', 'value', X'01'))"))
    )
    names = ("topic", "partition", "offset", "timestamp", "key", "headers")
    found = rows(decoded(frame, AVRO), keep=names)
    assert found.columns == ["a", "b", "c", *(f"kafka_{name}" for name in names)]
    [row] = found.collect()
    assert (row.kafka_topic, row.kafka_partition, row.kafka_offset, row.kafka_key) == ("t", 0, 0, bytearray(b"k"))


def test_unknown_metadata_is_refused(spark: SparkSession) -> None:
    frame = decoded(records(spark, [b"{}"]), Json(schema="kafka_offset BIGINT"))
    with pytest.raises(ConfigError, match="'ofset' is not metadata"):
        rows(frame, keep=["ofset"])
    with pytest.raises(ConfigError, match="includeHeaders"):
        rows(frame, keep=["headers"])
    with pytest.raises(ConfigError, match="field kafka_offset has the name of a column"):
        rows(frame, keep=["offset"])


BROKEN_JSON = {
    b"": "empty: 0 bytes",
    b'\0\0\0\0\x07{"a": 1}': "it begins as values of a schema registry do, with schema id 7",
    **dict.fromkeys((b"  ", b"null", b"5", b'[{"a": 1}]'), "not a JSON object"),
    b'{"a": 1, "c": {"x": 1}}': "c: expected an array, found an object",
    b'{"a": null}': "a: missing or null",
    b'{"b": "x"}': "a: missing or null",
}


@pytest.mark.quick
def test_json_text_that_spark_would_read_as_null_is_an_error(spark: SparkSession) -> None:
    found = results(decoded(records(spark, list(BROKEN_JSON)), JSON))
    for (value, why), result in zip(BROKEN_JSON.items(), found, strict=True):
        assert result.value is None, value
        assert why in result.error, value


@pytest.mark.parametrize(
    "schema",
    [
        "a BIGINT NOT NULL, b STRING",
        '{"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": false, "metadata": {}},'
        ' {"name": "b", "type": "string", "nullable": true, "metadata": {}}]}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"},'
        ' {"name": "b", "type": ["null", "string"]}]}',
    ],
)
def test_a_schema_for_json_may_be_ddl_avro_or_a_struct_type(spark: SparkSession, schema: str) -> None:
    values = [b'{"a": 1, "b": "\xc3\xa4", "unknown": {"x": [1]}}', b'{"a": 2}', b'{"b": "x"}']
    right, short, wrong = results(decoded(records(spark, values), Json(schema=schema)))
    assert right.value.asDict() == {"a": 1, "b": "ä"}
    assert short.value.asDict() == {"a": 2, "b": None}
    assert wrong.error == "a: missing or null"


@pytest.mark.parametrize("schema", ["a BIGINTT", '{"type": "record"}', "", '{"type": "struct", "fields": []}'])
def test_an_unreadable_schema_for_json_is_refused(spark: SparkSession, schema: str) -> None:
    with pytest.raises(ConfigError, match="schema for JSON values"):
        decoded(records(spark, [b"{}"]), Json(schema=schema))
