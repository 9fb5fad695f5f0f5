"""Compare rows and dead letters with the expected ones."""

import base64
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from lakefeed_testing.compare import FoundDeadLetter, Outcome, differences, read_row, same, shown
from lakefeed_testing.settings import Case

TYPES = {"id": "long", "name": "string"}


def case(**expected: Any) -> Case:
    return Case.model_validate({"records": [{"value": 1}], **expected})


def found(expected: Case, **outcome: Any) -> list[str]:
    return [each.what for each in differences(expected, Outcome(types=TYPES, **outcome))]


def test_rows_are_compared_in_any_order_by_the_expected_columns() -> None:
    rows = ({"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    assert found(case(rows=[{"id": 2}, {"name": "a"}]), rows=rows) == []
    assert found(case(rows=[{"id": 2}], columns="exact"), rows=rows[1:]) == [
        'row 1: name is "b", and no such column is expected'
    ]


def test_all_rows_are_matched_even_if_a_row_has_several_candidates() -> None:
    rows = ({"id": 1, "name": "a"}, {"id": 1, "name": "b"})
    assert found(case(rows=[{"id": 1}, {"id": 1, "name": "a"}]), rows=rows) == []


def test_a_row_without_a_match_is_shown_with_the_most_similar_row() -> None:
    rows = ({"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    assert found(case(rows=[{"id": 2, "name": "c"}, {"id": 1, "name": "a"}]), rows=rows) == [
        'row 1: name is "b", expected "c"'
    ]
    assert found(case(rows=[{"id": 1}]), rows=rows) == ['unexpected row: {"id": 2, "name": "b"}']
    assert found(case(rows=[{"id": 1}, {"id": 3}]), rows=rows[:1]) == ['row 2 is missing: {"id": 3}']
    assert found(case(rows=[{"nmae": "a"}]), rows=rows[:1]) == [
        "row 1: there is no column nmae, the columns are id, name"
    ]


def test_unexpected_dead_letters_and_skipped_records_are_differences() -> None:
    letter = FoundDeadLetter(topic="t", partition=0, offset=3, reason="expectation fare: fare >= 0")
    assert found(case(), dead_letters=(letter,), skipped=2) == [
        "unexpected dead letter: t-0 offset 3: expectation fare: fare >= 0",
        "2 records are skipped, expected 0",
    ]
    assert found(case(dead_letters=[{"reason": "fare", "offset": 3}]), dead_letters=(letter,)) == []
    assert found(case(dead_letters=[{"reason": "fare", "offset": 4}]), dead_letters=(letter,)) == [
        "dead letter 1 (t-0 offset 3): offset is 3, expected 4"
    ]


def test_the_feeds_error_is_reported_unless_the_case_expects_this_error() -> None:
    assert found(case(rows=[{"id": 1}]), error="it broke") == ["the feed stops: it broke"]
    assert found(case(error="broke"), error="it broke") == []
    assert found(case(error="other"), error="it broke") == [
        "the feed stops with another error: it broke; expected: other"
    ]


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


@pytest.mark.parametrize(
    ("expected", "actual", "type_"),
    [
        ("2026-01-01T01:00:00+01:00", "2026-01-01T00:00:00.000000Z", "timestamp"),
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00.000000Z", "timestamp"),
        (date(2026, 1, 1), "2026-01-01", "date"),
        (date(2026, 1, 1), "2026-01-01", "string"),
        (1, Decimal("1.0"), "double"),
        (1.0, 1, "long"),
        (float("nan"), "NaN", "double"),
        ("1.50", Decimal("1.5"), "decimal(10,2)"),
        ("ab", base64_of(b"ab"), "binary"),
        ("61 ff", base64_of(b"a\xff"), "binary"),
        ("0x61ff", base64_of(b"a\xff"), "binary"),
        ("0x61FF", base64_of(b"a\xff"), "binary"),
        ({"a": 1}, {"a": 1, "b": 2}, {"type": "struct", "fields": [{"name": "a", "type": "long"}]}),
        ([1, None], [1, None], {"type": "array", "elementType": "long"}),
        ({"k": 1}, {"k": 1}, {"type": "map", "keyType": "string", "valueType": "long"}),
        (None, None, "long"),
    ],
)
def test_values_with_the_same_meaning_are_equal(expected: Any, actual: Any, type_: Any) -> None:
    assert same(expected, actual, type_, exact=False)


@pytest.mark.parametrize(
    ("expected", "actual", "type_"),
    [
        ("1", 1, "long"),
        (1.5, 1, "long"),
        (9007199254740992.0, 9007199254740993, "long"),
        (1, "1", "string"),
        (True, 1, "long"),
        (None, 0, "long"),
        (0, None, "long"),
        ("2026-01-01", "2026-01-01T00:00:01.000000Z", "timestamp"),
        ("soon", "2026-01-01T00:00:01.000000Z", "timestamp"),
        (1.5, Decimal("1.25"), "double"),
        ("ba", base64_of(b"ab"), "binary"),
        ([1], [1, 2], {"type": "array", "elementType": "long"}),
        ({"k": 1}, {"k": 1, "l": 2}, {"type": "map", "keyType": "string", "valueType": "long"}),
    ],
)
def test_values_with_different_meanings_differ(expected: Any, actual: Any, type_: Any) -> None:
    assert not same(expected, actual, type_, exact=False)


def test_values_are_shown_as_a_case_file_would_contain_them() -> None:
    row = read_row('{"n": 1.5, "d": 1.50, "b": "/w==", "t": "2026-01-01T00:00:00.000000Z"}')
    types = {"n": "double", "d": "decimal(4,2)", "b": "binary", "t": "timestamp"}
    assert {name: shown(value, types[name]) for name, value in row.items()} == {
        "n": 1.5,
        "d": "1.50",
        "b": "ff",
        "t": "2026-01-01T00:00:00",
    }
