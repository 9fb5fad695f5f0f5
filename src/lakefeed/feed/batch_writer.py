"""Writes one micro-batch: from its records to its commit, and its dead letters after that."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefeed.clients.spark.decode_failures import stopped_at
from lakefeed.clients.spark.errors import quietly
from lakefeed.config.failures import ErrorBudget
from lakefeed.errors import ErrorBudgetExceeded
from lakefeed.feed.counting import Counting, CountPerAttempt, PlannedRestart
from lakefeed.feed.error_budget import SpentBudget
from lakefeed.feed.failing_records import FailureSearch
from lakefeed.feed.row_builder import RowBuilder
from lakefeed.ledger.outcomes import ZERO, BatchOutcomes, Counts, Reason, total
from lakefeed.ledger.snapshot_summary import Backfill, Commit, SnapshotProperties
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition
from lakefeed.records.decode import RECORD
from lakefeed.records.sources.kafka import coalesce_small
from lakefeed.sinks.dead_letters.store import DeadLetterStore
from lakefeed.sinks.protocol import RowSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_REASONS = 5
"""So many kinds of dead letters a message names."""


@dataclass(frozen=True)
class BatchResult:
    """The result of a micro-batch."""

    batch_id: int
    rows: int
    """Rows that the sink has written; where changes are merged, rows that were inserted, changed or deleted."""

    replayed: bool
    """True if the sink had the batch already, from before a restart."""

    counts: Counts = ZERO
    """The outcomes of its records; empty if it was replayed."""

    notes: tuple[str, ...] = field(default=())
    """What to report to the user."""


@dataclass(frozen=True)
class Committed:
    """The sink has the rows.

    Attributes:
        rows: how many the sink has written; None if it cannot say, or if its log had the batch already.
        outcomes: what became of the records; to be read before the next batch of the query.
    """

    rows: int | None
    outcomes: BatchOutcomes


@dataclass(frozen=True)
class SchemasMissing:
    """The batch has records of writers' schemas that its rows did not cover; nothing is written."""

    schema_ids: frozenset[int]


@dataclass(frozen=True)
class Stopped:
    """A record stops the feed, as the pipeline file says; nothing is written."""

    record: str


@dataclass(frozen=True)
class OverBudget:
    """The batch has more dead letters than the error budget allows; nothing is written."""

    counts: Counts
    reasons: tuple[Reason, ...]


class BatchWriter:
    """Writes the micro-batches of one feed.

    Args:
        spark: the session.
        feed: the feed's name.
        sink: where rows go.
        rows: builds the rows.
        counting: counts the records' outcomes. Default: for each attempt to write a batch.
        dead_letters: where dead letters go; None if an unreadable record stops the feed.
        budget: how many dead letters are too many.
        most_records: of a batch; a smaller one is read and written in fewer tasks.
        reread: reads records of some offsets again, to find the one that a batch fails at; None if that cannot be done.

    Attributes:
        rows: builds the rows.
        fence: of this driver, once the writer has begun.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        feed: str,
        sink: RowSink,
        rows: RowBuilder,
        counting: Counting | None = None,
        dead_letters: DeadLetterStore | None = None,
        budget: ErrorBudget | None = None,
        most_records: int | None = None,
        reread: Callable[[Sequence[OffsetRange]], DataFrame] | None = None,
    ) -> None:
        self.rows = rows
        self.fence: str | None = None
        self._feed = feed
        self._sink = sink
        self._counting = counting or CountPerAttempt(spark, rows, sink)
        self._dead_letters = dead_letters
        self._budget = SpentBudget(budget)
        self._most_records = most_records
        self._failures = FailureSearch(spark, feed, sink, rows, reread)

    def begin(self, records: DataFrame, *, fenced: bool = True, lost: Collection[Partition] = ()) -> None:
        """Prepare the sink, and complete what the last run has left. Once, before the first batch.

        Args:
            records: as they come from the source; only their columns count here.
            fenced: take the feed's fence. Not for work beside a running driver.
            lost: partitions whose records cannot be read again.
        """
        self.rows.schema.begin(lambda: self.rows.rows(records))
        if fenced:
            self.fence = self._sink.take_fence()
            self.follow()
            last = self._read_spent_budget()
            if last is not None:
                self._settle(last, lost)
        self._counting.begin(records)

    def _read_spent_budget(self) -> Commit | None:
        """Take the commits of the budget's window from the ledger; returns the newest commit."""
        last = None
        for commit in self._sink.commits():
            last = last or commit
            if commit.committed_at < time.time() - self._budget.seconds:
                break
            self._budget.spend(total(commit.counts), at=commit.committed_at, oldest=True)
        return last

    def follow(self) -> None:
        """Let the dead letters follow a feed that was moved.

        Raises:
            CheckpointMismatch: they are ahead of the feed, and it was not moved.
        """
        if self._dead_letters is not None and self._sink.keeps_ledger:
            position = self._sink.position()
            ranges = position.ranges if position is not None else None
            self._dead_letters.follow(ranges, moved=position is not None and position.is_move)

    def _settle(self, last: Commit, lost: Collection[Partition]) -> None:
        """Write the dead letters of the sink's last commit, if a crash came between the two."""
        expected = total(last.counts).dead_letters
        if self._dead_letters is None or not expected:
            return
        spans = [
            span for span in last.ranges.ranges if last.counts.get((span.topic, span.partition), ZERO).dead_letters
        ]
        if not any((span.topic, span.partition) in lost for span in spans):
            self._dead_letters.complete(self.rows.classify, last, spans=spans, expected=expected)

    def query_frame(self, records: DataFrame) -> DataFrame:
        """Return what a streaming query over these records hands to ``write``, batch by batch."""
        return self._counting.query_frame(records)

    def close(self) -> None:
        """End the counting of a streaming query that has stopped."""
        self._counting.close()

    def write(self, batch: DataFrame, ranges: OffsetRanges, batch_id: int) -> BatchResult:
        """Write a batch, unless the sink has it already.

        Raises:
            CheckpointMismatch: it does not continue where the sink's last commit ended.
            ErrorBudgetExceeded: it has too many dead letters; nothing of it was written.
            SchemaChanged: a writer's schema has changed, and the feed is to stop then.
        """
        try:
            return self._write(batch, Commit(self._feed, batch_id, ranges, fence=self.fence))
        finally:
            self._counting.end_batch()

    def _write(self, batch: DataFrame, commit: Commit) -> BatchResult:
        if self._counting.is_committed(batch, commit):
            return BatchResult(commit.batch_id, rows=0, replayed=True)
        if self._most_records is not None:
            batch = coalesce_small(batch, commit.ranges, most=self._most_records)
        committed = self._commit(batch, commit)
        if committed.rows is None:
            # The sink's log has the batch, from before a crash.
            self._complete(batch, commit)
            return BatchResult(commit.batch_id, rows=0, replayed=True)
        counts = committed.outcomes.counts
        if self._dead_letters is not None and counts.dead_letters:
            spans = committed.outcomes.dead_ranges
            self._dead_letters.write(self.rows.classify, commit, spans=spans, expected=counts.dead_letters)
        self._budget.spend(counts)
        return BatchResult(commit.batch_id, committed.rows, replayed=False, counts=counts, notes=self.notes())

    def _complete(self, batch: DataFrame, commit: Commit) -> None:
        """Write the dead letters of a batch that a sink without a ledger has, if a crash came between the two."""
        if self._dead_letters is None:
            return
        expected = self.rows.classify(batch).filter(f"{RECORD}.reason IS NOT NULL").count()
        if expected:
            self._dead_letters.complete(self.rows.classify, commit, spans=commit.ranges.ranges, expected=expected)

    def write_unbatched(self, records: DataFrame, commit: SnapshotProperties) -> Committed:
        """Write records that are no batch, such as dead letters that can be rows now; writes no dead letters.

        Raises:
            LakefeedError: a record stops the feed, or there are too many dead letters.
            Py4JJavaError: Spark failed, or the commit was refused.
        """
        committed = self._commit(records, commit)
        self._budget.spend(committed.outcomes.counts)
        return committed

    def notes(self) -> tuple[str, ...]:
        """Return what to report to the user since the last call."""
        return self.rows.notes()

    def _commit(self, batch: DataFrame, commit: SnapshotProperties) -> Committed:
        """Attempt to write the batch until the sink has it, or until an outcome ends the feed."""
        while True:
            match self.attempt(batch, commit):
                case Committed() as committed:
                    return committed
                case SchemasMissing(schema_ids):
                    self._cover(schema_ids, batch)
                case Stopped(record):
                    raise stopped_at(record)
                case OverBudget() as refused:
                    raise self._over_budget(refused)

    def attempt(
        self, batch: DataFrame, commit: SnapshotProperties
    ) -> Committed | SchemasMissing | Stopped | OverBudget:
        """Write the rows of a batch in one commit, if its records allow it.

        Raises:
            LakefeedError: the transform or the sink fails at a record, which the error names.
            Py4JJavaError: Spark failed, or the commit was refused for another reason.
        """
        with self._counting.attempt(batch) as (rows, outcomes):
            self._budget.limit(outcomes)
            if (covered := self.rows.schema.covered_ids) is not None:
                outcomes.cover(covered)
            try:
                # Spark's own text has values of the record, and a stack trace.
                with quietly():
                    return Committed(self._sink.land(rows, commit, commit_id=outcomes.commit_id), outcomes)
            except Exception as error:
                # Spark wraps the refusal of a commit in its own error: only the counter knows the reason.
                match outcomes.refusal:
                    case "schemas":
                        return SchemasMissing(frozenset(outcomes.schema_ids))
                    case "stop":
                        return Stopped(outcomes.stop)
                    case "budget":
                        return OverBudget(outcomes.counts, tuple(outcomes.reasons))
                if isinstance(commit, Commit | Backfill):
                    explained = self._failures.explain(error, commit)
                    if explained is not None:
                        raise explained from error
                raise

    def _cover(self, schema_ids: Collection[int], batch: DataFrame) -> None:
        """Merge the schemas that the rows did not cover, so that the next attempt does.

        Raises:
            PlannedRestart: the query's plan has the schema that it began with.
        """
        schema = self.rows.schema
        before = schema.spec, schema.refused_ids
        schema.merge_writer_schemas(schema_ids, rows_of=lambda: self.rows.rows(self._counting.template(batch)))
        if self._counting.is_part_of_query and (schema.spec, schema.refused_ids) != before:
            raise PlannedRestart(
                "a writer's schema has changed; the query has to restart to read it",
                where=f"feed {self._feed}",
                hint="start the feed again: it resumes with this batch",
            )

    def _over_budget(self, refused: OverBudget) -> ErrorBudgetExceeded:
        counts = refused.counts
        reasons = "; ".join(
            f"{reason.count:,} times {reason.text} (one: {reason.sample})" for reason in refused.reasons[:MOST_REASONS]
        )
        return ErrorBudgetExceeded(
            f"{counts.dead_letters:,} of {counts.records:,} records of the batch would be dead letters, more than the "
            f"error budget allows; nothing of the batch is written: {reasons}",
            where=f"feed {self._feed}",
            hint="fix the cause and start the feed again, it resumes with this batch; or allow more in "
            "dead_letters.budget",
        )
