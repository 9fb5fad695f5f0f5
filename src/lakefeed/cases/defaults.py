"""Fills in the fields that a case leaves out, as producers' encoders do: with the defaults of the schema."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any

from lakefeed.records.schema.avro import NO_DEFAULT, AvroSchema, Container, Field, Primitive, Ref, Type, members


def with_defaults(value: Any, schema: AvroSchema, type_: Type | None = None) -> Any:
    """Return a value with the defaults of the fields that it lacks, at all levels; a null that is given stays one.

    Args:
        type_: the value's type; None for the whole record of the schema.
    """
    kinds = members(schema.root if type_ is None else type_)
    if len(kinds) != 1 or value is None:
        return value
    kind = kinds[0]
    if isinstance(kind, Container):
        if kind.kind == "array" and isinstance(value, list):
            return [with_defaults(each, schema, kind.values) for each in value]
        if kind.kind == "map" and isinstance(value, dict):
            return {key: with_defaults(each, schema, kind.values) for key, each in value.items()}
        return value
    if not isinstance(kind, Ref) or not isinstance(value, dict) or schema.look_up(kind).kind != "record":
        return value
    filled = dict(value)
    for field in schema.look_up(kind).fields:
        if field.name in value:
            filled[field.name] = with_defaults(value[field.name], schema, field.type)
        elif field.default is not NO_DEFAULT and field.default is not None:
            filled[field.name] = _default(field, schema)
    return filled


def _default(field: Field, schema: AvroSchema) -> Any:
    """Return a field's default as a case writes such a value; Avro writes bytes as text of the code points 0 to 255."""
    kind = members(field.type)[0]
    if isinstance(kind, Primitive) and kind.name == "bytes":
        content = str(field.default).encode("latin-1")
        if kind.logical == "decimal":
            return str(Decimal(int.from_bytes(content, signed=True)).scaleb(-kind.scale))
        return base64.b64encode(content).decode()
    return with_defaults(field.default, schema, field.type)
