"""Avro schemas as anybody may register them: malformed ones are errors with words, large ones are bounded."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from lakefeed.errors import ConfigError, SchemaIncompatible
from lakefeed.records.schema.avro import NO_DEFAULT, Primitive, Record
from lakefeed.records.schema.columns import columns_of
from lakefeed.records.schema.differences import renames
from lakefeed.records.schema.limits import DEEPEST, MOST_COLUMNS
from lakefeed.records.schema.merge import merged
from lakefeed.records.schema.parse import parse, parse_any
from tests.unit.records.schema.test_merge import field, record


def bomb(levels: int = 20, width: int = 4) -> Any:
    """Named types that use the one before several times: the columns are ``width ** levels``."""
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
    (5, "the type of the schema is 5, neither a name nor an object nor a union"),
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
    (record({"name": "\ud800", "type": "int"}), "is no valid Unicode"),
    (record(field("a", "int"), field("a", "int")), "the record 'R' has the field 'a' twice"),
    (record(field("a", "int", aliases="b")), 'the aliases of R.a are "b", not a list of texts'),
    (record(field("a", "double", default="x")), 'the default of R.a is "x", not a number'),
    (record(field("a", "Nowhere")), "the type 'Nowhere' of R.a is used, but defined nowhere before"),
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
        "R.a is a decimal of 39 digits, and no column holds more than 38",
    ),
]


@pytest.mark.parametrize(("document", "words"), MALFORMED, ids=[words for _, words in MALFORMED])
def test_a_malformed_schema_is_an_error_with_words(document: Any, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_any(json.dumps(document))
    assert f"not an Avro schema: {words}" in refused.value.what or words in refused.value.what
    assert "Error" not in refused.value.what
    assert refused.value.where


@pytest.mark.parametrize("text", ["", "{", "nonsense", "[" * 100_000, '{"type":' * 100_000])
def test_text_that_is_no_json(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_any(text)


@pytest.mark.parametrize(
    "text", [json.dumps(deep(DEEPEST + 1)), nested_arrays(DEEPEST + 1), nested_arrays(300), nested_arrays(3_000)]
)
def test_levels_are_bounded(text: str) -> None:
    with pytest.raises(ConfigError, match=f"more than {DEEPEST} levels"):
        parse(text)


def test_a_deep_schema_within_the_limit_is_taken() -> None:
    text = json.dumps(deep(DEEPEST - 5))
    assert columns_of(text).names == ["x"]
    assert merged(text, text).schema is text


def test_a_bomb_costs_nothing() -> None:
    text = json.dumps(bomb())
    assert len(text) < 6_000
    began = time.process_time()
    for use in (parse, columns_of, renames):
        with pytest.raises(ConfigError, match=f"more than {MOST_COLUMNS:,} columns, fields inside columns counted"):
            use(text)
    with pytest.raises(ConfigError, match="columns"):
        merged(json.dumps(record(field("a", "int"))), text)
    assert time.process_time() - began < 2


def test_two_schemas_within_the_limit_may_be_beyond_it_together() -> None:
    half = MOST_COLUMNS * 2 // 3
    one, two = (json.dumps(record(*(field(f"{name}{at}", "int") for at in range(half)))) for name in "ab")
    with pytest.raises(SchemaIncompatible, match="joined"):
        merged(one, two)


def test_what_means_nothing_is_passed_over() -> None:
    """As for Avro's own reader: a logical type that does not fit, and a default that is no value."""
    schema = parse(
        json.dumps(
            record(
                field("a", {"type": "bytes", "logicalType": "decimal"}),
                field("b", {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}),
                field("c", {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 9}),
                field("d", {"type": "int", "logicalType": "decimal", "precision": "x"}),
                field("e", {"type": "string", "logicalType": 5}),
                field("f", "int", default="x"),
                field("g", "int", default=2**31),
                field("n", "double", default="NaN"),
                field("h", {"type": "enum", "name": "E", "symbols": ["A"]}, default="B"),
                field("i", ["null", "int"], default="x"),
                field("j", {"type": "array", "items": "int"}, default=[None]),
            )
        )
    )
    root = schema.types["R"]
    assert isinstance(root, Record)
    assert [each.type for each in root.fields[:2]] == [Primitive("bytes")] * 2
    assert [each.name for each in root.fields if each.default is not NO_DEFAULT] == ["n"]


def test_a_wrong_default_of_one_writer_does_not_come_to_the_readers_schema() -> None:
    """All other writers' records would be read with it, and none could."""
    reader = json.loads(
        merged(
            json.dumps(record(field("a", "int"))), json.dumps(record(field("a", "int"), field("b", "int", default="x")))
        ).schema
    )
    assert reader["fields"][1] == {"name": "b", "type": ["null", "int"], "default": None}
