"""Read rows from files, with the column types of an Avro schema, or with types that Spark infers."""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.errors import ConfigError, LakefeedError, ResourceMissing
from lakefeed.lazy import Column, DataFrame, DataType, SparkSession, StructType, py4j, sf, spark_errors, t
from lakefeed_encode import avro

FileFormat = Literal["csv", "json", "parquet"]

_JSON: dict[str, FileFormat] = {".json": "json", ".jsonl": "json", ".ndjson": "json"}
_SUFFIXES: dict[str, FileFormat] = {".csv": "csv", ".parquet": "parquet", **_JSON}
_FILES_A_BATCH = 100
ROUNDED = "lakefeed: the schema has fewer digits than a value: field"
"""The beginning of Spark's error for a value that would be rounded; the field's name comes after it."""


def read_rows(
    spark: SparkSession,
    path: str,
    *,
    format: FileFormat | None = None,  # noqa: A002  (the word that Spark uses)
    schema: str | None = None,
    stream: bool = False,
) -> DataFrame:
    """Read the rows of files, or follow a folder as a stream.

    CSV files need a header, whose names are matched with the schema's; JSON files have one object per line; Parquet
    files have their own types. Empty CSV values are null. Spark checks rows when they are used. If a value does not
    fit, or has more digits of a decimal or of a second than the schema, Spark fails: see ``read_error``.

    Args:
        path: a file, a folder or a pattern: local, or ``s3a://bucket/key``.
        format: the files' format. Default: by the path's extension.
        schema: an Avro schema with the types of CSV and JSON values. Default: inferred from all values, with a further
            read of the files.
        stream: read the folder's files, and later its new files.
    """
    format = format or _format_of(path)  # noqa: A001
    where = _located(path)
    try:
        columns = _columns(spark, where, format, schema)
        if not stream:
            reader = spark.read.format(format).options(**_options(format, infer=columns is None))
            rows = (reader.schema(_wide(columns)) if columns is not None else reader).load(where)
            return _exact(rows, columns, schema)
        if columns is None:
            columns = read_rows(spark, path, format=format).schema
        following = spark.readStream.format(format).options(**_options(format, infer=False))
        wide = following.option("maxFilesPerTrigger", _FILES_A_BATCH).schema(_wide(columns)).load(where)
        return _exact(wide, columns, schema)
    except (spark_errors.PySparkException, py4j.Py4JJavaError) as error:
        raise _unreadable(error, path) from error


def require_files(path: str, *, format: FileFormat | None) -> None:  # noqa: A002
    """Refuse, before Spark starts, a local path without files and a path whose format is unknown."""
    if format is None:
        _format_of(path)
    local = _located(path).removeprefix("file://")
    if local.startswith("/") and not glob.glob(re.sub(r"\{[^}]*\}", "*", local)):
        raise _no_files(path)


def _no_files(path: str) -> ResourceMissing:
    hint = "correct --file: it is a file, a folder or a pattern"
    return ResourceMissing("there is no such file or folder", where=path, hint=hint)


def read_error(text: str) -> LakefeedError | None:
    """Return the user's error for a file if Spark's exception is about the file's content; otherwise None."""
    if ROUNDED in text:
        rounded = text.partition(ROUNDED)[2].split()[0].strip("'\"")
        what = f"a value of the field '{rounded}' would be rounded, because its type in the schema has fewer digits"
        return ConfigError(what, hint="round the file's values, or give another schema with --schema-file")
    if "MALFORMED_RECORD" not in text and "CSV header does not conform" not in text:
        return None
    file = re.search(r"(?:reading file|CSV file:) ([^\s]+?)[.]?(?:\s|$)", text)
    if "CSV header" in text:
        what = "the header of a CSV file differs from the first file's in its names or their order"
    elif field := re.search(r"Cannot parse the field name (.+? and the value .+?) of the JSON token", text):
        what = f"a value does not fit the schema: field {field.group(1)[:200]}"
    elif value := re.search(r"For input string: \"(.*?)\"", text):
        what = f"a value does not fit the schema: '{value.group(1)[:200]}'"
    else:
        what = "a row does not fit the schema"
    if record := re.search(r"record parsing: (.*?)[.]\s*Parse Mode", text, re.DOTALL):
        what += f", in the row {record.group(1)[:300]}"
    hint = "fix the file, or give another schema with --schema-file"
    return ConfigError(what, where=f"file {file.group(1)}" if file else None, hint=hint)


def _wide(columns: Any, *, digits: bool = True) -> Any:
    """Make all types nullable; with ``digits``, widen decimals to 38 digits by adding digits after the point."""
    if isinstance(columns, t.StructType):
        return t.StructType([t.StructField(each.name, _wide(each.dataType, digits=digits)) for each in columns.fields])
    if isinstance(columns, t.ArrayType):
        return t.ArrayType(_wide(columns.elementType, digits=digits))
    if isinstance(columns, t.MapType):
        return t.MapType(columns.keyType, _wide(columns.valueType, digits=digits))
    if isinstance(columns, t.DecimalType) and digits:
        return t.DecimalType(38, columns.scale + 38 - columns.precision)
    return columns


def _exact(rows: DataFrame, columns: StructType | None, schema: str | None) -> DataFrame:
    """Convert rows to these types; a value that would lose digits raises Spark's error ``ROUNDED`` when it is used."""
    fields = json.loads(schema).get("fields", ()) if schema else ()
    cut = {each["name"]: cuts for each in fields if (cuts := _cuts_micros(each["type"])) is not None}
    requested = (
        {each.name: _wide(each.dataType, digits=False) for each in columns.fields} if columns is not None else {}
    )
    made = []
    for each in rows.schema.fields:
        column = sf.col(quoted((each.name,)))
        exact: DataType = requested.get(each.name, each.dataType)
        loses = sf.lit(False)
        if exact != each.dataType:
            back = column.cast(exact).cast(each.dataType)
            as_list = sf.map_entries if isinstance(exact, t.MapType) else lambda value: value
            loses = ~as_list(column).eqNullSafe(as_list(back))
        # Without ``columns``, the file has its own types. Then check only timestamps: another column of this name may
        # be unrelated.
        is_cut = each.name in cut and (columns is not None or each.dataType.typeName().startswith("timestamp"))
        if is_cut:
            loses |= sf.coalesce(cut[each.name](column), sf.lit(False))
        if exact != each.dataType or is_cut:
            wrong = sf.raise_error(sf.lit(f"{ROUNDED} {each.name}"))
            column = sf.when(loses, wrong).otherwise(column.cast(exact)).alias(each.name)
        made.append(column)
    return rows.select(*made)


def _cuts_micros(schema: Any) -> Callable[[Column], Column] | None:
    """Return the condition that Avro's timestamp-millis would drop microseconds of a value; None for other types."""
    if isinstance(schema, list):
        found = [cuts for each in schema if (cuts := _cuts_micros(each)) is not None]
        return found[0] if len(found) == 1 else None
    if not isinstance(schema, dict):
        return None
    if str(schema.get("logicalType")).endswith("timestamp-millis"):
        return lambda value: sf.unix_micros(value.cast("timestamp")) % 1000 != 0
    below = {each["name"]: _cuts_micros(each["type"]) for each in schema.get("fields", ())}
    within = {name: cuts for name, cuts in below.items() if cuts is not None}
    if within:
        return lambda value: sf.greatest(*(cuts(value[name]) for name, cuts in within.items()), sf.lit(False))
    if (of_item := _cuts_micros(schema.get("items"))) is not None:
        return lambda value: sf.exists(value, of_item)
    if (of_value := _cuts_micros(schema.get("values"))) is not None:
        return lambda value: sf.exists(sf.map_values(value), of_value)
    return _cuts_micros(schema["type"]) if isinstance(schema.get("type"), dict | list) else None


def _columns(spark: SparkSession, where: str, format: FileFormat, schema: str | None) -> StructType | None:  # noqa: A002
    """Return the types with which Spark reads the files; None if the files have types, or if Spark infers them."""
    if schema is None or format == "parquet":
        return None
    requested = avro.struct_of(spark, schema)
    if format == "json":
        return requested
    # Spark matches CSV columns by their order, so the types need the order of the header.
    names = spark.read.option("header", True).csv(where).columns
    types = {field.name: field.dataType for field in requested.fields}
    return t.StructType([t.StructField(name, types.get(name, t.StringType())) for name in names])


def _options(format: FileFormat, *, infer: bool) -> dict[str, str]:  # noqa: A002
    if format == "parquet":
        return {}
    if format == "json":
        return {"mode": "FAILFAST"}
    types = {"inferSchema": "true"} if infer else {"inferSchema": "false", "enforceSchema": "false"}
    return {"mode": "FAILFAST", "header": "true", **types}


def _format_of(path: str) -> FileFormat:
    for suffix in reversed(Path(path.rstrip("/")).suffixes):
        if suffix in _SUFFIXES:
            return _SUFFIXES[suffix]
    hint = "give the format: --format csv, json or parquet"
    raise ConfigError("the path's extension does not show the files' format", where=path, hint=hint)


def _located(path: str) -> str:
    """Return the URL of a path; a local path gets ``file://``, because Spark's default file system may not be local."""
    if re.match(r"[a-z][a-z0-9]+://?", path):
        return re.sub(r"^s3://", "s3a://", path)
    return f"file://{Path(path).expanduser().absolute()}"


def _unreadable(error: Exception, path: str) -> LakefeedError:
    from lakefeed.clients.spark.errors import translate

    text = str(error)
    if "PATH_NOT_FOUND" in text or "FileNotFoundException" in text:
        return _no_files(path)
    if "UNABLE_TO_INFER_SCHEMA" in text:
        hint = "give a schema with --schema-file"
        return ResourceMissing("the files have no row from which Spark can infer columns", where=path, hint=hint)
    return read_error(text) or translate(error)
