"""Lands a query that keeps state from batch to batch: its transform is a part of the streaming query itself.

What a batch hands to the sink is made by the query: windows that have closed, groups that have changed. So the records'
outcomes are counted by one counter that the plan has for good, begun anew for each batch. The reader's schema is fixed
while the query runs: a schema that changes it ends the query before anything is written, to be begun again with the
new one (``PlannedRestart``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from lakefeed.errors import SchemaChanged
from lakefeed.feed.batch_writer import BatchResult, BatchWriter
from lakefeed.ledger.outcomes import BatchOutcomes
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.offsets.ranges import OffsetRanges
from lakefeed.sinks.protocol import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class PlannedRestart(SchemaChanged):
    """The query has to begin again, to read records with another schema; nothing of the batch is written."""


class StatefulLanding(BatchWriter):
    """Lands the micro-batches of one query with state.

    Args:
        spark: the session.
        sink: where rows go.
        ready: looks at the query's frame before anything is changed for it; raises if it must not run.
        rest: as for ``BatchWriter``.
    """

    def __init__(self, spark: SparkSession, *, sink: Sink, ready: Callable[[DataFrame], None], **rest: Any) -> None:
        super().__init__(spark, sink=sink, **rest)
        self._into = sink
        self._ready = ready
        self._outcomes: BatchOutcomes | None = None
        self._logged: int | None = None

    def begin(self, records: DataFrame, *, fenced: bool = True, lost: Collection[tuple[str, int]] = ()) -> None:
        """Makes the sink ready: see ``BatchWriter.begin``."""
        super().begin(records, fenced=fenced, lost=lost)
        self._records = records
        self._logged = self._into.logged()

    def rows(self, records: DataFrame) -> DataFrame:
        """The query's frame as it would be now; for its columns."""
        frame = super().rows(records)
        self._ready(frame)
        return frame

    def stream(self, records: DataFrame) -> DataFrame:
        """The query's frame; what becomes of its records is counted while it runs.

        Args:
            records: the stream, undecoded.
        """
        self.close()
        self._outcomes = BatchOutcomes(self._spark)
        outcomes = self._outcomes.__enter__()
        return self._shaped(records, lambda each: outcomes.accepted(self.classify(each)))

    def close(self) -> None:
        """Ends the counting of the query that was."""
        if self._outcomes is not None:
            self._outcomes.__exit__(None, None, None)
            self._outcomes = None

    def write(self, batch: DataFrame, ranges: OffsetRanges, batch_id: int) -> BatchResult:
        """Lands what the query has made of a batch: see ``BatchWriter.write``."""
        try:
            return super().write(batch, ranges, batch_id)
        finally:
            if self._outcomes is not None:
                # Now, not when the next one lands: where a plan sorts, Spark reads the records before it calls us.
                self._outcomes.next()

    def _has(self, batch: DataFrame, commit: Commit) -> bool:
        if not (self._into.has(commit) or (self._logged is not None and commit.batch_id <= self._logged)):
            return False
        # The state has to move on with the batch, whether or not its rows are wanted.
        batch.write.format("noop").mode("overwrite").save()
        return True

    def _counting(self) -> AbstractContextManager[BatchOutcomes]:
        # Not begun anew for another attempt: Spark keeps the shuffles of this one, and reads no record again.
        assert self._outcomes is not None  # The query that calls this was made by stream().
        return nullcontext(self._outcomes)

    def _rows_of(self, batch: DataFrame, outcomes: BatchOutcomes) -> DataFrame:
        return batch

    def _meet(self, schema_ids: Collection[int], batch: DataFrame) -> None:
        before = self._schema.spec, self._schema.refused_ids
        self._schema.meet(schema_ids, rows_of=lambda: self.rows(self._records))
        if (self._schema.spec, self._schema.refused_ids) != before:
            raise PlannedRestart(
                "a writer's schema became another; the query has to begin again to read it",
                where=f"feed {self._feed}",
                hint="start the feed again: it resumes with this batch",
            )


class RowsLanding(StatefulLanding):
    """Lands the micro-batches of a source whose rows come decoded: there is nothing to judge, and no offset to count.

    As with state, only the checkpoint tells what was read; so the query is held to its log of batches.
    """

    def rows(self, records: DataFrame) -> DataFrame:
        """The query's frame; for its columns."""
        frame = self._transform(records)
        self._ready(frame)
        return frame

    def stream(self, records: DataFrame) -> DataFrame:
        """The query's frame.

        Args:
            records: the source's rows.
        """
        self.close()
        self._outcomes = BatchOutcomes(self._spark)
        self._outcomes.__enter__()
        return self._transform(records)
