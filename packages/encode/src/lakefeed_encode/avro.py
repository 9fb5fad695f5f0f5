"""Check with Spark's Avro support that rows fit an Avro schema."""

from __future__ import annotations

import json
import re
from typing import Any

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.clients.spark.jvm import cause_of
from lakefeed.errors import ConfigError
from lakefeed.lazy import Column, DataFrame, SparkSession, StructType, py4j, sf, t
from lakefeed.records.schema.fit import WIDER

NULL_MARK = "lakefeed: null where the schema allows none: field"
"""The beginning of Spark's error for a null in a field that must not be null; the field's name follows."""
_NO_SYMBOL = re.compile(r"cannot be written since it's not defined in enum (?P<symbols>\"[^\n]*\")")
"""The error of Spark's encoder for an unknown symbol."""
_UNFIT = re.compile(r"IllegalArgumentException: field (?P<field>[^\s:]+)[^\n]*\n\s*at io\.lakefeed\.encode\.")
"""The error of lakefeed's encoders for an unknown symbol, a number that is too large, or a wrong number of bytes."""


def struct_of(spark: SparkSession, schema: str) -> StructType:
    """Return the Spark columns of an Avro record schema."""
    parsed = _parse(spark, schema)
    try:
        sql_type = _avro(spark).SchemaConverters.toSqlType(parsed).dataType()
    except py4j.Py4JJavaError:
        raise ConfigError("rows cannot be written with a recursive schema", hint="remove the recursive field") from None
    if str(parsed.getType()) != "RECORD":
        what = f"the Avro schema is of type {str(parsed.getType()).lower()}, but rows need a record"
        raise ConfigError(what, hint='give a schema with "type": "record"')
    return t.StructType.fromJson(json.loads(sql_type.json()))


def derived(rows: DataFrame, *, name: str) -> str:
    """Return an Avro schema with all columns of the rows."""
    try:
        converters = _avro(rows.sparkSession).SchemaConverters
        return str(converters.toAvroType(rows._jdf.schema(), False, name, "").toString())
    except py4j.Py4JJavaError as error:
        hint = "rename or cast the column, give a schema, or encode as json"
        raise ConfigError(f"no Avro schema can be made from the rows: {cause_of(error)}", hint=hint) from None


def require_fit(rows: DataFrame, schema: str, *, key: str | None = None) -> None:
    """Refuse rows that do not fit a schema; the schema may lack the column ``key``."""
    spark = rows.sparkSession
    requested = struct_of(spark, schema)
    required = [field.name for field in requested.fields if not field.nullable]
    if missing := [name for name in required if name not in rows.columns]:
        raise _misfit(f"the rows lack what the schema requires: {', '.join(missing)}", rows)
    if extra := [name for name in rows.columns if name not in requested.names and name != key]:
        raise _misfit(f"the schema has no field for the columns {', '.join(extra)}", rows)
    java_type = rows.select(*columns(rows, schema))._jdf.schema()
    try:
        _avro(spark).AvroSerializer(java_type, _parse(spark, schema), False)
    except py4j.Py4JJavaError as error:
        raise _misfit(cause_of(error), rows) from None


def columns(rows: DataFrame, schema: str | None, *, refuses_nulls: bool = True) -> list[Column]:
    """Return the value's columns: the schema's fields, cast to wider types if needed; without a schema, all columns.

    With ``refuses_nulls``, a null in a field that must not be null stops the job with the error ``NULL_MARK``. Pass
    False if the encoder itself refuses such nulls.
    """
    if schema is None:
        return [sf.col(quoted((name,))) for name in rows.columns]
    made = []
    for field in struct_of(rows.sparkSession, schema).fields:
        if field.name not in rows.columns:
            continue
        have = rows.schema[field.name]
        column = sf.col(quoted((field.name,)))
        if field.dataType.typeName() in WIDER.get(have.dataType.typeName(), ()):  # to_avro requires the exact type.
            column = column.cast(field.dataType)
        if refuses_nulls and have.nullable and not field.nullable:
            column = sf.coalesce(column, sf.raise_error(sf.lit(f"{NULL_MARK} {field.name}")))
        made.append(column.alias(field.name))
    return made


def _parse(spark: SparkSession, schema: str) -> Any:
    gateway: Any = spark._jvm
    try:
        return gateway.org.apache.avro.Schema.Parser().parse(schema)
    except py4j.Py4JJavaError as error:
        what = f"not a valid Avro schema: {cause_of(error)}"
        raise ConfigError(what, hint="correct the schema in its file or in the registry") from None


def _avro(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.avro


def _misfit(what: str, rows: DataFrame) -> ConfigError:
    types = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in rows.schema.fields)
    hint = "change the schema or the columns, or encode as json"
    return ConfigError(f"the rows do not fit the Avro schema: {what}", where=f"the rows' columns: {types}", hint=hint)


def row_error(text: str) -> ConfigError | None:
    """Find, in Spark's message, the reason why an encoder could not write a row; return it as an error for the user.

    The error omits the value, because values of records must not appear in errors.
    """
    hint = "compare the row with the schema: symbols of an enum, bounds of a number, size of bytes"
    if (unfit := _UNFIT.search(text)) is not None:
        field = unfit["field"]
        what = f"a row has a value for the field '{field}' that does not fit the field's type in the schema"
        return ConfigError(what, where=f"field {field}", hint=hint)
    if (unknown := _NO_SYMBOL.search(text)) is not None:
        return ConfigError(f"a row has a value that is not one of the enum's symbols {unknown['symbols']}", hint=hint)
    if NULL_MARK not in text:
        return None
    field = text.partition(NULL_MARK)[2].split()[0].strip("'\"")
    what = f"a row has no value for the field '{field}', which must not be null"
    hint = "fix the row, or make the field a union with null in the schema"
    return ConfigError(what, where=f"field {field}", hint=hint)
