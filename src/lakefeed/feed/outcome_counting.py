"""Counts what becomes of a batch's records: of each attempt by itself, or in the plan of a query with state.

A plain query hands records to the writer, which builds their rows and counts their outcomes once for each attempt:
``CountPerAttempt``. A query with state builds the rows itself: its batches are windows that have closed or groups that
have changed. So one counter is part of its plan, and is reset for each batch: ``CountInQuery``. Its schema is fixed
while it runs: another one ends the query before anything is written (``PlannedRestart``). A source without offsets runs
like a query with state: only the checkpoint knows its position.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lakefeed.errors import SchemaChanged
from lakefeed.feed.direct_rows import DirectRows
from lakefeed.feed.row_builder import RowBuilder
from lakefeed.lazy import DataFrame, SparkSession
from lakefeed.ledger.outcomes import BatchOutcomes
from lakefeed.ledger.snapshot_summary import Commit, SnapshotProperties
from lakefeed.sinks.definition import RowSink, Sink


class PlannedRestart(SchemaChanged):
    """The query has to restart, as for another schema or new leaders; nothing of the batch is written."""


@dataclass
class CountPerAttempt:
    """Counts each attempt to write a batch of records by itself, for a plain query."""

    spark: SparkSession
    rows: RowBuilder
    sink: RowSink
    direct: DirectRows | None = None
    is_part_of_query = False
    """Whether the query's plan has the counter, so that another schema needs another query."""

    def begin(self, records: DataFrame) -> None:
        """Take the source's records, before the first batch."""

    def query_frame(self, records: DataFrame) -> DataFrame:
        """Return what the streaming query hands to the writer, batch by batch: its records."""
        return records

    def is_committed(self, batch: DataFrame, commit: Commit) -> bool:
        """Ask the sink whether it has the batch."""
        return self.sink.has(commit)

    @contextmanager
    def attempt(self, batch: DataFrame, commit: SnapshotProperties) -> Iterator[tuple[DataFrame, BatchOutcomes]]:
        """Give the rows of one attempt to write the batch, and their counter."""
        # Other commits have some records of their ranges only, and isolated records are left out of the general way.
        if self.direct is not None and isinstance(commit, Commit) and not (self.rows.isolated or self.rows.takes):
            with BatchOutcomes(self.spark) as outcomes:
                yield self.direct.read(batch.sparkSession, commit.ranges, outcomes), outcomes
        else:
            with self.rows.counted(batch, self.spark) as counted:
                yield counted

    def template(self, batch: DataFrame) -> DataFrame:
        """Return records that the rows' columns can be derived from."""
        return batch

    def end_batch(self) -> None:
        """Reset the counter: the next record belongs to the next batch. Here each attempt has ended its own."""

    def discard_fetched(self) -> None:
        """Let no record be used that was fetched ahead: its partition has another leader, with others perhaps."""
        if self.direct is None:
            raise PlannedRestart("partitions have new leaders; resumes with new consumers")
        self.direct.discard_fetched(self.spark)

    def close(self) -> None:
        """End the counting of the query or run that has stopped. Here no counter outlives an attempt."""
        if self.direct is not None:
            self.direct.close(self.spark)


@dataclass
class CountInQuery(CountPerAttempt):
    """Counts the records of one streaming query with a counter in its plan."""

    sink: Sink
    is_part_of_query = True

    def __post_init__(self) -> None:
        self._records: DataFrame | None = None
        self._outcomes: BatchOutcomes | None = None
        self._logged: int | None = None

    def begin(self, records: DataFrame) -> None:
        """Keep the records for their columns, and read which batches the sink's log has."""
        self._records, self._logged = records, self.sink.logged()

    def query_frame(self, records: DataFrame) -> DataFrame:
        """Return the rows of the stream, with a new counter in their plan."""
        self.close()
        self._outcomes = BatchOutcomes(self.spark)
        return self.rows.accepted_rows(records, self._outcomes.__enter__())

    def is_committed(self, batch: DataFrame, commit: Commit) -> bool:
        """Ask the sink whether it has the batch; if so, compute the batch, because its state has to advance."""
        is_logged = self._logged is not None and commit.batch_id <= self._logged
        if not (is_logged or self.sink.has(commit)):
            return False
        batch.write.format("noop").mode("overwrite").save()
        return True

    @contextmanager
    def attempt(self, batch: DataFrame, commit: SnapshotProperties) -> Iterator[tuple[DataFrame, BatchOutcomes]]:
        """Give the batch, which has rows already, and the query's counter."""
        # Not reset for another attempt: Spark keeps the shuffles of this one, and reads no record again.
        assert self._outcomes is not None  # query_frame() has made the query that hands over this batch.
        yield batch, self._outcomes

    def template(self, batch: DataFrame) -> DataFrame:
        """Return the source's records: the batch has rows."""
        assert self._records is not None  # begin() comes before the first batch.
        return self._records

    def end_batch(self) -> None:
        if self._outcomes is not None:
            # At the end of a batch: where a plan sorts, Spark reads the next records before it calls the writer.
            self._outcomes.next()

    def close(self) -> None:
        if self._outcomes is not None:
            self._outcomes.__exit__(None, None, None)
            self._outcomes = None
