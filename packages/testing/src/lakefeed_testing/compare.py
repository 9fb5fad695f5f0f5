"""Compare the rows and dead letters of a case with the expected rows and dead letters."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, TypeVar

from lakefeed.messages.printable import counted
from lakefeed_testing.settings import Case, ExpectedDeadLetter

Row = Mapping[str, Any]

TIMES = ("timestamp", "timestamp_ntz")


def same(expected: Any, actual: Any, type_: Any, *, exact: bool) -> bool:
    """Return True if a case's value equals a value from ``read_row``; ``type_`` is Spark's JSON type."""
    if expected is None or actual is None:
        return expected is None and actual is None
    if isinstance(type_, dict):
        return bool(_same_nested(expected, actual, type_, exact=exact))
    if type_ in TIMES:
        return _instant(expected) == _instant(actual)
    if type_ == "date":
        return _day(expected) == _day(actual)
    if type_ == "binary":
        return str(expected) in _texts_of(actual) or str(expected).lower() in _hex_of(actual)
    if isinstance(expected, bool) or isinstance(actual, bool):
        return bool(expected is actual)
    if isinstance(type_, str) and type_.startswith("decimal"):
        return _decimal(expected) == _decimal(actual)
    if type_ in ("double", "float"):
        one, other = _number(expected), _number(actual)
        return one == other or (one is not None and other is not None and math.isnan(one) and math.isnan(other))
    if isinstance(expected, date | datetime):
        return bool(expected.isoformat() == actual)
    if isinstance(expected, int | float) and isinstance(actual, int | Decimal):
        return bool(expected == actual)
    return type(expected) is type(actual) and bool(expected == actual)


def _same_nested(expected: Any, actual: Any, type_: Mapping[str, Any], *, exact: bool) -> bool:
    match type_["type"]:
        case "struct":
            types = {each["name"]: each["type"] for each in type_["fields"]}
            return (
                isinstance(expected, dict)
                and (not exact or expected.keys() == types.keys())
                and all(
                    name in types and same(value, actual.get(name), types[name], exact=exact)
                    for name, value in expected.items()
                )
            )
        case "array":
            return (
                isinstance(expected, list)
                and len(expected) == len(actual)
                and all(
                    same(one, other, type_["elementType"], exact=exact)
                    for one, other in zip(expected, actual, strict=True)
                )
            )
        case "map":
            given = {str(key): value for key, value in expected.items()} if isinstance(expected, dict) else {}
            return given.keys() == actual.keys() and all(
                same(value, actual[key], type_["valueType"], exact=exact) for key, value in given.items()
            )
    return bool(expected == actual)


def read_row(text: str) -> Row:
    """Return the row in a text from ``lakefeed_encode.encode.json_of``; numbers keep all digits."""
    row: Row = json.loads(text, parse_float=Decimal)
    return row


def shown_row(row: Row, types: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row for a message or a JSON document: each value as ``shown`` returns it."""
    return {name: shown(value, types.get(name)) for name, value in row.items()}


def shown(value: Any, type_: Any) -> Any:
    """Return a value as a case can contain it: bytes as text or hex, times in ISO 8601, decimals as text."""
    if isinstance(value, dict):
        inner = type_ if isinstance(type_, dict) else {}
        types = {each["name"]: each["type"] for each in inner.get("fields", ())}
        return {name: shown(below, types.get(name, inner.get("valueType"))) for name, below in value.items()}
    if isinstance(value, list):
        return [shown(each, type_.get("elementType") if isinstance(type_, dict) else None) for each in value]
    if value is not None and type_ == "binary":
        return _texts_of(value)[0]
    if isinstance(value, Decimal):
        return str(value) if isinstance(type_, str) and type_.startswith("decimal") else float(value)
    if isinstance(value, str) and type_ in TIMES and (time := _instant(value)) is not None:
        return time.replace(tzinfo=None).isoformat()
    return value


def _texts_of(content: str) -> list[str]:
    """Return the forms in which a case may write bytes (given in Base64): hex digits, and printable UTF-8 as text."""
    raw = base64.b64decode(content)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = ""
    as_text = [text] if text.isprintable() and (text or not raw) else []
    return [*as_text, *_hex_of(content)]


def _hex_of(content: str) -> list[str]:
    raw = base64.b64decode(content)
    return [raw.hex(" "), raw.hex(), f"0x{raw.hex()}"]


def _instant(value: Any) -> datetime | None:
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return time.astimezone(UTC) if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _day(value: Any) -> str:
    return value.date().isoformat() if isinstance(value, datetime) else str(value)


def _decimal(value: Any) -> Decimal | None:
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return None


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (ValueError, TypeError):
        return None


Expected = TypeVar("Expected")
Actual = TypeVar("Actual")
MOST_SHOWN = 500
"""The most characters of a row that a message shows."""


@dataclass(frozen=True, kw_only=True)
class FoundDeadLetter:
    topic: str
    partition: int
    offset: int
    reason: str
    schema_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a case's records.

    Attributes:
        rows: the table's rows, as ``read_row`` returns them.
        types: the columns' types as Spark's JSON.
        error: the error that stopped the feed; None if it did not stop.
        notes: the feed's messages for the user, for example about an added column.
    """

    rows: tuple[Row, ...] = ()
    types: Mapping[str, Any] = field(default_factory=dict)
    dead_letters: tuple[FoundDeadLetter, ...] = ()
    skipped: int = 0
    error: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One difference between a case and its outcome.

    Attributes:
        kind: the part of the case that differs.
        what: a sentence for the user.
        expected: the row, dead letter, number or text in the case; None for an unexpected one.
        actual: the row, dead letter, number or text of the outcome; None for a missing one.
    """

    kind: Literal["row", "dead_letter", "skipped", "error"]
    what: str
    expected: Any = None
    actual: Any = None


def differences(case: Case, outcome: Outcome) -> list[Difference]:
    """Return the differences between a case and its outcome; an empty list if the case passes."""
    listed = list(_error(case, outcome))
    # If the feed has stopped unexpectedly, missing rows and letters are only a consequence: report only the stop.
    if case.error is None and outcome.error is not None:
        return listed
    if case.rows is not None:
        listed += _rows(case, outcome)
    listed += _dead_letters(case.dead_letters, outcome.dead_letters)
    if case.skipped != outcome.skipped:
        are = "is" if outcome.skipped == 1 else "are"
        what = f"{counted(outcome.skipped, 'record')} {are} skipped, expected {case.skipped}"
        listed.append(Difference(kind="skipped", what=what, expected=case.skipped, actual=outcome.skipped))
    return listed


def _error(case: Case, outcome: Outcome) -> Iterator[Difference]:
    if case.error is None and outcome.error is not None:
        yield Difference(kind="error", what=f"the feed stops: {outcome.error}", actual=outcome.error)
    elif case.error is not None and outcome.error is None:
        what = f"the feed does not stop, expected the error: {case.error}"
        yield Difference(kind="error", what=what, expected=case.error)
    elif case.error is not None and case.error not in (outcome.error or ""):
        what = f"the feed stops with another error: {outcome.error}; expected: {case.error}"
        yield Difference(kind="error", what=what, expected=case.error, actual=outcome.error)


def _rows(case: Case, outcome: Outcome) -> Iterator[Difference]:
    exact, types = case.columns == "exact", outcome.types

    def differing(expected: Row, actual: Row) -> list[str]:
        others = [name for name in actual if name not in expected] if exact else []
        named = [
            name
            for name, value in expected.items()
            if name not in actual or not same(value, actual[name], types.get(name), exact=exact)
        ]
        return [*named, *others]

    expected_rows = case.rows or []
    for number, expected, actual in _unmatched(expected_rows, outcome.rows, differing):
        if actual is None:
            yield Difference(kind="row", what=f"row {number} is missing: {_text(expected)}", expected=expected)
        elif expected is None:
            has = shown_row(actual, types)
            yield Difference(kind="row", what=f"unexpected row: {_text(has)}", actual=has)
        else:
            columns = "; ".join(_column(name, expected, actual, types) for name in differing(expected, actual))
            has = shown_row(actual, types)
            yield Difference(kind="row", what=f"row {number}: {columns}", expected=expected, actual=has)


def _column(name: str, expected: Row, actual: Row, types: Mapping[str, Any]) -> str:
    if name not in actual:
        return f"there is no column {name}, the columns are {', '.join(actual)}"
    found = _text(shown(actual[name], types.get(name)))
    if name not in expected:
        return f"{name} is {found}, and no such column is expected"
    return f"{name} is {found}, expected {_text(expected[name])}"


def _dead_letters(
    expected_letters: Sequence[ExpectedDeadLetter], found: Sequence[FoundDeadLetter]
) -> Iterator[Difference]:
    def differing(expected: ExpectedDeadLetter, actual: FoundDeadLetter) -> list[str]:
        named = [name for name in ("topic", "partition", "offset") if getattr(expected, name) is not None]
        wrong = [name for name in named if getattr(expected, name) != getattr(actual, name)]
        return [*wrong, *(["reason"] if (expected.reason or "") not in actual.reason else [])]

    for number, expected, actual in _unmatched(expected_letters, found, differing):
        named = None if expected is None else expected.model_dump(exclude_none=True)
        has = None if actual is None else {name: value for name, value in vars(actual).items() if value is not None}
        if actual is None:
            what = f"dead letter {number} is missing: {_text(named)}"
        else:
            place = f"{actual.topic}-{actual.partition} offset {actual.offset}"
            if expected is None:
                what = f"unexpected dead letter: {place}: {actual.reason}"
            else:
                fields = [
                    f"{name} is {_text(getattr(actual, name))}, expected {_text(getattr(expected, name))}"
                    for name in differing(expected, actual)
                ]
                what = f"dead letter {number} ({place}): {'; '.join(fields)}"
        yield Difference(kind="dead_letter", what=what, expected=named, actual=has)


def _unmatched(
    expected: Sequence[Expected], actual: Sequence[Actual], differing: Callable[[Expected, Actual], list[str]]
) -> Iterator[tuple[int, Expected | None, Actual | None]]:
    """Match as many rows as possible; yield the other rows in pairs, with the number of the expected row.

    Rows count from 1. A pair has the rows that differ least; None stands for a missing row.
    """
    counts = [[len(differing(one, other)) for other in actual] for one in expected]
    matched = _matching([[at for at, count in enumerate(row) if count == 0] for row in counts])
    rest_expected = [at for at in range(len(expected)) if at not in matched]
    rest_actual = [at for at in range(len(actual)) if at not in matched.values()]
    pairs: dict[int, int] = {}
    for _, one, other in sorted((counts[one][other], one, other) for one in rest_expected for other in rest_actual):
        if one not in pairs and other not in pairs.values():
            pairs[one] = other
    for at in rest_expected:
        yield at + 1, expected[at], actual[pairs[at]] if at in pairs else None
    for at in rest_actual:
        if at not in pairs.values():
            yield 0, None, actual[at]


def _matching(candidates: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return a candidate for each of as many expected rows as possible, without using one twice (Kuhn's algorithm)."""
    taken: dict[int, int] = {}

    def find(one: int, visited: set[int]) -> bool:
        for other in candidates[one]:
            if other not in visited:
                visited.add(other)
                if other not in taken or find(taken[other], visited):
                    taken[other] = one
                    return True
        return False

    for one in range(len(candidates)):
        find(one, set())
    return {one: other for other, one in taken.items()}


def _text(value: Any) -> str:
    return _cut(json.dumps(value, default=str, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
