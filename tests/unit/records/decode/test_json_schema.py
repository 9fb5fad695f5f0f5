"""JSON Schemas are translated to Avro schemas."""

import json
import time
from typing import Any

import pytest

from lakefeed.errors import ConfigError
from lakefeed.records.decode.json_schema import NAME, avro_schema
from lakefeed.records.schema.avro import ANY

TEXT = {"type": ["null", "string"], "default": None, ANY: True}


def fields(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the Avro fields of an object with these properties, keyed by name."""
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
        ({"type": "object", "additionalProperties": {"type": "number"}}, optional({"type": "map", "values": "double"})),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, optional("long")),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, optional("string")),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, TEXT),
        ({"type": ["string", "integer"]}, TEXT),
        ({"type": "object"}, TEXT),
        ({"type": "array"}, TEXT),
        ({}, TEXT),
        (True, TEXT),
        (
            {"type": "array", "items": {"type": "object"}},
            {"type": ["null", {"type": "array", "items": "string"}], "default": None, ANY: True},
        ),
        ({"type": "null"}, {"type": "null", "default": None}),
    ],
)
def test_each_kind_of_property_has_its_avro_field(schema: Any, field: dict[str, Any]) -> None:
    assert fields({"a": schema})["a"] == field


def test_a_required_property_without_null_is_not_nullable() -> None:
    found = fields({"a": {"type": "integer"}, "b": {"type": ["integer", "null"]}}, required=["a", "b"])
    assert found == {"a": {"type": "long"}, "b": optional("long")}


def test_two_references_to_an_object_give_two_records() -> None:
    place = {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}
    found = fields(
        {"from": {"$ref": "#/definitions/place"}, "to": {"$ref": "#/definitions/place"}},
        definitions={"place": place},
        title="Ride 1",
    )
    zone = [{"name": "zone", "type": "string"}]
    assert found["from"] == optional({"type": "record", "name": "Ride_1_from", "fields": zone})
    assert found["to"] == optional({"type": "record", "name": "Ride_1_to", "fields": zone})


def test_references_to_other_documents_are_resolved() -> None:
    other = {"$id": "http://example.com/other.json", "type": "object", "properties": {"q": {"$ref": "#/$defs/n"}}}
    other["$defs"] = {"n": {"type": "integer"}}
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "other.json"}, "b": {"$ref": "http://example.com/other.json#/$defs/n"}},
    }
    document = json.loads(avro_schema(json.dumps(schema), {"other.json": json.dumps(other)}))
    [a, b] = document["fields"]
    assert a["type"][1]["fields"] == [{"name": "q", "type": ["null", "long"], "default": None}]
    assert b["type"] == ["null", "long"]


def test_a_schema_inside_itself_becomes_text() -> None:
    found = fields({"name": {"type": "string"}, "next": {"$ref": "#"}})
    inner = {field.pop("name"): field for field in found["next"]["type"][1]["fields"]}
    assert inner["next"] == TEXT


def test_the_keyword_all_of_adds_the_fields_of_all_schemas() -> None:
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
        ('{"type": "object", "properties": {"a": {"$ref": "no.json"}}}', "refers to no.json, which does not exist"),
        (
            '{"type": "object", "properties": {"a": {"$ref": "#/$defs/no"}}}',
            "refers to #/$defs/no, which does not exist",
        ),
    ],
)
def test_a_schema_without_columns_is_refused(text: str, what: str) -> None:
    with pytest.raises(ConfigError) as refused:
        avro_schema(text)
    assert what in refused.value.what


LONG, STRING = ["null", "long"], ["null", "string"]


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"n": {"$anchor": "count", "type": "integer"}}, "properties": {"a": {"$ref": "#count"}}},
        {"definitions": {"n": {"$id": "#count", "type": "integer"}}, "properties": {"a": {"$ref": "#count"}}},
        {
            "id": "http://x/y",
            "definitions": {"n": {"id": "#count", "type": "integer"}},
            "properties": {"a": {"$ref": "#count"}},
        },
        {
            "$defs": {"n": {"$dynamicAnchor": "count", "type": "integer"}},
            "properties": {"a": {"$dynamicRef": "#count"}},
        },
        {
            "properties": {"a": {"$ref": "#/definitions/x/allOf/0"}},
            "definitions": {"x": {"allOf": [{"type": "integer"}]}},
        },
        {"properties": {"a": {"$ref": "#/definitions/my%20count"}}, "definitions": {"my count": {"type": "integer"}}},
        {"properties": {"a": {"$ref": "#/definitions/my~1co~0unt"}}, "definitions": {"my/co~unt": {"type": "integer"}}},
        {
            "$id": "https://example.com/a/root.json",
            "properties": {"a": {"$ref": "inner.json#/$defs/n"}},
            "$defs": {"x": {"$id": "inner.json", "$defs": {"n": {"type": "integer"}}}},
        },
        {
            "$id": "https://example.com/a/root.json",
            "properties": {"a": {"$ref": "https://example.com/a/other.json"}},
            "$defs": {"x": {"$id": "other.json", "$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}},
        },
        {
            "properties": {"a": {"$ref": "#/$defs/one"}},
            "$defs": {"one": {"$ref": "#/$defs/two"}, "two": {"type": "integer"}},
        },
        {"properties": {"a": {"$ref": "#/properties/b"}, "b": {"type": "integer"}}},
        # Since draft 2019-09, keywords beside a reference apply, too.
        {"$defs": {"x": {"description": "a"}}, "properties": {"a": {"$ref": "#/$defs/x", "type": "integer"}}},
        {
            "properties": {"a": {"allOf": [{"$ref": "#/definitions/x"}, {"maximum": 5}]}},
            "definitions": {"x": {"type": "integer"}},
        },
        {"properties": {"a": {"type": "integer", "anyOf": [{"minimum": 1}, {"maximum": -1}]}}},
        {"allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"a": {"minimum": 3}}}]},
        {"properties": {"a": {"type": "integer", "nullable": True}}, "required": ["a"]},
        {"properties": {"a": {"type": ["integer", "null"], "enum": [1, None]}}, "required": ["a"]},
    ],
)
def test_references_of_every_kind_find_their_target(schema: dict[str, Any]) -> None:
    [field] = json.loads(avro_schema(json.dumps({"type": "object", **schema})))["fields"][:1]
    assert (field["name"], field["type"]) == ("a", LONG)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#count"}}},
        {"properties": {"a": {"$ref": "#/definitions/x/enum/0"}}, "definitions": {"x": {"enum": ["b"]}}},
        {"properties": {"a": {"$ref": "#/definitions/x/allOf/7"}}, "definitions": {"x": {"allOf": [{}]}}},
        {"properties": {"a": {"$ref": "http://["}}},
        {"properties": {"a": {"$ref": "#/%"}}},
        {"properties": {"a": {"$dynamicRef": "#x"}}},
    ],
)
def test_a_reference_without_target_is_an_error_with_its_place(schema: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="which does not exist") as refused:
        avro_schema(json.dumps({"type": "object", **schema}))
    assert refused.value.where == "#/properties/a"


def test_a_relative_reference_finds_the_document_with_the_longest_common_path() -> None:
    schema = {"$id": "http://x/main.json", "properties": {"a": {"$ref": "one/t.json"}, "b": {"$ref": "two/t.json"}}}
    references = {"http://y/two/t.json": '{"type": "string"}', "http://y/one/t.json": '{"type": "integer"}'}
    found = json.loads(avro_schema(json.dumps(schema), references))["fields"]
    assert [each["type"] for each in found] == [LONG, STRING]


def test_columns_have_the_names_of_the_properties_except_the_empty_name() -> None:
    names = ["a b", "a.b", 'a"b', "a`b", "größe", "select", "1st", "a/b", "__proto__", "$ref", "名", " ", ""]
    found = fields({name: {"type": "object", "properties": {name: {"type": "integer"}}} for name in names})
    assert list(found) == [*names[:-1], "_"]
    for name, each in found.items():
        assert each["type"][1]["fields"][0]["name"] == name
    assert found["_"][NAME] == ""
    with pytest.raises(ConfigError, match="one with the empty name"):
        fields({"": {}, "_": {}})


def test_properties_of_choices_and_conditions_are_nullable() -> None:
    found = fields(
        {"kind": {"type": "string"}},
        required=["kind"],
        oneOf=[
            {"properties": {"kind": {"const": "a"}, "n": {"type": "integer"}}, "required": ["n"]},
            {"properties": {"kind": {"const": "b"}, "n": {"type": "integer"}, "x": {"type": "string"}}},
        ],
        **{"if": {"required": ["y"]}, "then": {"properties": {"x": {"type": "integer"}, "z": {"type": "boolean"}}}},
        dependentSchemas={"kind": {"properties": {"d": {"type": "boolean"}}}},
    )
    assert {name: each["type"] for name, each in found.items()} == {
        "kind": "string",
        "n": LONG,
        "x": STRING,
        "z": STRING,
        "d": STRING,
    }
    # An object that matches another choice may have these properties with any value.
    assert [found[name].get(ANY) for name in "nxzd"] == [None, True, True, True]
    # If the choices are closed, an object that matches another choice cannot have these properties.
    closed = [
        {"properties": {"kind": {"const": name}, name: {"type": kind}}, "additionalProperties": False}
        for name, kind in (("a", "number"), ("b", "integer"))
    ]
    found = fields({"kind": {"type": "string"}}, oneOf=closed)
    assert found == {"kind": optional("string"), "a": optional("double"), "b": optional("long")}


def test_a_root_of_several_objects_has_the_properties_of_all_objects() -> None:
    """Confluent uses this layout for several types in one topic."""
    order: dict[str, Any] = {"properties": {"id": {"type": "integer"}, "n": {"type": "number"}}, "required": ["id"]}
    client: dict[str, Any] = {"properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}

    def columns(*options: Any, word: str = "oneOf") -> dict[str, Any]:
        text = json.dumps({word: options, "$defs": {"order": order}})
        return {each["name"]: each["type"][1] for each in json.loads(avro_schema(text))["fields"]}

    assert columns({"$ref": "#/$defs/order"}, client) == {"id": "long", "n": "string", "name": "string"}
    order, client = ({**each, "additionalProperties": False} for each in (order, client))
    for word in ("oneOf", "anyOf"):
        assert columns({"$ref": "#/$defs/order"}, client, word=word) == {"id": "long", "n": "double", "name": "string"}
    for other in ({"type": "string"}, {}, {"$ref": "#"}):
        with pytest.raises(ConfigError, match="does not describe an object"):
            columns(order, other)


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ({"properties": []}, "malformed at #/properties: it has to be an object of schemas"),
        ({"properties": {"a": 5}}, "malformed at #/properties/a: a schema has to be an object, true or false"),
        ({"properties": {"a": {"type": 5}}}, "malformed at #/properties/a/type: it has to be a type or a list"),
        ({"type": [5]}, "malformed at #/type: '5' has to be one of null, boolean"),
        ({"type": [["null"]]}, "malformed at #/type"),
        ({"type": {}}, "malformed at #/type"),
        ({"type": []}, "malformed at #/type"),
        ({"type": "objekt"}, "malformed at #/type: 'objekt' has to be one of"),
        ({"required": "x"}, "malformed at #/required: it has to be a list of names"),
        ({"required": [1]}, "malformed at #/required"),
        ({"properties": {"a": {"required": True}}}, "malformed at #/properties/a/required"),
        ({"items": 3}, "malformed at #/items: a schema has to be"),
        ({"items": [3]}, "malformed at #/items/0: a schema has to be"),
        ({"allOf": {}}, "malformed at #/allOf: it has to be a list of schemas"),
        ({"oneOf": []}, "malformed at #/oneOf"),
        ({"anyOf": ["x"]}, "malformed at #/anyOf/0"),
        ({"enum": 1}, "malformed at #/enum"),
        ({"$ref": 1}, "malformed at #/$ref: it has to be text"),
        ({"$id": 1}, "malformed at #/$id: it has to be text"),
        ({"$id": "http://["}, "malformed at #/$id: it has to be an address"),
        ({"$schema": []}, "malformed at #/$schema"),
        ({"$anchor": {}}, "malformed at #/$anchor"),
        ({"$defs": {"a": None}}, "malformed at #/$defs/a"),
        ({"additionalProperties": "yes"}, "malformed at #/additionalProperties"),
        ({"dependencies": {"a": 1}}, "malformed at #/dependencies/a"),
        ({"properties": {"a/b": {"type": None}}}, "malformed at #/properties/a~1b/type"),
    ],
)
def test_a_malformed_schema_is_an_error_with_its_path(schema: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError) as refused:
        avro_schema(json.dumps({"properties": {"ok": {}}, **schema}))
    assert what in refused.value.what


@pytest.mark.parametrize("levels", [101, 300, 20_000])
def test_a_schema_with_too_many_levels_is_refused(levels: int) -> None:
    for start, end in (
        ('{"properties": {"a": ', "}}"),
        ('{"items": ', "}"),
        ('{"allOf": [', "]}"),
        ('{"$defs": {"a": ', "}}"),
    ):
        with pytest.raises(ConfigError, match="nested deeper than 100 levels"):
            avro_schema('{"properties": {"x": ' + start * levels + "{}" + end * levels + "}}")


def bomb(kind: str, *, levels: int = 25) -> str:
    """Return a schema of 2 to 6 KB that describes 2 to the power of ``levels`` columns."""
    defs: dict[str, Any] = {"d0": {"type": "integer"}}
    for level in range(1, levels + 1):
        below = {"$ref": f"#/$defs/d{level - 1}"}
        # A property that only one branch declares would become text, because the other branch allows any value.
        both = {"properties": {"x": below, "y": below}}
        defs[f"d{level}"] = {
            "properties": {"type": "object", "properties": {"a": below, "b": below}},
            "items": {"type": "object", "properties": {"a": {"items": below}, "b": below}},
            "allOf": {"allOf": [below, below], "properties": {f"p{level}": {}}},
            "anyOf": {"anyOf": [below, {"type": "object", "properties": {"x": below}}]},
            "then": {"properties": {"k": {}}, "if": {"required": ["k"]}, "then": both, "else": both},
        }[kind]
    return json.dumps({"$defs": defs, "type": "object", "properties": {"x": {"$ref": f"#/$defs/d{levels}"}}})


@pytest.mark.parametrize(
    "kind",
    ["properties", "anyOf", *(pytest.param(each, marks=pytest.mark.slow) for each in ("items", "allOf", "then"))],
)
def test_a_small_schema_of_millions_of_columns_is_refused_fast(kind: str) -> None:
    text = bomb(kind)
    assert len(text) < 7_000
    started = time.process_time()
    with pytest.raises(ConfigError, match="more than 10,000 columns"):
        avro_schema(text)
    assert time.process_time() - started < 5


def test_record_names_do_not_grow_with_each_level() -> None:
    defs: dict[str, Any] = {"d0": {"type": "integer"}}
    for level in range(1, 13):
        below = {"$ref": f"#/$defs/d{level - 1}"}
        defs[f"d{level}"] = {"properties": {"a" * 300: below, "b": below}}
    text = json.dumps({"$defs": defs, "properties": {"x": {"$ref": "#/$defs/d12"}}})
    assert len(avro_schema(text)) < 10_000 * 1_000


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"allOf": [{"$ref": "#"}]}}},
        {"properties": {"a": {"oneOf": [{"$ref": "#"}, {"type": "null"}]}}},
        {"properties": {"a": {"items": {"$ref": "#"}}}},
        {"properties": {"a": {"additionalProperties": {"$ref": "#"}}}},
        {"properties": {"a": {}}, "oneOf": [{"$ref": "#"}]},
        {"properties": {"a": {"$ref": "#/properties/a"}}},
        {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/x"}}},
        {"properties": {"a": {"$recursiveRef": "#"}}, "$recursiveAnchor": True},
        {"allOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": {"properties": {"a": {"allOf": [{"$ref": "#/$defs/x"}]}}}}},
    ],
)
def test_a_cycle_of_references_ends_in_text(schema: dict[str, Any]) -> None:
    document = json.loads(avro_schema(json.dumps(schema)))
    assert [each["name"] for each in document["fields"]] == ["a"]
    assert len(json.dumps(document)) < 2_000
