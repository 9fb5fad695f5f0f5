"""In every format, lakefeed's encoded rows decode to the same rows, by reference libraries and by lakefeed."""

import json
from typing import Any

import jsonschema
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakefeed.errors import ConfigError
from lakefeed.records.decode import ConfluentProtobuf, Json, PlainProtobuf, decoded
from lakefeed.records.decode.avro_schema import avro_schema_of_protobuf
from lakefeed.records.decode.registry import ReferredSchema, SchemaText
from lakefeed_encode import encode
from lakefeed_encode.encode import Encoding, encoded, settle, subject_name, to_records
from tests.spark.test_decode_protobuf import FULL, same
from tests.support.protos import MONEY, RICH, order
from tests.support.records import records, results
from tests.support.registry_in_a_thread import RegistryInAThread

COLUMNS = """id BIGINT NOT NULL, small SMALLINT, price DOUBLE, ok BOOLEAN, name STRING, raw BINARY, at TIMESTAMP,
    tags ARRAY<STRING>, sizes ARRAY<INT>, stop STRUCT<zone: STRING, n: INT>, stops ARRAY<STRUCT<zone: STRING, n: INT>>,
    counts MAP<STRING, BIGINT>, big DECIMAL(20,0)"""
ROWS = """VALUES
    (1L, 2S, 0.5D, true, 'Zürich', X'00FF', TIMESTAMP '2026-01-02 03:04:05.678901', array('a', ''), array(-1, 2),
     named_struct('zone', 'A', 'n', 1), array(named_struct('zone', 'B', 'n', -2)), map('k', 3L),
     CAST('18446744073709551615' AS DECIMAL(20,0))),
    (-9223372036854775808L, null, null, null, null, null, null, array(), array(), null, array(), map(), null)
    AS t(id, small, price, ok, name, raw, at, tags, sizes, stop, stops, counts, big)"""


def frame(spark: SparkSession) -> DataFrame:
    made = spark.sql(f"SELECT * FROM {ROWS}")
    return spark.createDataFrame(made.collect(), COLUMNS).coalesce(1)


def values(made: DataFrame) -> list[bytes]:
    return [bytes(row.value) for row in made.collect()]


@pytest.mark.quick
def test_protobuf_with_a_derived_schema_decodes_to_the_same_rows(spark: SparkSession) -> None:
    rows = frame(spark)
    made = to_records(rows, format="protobuf", topic="trips")
    encoding = settle(rows, format="protobuf", topic="trips")
    assert encoding.written is not None
    found = results(decoded(records(spark, values(made)), PlainProtobuf(schema=encoding.written.text)))
    assert [each.error for each in found] == [None, None]
    for each, row in zip(found, rows.collect(), strict=True):
        assert each.value.asDict(recursive=True) == row.asDict(recursive=True)


def test_the_reference_library_reads_protobuf_that_a_given_schema_encodes(spark: SparkSession) -> None:
    fields = {name: value for name, value in FULL.items() if name not in ("folder", "at")}
    message = order()(**fields)
    spec = PlainProtobuf(schema=RICH, references=(MONEY,), message="Order")
    rows = (
        decoded(records(spark, [message.SerializeToString(), b""]), spec)
        .select("decoded.value.*")
        .drop("folder", "extra")
    )
    money = ReferredSchema(name="money.proto", text=MONEY, subject="money", version=1)
    schema = SchemaText(text=RICH, kind="PROTOBUF", references=(money,))
    with RegistryInAThread() as registry:
        registry.schemas[300] = {
            "schema": RICH,
            "schemaType": "PROTOBUF",
            "references": [{"name": "money.proto", "subject": "money", "version": 1}],
        }
        registry.versions["money", 1] = {"schema": MONEY, "schemaType": "PROTOBUF"}
        avro = avro_schema_of_protobuf(spark, RICH, references=[MONEY])
        # Leave out the recursive field, which can be read as JSON text but cannot be written.
        document = json.loads(avro)
        document["fields"] = [field for field in document["fields"] if field["name"] != "folder"]
        encoding = Encoding(
            format="confluent-protobuf",
            schema=json.dumps(document),
            written=schema,
            message="Order",
            subject="s",
            schema_id=300,
        )
        made = values(encoded(rows, encoding))
        assert made[0][:6] == b"\x00\x00\x00\x01\x2c\x00"
        assert order().FromString(made[0][6:]) == message
        assert order().FromString(made[1][6:]) == order()()
        back = results(decoded(records(spark, made), ConfluentProtobuf(registry_url=registry.url, reader_schema=avro)))
    assert same(back[0].value, message)


@pytest.mark.quick
def test_encoded_json_is_valid_for_the_schema_derived_from_the_rows(spark: SparkSession) -> None:
    rows = frame(spark).drop("big")
    schema = json.loads(encode.json_schema(rows.schema, name="trips"))
    made = [json.loads(value) for value in values(to_records(rows, format="json", topic="trips"))]
    for value in made:
        jsonschema.Draft7Validator(schema).validate(value)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(schema).validate({**made[0], "id": "x"})
    ddl = COLUMNS.removesuffix(", big DECIMAL(20,0)")
    found = results(decoded(records(spark, [json.dumps(each).encode() for each in made]), Json(schema=ddl)))
    assert [each.error for each in found] == [None, None]
    for each, row in zip(found, rows.collect(), strict=True):
        assert each.value.asDict(recursive=True) == row.asDict(recursive=True)


def test_string_records_need_one_string_column(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("ü", 1)], "text STRING, k INT")
    made = to_records(rows, format="string", topic="t", key="k")
    assert values(made) == ["ü".encode()]
    with pytest.raises(ConfigError, match="writes one column"):
        to_records(rows, format="string", topic="t")


@pytest.mark.parametrize(
    ("query", "form", "schema", "what"),
    [
        ("SELECT 'x' AS id", "protobuf", 'syntax = "proto3"; message A { int64 id = 1; }', "do not fit"),
        ("SELECT 1L AS id, 2 AS b", "protobuf", 'syntax = "proto3"; message A { int64 id = 1; }', "no field for"),
        ("SELECT 1L AS id", "protobuf", "message", "The Protobuf schema cannot be used"),
        ("SELECT DATE '2026-01-01' AS d", "protobuf", None, "Protobuf has no type for the column d, date"),
        ("SELECT 1 AS `a b`", "protobuf", None, "'a b' cannot be a field of Protobuf"),
        ("SELECT 1 AS id, array('a', 'b') AS tags", "csv", None, "the column tags cannot be written as CSV"),
        ("SELECT named_struct('a', 1) AS s", "csv", None, "the column s cannot be written as CSV"),
        ("SELECT INTERVAL 1 DAY AS i", "json-schema", None, "JSON has no type for the column i"),
        ("SELECT 1L AS id", "confluent-protobuf", None, "needs a schema registry"),
    ],
)
def test_rows_that_cannot_be_encoded_are_refused(
    spark: SparkSession, query: str, form: Any, schema: str | None, what: str
) -> None:
    registry = "http://127.0.0.1:9" if form == "json-schema" else None
    if form == "json-schema":
        with pytest.raises(ConfigError, match=what):
            encode.json_schema(spark.sql(query).schema, name="x")
        return
    with pytest.raises(ConfigError) as refused:
        to_records(spark.sql(query), format=form, topic="t", schema=schema, registry=registry)
    assert what in refused.value.what


def test_each_subject_name_strategy_gives_its_name() -> None:
    assert subject_name("topic", topic="t", record="a.R") == "t-value"
    assert subject_name("record", topic="t", record="a.R") == "a.R"
    assert subject_name("topic-record", topic="t", record="a.R") == "t-a.R"
