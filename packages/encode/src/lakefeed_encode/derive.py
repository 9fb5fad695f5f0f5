"""Derives a Protobuf or JSON Schema from the rows' types, if the user gives no schema."""

from __future__ import annotations

import json
import re
from typing import Any

from lakefeed.errors import ConfigError
from lakefeed.lazy import DataType, StructType, t

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
