"""Writes the defaults of a reader's schema in SQL, for columns that a table gets later than its first rows."""

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
    """Return the Spark type and the default in SQL of each field of an Avro record schema that has such a default.

    A text is a parameter. A default of null is none: a column that is added is null in rows from before in any case.
    Defaults of records, arrays, bytes and logical types are left out.
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
    """Return the name of a plain type, alone or beside null; None for any other."""
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
