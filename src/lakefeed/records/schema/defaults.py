"""Writes defaults of Avro fields in SQL, so that existing rows of the table have the default in a new column."""

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
    """Return the Spark type and the default in SQL for the fields of an Avro record schema that have a default.

    A default of null is omitted, because a new column is null in existing rows anyway. Defaults of records, arrays,
    bytes and logical types are omitted, too.
    """
    schema = parse(text)
    defaults = {}
    for at, field in enumerate(schema.record.fields):
        if field.default is NO_DEFAULT or field.default is None:
            continue
        kind = _kind(schema, field.type)
        sql = None if kind is None else _sql(kind, field.default, f"default{at}")
        if kind is not None and sql is not None:
            defaults[field.name] = (_TYPES.get(kind, kind), sql)
    return defaults


def _kind(schema: AvroSchema, type_: Type) -> str | None:
    """Return the name of a plain type, also if it is nullable; None for other types."""
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
