"""One micro-batch from its records to its commit: decode, judge, transform, write, and the dead letters after it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from lakefeed.clients.spark.decode_failures import stopped_at
from lakefeed.clients.spark.errors import quietly, translated
from lakefeed.config.failures import ErrorBudget, seconds_of
from lakefeed.errors import ErrorBudgetExceeded, JobFailed, RowsRefused
from lakefeed.feed.failing_records import find_failing, kind_of_failure, listed
from lakefeed.ledger.outcomes import ZERO, BatchOutcomes, Counts, total
from lakefeed.ledger.snapshot_summary import Backfill, Commit, SnapshotProperties
from lakefeed.ledger.stateful_batches import without_batches
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition
from lakefeed.records.decode import RECORD, DecodeSpec, Policy, decoded, judged
from lakefeed.records.schema.reader import ReaderSchema
from lakefeed.records.schema.storable import Storable
from lakefeed.records.sources.tasks import in_few_tasks
from lakefeed.records.transform.steps import Transformed, by_topic
from lakefeed.sinks.dead_letters.store import DeadLetterStore
from lakefeed.sinks.protocol import RowSink, TriesRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_REASONS_TOLD = 5


@dataclass(frozen=True)
class BatchResult:
    """What became of a micro-batch."""

    batch_id: int
    rows: int
    """Those that the sink has written; where changes are merged, those that were inserted, changed or deleted."""

    replayed: bool
    """True if the sink had it already, from before a restart."""

    counts: Counts = ZERO
    """What became of its records; empty if it was replayed."""

    notes: tuple[str, ...] = field(default=())
    """What the user should hear of."""


class BatchWriter:
    """Lands the micro-batches of one feed.

    Args:
        spark: the session.
        feed: the feed's name.
        sink: where rows go.
        schema: what records are read with.
        policy: what becomes of records that are not as they should be.
        keep: metadata columns of the rows.
        key: how keys are encoded; None if they stay bytes.
        transform: from decoded rows to the table's.
        streams: topics whose rows it takes apart from each other, by the names that it has for them.
        dead_letters: where dead letters go; None if a bad record stops the feed.
        budget: when there are too many of them.
        most_records: of a batch; a smaller one is read and written in fewer tasks.
        reread: reads records of some offsets again, to find the one that a batch fails at; None if that cannot be.

    Attributes:
        fence: of this driver, once it has begun.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        feed: str,
        sink: RowSink,
        schema: ReaderSchema,
        policy: Policy,
        keep: tuple[str, ...],
        transform: Transformed,
        streams: Mapping[str, str] | None = None,
        key: DecodeSpec | None = None,
        dead_letters: DeadLetterStore | None = None,
        budget: ErrorBudget | None = None,
        most_records: int | None = None,
        reread: Callable[[Sequence[OffsetRange]], DataFrame] | None = None,
    ) -> None:
        self._spark = spark
        self._feed = feed
        self.fence: str | None = None
        self._sink = sink
        self._schema = schema
        self._policy = policy
        self._keep = keep
        self._key = key
        self._transform = self._storable = Storable(transform)
        self._streams = streams or {}
        self._dead_letters = dead_letters
        self._budget = _Budget(budget)
        self._most_records = most_records
        self._reread = reread

    def begin(self, records: DataFrame, *, fenced: bool = True, lost: Collection[Partition] = ()) -> None:
        """Makes the sink ready, and takes up what the last run has left. Once, before the first batch.

        Args:
            records: as they come from the source; only their columns count here.
            fenced: take the feed's fence. Not for work beside a driver that runs.
            lost: partitions whose records cannot be read again.
        """
        self._schema.begin(lambda: self.rows(records))
        if not fenced:
            return
        self.fence = self._sink.take_fence()
        self.follow()
        last = None
        for commit in self._sink.commits():
            last = last or commit
            if commit.committed_at < time.time() - self._budget.seconds:
                break
            self._budget.spend(total(commit.counts), at=commit.committed_at, oldest=True)
        if last is not None:
            self._settle(last, lost)

    def follow(self) -> None:
        """Lets the dead letters follow a feed that was moved.

        Raises:
            CheckpointMismatch: they are ahead of it, and nobody has moved it.
        """
        if self._dead_letters is not None and self._sink.keeps_ledger:
            position = self._sink.position()
            ranges = position.ranges if position is not None else None
            self._dead_letters.follow(ranges, moved=position is not None and position.is_move)

    def _settle(self, last: Commit, lost: Collection[Partition]) -> None:
        """Writes the dead letters of the sink's last commit, if a crash came between the two."""
        expected = total(last.counts).dead_letters
        if self._dead_letters is None or not expected:
            return
        spans = [
            each for each in last.ranges.ranges if last.counts.get((each.topic, each.partition), ZERO).dead_letters
        ]
        if not any((each.topic, each.partition) in lost for each in spans):
            self._dead_letters.complete(self.classify, last, spans=spans, expected=expected)

    def write(self, batch: DataFrame, ranges: OffsetRanges, batch_id: int) -> BatchResult:
        """Lands a batch, unless the sink has it already.

        Raises:
            CheckpointMismatch: it does not go on where the sink's last commit ended.
            ErrorBudgetExceeded: it has too many dead letters; nothing of it was written.
            SchemaChanged: a writer's schema is another, and the feed is to stop then.
        """
        commit = Commit(self._feed, batch_id, ranges, fence=self.fence)
        if self._has(batch, commit):
            return BatchResult(batch_id, rows=0, replayed=True)
        if self._most_records is not None:
            batch = in_few_tasks(batch, ranges, most=self._most_records)
        rows, outcomes = self._written(batch, commit)
        if rows is None:
            # The sink's log has the batch, from before a crash.
            self._complete(batch, commit)
            return BatchResult(batch_id, rows=0, replayed=True)
        if self._dead_letters is not None and outcomes.counts.dead_letters:
            self._dead_letters.write(
                self.classify, commit, spans=outcomes.dead_ranges, expected=outcomes.counts.dead_letters
            )
        self._budget.spend(outcomes.counts)
        return BatchResult(batch_id, rows=rows, replayed=False, counts=outcomes.counts, notes=self.notes())

    def _has(self, batch: DataFrame, commit: Commit) -> bool:
        """Whether the sink has the batch already."""
        return self._sink.has(commit)

    def _complete(self, batch: DataFrame, commit: Commit) -> None:
        """Writes the dead letters of a batch that a sink without a ledger has, if a crash came between the two."""
        if self._dead_letters is None:
            return
        expected = self.classify(batch).filter(f"{RECORD}.reason IS NOT NULL").count()
        if expected:
            self._dead_letters.complete(self.classify, commit, spans=commit.ranges.ranges, expected=expected)

    def write_unbatched(self, records: DataFrame, commit: SnapshotProperties) -> tuple[int | None, BatchOutcomes]:
        """Lands records that are no batch, such as dead letters that can be rows now; writes no dead letters.

        Returns:
            How many rows there were, if the sink can tell, and what became of the records.

        Raises:
            LakefeedError: a record stops the feed, or there are too many dead letters.
            Py4JJavaError: Spark could not, or the commit was refused.
        """
        rows, outcomes = self._written(records, commit)
        self._budget.spend(outcomes.counts)
        return rows, outcomes

    @contextmanager
    def again(self, records: DataFrame) -> Iterator[tuple[DataFrame, BatchOutcomes]]:
        """The rows of records that were judged before, for a sink that has missed them; with their outcomes."""
        with BatchOutcomes(self._spark) as outcomes:
            yield self._shaped(records, lambda each: outcomes.accepted(self.classify(each))), outcomes

    def notes(self) -> tuple[str, ...]:
        """What the user should hear of since the last call."""
        return (*self._schema.notes(), *self._storable.notes())

    def rows(self, records: DataFrame) -> DataFrame:
        """The rows as they would be decoded and transformed now; for their columns, not for writing them."""
        return self._shaped(records, lambda each: self.classify(each).drop(RECORD))

    def _shaped(self, records: DataFrame, read: Callable[[DataFrame], DataFrame]) -> DataFrame:
        return self._transform(by_topic(records, self._streams, read))

    def classify(self, records: DataFrame) -> DataFrame:
        """The records decoded with the schema of this moment, with the verdict on each in ``RECORD``."""
        policy = replace(self._policy, refused_schemas=self._schema.refused_ids)
        return judged(decoded(records, self._schema.spec, key=self._key), policy, keep=self._keep)

    def _written(self, batch: DataFrame, commit: SnapshotProperties) -> tuple[int | None, BatchOutcomes]:
        """Writes the rows, again for each time that the batch shows schemas which they did not cover."""
        while True:
            with self._counting() as outcomes:
                self._budget.limit(outcomes)
                if (covered := self._schema.covered_ids) is not None:
                    outcomes.cover(covered)
                rows = self._rows_of(batch, outcomes)
                try:
                    # Spark's own text has values of the record, and a stack trace.
                    with quietly():
                        landed = self._sink.land(rows, commit, commit_id=outcomes.commit_id)
                except Exception as error:
                    # Spark wraps the refusal in its own error: the outcomes tell it apart from other failures.
                    if outcomes.refusal == "stop":
                        raise stopped_at(outcomes.stop) from None
                    if outcomes.refusal == "budget":
                        raise self._over_budget(outcomes) from None
                    if outcomes.refusal != "schemas":
                        if isinstance(commit, Commit | Backfill):
                            self._raise_with_record(error, commit)
                        raise
                    self._meet(outcomes.schema_ids, batch)
                    continue
                return landed, outcomes

    def _raise_with_record(self, error: Exception, commit: Commit | Backfill) -> None:
        """Raises an error that the transform or the sink causes, with the record that it fails at."""
        known = translated(error)
        if not isinstance(known, JobFailed | RowsRefused):
            return
        ranges = without_batches(commit.ranges)
        found: tuple[OffsetRange, ...] = ()
        if self._reread is not None:
            found = find_failing(partial(self._fails, commit), ranges.ranges)
        if isinstance(known, RowsRefused):
            if found:
                what = f"{known.what}; it is the row of {listed(found)}"
                raise RowsRefused(what, where=known.where, hint=known.hint) from error
            return
        if not found:
            where = f"{known.where} (feed {self._feed}, {listed(ranges.ranges) or 'a batch without records'})"
            raise JobFailed(known.what, where=where, hint=known.hint) from error
        one = found[0]
        raise JobFailed(
            f"the transform fails at {listed(found)}; nothing of the batch is written",
            where=f"feed {self._feed}, {kind_of_failure(known.where or '')}",
            hint=f"look at it: lakefeed read pipeline.yaml --range {one}; then let the transform handle such a value, "
            "as try_cast and try_divide do, or make it a dead letter by a rule in expect",
        ) from error

    def _fails(self, commit: Commit | Backfill, ranges: Sequence[OffsetRange]) -> bool:
        """Whether the rows of these records cannot be computed, or are refused by a sink that can try them."""
        assert self._reread is not None  # Asked before.
        try:
            with self.again(self._reread(ranges)) as (rows, _), quietly():
                if isinstance(self._sink, TriesRows) and isinstance(commit, Commit):
                    self._sink.try_rows(rows, commit)
                else:
                    rows.write.format("noop").mode("overwrite").save()
        except Exception as error:
            # A server that is away is no record's fault.
            return isinstance(translated(error), JobFailed | RowsRefused)
        return False

    def _counting(self) -> AbstractContextManager[BatchOutcomes]:
        """Counts one attempt to write a batch."""
        return BatchOutcomes(self._spark)

    def _rows_of(self, batch: DataFrame, outcomes: BatchOutcomes) -> DataFrame:
        """The batch's rows; what becomes of its records is counted while they are computed."""
        return self._shaped(batch, lambda each: outcomes.accepted(self.classify(each)))

    def _meet(self, schema_ids: Collection[int], batch: DataFrame) -> None:
        """The batch has schemas that its rows did not cover: the next attempt does."""
        self._schema.meet(schema_ids, rows_of=lambda: self.rows(batch))

    def _over_budget(self, outcomes: BatchOutcomes) -> ErrorBudgetExceeded:
        counts = outcomes.counts
        told = "; ".join(
            f"{each.count:,} times {each.text} (one: {each.sample})" for each in outcomes.reasons[:MOST_REASONS_TOLD]
        )
        return ErrorBudgetExceeded(
            f"{counts.dead_letters:,} of {counts.records:,} records of the batch would be dead letters, more than the "
            f"error budget allows; nothing of the batch is written: {told}",
            where=f"feed {self._feed}",
            hint="mend the cause and start the feed again, it resumes with this batch; or allow more in "
            "dead_letters.budget",
        )


class _Budget:
    """An error budget, and what has been spent of its window.

    Attributes:
        seconds: how far the window looks back; 0 without one.
    """

    def __init__(self, budget: ErrorBudget | None) -> None:
        self._budget = budget
        self._window = budget.window if budget else None
        self.seconds = seconds_of(self._window.duration) if self._window else 0
        self._spent: deque[tuple[float, Counts]] = deque()

    def limit(self, outcomes: BatchOutcomes) -> None:
        """Sets the bounds of a batch."""
        if self._budget is None:
            return
        outcomes.bound(max_rows=self._budget.max_rows, max_share=self._budget.max_share)
        if self._window is not None:
            while self._spent and self._spent[0][0] < time.time() - self.seconds:
                self._spent.popleft()
            before = sum((counts for _, counts in self._spent), ZERO)
            outcomes.bound(max_rows=self._window.max_rows, max_share=self._window.max_share, before=before)

    def spend(self, counts: Counts, *, at: float | None = None, oldest: bool = False) -> None:
        """A batch was committed, now or before."""
        if self._window is not None:
            spent = (time.time() if at is None else at, counts)
            (self._spent.appendleft if oldest else self._spent.append)(spent)
