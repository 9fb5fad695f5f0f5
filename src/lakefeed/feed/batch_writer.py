"""Writes one micro-batch: from its records to its commit, and its dead letters after that.

How its records are read and counted is ``feed/batch_reader.py``'s.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial

from lakefeed.clients.spark.errors import quietly, stopped_at
from lakefeed.config.decoding import ErrorBudget
from lakefeed.config.values import seconds_of
from lakefeed.errors import (
    CheckpointMismatch,
    ErrorBudgetExceeded,
    JobFailed,
    LakefeedError,
)
from lakefeed.feed.batch_reader import BatchReader, PlannedRestart, QueryReader
from lakefeed.feed.failing_records import explain_failure, isolate, why_of
from lakefeed.feed.row_builder import RowBuilder
from lakefeed.lazy import DataFrame, SparkSession, sf
from lakefeed.ledger.continuity import fence_lost
from lakefeed.ledger.outcomes import (
    ZERO,
    BatchOutcomes,
    Counts,
    OverBudget,
    Reason,
    SchemasMissing,
    Stopped,
    timing_commit,
    total,
)
from lakefeed.ledger.snapshot_summary import Backfill, Commit, Replay, SnapshotProperties
from lakefeed.ledger.stateful_batches import without_batches
from lakefeed.messages.printable import counted
from lakefeed.messages.text import one_line
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition
from lakefeed.records.decode import RECORD
from lakefeed.sinks.dead_letters.store import DeadLetterStore, Judge
from lakefeed.sinks.definition import RowSink, TablePublisher, TriesRows
from lakefeed.stopwatch import timed

Reread = Callable[[Sequence[OffsetRange]], "DataFrame"]
MOST_REASONS = 5
"""So many kinds of dead letters a message names."""


@dataclass(frozen=True)
class BatchResult:
    """The result of a micro-batch.

    Attributes:
        rows: rows that the sink has written; where changes are merged, rows that were inserted, changed or deleted.
        replayed: whether the sink had the batch already, from before a restart.
        counts: the outcomes of its records; empty if it was replayed.
        reasons: the kinds of its dead letters.
        schema_id: the newest writers' schema that its rows cover; None for formats without ids.
    """

    batch_id: int
    rows: int
    replayed: bool
    counts: Counts = ZERO
    notes: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    schema_id: int | None = None


@dataclass(frozen=True)
class Committed:
    """The sink has the rows; the outcomes are to be read before the next batch of the query."""

    rows: int | None
    """How many the sink has written; None if it cannot say, or if its log had the batch already."""
    outcomes: BatchOutcomes


@dataclass(frozen=True)
class Isolated:
    """Records whose rows cannot be computed or written, and why, are to be dead letters; nothing is written yet."""

    failing: Mapping[OffsetRange, str]


class SpentBudget:
    """An error budget, and the dead letters of the batches of its window, which looks back ``seconds``."""

    def __init__(self, budget: ErrorBudget | None) -> None:
        self._budget = budget
        self._window = budget.window if budget else None
        self.seconds = seconds_of(self._window.duration) if self._window else 0
        self._spent: deque[tuple[float, Counts]] = deque()

    def limit(self, outcomes: BatchOutcomes) -> None:
        """Bound the dead letters of a batch by what is left."""
        if self._budget is None:
            return
        outcomes.bound(max_rows=self._budget.max_rows, max_share=self._budget.max_share)
        if self._window is not None:
            since = time.time() - self.seconds
            self._spent = deque((at, counts) for at, counts in self._spent if at >= since)
            before = sum((counts for _, counts in self._spent), ZERO)
            outcomes.bound(max_rows=self._window.max_rows, max_share=self._window.max_share, before=before)

    def spend(self, counts: Counts, *, at: float | None = None) -> None:
        """Record a committed batch; ``at`` is the time of its commit, by default now."""
        if self._window is not None:
            self._spent.append((time.time() if at is None else at, counts))


class LeftOutFields:
    """Counts the records of a run with fields that no column has."""

    def __init__(self) -> None:
        self._records, self._next_note = 0, 1

    def notes(self, outcomes: BatchOutcomes) -> Iterator[str]:
        """Say that records have such fields: once, and again when there are a hundred times more."""
        self._records += outcomes.counts.left_out
        if self._records >= self._next_note and outcomes.counts.left_out:
            self._next_note = 100 * self._records
            field, records = one_line(outcomes.left_out_field), counted(self._records, "record")
            yield f"no column takes the JSON field {field}: {records} of this run have such fields, left out"


@dataclass(frozen=True)
class BatchWriter:
    """Writes the micro-batches of one feed.

    Attributes:
        dead_letters: None if an unreadable record stops the feed.
        publisher: publishes the table's branch; None if the rows do not land in one.
        spent: the error budget.
        reread: reads records of some offsets again, to find the one that a batch fails at; None if that cannot be done.
        fence: of the writer that ``begin`` returns.
    """

    spark: SparkSession
    _: KW_ONLY
    feed: str
    sink: RowSink
    rows: RowBuilder
    reader: BatchReader
    dead_letters: DeadLetterStore | None = None
    publisher: TablePublisher | None = None
    spent: SpentBudget = field(default_factory=lambda: SpentBudget(None))
    reread: Reread | None = None
    fence: str | None = None
    left_out: LeftOutFields = field(default_factory=LeftOutFields)

    @classmethod
    def of_rows(
        cls, spark: SparkSession, rows: RowBuilder, sink: RowSink, *, feed: str, stateful: bool = False
    ) -> BatchWriter:
        """Make the writer of a frame's rows, without dead letters; a ``stateful`` query builds the rows itself."""
        reader = QueryReader(spark, rows, sink) if stateful else BatchReader(spark, rows, sink)
        return cls(spark, feed=feed, sink=sink, rows=rows, reader=reader)

    def begin(self, records: DataFrame, *, fenced: bool = True, lost: Collection[Partition] = ()) -> BatchWriter:
        """Prepare the sink, complete what the last run has left, and return the writer of this run's batches.

        Only the columns of ``records`` count here. Work beside a running driver is not ``fenced``. Records of ``lost``
        partitions cannot be read again.
        """
        self.rows.schema.begin(lambda: self.rows.rows(records))
        if self.rows.is_plain:
            self.rows.takes = getattr(self.sink, "takes", {})
        fence = None
        if fenced:
            fence = self.sink.take_fence()
            self.follow()
            newest = self._read_spent_budget()
            if newest is not None:
                self._settle(newest, lost)
        self.reader.begin(records)
        return replace(self, fence=fence)

    def of_only_rows(self, reread: Reread) -> BatchWriter:
        """Return a writer that commits only where each record is a row or is skipped, as of a replay."""
        return replace(self, spent=SpentBudget(ErrorBudget(max_rows=0)), reread=reread)

    def follow(self) -> None:
        """Let the dead letters follow a feed that was moved; if it was not, they must not be ahead of it."""
        if self.dead_letters is not None and self.sink.keeps_ledger:
            position = self.sink.position()
            ranges = position.ranges if position is not None else None
            self.dead_letters.follow(ranges, moved=position is not None and position.is_move)

    def cause_of(self, error: LakefeedError) -> LakefeedError:
        """Return the error itself, or that of a lost fence behind it.

        A driver that was replaced may meet its successor first in the checkpoint, or miss a file that it has removed.
        """
        if self.fence is None or not isinstance(error, CheckpointMismatch | JobFailed):
            return error
        try:
            taken = self.sink.fence_taken()
        except Exception:  # Whatever keeps the sink from answering, the error stays as it is.
            return error
        # Of a table that was removed there is none: no other driver did that.
        return error if taken in (None, self.fence) else fence_lost(taken, self.fence, where=error.where or self.feed)

    def _require_fence(self) -> None:
        """Raise if another driver has taken over, which may have landed the batch and be about to say so to Spark."""
        if self.fence is not None and (taken := self.sink.fence_taken()) != self.fence:
            raise fence_lost(taken, self.fence, where=self.feed)

    def _read_spent_budget(self) -> Commit | None:
        """Take the commits of the budget's window from the ledger; returns the newest commit."""
        newest = None
        for commit in self.sink.commits():
            newest = newest or commit
            if commit.committed_at < time.time() - self.spent.seconds:
                break
            self.spent.spend(total(commit.counts), at=commit.committed_at)
        return newest

    def _settle(self, newest: Commit, lost: Collection[Partition]) -> None:
        """Write the dead letters of the sink's newest commit, if a crash came between the two."""
        expected = total(newest.counts).dead_letters
        if self.dead_letters is None or not expected:
            return
        spans = [span for span in newest.ranges.ranges if newest.counts.get(span.key, ZERO).dead_letters]
        if not any(span.key in lost for span in spans):
            judge = self.judge_again(newest, spans, expected)
            self.dead_letters.complete(judge, newest, spans=spans, expected=expected)

    def write(self, batch: DataFrame, ranges: OffsetRanges, batch_id: int) -> BatchResult:
        """Write a batch, unless the sink has it already; and publish the table, if it is time.

        Raises:
            CheckpointMismatch: it does not continue where the sink's last commit ended.
            ErrorBudgetExceeded: it has too many dead letters; nothing of it was written.
            SchemaChanged: a writer's schema has changed, and the feed stops then.
            AuditFailed: the table with this batch must not be published, and the feed stops then.
        """
        result = self._write(batch, ranges, batch_id)
        if self.publisher is None:
            return result
        with timed("audit"):
            note = self.publisher.after_batch(is_new=not result.replayed)
        return result if note is None else replace(result, notes=(*result.notes, note))

    def end(self) -> str | None:
        """Publish what the last batches have landed, at the end of a run; returns a message, if there is one.

        Raises what ``write`` raises of an audit.
        """
        return None if self.publisher is None else self.publisher.after_batch(at_end=True)

    def _write(self, batch: DataFrame, ranges: OffsetRanges, batch_id: int) -> BatchResult:
        commit = Commit(self.feed, batch_id, ranges, fence=self.fence)
        try:
            with timed("check"):
                is_committed = self.reader.is_committed(batch, commit)
            if is_committed:
                self._require_fence()
                return BatchResult(batch_id, rows=0, replayed=True)
            with timed("write"):
                committed = self.commit_rows(batch, commit)
            if committed.rows is None:
                # The sink's log has the batch, from before a crash.
                self._complete(batch, commit)
                return BatchResult(batch_id, rows=0, replayed=True)
            counts = committed.outcomes.counts
            if self.dead_letters is not None and counts.dead_letters:
                spans = committed.outcomes.dead_ranges
                with timed("dead_letters"):
                    self.dead_letters.write(self.rows.classify, commit, spans=spans, expected=counts.dead_letters)
            return BatchResult(
                batch_id,
                committed.rows,
                replayed=False,
                counts=counts,
                notes=(*self.rows.notes(), *self.left_out.notes(committed.outcomes), *self.sink.take_notes()),
                reasons=tuple(committed.outcomes.reasons) if counts.dead_letters else (),
                schema_id=max(self.rows.schema.covered_ids or (), default=None),
            )
        finally:
            self.reader.end_batch()

    def _complete(self, batch: DataFrame, commit: Commit) -> None:
        """Write the dead letters of a batch that a sink without a ledger has, if a crash came between the two."""
        if self.dead_letters is None:
            return
        self.rows.isolated = self._isolate(commit, commit.ranges.ranges)
        expected = self.rows.classify(batch).filter(sf.col(f"{RECORD}.reason").isNotNull()).count()
        if expected:
            self.dead_letters.complete(self.rows.classify, commit, spans=commit.ranges.ranges, expected=expected)

    def commit_rows(self, records: DataFrame, commit: SnapshotProperties) -> Committed:
        """Attempt to commit the records' rows, until the sink has them or an outcome ends the feed; no dead letters.

        Called for a batch, and for records that are no batch.
        """
        self.rows.isolated = {}
        while not isinstance(outcome := self.attempt(records, commit), Committed):
            self.prepare_next(outcome, records)
        if outcome.rows is not None:
            self.spent.spend(outcome.outcomes.counts)
        return outcome

    def prepare_next(self, outcome: SchemasMissing | Isolated | Stopped | OverBudget, records: DataFrame) -> None:
        """Prepare the next attempt to commit the records; raises the error of an outcome that ends the feed."""
        match outcome:
            case SchemasMissing(schema_ids):
                self._cover(schema_ids, records)
            case Isolated(failing):
                self.rows.isolated = {**self.rows.isolated, **failing}
            case Stopped(record):
                raise stopped_at(record)
            case OverBudget(counts, reasons):
                raise self._over_budget(counts, reasons)

    def attempt(
        self, batch: DataFrame, commit: SnapshotProperties
    ) -> Committed | SchemasMissing | Isolated | Stopped | OverBudget:
        """Write the rows of a batch in one commit, if its records allow it.

        Raises:
            LakefeedError: the transform or the sink fails at a record, which the error names.
            Py4JJavaError: Spark failed, or the commit was refused for another reason.
        """
        with self.reader.attempt(batch, commit) as (rows, outcomes):
            self.spent.limit(outcomes)
            if (covered := self.rows.schema.covered_ids) is not None:
                outcomes.cover(covered)
            self.rows.note_columns(rows)
            try:
                # Spark's own text has values of the record, and a stack trace.
                with quietly(), timing_commit("commit", outcomes.seconds_since_allowed):
                    return Committed(self.sink.land(rows, commit, commit_id=outcomes.commit_id), outcomes)
            except Exception as error:
                # Spark wraps the refusal of a commit in its own error: only the counter knows it.
                if (refusal := outcomes.refusal) is not None:
                    return refusal
                if isinstance(commit, Commit | Backfill | Replay):
                    spans = without_batches(commit.ranges).ranges
                    if why_of(error) is not None and (failing := self._isolate(commit, spans)):
                        return Isolated(failing)
                if isinstance(commit, Commit | Backfill):
                    why = None if self.reread is None else partial(self._why, self.reread, commit)
                    explained = explain_failure(error, self.feed, spans, why)
                    if explained is not None:
                        raise explained from error
                raise

    def judge_again(self, commit: Commit | Backfill, spans: Sequence[OffsetRange], expected: int) -> Judge:
        """Return the judge of a commit by an earlier run, which may have isolated some records."""

        def judge(records: DataFrame) -> DataFrame:
            self.rows.isolated = {}
            letters = self.rows.classify(records).filter(sf.col(f"{RECORD}.reason").isNotNull())
            if self.reread is not None and letters.count() < expected:
                self.rows.isolated = self._isolate(commit, spans)
            return self.rows.classify(records)

        return judge

    def _isolate(self, commit: Commit | Backfill | Replay, spans: Sequence[OffsetRange]) -> Mapping[OffsetRange, str]:
        """Find the records that fail by themselves; none where no dead letters are kept, or none can be read again."""
        if self.reread is None or self.rows.policy.on_error != "dead_letter":
            return {}
        reread = self.reread
        return isolate(
            partial(self._why, reread, commit), spans, works=lambda: self._why(reread, commit, spans, null=True) is None
        )

    def _why(
        self, reread: Reread, commit: Commit | Backfill | Replay, ranges: Sequence[OffsetRange], *, null: bool = False
    ) -> str | None:
        """Return why the rows of these records cannot be computed, or are refused by a sink that can try them.

        With ``null``: why a row of nulls is refused, which every table takes while its store and catalog work.
        """
        tried = Commit(self.feed, commit.batch_id or 0, commit.ranges)
        try:
            with self.rows.counted(reread(ranges), self.spark) as (rows, _), quietly():
                if null:
                    nulls = (sf.lit(None).cast(each.dataType).alias(each.name) for each in rows.schema)
                    rows = rows.sparkSession.range(1).select(*nulls)
                if isinstance(self.sink, TriesRows):
                    self.sink.try_rows(rows, tried)
                else:
                    rows.write.format("noop").mode("overwrite").save()
        except Exception as error:
            return why_of(error)
        return None

    def _cover(self, schema_ids: Collection[int], batch: DataFrame) -> None:
        """Merge the schemas that the rows did not cover, for the next attempt; a query's plan needs a restart first."""
        schema = self.rows.schema
        before = schema.spec, schema.refused_ids
        schema.merge_writer_schemas(schema_ids, rows_of=lambda: self.rows.rows(self.reader.template(batch)))
        if self.reader.is_part_of_query and (schema.spec, schema.refused_ids) != before:
            raise PlannedRestart(
                "a writer's schema has changed; the query has to restart to read it",
                where=f"feed {self.feed}",
                hint="start the feed again: it resumes with this batch",
            )

    def _over_budget(self, counts: Counts, reasons: Sequence[Reason]) -> ErrorBudgetExceeded:
        named = "; ".join(
            f"{reason.count:,} times {reason.reason} (one: {reason.sample})" for reason in reasons[:MOST_REASONS]
        )
        return ErrorBudgetExceeded(
            f"{counts.dead_letters:,} of {counts.records:,} records of the batch would be dead letters, more than the "
            f"error budget allows; nothing of the batch is written: {named}",
            where=f"feed {self.feed}",
            hint="fix the cause and start the feed again, it resumes with this batch; or allow more in "
            "dead_letters.budget",
        )
