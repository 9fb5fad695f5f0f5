"""Finds the record that a batch fails at, where Spark only says that a task has failed.

Halves the batch's offset ranges, and computes the rows of a half again, without writing them: about twice the batch
in all. A batch that fails for another reason, as a server that is away, succeeds then: nothing is found.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakefeed.clients.spark.errors import quietly, translated
from lakefeed.errors import JobFailed, LakefeedError, RowsRefused
from lakefeed.feed.row_builder import RowBuilder
from lakefeed.ledger.snapshot_summary import Backfill, Commit
from lakefeed.ledger.stateful_batches import without_batches
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.sinks.protocol import RowSink, TriesRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LONGEST_SECONDS = 300.0


@dataclass(frozen=True)
class FailureSearch:
    """Names the record that the transform or the sink fails at.

    Attributes:
        spark: the session.
        feed: the feed's name.
        sink: where its rows go.
        rows: builds its rows.
        reread: reads records of some offsets again; None if that cannot be done.
    """

    spark: SparkSession
    feed: str
    sink: RowSink
    rows: RowBuilder
    reread: Callable[[Sequence[OffsetRange]], DataFrame] | None

    def explain(self, error: Exception, commit: Commit | Backfill) -> LakefeedError | None:
        """Return the error that names the record; None if no record causes it, or the error names it already.

        Args:
            error: as the write of the batch raised it.
            commit: the batch's.
        """
        known = translated(error)
        if not isinstance(known, JobFailed | RowsRefused):
            return None
        ranges = without_batches(commit.ranges)
        found: tuple[OffsetRange, ...] = ()
        if self.reread is not None:
            found = find_failing(partial(self._fails, self.reread, commit), ranges.ranges)
        if isinstance(known, RowsRefused):
            if not found:
                return None
            return RowsRefused(f"{known.what}; it is the row of {listed(found)}", where=known.where, hint=known.hint)
        if not found:
            where = f"{known.where} (feed {self.feed}, {listed(ranges.ranges) or 'a batch without records'})"
            return JobFailed(known.what, where=where, hint=known.hint)
        return JobFailed(
            f"the transform fails at {listed(found)}; nothing of the batch is written",
            where=f"feed {self.feed}, {kind_of_failure(known.where or '')}",
            hint=f"look at it: lakefeed read pipeline.yaml --range {found[0]}; then let the transform handle such a "
            "value, as try_cast and try_divide do, or make it a dead letter by a rule in expect",
        )

    def _fails(
        self,
        reread: Callable[[Sequence[OffsetRange]], DataFrame],
        commit: Commit | Backfill,
        ranges: Sequence[OffsetRange],
    ) -> bool:
        """Whether the rows of these records cannot be computed, or are refused by a sink that can try them."""
        try:
            with self.rows.counted(reread(ranges), self.spark) as (rows, _), quietly():
                if isinstance(self.sink, TriesRows) and isinstance(commit, Commit):
                    self.sink.try_rows(rows, commit)
                else:
                    rows.write.format("noop").mode("overwrite").save()
        except Exception as error:
            # An unavailable server is not the fault of a record.
            return isinstance(translated(error), JobFailed | RowsRefused)
        return False


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
        clock: returns the time.

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
    """The kind of error that Spark reports: what ``without_values`` has left of it, or the class alone."""
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
