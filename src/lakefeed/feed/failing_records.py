"""Finds the record that makes a batch fail, because Spark only reports that a task has failed.

The search halves the batch's offset ranges again and again: it computes the rows of one half, and tries to write them
without a commit. In total it computes about as many rows as two batches have. If the whole batch succeeds when it is
tried again, the cause was another, such as an unavailable server, and no record is to blame.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from lakefeed.clients.spark.errors import cause_in_data, translate
from lakefeed.errors import JobFailed, LakefeedError, RowsRefused
from lakefeed.messages.printable import without_values
from lakefeed.offsets.ranges import OffsetRange

Fails = Callable[[Sequence[OffsetRange]], object]
"""A function that returns a true value if Spark cannot compute these records' rows, or if the sink refuses the rows."""

LONGEST_SECONDS = 300.0
MOST_NAMED = 5
MOST_ISOLATED = 200
"""After this number of isolated records, the search no longer halves ranges: it isolates whole ranges."""


def explain_failure(
    error: Exception, feed: str, ranges: Sequence[OffsetRange], fails: Fails | None
) -> LakefeedError | None:
    """Return an error that names the failing record; None if no record is to blame, or the error names it already.

    ``fails`` is None if the source cannot read records again; then no record is searched.
    """
    known = translate(error)
    if not isinstance(known, JobFailed | RowsRefused):
        return None
    failing = find_failing(fails, ranges) if fails is not None else ()
    if isinstance(known, RowsRefused):
        if not failing:
            return None
        return RowsRefused(f"{known.what}; the row comes from {listed(failing)}", where=known.where, hint=known.hint)
    if not failing:
        where = f"{known.where} (feed {feed}, {listed(ranges) or 'a batch without records'})"
        return JobFailed(known.what, where=where, hint=known.hint)
    return JobFailed(
        f"the batch fails at {listed(failing)}; nothing of it is written",
        where=f"feed {feed}, {kind_of_failure(known.where or '')}",
        hint=f"look at the record: lakefeed read pipeline.yaml --range {failing[0]}; then set dead_letters, so that "
        "the feed continues without it, or handle such values in transform.sql, for example by try_cast or try_divide",
    )


def why_of(error: Exception) -> str | None:
    """Return the reason of a dead letter whose row has raised this error; None if no record is the cause."""
    known = translate(error)
    if isinstance(known, RowsRefused):
        return f"the sink refuses the row: {known.what}"
    cause = cause_in_data(error)
    return None if cause is None else f"the row cannot be computed or written: {kind_of_failure(without_values(cause))}"


def find_failing(
    fails: Fails, ranges: Sequence[OffsetRange], *, clock: Callable[[], float] = time.monotonic
) -> tuple[OffsetRange, ...]:
    """Return the smallest ranges that fail: one offset, or more if time is short or records fail only together."""
    until = clock() + LONGEST_SECONDS
    failing = tuple(span for span in ranges if span.records)
    if not failing or not fails(failing):
        return ()
    while sum(span.records for span in failing) > 1 and clock() < until:
        halves = _halves(failing)
        failing_half = next((half for half in halves if fails(half)), None)
        if failing_half is None:
            break
        failing = failing_half
    return failing


def isolate(
    why: Callable[[Sequence[OffsetRange]], str | None],
    ranges: Sequence[OffsetRange],
    *,
    works: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
) -> dict[OffsetRange, str]:
    """Return the records that fail on their own, with reasons; whole ranges if time is short or many records fail.

    If no record succeeds, ``works`` tries a row of nulls. If the sink refuses even this row, no record is to blame.
    """
    until = clock() + LONGEST_SECONDS
    isolated: dict[OffsetRange, str] = {}
    some_succeed = False
    waiting = [tuple(span for span in ranges if span.records)]
    while waiting:
        part = waiting.pop()
        reason = why(part) if part else None
        if reason is None:
            some_succeed = some_succeed or bool(part)
            continue
        records = sum(span.records for span in part)
        if records > 1 and clock() < until and len(isolated) < MOST_ISOLATED:
            waiting += reversed(_halves(part))
        # Try again: the first failure may come from a short network outage.
        elif why(part) is not None:
            among = "" if records == 1 else f"; at least one of {records} records that were not tried one by one"
            isolated.update(dict.fromkeys(part, reason + among))
    return isolated if some_succeed or (isolated and works()) else {}


def _halves(ranges: Sequence[OffsetRange]) -> tuple[tuple[OffsetRange, ...], tuple[OffsetRange, ...]]:
    left = sum(span.records for span in ranges) // 2
    first: list[OffsetRange] = []
    second: list[OffsetRange] = []
    for span in ranges:
        middle = span.start + min(left, span.records)
        left -= middle - span.start
        first.append(span.cut(span.start, middle))
        second.append(span.cut(middle, span.end))
    return tuple(span for span in first if span.records), tuple(span for span in second if span.records)


def listed(ranges: Sequence[OffsetRange]) -> str:
    """Return offset ranges as text for a message."""
    named = [
        f"{span.topic}-{span.partition} offset {span.start}"
        if span.records == 1
        else f"{span.topic}-{span.partition} offsets [{span.start}, {span.end})"
        for span in ranges
        if span.records
    ]
    more = f" and {len(named) - MOST_NAMED} more partitions" if len(named) > MOST_NAMED else ""
    return ", ".join(named[:MOST_NAMED]) + more


def kind_of_failure(text: str) -> str:
    """Return an error's text without values of records: the text as ``without_values`` cleans it, or else its class."""
    if re.fullmatch(r"\[[A-Z][A-Z0-9_.]+\].* SQLSTATE \w{5}", text):
        return text
    if own := re.fullmatch(r"[\w.]+: lakefeed: ([^\n]*)", text):
        return own[1]
    error_class = re.search(r"\[[A-Z][A-Z_.]+\]", text)
    return error_class[0] if error_class else text.partition(":")[0].strip()[:200]
