"""Avro schemas that any client may register: malformed and too large schemas are errors with a reason."""

import json
import time
from typing import Any

import pytest

from lakefeed.errors import ConfigError, SchemaIncompatible
from lakefeed.records.schema.avro import DEEPEST, MOST_COLUMNS, NO_DEFAULT, Primitive
from lakefeed.records.schema.changes import renames
from lakefeed.records.schema.fit import columns_of
from lakefeed.records.schema.merge import merge_schemas
from lakefeed.records.schema.parse import parse, parse_any
from tests.support.avro_documents import MALFORMED, bomb, deep, field, join, nested_arrays, record


@pytest.mark.parametrize(("document", "words"), MALFORMED, ids=[words for _, words in MALFORMED])
def test_a_malformed_schema_is_an_error_with_a_reason(document: Any, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_any(json.dumps(document))
    assert f"not an Avro schema: {words}" in refused.value.what or words in refused.value.what
    assert "Error" not in refused.value.what
    assert refused.value.where


@pytest.mark.parametrize("text", ["", "{", "nonsense", "[" * 100_000, '{"type":' * 100_000])
def test_a_text_that_is_no_json_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_any(text)


@pytest.mark.parametrize(
    "text", [json.dumps(deep(DEEPEST + 1)), nested_arrays(DEEPEST + 1), nested_arrays(300), nested_arrays(3_000)]
)
def test_a_schema_with_too_many_levels_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=f"nested deeper than {DEEPEST} levels"):
        parse(text)


def test_a_deep_schema_within_the_limit_is_accepted() -> None:
    text = json.dumps(deep(DEEPEST - 5))
    assert columns_of(text).names == ["x"]
    assert merge_schemas(text, text).schema is text


def test_a_small_schema_of_millions_of_columns_is_refused_fast() -> None:
    text = json.dumps(bomb())
    assert len(text) < 6_000
    began = time.process_time()
    for use in (parse, columns_of, renames):
        with pytest.raises(
            ConfigError, match=f"more than {MOST_COLUMNS:,} columns, including the fields inside columns"
        ):
            use(text)
    with pytest.raises(ConfigError, match="columns"):
        merge_schemas(json.dumps(record(field("a", "int"))), text)
    assert time.process_time() - began < 2


def test_a_merge_with_too_many_columns_is_refused() -> None:
    half = MOST_COLUMNS * 2 // 3
    one, two = (json.dumps(record(*(field(f"{name}{at}", "int") for at in range(half)))) for name in "ab")
    with pytest.raises(SchemaIncompatible, match="after the merge"):
        merge_schemas(one, two)


def test_invalid_logical_types_and_defaults_are_ignored() -> None:
    """Avro's own reader ignores them, too."""
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
    assert root.kind == "record"
    assert [each.type for each in root.fields[:2]] == [Primitive("bytes")] * 2
    assert [each.name for each in root.fields if each.default is not NO_DEFAULT] == ["n"]


def test_a_merge_omits_an_invalid_default() -> None:
    """If the reader's schema had this default, the records of all other writers would be unreadable."""
    merge = join(record(field("a", "int")), record(field("a", "int"), field("b", "int", default="x")))
    assert json.loads(merge.schema)["fields"][1] == {"name": "b", "type": ["null", "int"], "default": None}
