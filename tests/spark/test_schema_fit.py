"""Merged schemas give the same columns in Python and in the decoder, and rows are converted to fit a table."""

import json
from contextlib import suppress
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.config.iceberg_sink import RESERVED
from lakefeed.errors import ConfigError, SchemaIncompatible
from lakefeed.records.decode import PlainAvro, decoded
from lakefeed.records.schema import merge_schemas
from lakefeed.records.schema.fit import StorableRows, align_columns, columns_of
from tests.support.avro_pairs import Draw
from tests.support.records import records


def test_rows_that_fit_the_table_are_returned_unchanged(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, "x")], "id INT, zone STRING")
    assert align_columns(rows, rows.schema) is rows


def test_a_field_that_is_always_null_gets_no_column(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1 AS id, null AS n, struct(2 AS x, null AS y) AS s")
    table = spark.createDataFrame([], "id INT, s STRUCT<x: INT>")
    assert [row.asDict(recursive=True) for row in align_columns(rows, table.schema).collect()] == [
        {"id": 1, "s": {"x": 2}}
    ]


@pytest.mark.quick
def test_rows_are_converted_to_fit_the_table_without_python(spark: SparkSession) -> None:
    table = spark.createDataFrame(
        [], "n INT, id BIGINT, d DECIMAL(12,3), s STRUCT<a: INT, b: ARRAY<STRUCT<c: INT, e: DATE>>>"
    )
    rows = spark.createDataFrame(
        [(1, ([(2,), None],), "1.50"), (2, None, None)], "Id INT, s STRUCT<b: ARRAY<STRUCT<c: INT>>>, d STRING"
    ).selectExpr("Id", "s", "CAST(d AS DECIMAL(9,2)) AS d")
    fitted = align_columns(rows, table.schema)
    assert fitted.schema.simpleString() == table.schema.simpleString()
    first, second = fitted.orderBy("id").collect()
    assert first.asDict(recursive=True) == {
        "n": None,
        "id": 1,
        "d": first.d,
        "s": {"a": None, "b": [{"c": 2, "e": None}, None]},
    }
    assert str(first.d) == "1.500"
    assert second.asDict(recursive=True) == {"n": None, "id": 2, "d": None, "s": None}
    plan: Any = fitted._jdf.queryExecution()
    assert "Python" not in plan.optimizedPlan().toString().replace("LogicalRDD", "")


@pytest.mark.parametrize(
    ("rows", "table", "words"),
    [
        ("a INT, b INT", "a INT", "the table lacks columns that the rows have: b"),
        ("s STRUCT<x: INT, y: INT>", "s STRUCT<x: INT>", "the table lacks columns that the rows have: s.y"),
        ("a BIGINT", "a INT", "column a is bigint in the rows and int in the table"),
        ("a ARRAY<STRING>", "a ARRAY<INT>", "column a.element is string in the rows and int in the table"),
        ("a INT, A INT", "a INT", "the columns a and A differ in case only"),
    ],
)
def test_rows_that_cannot_be_converted_are_refused(spark: SparkSession, rows: str, table: str, words: str) -> None:
    have, want = (spark.createDataFrame([], each) for each in (rows, table))
    with pytest.raises(SchemaIncompatible) as refused:
        align_columns(have, want.schema)
    assert words in refused.value.what


def test_columns_that_can_hold_no_data_are_left_out_at_all_levels(spark: SparkSession) -> None:
    rows = spark.sql(
        """
        SELECT id,
          named_struct('n', cast(null AS void)) AS empty,
          array(null, null) AS nulls,
          map('k', null) AS no_values,
          if(id = 0, null, named_struct('x', id, 'e', named_struct('n', null))) AS part,
          array(named_struct('x', id, 'e', null), null) AS items,
          map('k', named_struct('x', id, 'e', array(null))) AS `by.name`
        FROM range(2)
        """
    )
    storable = StorableRows(lambda rows: rows)
    found = storable(rows)
    assert found.schema.simpleString() == (
        "struct<id:bigint,part:struct<x:bigint>,items:array<struct<x:bigint>>,by.name:map<string,struct<x:bigint>>>"
    )
    assert [row.asDict(recursive=True) for row in found.orderBy("id").collect()] == [
        {"id": 0, "part": None, "items": [{"x": 0}, None], "by.name": {"k": {"x": 0}}},
        {"id": 1, "part": {"x": 1}, "items": [{"x": 1}, None], "by.name": {"k": {"x": 1}}},
    ]
    assert storable.notes() == (
        "column empty is left out: it carries no data (a record of such fields)",
        "column nulls is left out: it carries no data (an array of null)",
        "column no_values is left out: it carries no data (a map of null)",
        "column part.e is left out: it carries no data (a record of such fields)",
        "column items.element.e is left out: it carries no data (null)",
        "column by.name.value.e is left out: it carries no data (an array of null)",
    )
    storable(rows)
    assert storable.notes() == ()
    with pytest.raises(ConfigError, match=r"no column of the rows carries data: empty \(a record of such fields\)"):
        storable(rows.select("empty"))
    plain = rows.select("id")
    assert storable(plain) is plain


@pytest.mark.parametrize("seeds", [range(25), pytest.param(range(25, 1_000), marks=pytest.mark.slow)])
def test_python_and_the_decoder_give_random_schemas_the_same_columns(spark: SparkSession, seeds: range) -> None:
    empty = records(spark, [])
    for seed in seeds:
        schemas = Draw(seed, wild=True)
        version = schemas.record()
        reader = json.dumps(version)
        with suppress(SchemaIncompatible, ConfigError):
            reader = merge_schemas(reader, json.dumps(schemas.next(version))).schema
        try:
            expected = columns_of(reader)
        except ConfigError:
            continue
        made: Any = decoded(empty, PlainAvro(writer_schema=reader)).schema["decoded"].dataType
        found = made["value"].dataType
        assert found.jsonValue() == expected.jsonValue(), f"seed {seed}: {reader}"


def test_the_reserved_names_are_those_of_icebergs_metadata_columns(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    constants = [each.get(None) for each in loader.loadClass("org.apache.iceberg.MetadataColumns").getFields()]
    names = {each if isinstance(each, str) else each.name() for each in constants if not isinstance(each, int)}
    is_reserved = jvm.org.apache.iceberg.MetadataColumns.isMetadataColumn
    assert {name for name in names if is_reserved(name)} == RESERVED
