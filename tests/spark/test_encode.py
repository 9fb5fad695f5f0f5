"""Rows become records with the right bytes; rows that do not fit are refused before any record is sent."""

import io
import json
import time
from pathlib import Path
from typing import Any, Literal

import fastavro
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import to_avro

from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed_encode import avro
from lakefeed_encode.encode import Encoding, encoded, settle, to_records
from lakefeed_local.produce.sources import read_error, read_rows
from lakefeed_local.produce.taxi import KEY, taxi_rows, taxi_schema


def record_schema(**fields: Any) -> str:
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    return json.dumps({"type": "record", "name": "thing", "fields": listed})


def decoded(schema: str, value: bytes) -> dict[str, Any]:
    read = fastavro.schemaless_reader(io.BytesIO(value), fastavro.parse_schema(json.loads(schema)), None)
    assert isinstance(read, dict)
    return read


def values(records: DataFrame) -> list[bytes]:
    return [bytes(row.value) for row in records.collect()]


@pytest.mark.quick
def test_plain_avro_records_have_no_header(spark: SparkSession) -> None:
    rows = taxi_rows(spark, 50)
    records = to_records(rows, format="avro", topic="t", key=KEY, schema=taxi_schema())
    assert records.columns == ["key", "value"]
    for record, row in zip(records.collect(), rows.collect(), strict=True):
        expected = row.asDict()
        assert record.key == expected.pop(KEY)
        assert decoded(taxi_schema(), bytes(record.value)) == expected


@pytest.mark.quick
def test_confluents_header_is_a_zero_byte_and_the_schema_id_in_four_bytes(spark: SparkSession) -> None:
    rows = taxi_rows(spark, 3)
    plain = encoded(rows, Encoding(format="avro", schema=taxi_schema()))
    framed = encoded(rows, Encoding(format="confluent-avro", schema=taxi_schema(), subject="s", schema_id=0x01020304))
    assert values(framed) == [b"\x00\x01\x02\x03\x04" + value for value in values(plain)]


EVERY_TYPE = """
    SELECT id = 1 AS flag, cast(id AS tinyint) AS tiny, cast(-id AS smallint) AS small, cast(id * 7919 AS int) AS whole,
        id * -1152921504606846977 AS wide, cast(id / 3 AS float) AS single, -0.0D AS minus, id / 7 AS ratio,
        if(id = 1, '', repeat('ä€', cast(id * 200 AS int))) AS text, cast(concat('b', id) AS binary) AS bytes,
        date_add(DATE'2024-02-29', cast(id * 1000 AS int)) AS day,
        timestamp_micros(id * 1234567890123457) AS instant, cast(timestamp_micros(id * 99) AS timestamp_ntz) AS clock,
        cast(id * 1.25 - 100 AS decimal(9, 2)) AS price, cast(if(id = 1, -1, id) AS decimal(38, 0)) AS huge,
        array(id, NULL, -id) AS numbers, array() AS nothing, map('a', id, 'b', NULL) AS known,
        struct(id AS number, struct(concat('x', id) AS text) AS inner) AS nested,
        array(struct(id AS number), struct(-id AS number)) AS listed, if(id = 2, NULL, id) AS sometimes
    FROM range(6)
"""


@pytest.mark.quick
def test_values_of_every_type_are_encoded_as_spark_encodes_them(spark: SparkSession) -> None:
    rows = spark.sql(EVERY_TYPE).drop("nothing").withColumn("nothing", sf.expr("cast(array() AS array<string>)"))
    schema = avro.derived(rows, name="every")
    records = encoded(rows, Encoding(format="avro", schema=schema))
    assert "lakefeed.encode" in records._jdf.queryExecution().toString()
    spark_own = rows.select(to_avro(sf.struct("*"), schema).alias("value"))
    assert values(records) == values(spark_own)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["avro", "json"])
def test_many_computed_columns_are_encoded_within_seconds(spark: SparkSession, name: Literal["avro", "json"]) -> None:
    """Spark once generated a single method for all columns, which Janino took minutes to compile."""
    computed = [sf.concat(sf.lit(f"{at}-"), sf.col("id") * at).alias(f"c{at}") for at in range(1_500)]
    rows = spark.range(3).select("id", *computed)
    began = time.monotonic()
    got = values(to_records(rows, format=name, topic="t"))
    took = time.monotonic() - began
    schema = avro.derived(rows, name="t")
    read = [decoded(schema, value) if name == "avro" else json.loads(value) for value in got]
    assert read == [{"id": row, **{f"c{at}": f"{at}-{row * at}" for at in range(1_500)}} for row in range(3)]
    print(name, f"{took:.1f} s")
    assert took < 60


def test_enums_and_fixed_are_encoded_as_spark_encodes_them(spark: SparkSession) -> None:
    fixed = {"type": "fixed", "name": "f", "size": 4}
    decimal = {"type": "fixed", "name": "d", "size": 9, "logicalType": "decimal", "precision": 9, "scale": 2}
    suit = {"type": "enum", "name": "suit", "symbols": ["HEARTS", "SPADES"]}
    millis = ["null", {"type": "long", "logicalType": "timestamp-millis"}]
    fields = {"suit": suit, "four": fixed, "price": [decimal, "null"], "at": millis, "more": ["null", "string"]}
    schema = record_schema(**fields)
    rows = spark.sql(
        "SELECT if(id = 0, 'SPADES', 'HEARTS') AS suit, cast('abcd' AS binary) AS four, if(id = 1, NULL, "
        "cast(-id * 3.5 AS decimal(9, 2))) AS price, timestamp_micros(id * -1500) + INTERVAL 50 YEARS AS at "
        "FROM range(3)"
    )
    records = encoded(rows, Encoding(format="avro", schema=schema))
    assert "lakefeed.encode" in records._jdf.queryExecution().toString()
    assert values(records) == values(rows.select(to_avro(sf.struct("*"), schema).alias("value")))
    for wrong, what in (
        ("'CLUBS' AS suit, four", "no symbol CLUBS"),
        ("suit, cast('ab' AS binary) AS four", "2 bytes"),
    ):
        with pytest.raises(Exception, match=what):
            encoded(
                rows.selectExpr(*wrong.split(", "), "price", "at"), Encoding(format="avro", schema=schema)
            ).collect()


def test_spark_encodes_the_types_that_lakefeeds_encoder_lacks(spark: SparkSession) -> None:
    schema = record_schema(either=["long", "string", "boolean"])
    rows = spark.sql(
        "SELECT named_struct('member0', id, 'member1', cast(NULL AS string), 'member2', cast(NULL AS "
        "boolean)) AS either FROM range(2)"
    )
    records = encoded(rows, Encoding(format="confluent-avro", schema=schema, subject="s", schema_id=7))
    assert "lakefeed.encode" not in records._jdf.queryExecution().toString()
    assert [decoded(schema, value[5:]) for value in values(records)] == [{"either": 0}, {"either": 1}]


@pytest.mark.quick
def test_encoded_json_has_all_columns_even_null_columns(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, "a"), (2, None)], "id int, name string")
    got = [json.loads(value) for value in values(to_records(rows, format="json", topic="t"))]
    assert got == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]


@pytest.mark.quick
def test_records_have_the_given_headers_and_key(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(7, bytearray(b"\x00\xff"))], "id int, raw binary")
    record = to_records(rows, format="json", topic="t", key="raw", headers={"a": "1", "b": "ü"}).collect()[0]
    assert bytes(record.key) == b"\x00\xff"
    assert [(each.key, bytes(each.value)) for each in record.headers] == [("a", b"1"), ("b", "ü".encode())]
    assert to_records(rows, format="json", topic="t", key="id").collect()[0].key == "7"


@pytest.mark.quick
def test_a_schema_is_derived_from_the_rows(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1L AS id, cast(null AS string) AS name, timestamp'2018-01-01 00:00:00Z' AS at")
    encoding = settle(rows, format="avro", topic="my-topic.1")
    assert encoding.schema is not None
    schema = json.loads(encoding.schema)
    assert schema["name"] == "my_topic_1"
    assert [field["name"] for field in schema["fields"]] == ["id", "name", "at"]
    got = decoded(encoding.schema, values(encoded(rows, encoding))[0])
    assert (got["id"], got["name"], got["at"].isoformat()) == (1, None, "2018-01-01T00:00:00+00:00")


def test_narrow_types_are_widened_and_optional_fields_may_be_missing(spark: SparkSession) -> None:
    schema = record_schema(id="long", share="double", note=["null", "string"])
    rows = spark.sql("SELECT 1 AS id, cast(0.5 AS float) AS share")
    records = to_records(rows, format="avro", topic="t", schema=schema)
    assert decoded(schema, values(records)[0]) == {"id": 1, "share": 0.5, "note": None}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("query", "schema", "what"),
    [
        ("SELECT 1L AS id", record_schema(id="long", name="string"), "lack what the schema requires: name"),
        ("SELECT 1L AS id, 2 AS more", record_schema(id="long"), "no field for the columns more"),
        ("SELECT 'x' AS id", record_schema(id="long"), "(?i)string.*long"),
        ("SELECT 1L AS id", record_schema(id="double"), "(?i)bigint.*double|long.*double"),
        ("SELECT 1L AS id", '"string"', "of type string, but rows need a record"),
        ("SELECT 1L AS id", "{nonsense", "not a valid Avro schema"),
        ("SELECT 1L AS id", record_schema(id="longer"), "not a valid Avro schema"),
    ],
)
def test_rows_that_do_not_fit_the_schema_are_refused_before_encoding(
    spark: SparkSession, query: str, schema: str, what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        settle(spark.sql(query), format="avro", topic="t", schema=schema)


def test_a_column_name_that_avro_forbids_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="no Avro schema can be made"):
        settle(spark.sql("SELECT 1 AS `two words`"), format="avro", topic="t")


def test_a_missing_key_column_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="no column 'nr'"):
        settle(spark.sql("SELECT 1 AS id"), format="json", topic="t", key="nr")


def test_confluent_avro_requires_a_registry(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="needs a schema registry"):
        settle(spark.sql("SELECT 1 AS id"), topic="t")


def test_a_csv_value_gets_the_type_of_the_schema_field_with_its_name(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "things.csv"
    file.write_text('name,id,share\n"a,b",1,2\n,3,1e3\n')
    schema = record_schema(id="long", share="double", name=["null", "string"])
    rows = read_rows(spark, str(file), schema=schema)
    assert [row.asDict() for row in rows.collect()] == [
        {"name": "a,b", "id": 1, "share": 2.0},
        {"name": None, "id": 3, "share": 1000.0},
    ]
    assert rows.schema["id"].dataType.simpleString() == "bigint"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("a.csv", "id,share\n1,2\n2,x9\n", "'x9'"),
        ("b.csv", "id,share\n1.5,2\n", "'1.5'"),
        ("c.csv", "id,share\n1\n", "in the row"),
        ("d.csv", "id,share\n1,2,3\n", "in the row"),
        ("e.json", '{"id": 1, "share": 2}\n{"id": "abc"}\n', "'id' and the value abc"),
        ("f.json", '{"id": 1, "share": 2}\n{"id": 1.5}\n', "'id' and the value 1.5"),
        ("g.json", '{"id": 1, "sha', "does not fit"),
    ],
)
def test_the_error_names_a_csv_value_that_does_not_fit_and_its_file(
    spark: SparkSession, tmp_path: Path, name: str, text: str, value: str
) -> None:
    (tmp_path / name).write_text(text)
    rows = read_rows(spark, str(tmp_path / name), schema=record_schema(id="long", share="double"))
    with pytest.raises((PySparkException, Py4JJavaError)) as raised:
        rows.collect()
    error = read_error(str(raised.value))
    assert error is not None
    assert value in error.what
    assert name in str(error.where)


def test_csv_files_with_different_column_orders_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,share\n1,2\n")
    (tmp_path / "b.csv").write_text("share,id\n1,2\n")
    rows = read_rows(spark, str(tmp_path), format="csv", schema=record_schema(id="long", share="double"))
    with pytest.raises((PySparkException, Py4JJavaError)) as raised:
        rows.collect()
    error = read_error(str(raised.value))
    assert error is not None
    assert "header" in error.what
    assert ".csv" in str(error.where)


def test_missing_files_and_unknown_formats_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ResourceMissing, match="no such file"):
        read_rows(spark, str(tmp_path / "none.csv"))
    with pytest.raises(ConfigError, match="does not show the files' format"):
        read_rows(spark, str(tmp_path / "rows"))
