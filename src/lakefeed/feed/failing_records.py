"""Finds the record that a batch fails at, where Spark only says that a task has failed.

Halves the batch's offset ranges, and computes the rows of a half again, without writing them: about twice the batch
in all. A batch that fails for another reason, as a server that is away, succeeds then: nothing is found.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from lakefeed.offsets.ranges import OffsetRange

LONGEST_SECONDS = 300.0


def find_failing(
    fails: Callable[[Sequence[OffsetRange]], bool],
    ranges: Sequence[OffsetRange],
    *,
    seconds: float = LONGEST_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[OffsetRange, ...]:
    """Finds the fewest offsets that still fail.

    Args:
        fails: computes the rows of some ranges again; whether that fails.
        ranges: of the batch.
        seconds: when to be content with what is found.
        clock: tells the time.

    Returns:
        One range of one offset; more where time is up, or where records fail only together; none if nothing fails.
    """
    until = clock() + seconds
    failing = tuple(each for each in ranges if each.records)
    if not failing or not fails(failing):
        return ()
    while sum(each.records for each in failing) > 1 and clock() < until:
        first, second = _halves(failing)
        if fails(first):
            failing = first
        elif fails(second):
            failing = second
        else:
            break
    return failing


def listed(ranges: Sequence[OffsetRange], *, most: int = 5) -> str:
    """Ranges as messages name them."""
    named = [
        f"{each.topic}-{each.partition} offset {each.start}"
        if each.records == 1
        else f"{each.topic}-{each.partition} offsets [{each.start}, {each.end})"
        for each in ranges
        if each.records
    ]
    more = f" and {len(named) - most} partitions more" if len(named) > most else ""
    return ", ".join(named[:most]) + more


def kind_of_failure(text: str) -> str:
    """What kind of error Spark tells: what ``without_values`` has left of it, or the class alone."""
    if re.fullmatch(r"\[[A-Z][A-Z0-9_.]+\].* SQLSTATE \w{5}", text):
        return text
    found = re.search(r"\[[A-Z][A-Z_.]+\]", text)
    return found[0] if found else text.partition(":")[0].strip()[:200]


def _halves(ranges: Sequence[OffsetRange]) -> tuple[tuple[OffsetRange, ...], tuple[OffsetRange, ...]]:
    left = sum(each.records for each in ranges) // 2
    first: list[OffsetRange] = []
    second: list[OffsetRange] = []
    for each in ranges:
        at = each.start + min(left, each.records)
        left -= at - each.start
        if at > each.start:
            first.append(OffsetRange(each.topic, each.partition, each.start, at))
        if at < each.end:
            second.append(OffsetRange(each.topic, each.partition, at, each.end))
    return tuple(first), tuple(second)
