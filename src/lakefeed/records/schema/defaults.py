"""Writes the defaults of a reader's schema in SQL, for columns that are added to a table with rows."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from lakefeed.clients.spark.statements import Statement
from lakefeed.records.schema.avro import NO_DEFAULT, AvroSchema, Primitive, Ref, Type, members
from lakefeed.records.schema.parse import parse

_TYPES = {"int": "integer"}


def column_defaults(text: str) -> Mapping[str, tuple[str, str]]:
    """Return the Spark types and SQL defaults of an Avro record schema's fields, for fields with defaults.

    Texts become parameters. A default of null is omitted, because a new column is null in existing rows anyway.
    Defaults of records, arrays, bytes and logical types are omitted.
    """
    schema = parse(text)
    found = {}
    for at, field in enumerate(schema.record.fields):
        if field.default is NO_DEFAULT or field.default is None:
            continue
        kind = _kind(schema, field.type)
        sql = None if kind is None else _sql(kind, field.default, f"default{at}")
        if kind is not None and sql is not None:
            found[field.name] = (_TYPES.get(kind, kind), sql)
    return found


def _kind(schema: AvroSchema, type_: Type) -> str | None:
    """Return the name of a plain type, which may be in a union with null; None for other types."""
    flat = members(type_)
    if len(flat) != 1:
        return None
    match flat[0]:
        case Primitive(name, None):
            return name
        case Ref() as ref if schema.look_up(ref).kind == "enum":
            return "string"
    return None


def _sql(kind: str, value: Any, name: str) -> str | None:
    match kind:
        case "boolean" if isinstance(value, bool):
            return json.dumps(value)
        case "int" | "long" if isinstance(value, int):
            return str(value)
        case "float" | "double" if isinstance(value, int | float) and math.isfinite(value):
            return f"CAST('{value!r}' AS {kind.upper()})"
        case "string" if isinstance(value, str):
            return Statement.of(f":{name}", {name: value})
    return None
