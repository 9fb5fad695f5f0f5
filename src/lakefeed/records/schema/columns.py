"""The columns of an Avro record schema, and of an Iceberg table, found without a JVM."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lakefeed.errors import ConfigError, MissingExtra
from lakefeed.records.schema.avro import AvroSchema, Container, Primitive, Ref, Type, members, nullable
from lakefeed.records.schema.parse import parse

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Spark's names of types in the JSON of a schema.
_OF_LOGICAL = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
}
_PLAIN = {"int": "integer", **{name: name for name in ("boolean", "long", "float", "double", "string")}}
_OF_ICEBERG = {
    **_PLAIN,
    **{name: name for name in ("binary", "date")},
    "uuid": "string",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "unknown": "void",
}


def columns_of(text: str) -> StructType:
    """Return the columns of an Avro record schema, as the decoder makes them (``io.lakefeed.decode.AvroTypes``)."""
    types = spark_types()
    schema = parse(text)
    columns: StructType = types.StructType.fromJson(_avro_type(schema, schema.root, frozenset()))
    return columns


def columns_of_table(iceberg: Any) -> StructType:
    """Return the columns of an Iceberg table (pyiceberg's ``table.schema()``) as Spark shows them."""
    columns: StructType = spark_types().StructType.fromJson(_iceberg_type(iceberg.as_struct()))
    return columns


def spark_types() -> Any:
    """Import PySpark's types, which need no JVM; ``MissingExtra`` if it is not installed."""
    try:
        from pyspark.sql import types
    except ImportError:
        raise MissingExtra.of("pyspark", "spark", "comparing a schema with a table") from None
    return types


def _avro_type(schema: AvroSchema, type_: Type, around: frozenset[str]) -> Any:
    flat = members(type_)
    if not flat:
        return "void"
    if len(flat) > 1:
        return _struct((f"member{at}", _avro_type(schema, member, around), True) for at, member in enumerate(flat))
    match flat[0]:
        case Container("array", items):
            return _array(_avro_type(schema, items, around), nullable(items))
        case Container("map", values):
            return _map("string", _avro_type(schema, values, around), nullable(values))
        case Primitive() as plain:
            return _primitive(plain)
        case Ref() as ref:
            named = schema.named(ref)
            if named.kind == "fixed":
                return _primitive(named.logical)
            if named.kind == "record" and named.name not in around:
                inside = around | {named.name}
                return _struct(
                    (field.name, _avro_type(schema, field.type, inside), nullable(field.type)) for field in named.fields
                )
    # An enum; or a record inside itself, as JSON: the type of a table's column is finite.
    return "string"


def _primitive(type_: Primitive) -> str:
    if type_.logical == "decimal":
        return f"decimal({type_.precision},{type_.scale})"
    return _OF_LOGICAL.get(type_.logical or "") or _PLAIN.get(type_.name, "binary")


def _iceberg_type(type_: Any) -> Any:
    import pyiceberg.types as iceberg

    match type_:
        case iceberg.StructType():
            return _struct((field.name, _iceberg_type(field.field_type), not field.required) for field in type_.fields)
        case iceberg.ListType():
            return _array(_iceberg_type(type_.element_type), not type_.element_required)
        case iceberg.MapType():
            values = _iceberg_type(type_.value_type)
            return _map(_iceberg_type(type_.key_type), values, not type_.value_required)
        case iceberg.DecimalType():
            return f"decimal({type_.precision},{type_.scale})"
        case iceberg.FixedType():
            return "binary"
    if str(type_) not in _OF_ICEBERG:
        raise ConfigError(f"Spark has no type for the table's {type_}")
    return _OF_ICEBERG[str(type_)]


def _struct(fields: Iterable[tuple[str, Any, bool]]) -> dict[str, Any]:
    documents = [{"name": name, "type": type_, "nullable": null, "metadata": {}} for name, type_, null in fields]
    return {"type": "struct", "fields": documents}


def _array(items: Any, null: bool) -> dict[str, Any]:
    return {"type": "array", "elementType": items, "containsNull": null}


def _map(keys: Any, values: Any, null: bool) -> dict[str, Any]:
    return {"type": "map", "keyType": keys, "valueType": values, "valueContainsNull": null}
