"""Finds the record that makes a batch fail, because Spark only reports that a task has failed.

It bisects the batch's offset ranges: it computes the rows of a half again, and tries them in the sink without a commit.
To find one record, it computes about twice the batch. If the batch failed for another reason, such as an unavailable
server, the next try may succeed: then no record is to blame.
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
"""Returns a true value if Spark cannot compute the rows of these records, or the sink refuses the rows."""

LONGEST_SECONDS = 300.0
MOST_NAMED = 5
MOST_ISOLATED = 200
"""The maximum number of records that are isolated one by one; after that, whole ranges are isolated."""


def explain_failure(
    error: Exception, feed: str, ranges: Sequence[OffsetRange], fails: Fails | None
) -> LakefeedError | None:
    """Return an error that names the failing record; None if no record is to blame, or the error already names it.

    Without ``fails``, this does not search for a record, because the source cannot read records again.
    """
    known = translate(error)
    if not isinstance(known, JobFailed | RowsRefused):
        return None
    failing = find_failing(fails, ranges) if fails is not None else ()
    if isinstance(known, RowsRefused):
        if not failing:
            return None
        return RowsRefused(f"{known.what}; it is the row of {listed(failing)}", where=known.where, hint=known.hint)
    if not failing:
        where = f"{known.where} (feed {feed}, {listed(ranges) or 'a batch without records'})"
        return JobFailed(known.what, where=where, hint=known.hint)
    return JobFailed(
        f"the batch fails at {listed(failing)}; nothing of it is written",
        where=f"feed {feed}, {kind_of_failure(known.where or '')}",
        hint=f"look at it: lakefeed read pipeline.yaml --range {failing[0]}; dead_letters lets the feed continue "
        "without it; or let transform.sql handle such a value, as try_cast and try_divide do",
    )


def why_of(error: Exception) -> str | None:
    """Return the reason for a dead letter whose row has raised this error; None if a record is not the cause."""
    known = translate(error)
    if isinstance(known, RowsRefused):
        return f"the sink refuses the row: {known.what}"
    cause = cause_in_data(error)
    return None if cause is None else f"the row cannot be computed or written: {kind_of_failure(without_values(cause))}"


def find_failing(
    fails: Fails, ranges: Sequence[OffsetRange], *, clock: Callable[[], float] = time.monotonic
) -> tuple[OffsetRange, ...]:
    """Return the fewest offsets that still fail: one, or more if the time is over or records fail only together."""
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
    """Return the records that fail on their own, with reasons; whole ranges if time is over or too many records fail.

    If no record succeeds, ``works`` tries a row of nulls: if the sink refuses even this row, no record is to blame.
    """
    until = clock() + LONGEST_SECONDS
    found: dict[OffsetRange, str] = {}
    some_succeed = False
    waiting = [tuple(span for span in ranges if span.records)]
    while waiting:
        part = waiting.pop()
        reason = why(part) if part else None
        if reason is None:
            some_succeed = some_succeed or bool(part)
            continue
        records = sum(span.records for span in part)
        if records > 1 and clock() < until and len(found) < MOST_ISOLATED:
            waiting += reversed(_halves(part))
        # Try again: the first failure may come from a short network outage.
        elif why(part) is not None:
            among = "" if records == 1 else f"; at least one of {records} records that were not separated"
            found.update(dict.fromkeys(part, reason + among))
    return found if some_succeed or (found and works()) else {}


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
    more = f" and {len(named) - MOST_NAMED} partitions more" if len(named) > MOST_NAMED else ""
    return ", ".join(named[:MOST_NAMED]) + more


def kind_of_failure(text: str) -> str:
    """Return the kind of an error of Spark: its text if ``without_values`` has cleaned it, or only its class."""
    if re.fullmatch(r"\[[A-Z][A-Z0-9_.]+\].* SQLSTATE \w{5}", text):
        return text
    if own := re.fullmatch(r"[\w.]+: lakefeed: ([^\n]*)", text):
        return own[1]
    found = re.search(r"\[[A-Z][A-Z_.]+\]", text)
    return found[0] if found else text.partition(":")[0].strip()[:200]
