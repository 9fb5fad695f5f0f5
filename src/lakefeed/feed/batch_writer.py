"""Writes one micro-batch: commits its rows, and then writes its dead letters.

``feed/batch_reader.py`` reads and counts the records.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from lakefeed.clients.spark.errors import quietly, stopped_at
from lakefeed.config.decoding import ErrorBudget
from lakefeed.config.values import seconds_of
from lakefeed.errors import CheckpointMismatch, ErrorBudgetExceeded, JobFailed, LakefeedError
from lakefeed.feed.batch_reader import BatchReader, PlannedRestart, QueryReader
from lakefeed.feed.failing_records import explain_failure, isolate, why_of
from lakefeed.feed.row_builder import RowBuilder
from lakefeed.lazy import DataFrame, SparkSession, sf
from lakefeed.ledger.continuity import fence_lost
from lakefeed.ledger.outcomes import (
    ZERO,
    BatchOutcomes,
    Counts,
    FieldsMissing,
    LeftOutFields,
    OverBudget,
    Reason,
    RuleChanged,
    SchemasMissing,
    Stopped,
    timing_commit,
    total,
)
from lakefeed.ledger.snapshot_summary import Backfill, Commit, Replay, SnapshotProperties
from lakefeed.messages.text import one_line
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition, without_batches
from lakefeed.records.decode import RECORD
from lakefeed.sinks.dead_letters.store import DeadLetterStore, Judge
from lakefeed.sinks.definition import RowSink, TablePublisher, TriesRows
from lakefeed.stopwatch import timed

if TYPE_CHECKING:
    from lakefeed.records.schema.inference import InferredSchema

Reread = Callable[[Sequence[OffsetRange]], "DataFrame"]
Sample = Callable[[Sequence[OffsetRange]], "InferredSchema"]
MOST_REASONS = 5
"""The most reasons of dead letters that a message names."""


@dataclass(frozen=True)
class BatchResult:
    """The result of a micro-batch.

    Attributes:
        rows: the number of rows that the sink has written; for merges, inserted, changed and deleted rows.
        replayed: whether the sink already had the batch, which was committed before a restart.
        counts: the outcomes of the batch's records; zero for a replayed batch.
        reasons: the reasons of the batch's dead letters, with numbers and samples.
        schema_id: the id of the newest writers' schema that the rows cover; None for formats without ids.
        left_out_field: the path of a JSON field that has no column; None if all fields have columns.
    """

    batch_id: int
    rows: int
    replayed: bool
    counts: Counts = ZERO
    notes: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    schema_id: int | None = None
    left_out_field: str | None = None


@dataclass(frozen=True)
class Committed:
    """The outcome of an attempt after which the sink has the rows. The query's next batch resets ``outcomes``."""

    rows: int | None
    """The number of rows that the sink has written; None if the sink's log already had the batch."""
    outcomes: BatchOutcomes


@dataclass(frozen=True)
class Isolated:
    """The outcome of an attempt that failed at single records: the next attempt makes these records dead letters."""

    failing: Mapping[OffsetRange, str]


class SpentBudget:
    """An error budget, and the counts of the batches in the budget's window of ``seconds``."""

    def __init__(self, budget: ErrorBudget | None) -> None:
        self._budget = budget
        self._window = budget.window if budget else None
        self.seconds = seconds_of(self._window.duration) if self._window else 0
        self._spent: deque[tuple[float, Counts]] = deque()

    def limit(self, outcomes: BatchOutcomes) -> None:
        """Make ``outcomes`` refuse a commit with more dead letters than the rest of the budget."""
        if self._budget is None:
            return
        outcomes.bound(max_rows=self._budget.max_rows, max_share=self._budget.max_share)
        if self._window is not None:
            since = time.time() - self.seconds
            self._spent = deque((at, counts) for at, counts in self._spent if at >= since)
            before = sum((counts for _, counts in self._spent), ZERO)
            outcomes.bound(max_rows=self._window.max_rows, max_share=self._window.max_share, before=before)

    def spend(self, counts: Counts, *, at: float | None = None) -> None:
        """Add the counts of a batch to the window; ``at`` is the time of its commit, by default now."""
        if self._window is not None:
            self._spent.append((time.time() if at is None else at, counts))


@dataclass(frozen=True)
class BatchWriter:
    """Writes the micro-batches of one feed.

    Attributes:
        dead_letters: the store of dead letters; None if an unreadable record stops the feed.
        publisher: publishes the table's branch; None if the rows do not land in a branch.
        reread: reads offset ranges again, to find a record that makes a batch fail; None if the source cannot do that.
        sample: guesses a schema from the first records of offset ranges; None if the columns are declared.
        fence: the fence that ``begin`` has taken, in the writer that ``begin`` returns; None in other writers.
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
    sample: Sample | None = None
    fence: str | None = None
    left_out: LeftOutFields = field(default_factory=LeftOutFields)

    @classmethod
    def of_rows(
        cls, spark: SparkSession, rows: RowBuilder, sink: RowSink, *, feed: str, stateful: bool = False
    ) -> BatchWriter:
        """Return a writer of a DataFrame's rows, without dead letters. With ``stateful``, the query keeps state."""
        reader = QueryReader(spark, rows, sink) if stateful else BatchReader(spark, rows, sink)
        return cls(spark, feed=feed, sink=sink, rows=rows, reader=reader)

    def begin(self, records: DataFrame, *, fenced: bool = True, lost: Collection[Partition] = ()) -> BatchWriter:
        """Prepare the sink, write dead letters that the last run did not write, and return the writer of this run.

        Of ``records``, only the columns are used. ``fenced`` is False for work beside a running driver, which would
        otherwise lose its fence. Dead letters of ``lost`` partitions are not written, because their records cannot be
        read again.
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
        """Return a writer that refuses a batch with dead letters, as a replay requires."""
        return replace(self, spent=SpentBudget(ErrorBudget(max_rows=0)), reread=reread)

    def follow(self) -> None:
        """Remove dead letters after the feed's position if the feed was moved; otherwise raise an error."""
        if self.dead_letters is not None and self.sink.keeps_ledger:
            position = self.sink.position()
            ranges = position.ranges if position is not None else None
            self.dead_letters.follow(ranges, moved=position is not None and position.is_move)

    def cause_of(self, error: LakefeedError) -> LakefeedError:
        """Return a lost fence's error if another driver has taken over; otherwise return the error unchanged.

        The other driver writes and removes files in the same checkpoint, which may have caused the error.
        """
        if self.fence is None or not isinstance(error, CheckpointMismatch | JobFailed):
            return error
        try:
            taken = self.sink.fence_taken()
        except Exception:  # The sink does not answer, so the cause remains unknown.
            return error
        # If there is no fence (``taken`` is None), the table was removed, and no driver has taken over.
        return error if taken in (None, self.fence) else fence_lost(taken, self.fence, where=error.where or self.feed)

    def _require_fence(self) -> None:
        """Raise an error if another driver has taken over; otherwise Spark would log this driver's batch in the other
        driver's checkpoint.
        """
        if self.fence is not None and (taken := self.sink.fence_taken()) != self.fence:
            raise fence_lost(taken, self.fence, where=self.feed)

    def _read_spent_budget(self) -> Commit | None:
        """Add the counts of the window's commits in the ledger to the spent budget, and return the newest commit."""
        newest = None
        for commit in self.sink.commits():
            newest = newest or commit
            if commit.committed_at < time.time() - self.spent.seconds:
                break
            self.spent.spend(total(commit.counts), at=commit.committed_at)
        return newest

    def _settle(self, newest: Commit, lost: Collection[Partition]) -> None:
        """Write the newest commit's dead letters, if a crash after the commit has prevented that."""
        expected = total(newest.counts).dead_letters
        if self.dead_letters is None or not expected:
            return
        spans = [span for span in newest.ranges.ranges if newest.counts.get(span.key, ZERO).dead_letters]
        if not any(span.key in lost for span in spans):
            judge = self.judge_again(newest, spans, expected)
            self.dead_letters.complete(judge, newest, spans=spans, expected=expected)

    def write(self, batch: DataFrame, ranges: OffsetRanges, batch_id: int) -> BatchResult:
        """Write a batch, unless the sink already has it, and publish the table if a publication is due.

        Raises:
            CheckpointMismatch: the batch does not begin where the sink's last commit ended.
            ErrorBudgetExceeded: the batch has too many dead letters; nothing of it was written.
            SchemaChanged: a writer's schema has changed, with ``on_change: fail``.
            AuditFailed: the table failed its audit with this batch, with ``on_failure: stop``.
        """
        result = self._write(batch, ranges, batch_id)
        if self.publisher is None:
            return result
        with timed("audit"):
            note = self.publisher.after_batch(is_new=not result.replayed)
        return result if note is None else replace(result, notes=(*result.notes, note))

    def end(self) -> str | None:
        """Publish the last batches' rows at a run's end; return a message for the user, or raise AuditFailed."""
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
                # The last run crashed after the sink had logged the batch, perhaps before the dead letters were
                # written.
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
                left_out_field=one_line(committed.outcomes.left_out_field) if counts.left_out else None,
            )
        finally:
            self.reader.end_batch()

    def _complete(self, batch: DataFrame, commit: Commit) -> None:
        """For a sink without a ledger, write the dead letters that a crash after the commit has prevented."""
        if self.dead_letters is None:
            return
        self.rows.isolated = self._isolate(commit, commit.ranges.ranges)
        expected = self.rows.classify(batch).filter(sf.col(f"{RECORD}.reason").isNotNull()).count()
        if expected:
            self.dead_letters.complete(self.rows.classify, commit, spans=commit.ranges.ranges, expected=expected)

    def commit_rows(self, records: DataFrame, commit: SnapshotProperties) -> Committed:
        """Commit the records' rows, in as many attempts as necessary; write no dead letters."""
        self.rows.isolated = {}
        grows = self.sample is not None and isinstance(commit, Commit | Backfill)
        while not isinstance(outcome := self.attempt(records, commit, grows=grows), Committed):
            if isinstance(outcome, FieldsMissing):
                grows = self._add_fields(outcome, records, commit)
            else:
                self.prepare_next(outcome, records)
        if outcome.rows is not None:
            self.spent.spend(outcome.outcomes.counts)
        return outcome

    def prepare_next(
        self,
        outcome: SchemasMissing | FieldsMissing | Isolated | RuleChanged | Stopped | OverBudget,
        records: DataFrame,
    ) -> None:
        """Prepare the next attempt to commit; raise an error if the last attempt's outcome stops the feed."""
        match outcome:  # ``commit_rows`` handles FieldsMissing itself, and RuleChanged needs no preparation.
            case SchemasMissing(schema_ids):
                self._cover(schema_ids, records)
            case Isolated(failing):
                self.rows.isolated = {**self.rows.isolated, **failing}
            case Stopped(record):
                raise stopped_at(record)
            case OverBudget(counts, reasons):
                raise self._over_budget(counts, reasons)

    def attempt(
        self, batch: DataFrame, commit: SnapshotProperties, *, grows: bool = False
    ) -> Committed | SchemasMissing | FieldsMissing | Isolated | RuleChanged | Stopped | OverBudget:
        """Try to write a batch's rows in one commit, and return the outcome. ``grows`` refuses fields without a column.

        Raises:
            LakefeedError: the transform or the sink fails at a record; the error names the record.
            Py4JJavaError: Spark has failed, or the catalog has refused the commit.
        """
        with self.reader.attempt(batch, commit) as (rows, outcomes):
            self.spent.limit(outcomes)
            if (covered := self.rows.schema.covered_ids) is not None:
                outcomes.cover(covered)
            if grows and self.rows.schema.grows:
                outcomes.require_fields()
            self.rows.note_columns(rows)
            try:
                # Silence Spark's own log of an error, which would have values of the record.
                with quietly(), timing_commit("commit", outcomes.seconds_since_allowed):
                    return Committed(self.sink.land(rows, commit, commit_id=outcomes.commit_id), outcomes)
            except RuleChanged as changed:
                return changed
            except Exception as error:
                # If the counter has refused the commit, Spark raises another error, so ask the counter.
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
        """Return a function that classifies the records of an earlier run's commit as that run did.

        If the function finds fewer dead letters than ``expected``, the earlier run had isolated some records; the
        function then isolates them again.
        """

        def judge(records: DataFrame) -> DataFrame:
            self.rows.isolated = {}
            letters = self.rows.classify(records).filter(sf.col(f"{RECORD}.reason").isNotNull())
            if self.reread is not None and letters.count() < expected:
                self.rows.isolated = self._isolate(commit, spans)
            return self.rows.classify(records)

        return judge

    def _isolate(self, commit: Commit | Backfill | Replay, spans: Sequence[OffsetRange]) -> Mapping[OffsetRange, str]:
        """Return the records that fail on their own; empty if they cannot become dead letters or be read again."""
        if self.reread is None or self.rows.policy.on_error != "dead_letter":
            return {}
        reread = self.reread
        return isolate(
            partial(self._why, reread, commit), spans, works=lambda: self._why(reread, commit, spans, null=True) is None
        )

    def _why(
        self, reread: Reread, commit: Commit | Backfill | Replay, ranges: Sequence[OffsetRange], *, null: bool = False
    ) -> str | None:
        """Return why Spark cannot compute these records' rows, or why the sink refuses them; None without a failure.

        With ``null``, try a row of nulls instead, which a table accepts if its store and catalog work.
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
        """Merge the missing writers' schemas into the reader's; raise PlannedRestart if this requires a new query."""
        schema = self.rows.schema
        before = schema.spec, schema.refused_ids
        schema.merge_writer_schemas(schema_ids, rows_of=partial(self._rows_of, batch))
        if (schema.spec, schema.refused_ids) != before:
            self._require_same_query("a writer's schema has changed: the query restarts to read the new schema")

    def _add_fields(self, missing: FieldsMissing, batch: DataFrame, commit: SnapshotProperties) -> bool:
        """Add columns for new JSON fields of a batch; return whether the next attempt may find further fields."""
        assert self.sample is not None
        assert isinstance(commit, Commit | Backfill)
        spans = [
            span.cut(missing.starts[span.key], span.end)
            for span in commit.ranges.ranges
            if span.start <= missing.starts.get(span.key, -1) < span.end
        ]
        sample = self.sample(spans)
        rows_of = partial(self._rows_of, batch)
        if self.rows.schema.add_fields(missing.field, sample, rows_of=rows_of):
            self._require_same_query("JSON records have new fields: the query restarts to read them")
        # A query with state cannot change its plan to ignore refused fields, so an attempt would find them again.
        return not self.reader.is_part_of_query

    def _rows_of(self, batch: DataFrame) -> DataFrame:
        return self.rows.rows(self.reader.template(batch))

    def _require_same_query(self, why: str) -> None:
        """Raise PlannedRestart, with the reason ``why``, if the query's plan contains the schema that has changed."""
        if self.reader.is_part_of_query:
            hint = "if the feed has stopped, start it again: it resumes with this batch"
            raise PlannedRestart(why, where=f"feed {self.feed}", hint=hint)

    def _over_budget(self, counts: Counts, reasons: Sequence[Reason]) -> ErrorBudgetExceeded:
        named = "; ".join(
            f"{reason.count:,} times {reason.reason} (one: {reason.sample})" for reason in reasons[:MOST_REASONS]
        )
        return ErrorBudgetExceeded(
            f"{counts.dead_letters:,} of {counts.records:,} records of the batch would be dead letters, more than the "
            f"error budget allows; nothing of the batch is written: {named}",
            where=f"feed {self.feed}",
            hint="remove the cause, or raise dead_letters.budget, and start the feed again: it resumes with this batch",
        )
