"""Encode rows as records: the rows' columns become the columns key, value and headers of Spark's Kafka sink.

The JVM encodes the values: lakefeed's encoders for Avro and Protobuf, and Spark's ``to_json`` and ``to_csv``. In
Confluent's wire format, a byte 0 and the schema's id as 4 bytes (big-endian) come before the data. With Protobuf, the
message's indexes in the schema follow the id. Alternatively, a record header has a byte 1, the schema's GUID and these
indexes: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from __future__ import annotations

import json
import re
import struct
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, Required, TypedDict, Unpack

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.clients.spark import jvm
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.lazy import Column, DataFrame, DataType, SparkSession, StructType, sf, t
from lakefeed.records.decode.avro_schema import avro_schema_of_schema
from lakefeed.records.decode.registry import SchemaRegistry, SchemaText
from lakefeed_encode import avro

Format = Literal["confluent-avro", "confluent-protobuf", "json-schema", "avro", "protobuf", "json", "csv", "string"]
NameStrategy = Literal["topic", "record", "topic-record"]
IdPlace = Literal["prefix", "header"]
FRAMED: Mapping[str, str] = {"confluent-avro": "AVRO", "confluent-protobuf": "PROTOBUF", "json-schema": "JSON"}
"""The formats with Confluent's header; the value is the type of their schemas in the registry."""

ENCODE_CATALOG = "io.lakefeed.encode.EncodeCatalog"

_MOST_COMPILED_AS_A_WHOLE = 100  # The most columns: Spark's default of spark.sql.codegen.maxFields.
# CSV is as in RFC 4180; blanks around values stay.
_LINES = {
    "nullValue": "",
    "emptyValue": '""',
    "escape": '"',
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}
# Spark's values have microseconds, but by default Spark writes only milliseconds.
_EXACT_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """The encoding of values.

    Attributes:
        format: ``confluent-avro``, ``confluent-protobuf`` and ``json-schema`` have Confluent's header; ``avro``,
            ``protobuf``, ``json``, ``csv`` and ``string`` have no header.
        schema: the Avro schema (JSON) of the value; None to encode all columns as they are.
        written: the schema as it was given or registered, for Protobuf.
        message: for Protobuf, the message's name. Default: the first message.
        subject: the subject of the registered schema with ``schema_id``; None without a registry.
        guid: the schema's GUID, if a header has it instead of an id before the data; otherwise None.
    """

    format: Format
    schema: str | None = None
    written: SchemaText | None = None
    message: str | None = None
    subject: str | None = None
    schema_id: int | None = None
    guid: str | None = None

    @property
    def prefix_id(self) -> int | None:
        """The id that precedes the data, or None."""
        return self.schema_id if self.guid is None else None


class EncodingSettings(TypedDict, total=False):
    """The arguments of :func:`settle`, by which editors complete and check the arguments of :func:`to_records`."""

    format: Format
    topic: Required[str]
    registry: SchemaRegistry | str | None
    subject: str | None
    strategy: NameStrategy
    key: str | None
    schema: SchemaText | str | None
    message: str | None
    id_place: IdPlace


def to_records(
    rows: DataFrame, *, headers: Mapping[str, str] | None = None, **settings: Unpack[EncodingSettings]
) -> DataFrame:
    """Encode rows into the columns ``value``, ``key`` (if ``key`` is given) and ``headers`` (if given).

    All records have the same ``headers``. Other arguments and errors are those of :func:`settle`.
    """
    return encoded(rows, settle(rows, **settings), key=settings.get("key"), headers=headers)


def settle(
    rows: DataFrame,
    *,
    format: Format = "confluent-avro",  # noqa: A002  (Spark's own word)
    topic: str,
    registry: SchemaRegistry | str | None = None,
    subject: str | None = None,
    strategy: NameStrategy = "topic",
    key: str | None = None,
    schema: SchemaText | str | None = None,
    message: str | None = None,
    id_place: IdPlace = "prefix",
) -> Encoding:
    """Return the encoding of rows: choose the schema, check that the rows fit it, and register a new schema.

    Args:
        rows: a batch or a stream.
        format: see :class:`Encoding`.
        topic: the topic, from which the names of the subject and of a derived schema are made.
        registry: the registry of the schema, or its URL; the formats with a header need it.
        subject: the subject. Default: named by the strategy.
        strategy: the rule for subjects' names: ``topic`` (``<topic>-value``), ``record`` (the record's full name) or
            ``topic-record`` (both, with a hyphen between).
        key: the column that becomes the record's key: binary unchanged, other types as text. The value has this column
            only if the schema has it.
        schema: an Avro schema, a ``.proto`` text or a JSON Schema, depending on the format. Default: the subject's
            latest schema if the rows fit it, otherwise a schema derived from the rows.
        message: for Protobuf, the message. Default: the schema's first message.
        id_place: ``prefix`` writes the schema's id before the data, ``header`` its GUID into a header.

    Raises:
        ConfigError: the rows do not fit the schema, the registry refuses the schema, or the key column is missing.
    """
    if key is not None and key not in rows.columns:
        what = f"there is no column '{key}' for the key"
        hint = "name one of these columns as key"
        raise ConfigError(what, where=f"the columns are {', '.join(rows.columns)}", hint=hint)
    kind = FRAMED.get(format) or ("PROTOBUF" if format == "protobuf" else "AVRO")
    if isinstance(schema, str):
        schema = SchemaText(text=schema, kind=kind)
    if format in ("json", "csv", "string"):
        if schema is not None:
            avro.require_fit(rows, schema.text, key=key)
        if format == "string":
            _only_column(rows, key)
        if format == "csv":
            _require_plain(rows)
        return Encoding(format=format, schema=schema.text if schema else None)
    if format not in FRAMED:
        registry = None
    elif registry is None:
        hint = "set SCHEMA_REGISTRY_URL, or encode as avro, protobuf or json"
        raise ConfigError(f"{format} needs a schema registry", hint=hint)
    elif isinstance(registry, str):
        registry = SchemaRegistry(registry)
    # Avro, Protobuf and JSON Schema all allow this name.
    name = re.sub(r"\W", "_", topic, flags=re.ASCII)
    name = f"_{name}" if name[0].isdigit() else name

    def fitting(schema: SchemaText) -> str:
        translated = avro_schema_of_schema(rows.sparkSession, schema, message=message)
        avro.require_fit(rows, translated, key=key)
        return translated

    if schema is not None:
        _require_kind(f"the schema of {subject or topic}", schema, kind)
    elif registry is not None:
        default = subject or subject_name(strategy, topic=topic, record=name)
        latest = None
        with suppress(ResourceMissing):
            latest = registry.latest(default)
        if latest is not None:
            _require_kind(f"the schema of subject {default}", latest, kind)
            # If the rows do not fit, register a schema derived from the rows; the registry checks that it is
            # compatible.
            with suppress(ConfigError):
                known = Encoding(format=format, schema=fitting(latest), written=latest, message=message)
                return _named(registry, replace(known, subject=default, schema_id=latest.schema_id), id_place)
    # Do not translate a derived JSON Schema to Avro: the rows fit it anyway, and Avro forbids some of its names and
    # numbers.
    fits_as_it_is = schema is None and kind == "JSON"
    if schema is None:
        schema = SchemaText(text=_derived(rows, kind, name), kind=kind)
    fields = None if fits_as_it_is else fitting(schema)
    encoding = Encoding(format=format, schema=fields, written=schema, message=message)
    if registry is None:
        return encoding
    if fields is not None:
        record = json.loads(fields)
        namespace, name = record.get("namespace"), str(record["name"])
        name = f"{namespace}.{name}" if namespace and "." not in name else name
    subject = subject or subject_name(strategy, topic=topic, record=name)
    schema_id = registry.register(subject, schema.text, kind=kind, references=schema.references)
    return _named(registry, replace(encoding, subject=subject, schema_id=schema_id), id_place)


def _named(registry: SchemaRegistry, encoding: Encoding, place: IdPlace) -> Encoding:
    if place == "prefix" or encoding.schema_id is None:
        return encoding
    number = str(encoding.schema_id)
    guid = registry.found_at(
        f"GUID for the schema id {number}",
        *("schemas", "ids", number),
        query={"subject": encoding.subject} if encoding.subject else None,
        pick=lambda schema: schema.get("guid"),
        hint="write ids before the data: schema_id: prefix, or --schema-id prefix",
    )
    return replace(encoding, guid=str(guid))


def id_header_of(spark: SparkSession, encoding: Encoding) -> dict[str, bytes]:
    """Return the header with the schema's GUID, by name; empty if the schema's id precedes the data."""
    if encoding.guid is None:
        return {}
    indexes = b""
    if encoding.written is not None and encoding.written.kind == "PROTOBUF":
        references = [reference.text for reference in encoding.written.references]
        java = jvm.java(spark).encode.ProtobufEncode
        indexes = bytes(java.indexes(encoding.written.text, references, encoding.message))
    return {"__value_schema_id": b"\1" + uuid.UUID(encoding.guid).bytes + indexes}


def encoded(
    rows: DataFrame, encoding: Encoding, *, key: str | None = None, headers: Mapping[str, str] | None = None
) -> DataFrame:
    """Return rows encoded with the result of :func:`settle`; see :func:`to_records`."""
    if len(rows.columns) > _MOST_COMPILED_AS_A_WHOLE:
        # Compute the columns in a separate projection: otherwise Janino would compile all code as one method, for
        # minutes. Spark does not merge this projection with others, because it is not deterministic.
        first = rows.columns[0]
        rows = rows.withColumn(first, sf.when(sf.spark_partition_id() >= 0, sf.col(quoted((first,)))))
    record = [value_of(rows, encoding, key=key).alias("value")]
    if key is not None:
        column = sf.col(quoted((key,)))
        is_binary = isinstance(rows.schema[key].dataType, t.BinaryType)
        record.insert(0, (column if is_binary else column.cast("string")).alias("key"))
    contents = {name: text.encode() for name, text in (headers or {}).items()}
    contents |= id_header_of(rows.sparkSession, encoding)
    if contents:
        pairs = [
            sf.struct(sf.lit(name).alias("key"), sf.lit(bytearray(content)).alias("value"))
            for name, content in contents.items()
        ]
        record.append(sf.array(*pairs).alias("headers"))
    return rows.select(*record)


def value_of(rows: DataFrame, encoding: Encoding, *, key: str | None = None) -> Column:
    """Return a column with the encoded values."""
    if encoding.format == "string":
        return sf.col(quoted((_only_column(rows, key),))).cast("string").cast("binary")
    if encoding.schema is not None and encoding.format in ("avro", "confluent-avro"):
        return _avro_value(rows, encoding, encoding.schema)
    fields = sf.struct(*avro.columns(rows, encoding.schema))
    if encoding.format == "csv":
        return sf.to_csv(fields, {**_LINES, **_EXACT_TIMES}).cast("binary")
    if encoding.written is not None and encoding.written.kind == "PROTOBUF":
        catalog = jvm.function_catalog(rows.sparkSession, ENCODE_CATALOG, _protobuf_options(encoding, encoding.written))
        return sf.call_function(f"{catalog}.encode", fields)
    return _prefixed(json_of(fields).cast("binary"), encoding)


def _avro_value(rows: DataFrame, encoding: Encoding, schema: str) -> Column:
    """Return a column of Avro values, encoded by ``AvroEncode.java``, or by Spark if that class lacks a type."""
    from pyspark.sql.avro.functions import to_avro

    spark = rows.sparkSession
    columns = avro.columns(rows, schema, refuses_nulls=False)
    refusal = jvm.java(spark).encode.AvroEncode.refusal(schema, rows.select(*columns).schema.json())
    if refusal is None:
        options = {"avro": schema}
        if encoding.prefix_id is not None:
            options["schema-id"] = str(encoding.prefix_id)
        catalog = jvm.function_catalog(spark, ENCODE_CATALOG, options)
        return sf.call_function(f"{catalog}.encode", sf.struct(*columns))
    return _prefixed(to_avro(sf.struct(*avro.columns(rows, schema)), schema), encoding)


def _prefixed(value: Column, encoding: Encoding) -> Column:
    return value if encoding.prefix_id is None else sf.concat(sf.lit(header(encoding.prefix_id)), value)


def json_of(columns: Column) -> Column:
    """Return a struct as a JSON object: with nulls, times with microseconds, and bytes as base64."""
    return sf.to_json(columns, {"ignoreNullFields": "false", **_EXACT_TIMES})


def header(schema_id: int) -> bytearray:
    """Return Confluent's header: the five bytes before the data."""
    return bytearray(struct.pack(">bI", 0, schema_id))


def subject_name(strategy: NameStrategy, *, topic: str, record: str) -> str:
    """Return the subject of a topic's values for one of Confluent's strategies.

    Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#subject-name-strategy
    """
    return {"topic": f"{topic}-value", "record": record, "topic-record": f"{topic}-{record}"}[strategy]


def _only_column(rows: DataFrame, key: str | None) -> str:
    names = [name for name in rows.columns if name != key]
    if len(names) != 1:
        what = "the format string writes one column, and the rows have several or none beside the key"
        hint = "encode as csv or json, or select one column"
        raise ConfigError(what, where=f"the columns are {', '.join(rows.columns)}", hint=hint)
    return names[0]


def _require_plain(rows: DataFrame) -> None:
    """Refuse arrays, maps and structs: Spark would write them as texts that no reader can parse."""
    for field in rows.schema.fields:
        if isinstance(field.dataType, t.ArrayType | t.MapType | t.StructType):
            what = f"the column {field.name} cannot be written as CSV"
            hint = "encode as json, or omit the column"
            raise ConfigError(what, where=f"{field.name} is {field.dataType.simpleString()}", hint=hint)


def _require_kind(name: str, schema: SchemaText, kind: str) -> None:
    if schema.kind != kind:
        raise ConfigError(
            f"{name} is of kind {schema.kind}, not {kind}", hint="encode in its schemas' format, or use another subject"
        )


def _derived(rows: DataFrame, kind: str, name: str) -> str:
    if kind == "PROTOBUF":
        return proto(rows.schema, name=name)
    return json_schema(rows.schema, name=name) if kind == "JSON" else avro.derived(rows, name=name)


def _protobuf_options(encoding: Encoding, schema: SchemaText) -> dict[str, str]:
    """Return the options that ``EncodeCatalog.java`` reads."""
    options = {"schema": schema.text}
    options |= {f"references.{number}": reference.text for number, reference in enumerate(schema.references)}
    if encoding.message is not None:
        options["message"] = encoding.message
    if encoding.prefix_id is not None:
        options["schema-id"] = str(encoding.prefix_id)
    return options


_PROTO = {
    "boolean": "bool", "byte": "int32", "short": "int32", "integer": "int32", "long": "int64", "float": "float",
    "double": "double", "string": "string", "binary": "bytes", "timestamp": "google.protobuf.Timestamp",
}  # fmt: skip
_JSON: dict[str, dict[str, str]] = {
    **{name: {"type": "integer"} for name in ("byte", "short", "integer", "long")},
    **{name: {"type": "number"} for name in ("float", "double")},
    "boolean": {"type": "boolean"},
    "string": {"type": "string"},
    "binary": {"type": "string", "contentEncoding": "base64"},
    "timestamp": {"type": "string", "format": "date-time"},
    "date": {"type": "string", "format": "date"},
}


def proto(columns: StructType, *, name: str) -> str:
    """Return a ``.proto`` text with a message of these columns; nullable columns are ``optional``."""
    body = _message(columns, name, indent="")
    imports = 'import "google/protobuf/timestamp.proto";\n\n' if "google.protobuf.Timestamp" in body else ""
    return f'syntax = "proto3";\n\n{imports}{body}'


def _message(columns: StructType, name: str, *, indent: str) -> str:
    inner, lines = indent + "  ", []
    for number, field in enumerate(columns.fields, start=1):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", field.name):
            raise _no_schema(f"the column '{field.name}' cannot be a field of Protobuf", "rename the column")
        nested = "".join(word.capitalize() for word in field.name.split("_")) + "_"
        words, definition = _proto_type(field.dataType, field.name, nested, inner)
        plain = field.nullable and not words.startswith(("repeated ", "map<")) and not definition
        lines += [definition] if definition else []
        lines.append(f"{inner}{'optional ' if plain else ''}{words} {field.name} = {number};\n")
    return f"{indent}message {name} {{\n{''.join(lines)}{indent}}}\n"


def _proto_type(type_: DataType, column: str, nested: str, indent: str) -> tuple[str, str]:
    """Return the Protobuf type of a column, and the definition of the message if the type is a message."""
    if isinstance(type_, t.StructType):
        return nested, _message(type_, nested, indent=indent)
    if isinstance(type_, t.ArrayType) and not isinstance(type_.elementType, t.ArrayType | t.MapType):
        words, definition = _proto_type(type_.elementType, column, nested, indent)
        return f"repeated {words}", definition
    if (
        isinstance(type_, t.MapType)
        and isinstance(type_.keyType, t.StringType)
        and not isinstance(type_.valueType, t.ArrayType | t.MapType)
    ):
        words, definition = _proto_type(type_.valueType, column, nested, indent)
        return f"map<string, {words}>", definition
    if type_.simpleString() == "decimal(20,0)":
        return "uint64", ""
    if (known := _PROTO.get(type_.typeName())) is None:
        raise _no_schema(f"Protobuf has no type for the column {column}, {type_.simpleString()}", "cast the column")
    return known, ""


def json_schema(columns: StructType, *, name: str) -> str:
    """Return a JSON Schema of an object with these columns; it allows other properties, for later versions.

    Columns that are not nullable are required.
    """
    document = {"$schema": "http://json-schema.org/draft-07/schema#", "title": name, **_object(columns)}
    return json.dumps(document)


def _object(columns: StructType) -> dict[str, Any]:
    properties = {
        field.name: _json_type(field.dataType, field.name, nullable=field.nullable) for field in columns.fields
    }
    required = [field.name for field in columns.fields if not field.nullable]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _json_type(type_: DataType, column: str, *, nullable: bool) -> dict[str, Any]:
    schema: dict[str, Any]
    if isinstance(type_, t.StructType):
        schema = _object(type_)
    elif isinstance(type_, t.ArrayType):
        schema = {"type": "array", "items": _json_type(type_.elementType, column, nullable=type_.containsNull)}
    elif isinstance(type_, t.MapType):
        values = _json_type(type_.valueType, column, nullable=type_.valueContainsNull)
        schema = {"type": "object", "additionalProperties": values}
    elif isinstance(type_, t.DecimalType):
        schema = {"type": "integer" if type_.scale == 0 and type_.precision < 19 else "number"}
    elif (known := _JSON.get(type_.typeName())) is not None:
        schema = dict(known)
    else:
        raise _no_schema(f"JSON has no type for the column {column}, {type_.simpleString()}", "cast the column")
    return {"oneOf": [{"type": "null"}, schema]} if nullable else schema


def _no_schema(what: str, hint: str) -> ConfigError:
    return ConfigError(f"no schema can be made from the rows: {what}", hint=f"{hint}, or give a schema")
