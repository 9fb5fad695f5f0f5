"""The defaults of an Avro schema become SQL, if a column of a table can have them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.records.schema.ddl import column_defaults


def schema(type_: Any, **default: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "c", "type": type_, **default}]})


@pytest.mark.parametrize(
    ("type_", "default", "expected"),
    [
        ("boolean", True, ("boolean", "true")),
        ("int", -5, ("integer", "-5")),
        ("long", 1 << 62, ("long", str(1 << 62))),
        (["long", "null"], 7, ("long", "7")),
        ("double", 1.5, ("double", "CAST('1.5' AS DOUBLE)")),
        ("float", 2, ("float", "CAST('2' AS FLOAT)")),
        ("string", "it's \\ so", ("string", "'it\\'s \\\\ so'")),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", ("string", "'B'")),
        (["null", "string"], None, None),
        ("bytes", "\u00ff", None),
        ({"type": "int", "logicalType": "date"}, 3, None),
        ({"type": "array", "items": "int"}, [], None),
        (["string", "long"], "x", None),
    ],
)
def test_only_plain_types_have_a_default_in_sql(type_: Any, default: Any, expected: tuple[str, str] | None) -> None:
    assert column_defaults(schema(type_, default=default)).get("c") == expected


def test_a_field_without_a_default_has_no_default_in_sql() -> None:
    assert column_defaults(schema("long")) == {}


@given(st.text())
def test_any_text_becomes_one_sql_literal(text: str) -> None:
    _, sql = column_defaults(schema("string", default=text))["c"]
    inner = sql[1:-1].replace("\\\\", "").replace("\\'", "")
    assert sql[0] == sql[-1] == "'"
    assert "'" not in inner
    assert "\\" not in inner
