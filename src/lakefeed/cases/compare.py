"""Compares what a feed has made of a case's records with what the case expects, row by row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from lakefeed.cases.values import Row, same, shown, shown_row
from lakefeed.config.cases import Case, ExpectedDeadLetter
from lakefeed.messages.readable import counted

Expected = TypeVar("Expected")
Actual = TypeVar("Actual")
MOST_SHOWN = 500
"""Characters of a row in a message."""


@dataclass(frozen=True, kw_only=True)
class FoundDeadLetter:
    """A record that became a dead letter."""

    topic: str
    partition: int
    offset: int
    reason: str
    schema_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Rows, dead letters and skipped records that the feed has made of a case's records.

    Attributes:
        rows: of the table, with bytes, times and decimals as Spark's types have them in ``types``.
        types: Spark's JSON of each column's type.
        error: why the feed stopped; None if it did not.
        notes: what the feed reports to its user, such as a column that was added.
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
        kind: the part of the case that it is about.
        what: a sentence for people.
        expected: the row, dead letter, number or text that the case has; None if it has none.
        actual: what there is in its place; None if there is nothing.
    """

    kind: Literal["row", "dead_letter", "skipped", "error"]
    what: str
    expected: Any = None
    actual: Any = None


def differences(case: Case, outcome: Outcome) -> list[Difference]:
    """Compare a case with its outcome; none if it passes."""
    found = list(_error(case, outcome))
    # Where the feed has stopped unexpectedly, all that it did not do says nothing more.
    if case.error is None and outcome.error is not None:
        return found
    if case.rows is not None:
        found += _rows(case, outcome)
    found += _dead_letters(case.dead_letters, outcome.dead_letters)
    if case.skipped != outcome.skipped:
        are = "is" if outcome.skipped == 1 else "are"
        what = f"{counted(outcome.skipped, 'record')} {are} skipped, expected {case.skipped}"
        found.append(Difference(kind="skipped", what=what, expected=case.skipped, actual=outcome.skipped))
    return found


def _error(case: Case, outcome: Outcome) -> Iterator[Difference]:
    if case.error is None and outcome.error is not None:
        yield Difference(kind="error", what=f"the feed stops: {outcome.error}", actual=outcome.error)
    elif case.error is not None and outcome.error is None:
        what = f"the feed does not stop, expected the error: {case.error}"
        yield Difference(kind="error", what=what, expected=case.error)
    elif case.error is not None and case.error not in (outcome.error or ""):
        what = f"the feed stops by another error: {outcome.error}; expected: {case.error}"
        yield Difference(kind="error", what=what, expected=case.error, actual=outcome.error)


def _rows(case: Case, outcome: Outcome) -> Iterator[Difference]:
    exact, types = case.columns == "exact", outcome.types

    def differing(expected: Row, actual: Row) -> list[str]:
        """Return the columns that differ."""
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
    """Yield what is left when as many as possible are matched, with the number of the expected one from 1.

    Of those, each expected one is paired with the actual one that differs least.
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
    """Match as many as possible, each with one of its candidates: an expected row may match several (Kuhn, 1955)."""
    taken: dict[int, int] = {}

    def find(one: int, seen: set[int]) -> bool:
        for other in candidates[one]:
            if other not in seen:
                seen.add(other)
                if other not in taken or find(taken[other], seen):
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
