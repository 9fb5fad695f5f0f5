"""Strategies that count the outcomes of a batch's records: for each attempt to write it, or within the query.

A plain query hands records to the writer, which builds their rows once for each attempt. A query with state builds the
rows itself: its batches are windows that have closed or groups that have changed. So one counter is part of its plan,
and is reset for each batch. Its schema is fixed while it runs: another one ends the query before anything is written
(``PlannedRestart``). A source without offsets is run like a query with state: only the checkpoint knows its position.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

from lakefeed.errors import SchemaChanged
from lakefeed.feed.row_builder import RowBuilder
from lakefeed.ledger.outcomes import BatchOutcomes
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.sinks.protocol import RowSink, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class PlannedRestart(SchemaChanged):
    """The query has to restart, to read records with another schema; nothing of the batch is written."""


class Counting(Protocol):
    """Counts the records of a feed's batches, and builds the rows that are written."""

    is_part_of_query: bool
    """Whether the query's plan has the counter, so that another schema needs another query."""

    def begin(self, records: DataFrame) -> None:
        """Take the source's records, before the first batch."""

    def query_frame(self, records: DataFrame) -> DataFrame:
        """Return what the streaming query hands to the writer, batch by batch."""

    def is_committed(self, batch: DataFrame, commit: Commit) -> bool:
        """Ask the sink whether it has the batch."""

    def attempt(self, batch: DataFrame) -> AbstractContextManager[tuple[DataFrame, BatchOutcomes]]:
        """Give the rows of one attempt to write the batch, and their counter."""

    def template(self, batch: DataFrame) -> DataFrame:
        """Return records that the rows' columns can be derived from."""

    def end_batch(self) -> None:
        """Reset the counter: the next record belongs to the next batch."""

    def close(self) -> None:
        """End the counting of the query."""


class CountPerAttempt:
    """Counts each attempt to write a batch of records by itself.

    Args:
        spark: the session.
        rows: builds the rows.
        sink: where they go.
    """

    is_part_of_query = False

    def __init__(self, spark: SparkSession, rows: RowBuilder, sink: RowSink) -> None:
        self._spark = spark
        self._rows = rows
        self._sink = sink

    def begin(self, records: DataFrame) -> None:
        """Do nothing: each attempt begins by itself."""

    def query_frame(self, records: DataFrame) -> DataFrame:
        """Return the records: their rows are built batch by batch."""
        return records

    def is_committed(self, batch: DataFrame, commit: Commit) -> bool:
        """Ask the sink whether it has the batch."""
        return self._sink.has(commit)

    def attempt(self, batch: DataFrame) -> AbstractContextManager[tuple[DataFrame, BatchOutcomes]]:
        """Give the rows of the batch's records, and a new counter."""
        return self._rows.counted(batch, self._spark)

    def template(self, batch: DataFrame) -> DataFrame:
        """Return the batch, which has the records."""
        return batch

    def end_batch(self) -> None:
        """Do nothing: the attempt has ended its counter."""

    def close(self) -> None:
        """Do nothing: no counter outlives an attempt."""


class CountInQuery:
    """Counts the records of one streaming query with a counter in its plan.

    Args:
        spark: the session.
        rows: builds the rows.
        sink: where they go.
    """

    is_part_of_query = True

    def __init__(self, spark: SparkSession, rows: RowBuilder, sink: Sink) -> None:
        self._spark = spark
        self._rows = rows
        self._sink = sink
        self._records: DataFrame | None = None
        self._outcomes: BatchOutcomes | None = None
        self._logged: int | None = None

    def begin(self, records: DataFrame) -> None:
        """Keep the records for their columns, and read which batches the sink's log has."""
        self._records = records
        self._logged = self._sink.logged()

    def query_frame(self, records: DataFrame) -> DataFrame:
        """Return the rows of the stream, with a new counter in their plan."""
        self.close()
        self._outcomes = BatchOutcomes(self._spark)
        return self._rows.accepted_rows(records, self._outcomes.__enter__())

    def is_committed(self, batch: DataFrame, commit: Commit) -> bool:
        """Ask the sink whether it has the batch; if so, compute the batch, because its state has to advance."""
        if not (self._sink.has(commit) or (self._logged is not None and commit.batch_id <= self._logged)):
            return False
        batch.write.format("noop").mode("overwrite").save()
        return True

    @contextmanager
    def attempt(self, batch: DataFrame) -> Iterator[tuple[DataFrame, BatchOutcomes]]:
        """Give the batch, which has rows already, and the query's counter."""
        # Not reset for another attempt: Spark keeps the shuffles of this one, and reads no record again.
        assert self._outcomes is not None  # query_frame() has made the query that hands over this batch.
        yield batch, self._outcomes

    def template(self, batch: DataFrame) -> DataFrame:
        """Return the source's records: the batch has rows."""
        assert self._records is not None  # begin() comes before the first batch.
        return self._records

    def end_batch(self) -> None:
        """Reset the query's counter."""
        if self._outcomes is not None:
            # At the end of a batch: where a plan sorts, Spark reads the next records before it calls the writer.
            self._outcomes.next()

    def close(self) -> None:
        """End the counting of the query that has stopped."""
        if self._outcomes is not None:
            self._outcomes.__exit__(None, None, None)
            self._outcomes = None
