"""JSON Schema as an Avro schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakefeed.decode.json_schema import ANY, avro_schema
from lakefeed.errors import ConfigError

TEXT = {"type": ["null", "string"], "default": None, ANY: True}


def fields(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The Avro fields of an object with these properties, by name, without the name."""
    schema = {"type": "object", "properties": properties, **more}
    document = json.loads(avro_schema(json.dumps(schema)))
    return {field.pop("name"): field for field in document["fields"]}


def optional(kind: Any) -> dict[str, Any]:
    return {"type": ["null", kind], "default": None}


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        ({"type": "integer"}, optional("long")),
        ({"type": "number"}, optional("double")),
        ({"type": "boolean"}, optional("boolean")),
        ({"type": "string"}, optional("string")),
        ({"type": ["string", "null"]}, optional("string")),
        ({"type": ["integer", "number"]}, optional("double")),
        ({"type": "string", "format": "date-time"}, optional({"type": "long", "logicalType": "timestamp-micros"})),
        ({"type": "string", "format": "date"}, optional({"type": "int", "logicalType": "date"})),
        ({"type": "string", "contentEncoding": "base64"}, optional("bytes")),
        ({"enum": ["a", "b"]}, optional("string")),
        ({"enum": ["a", None]}, optional("string")),
        ({"const": 5}, optional("long")),
        ({"type": "array", "items": {"type": "integer"}}, optional({"type": "array", "items": "long"})),
        (
            {"type": "array", "items": {"type": ["integer", "null"]}},
            optional({"type": "array", "items": ["null", "long"]}),
        ),
        (
            {"type": "object", "additionalProperties": {"type": "number"}},
            optional({"type": "map", "values": "double"}),
        ),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, optional("long")),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, optional("string")),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, TEXT),
        ({"type": ["string", "integer"]}, TEXT),
        ({"type": "object"}, TEXT),
        ({"type": "array"}, {**TEXT}),
        ({}, TEXT),
        (True, TEXT),
        (
            {"type": "array", "items": {"type": "object"}},
            {"type": ["null", {"type": "array", "items": "string"}], "default": None, ANY: True},
        ),
        ({"type": "null"}, {"type": "null", "default": None}),
    ],
)
def test_each_kind_of_property(schema: Any, field: dict[str, Any]) -> None:
    assert fields({"a": schema})["a"] == field


def test_what_is_required_is_not_null() -> None:
    found = fields({"a": {"type": "integer"}, "b": {"type": ["integer", "null"]}}, required=["a", "b"])
    assert found == {"a": {"type": "long"}, "b": optional("long")}


def test_objects_and_references() -> None:
    place = {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}
    found = fields(
        {"from": {"$ref": "#/definitions/place"}, "to": {"$ref": "#/definitions/place"}},
        definitions={"place": place},
        title="Ride 1",
    )
    zone = [{"name": "zone", "type": "string"}]
    assert found["from"] == optional({"type": "record", "name": "Ride_1_from", "fields": zone})
    assert found["to"] == optional({"type": "record", "name": "Ride_1_to", "fields": zone})


def test_references_into_other_schemas() -> None:
    other = {"$id": "http://example.com/other.json", "type": "object", "properties": {"q": {"$ref": "#/$defs/n"}}}
    other["$defs"] = {"n": {"type": "integer"}}
    schema = {
        "type": "object",
        "properties": {
            "a": {"$ref": "other.json"},
            "b": {"$ref": "http://example.com/other.json#/$defs/n"},
        },
    }
    document = json.loads(avro_schema(json.dumps(schema), {"other.json": json.dumps(other)}))
    [a, b] = document["fields"]
    assert a["type"][1]["fields"] == [{"name": "q", "type": ["null", "long"], "default": None}]
    assert b["type"] == ["null", "long"]


def test_a_schema_inside_itself_is_text() -> None:
    node = {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#"}}}
    found = fields(node["properties"])  # type: ignore[arg-type]
    inner = {field.pop("name"): field for field in found["next"]["type"][1]["fields"]}
    assert inner["next"] == TEXT


def test_all_of_joins_fields() -> None:
    base = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    schema = {
        "definitions": {"base": base},
        "allOf": [{"$ref": "#/definitions/base"}, {"properties": {"x": {"type": "string"}}}],
    }
    document = json.loads(avro_schema(json.dumps(schema)))
    assert [(field["name"], field["type"]) for field in document["fields"]] == [
        ("id", "long"),
        ("x", ["null", "string"]),
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ('{"type": "string"}', "does not describe an object"),
        ('{"type": "object"}', "does not describe an object"),
        ('{"type": "object", "properties": {"a b": {}}}', "'a b' of the JSON Schema cannot be a column"),
        ('{"type": "object", "properties": {"a": {"$ref": "no.json"}}}', "refers to no.json, which is nowhere"),
        ('{"type": "object", "properties": {"a": {"$ref": "#/$defs/no"}}}', "refers to #/$defs/no, which is nowhere"),
    ],
)
def test_schemas_that_give_no_columns(text: str, what: str) -> None:
    with pytest.raises(ConfigError) as refused:
        avro_schema(text)
    assert what in refused.value.what
