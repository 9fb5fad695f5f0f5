"""Avro schemas as JSON, including malformed and huge schemas, for tests of the parser."""

import json
from typing import Any

from lakefeed.records.schema.merge import SchemaMerge, merge_schemas


def decimal(precision: int, scale: int = 2) -> Any:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def record(*fields: Any, name: str = "R", **attributes: Any) -> Any:
    return {"type": "record", "name": name, "fields": list(fields), **attributes}


def field(name: str, type_: Any = "string", **attributes: Any) -> Any:
    return {"name": name, "type": type_, **attributes}


def join(reader: Any, writer: Any, *, grow: bool = True) -> SchemaMerge:
    return merge_schemas(json.dumps(reader), json.dumps(writer), grow=grow)


def bomb(levels: int = 20, width: int = 4) -> Any:
    """Return a list of types in which each type uses the previous one several times: ``width ** levels`` columns."""
    inner: Any = "int"
    fields = []
    for level in range(levels):
        inner = {"type": "record", "name": f"R{level}", "fields": [field("a", inner)]}
        name = f"R{level}"
        inner["fields"] += [field(f"f{at}", f"R{level - 1}" if level else "int") for at in range(width - 1)]
        fields.append(field(name.lower(), inner))
        inner = name
    return record(*fields)


def deep(levels: int) -> Any:
    inner: Any = "int"
    for level in range(levels):
        inner = {"type": "record", "name": f"R{level}", "fields": [field("x", inner)]}
    return record(field("x", inner))


def nested_arrays(levels: int) -> str:
    return '{"type":"record","name":"R","fields":[{"name":"x","type":' + (
        '{"type":"array","items":' * levels + '"int"' + "}" * levels + "}]}"
    )


MALFORMED: list[tuple[Any, str]] = [
    (5, "the type of the schema is 5, not a name, an object or a union"),
    (None, "the type of the schema is null"),
    ({}, "the schema has no type"),
    ({"type": 5}, "the type of the schema is 5"),
    ({"type": "record"}, "has no name"),
    ({"type": "record", "name": "R"}, "the record 'R' has no fields"),
    ({"type": "record", "name": "R", "fields": None}, "the fields of the record 'R' are null, not a list"),
    ({"type": "record", "name": "R", "fields": {}}, "the fields of the record 'R' are {}, not a list"),
    ({"type": "record", "name": "R", "fields": [5]}, "a field of the record 'R' is 5, not an object"),
    ({"type": "record", "name": "R", "fields": [{"type": "int"}]}, "a field of the record 'R' has no name"),
    ({"type": "record", "name": "R", "fields": [{"name": "a"}]}, "R.a has no type"),
    (record(field("a", 5)), "the type of R.a is 5"),
    (record({"name": "", "type": "int"}), "the name of a field of the record 'R' is \"\", not a text"),
    (record({"name": 5, "type": "int"}), "is 5, not a text"),
    (record({"name": "\ud800", "type": "int"}), "is not valid Unicode"),
    (record(field("a", "int"), field("a", "int")), "the record 'R' has the field 'a' twice"),
    (record(field("a", "int", aliases="b")), 'the aliases of R.a are "b", not a list of texts'),
    (record(field("a", "double", default="x")), 'the default of R.a is "x", not a number'),
    (record(field("a", "Nowhere")), "the type 'Nowhere' of R.a is not defined before its use"),
    (record(field("a", {"type": "enum", "name": "E"})), "the symbols of E are null, not a list of texts"),
    (record(field("a", {"type": "enum", "name": "E", "symbols": [1]})), "the symbols of E are [1]"),
    (record(field("a", {"type": "enum", "name": "E", "symbols": ["A", "A"]})), "the enum 'E' has a symbol twice"),
    (record(field("a", {"type": "fixed", "name": "F"})), "the size of the fixed 'F' is null"),
    (record(field("a", {"type": "fixed", "name": "F", "size": -1})), "the size of the fixed 'F' is -1"),
    (record(field("a", {"type": "fixed", "name": "int", "size": 1})), "has the name of a primitive type, 'int'"),
    (record(field("a", {"type": "array"})), "R.a has no items"),
    (record(field("a", {"type": "map", "values": 1})), "the type of the values of R.a is 1"),
    (record(field("a", ["int", "int"])), "the union of R.a has int twice"),
    (record(field("a", ["int", ["string", "long"]])), "a union is a member of the union of R.a"),
    ({**record(), "name": 5}, "is 5, not a text"),
    (record(namespace=5), "the namespace of the schema is 5, not a text"),
    (
        record(field("a", {"type": "bytes", "logicalType": "decimal", "precision": 39})),
        "R.a is a decimal of 39 digits, but a column has at most 38",
    ),
]
