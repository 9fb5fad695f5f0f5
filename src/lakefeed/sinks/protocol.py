"""Declares the methods of a sink that a feed calls: its position, its columns, and one commit a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.outcomes import BatchOutcomes
from lakefeed.ledger.protocol import SinkState
from lakefeed.ledger.snapshot_summary import Commit, SnapshotProperties
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.reader import SchemaKeeper, StoredSchema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


Reread = Callable[[Sequence[OffsetRange]], AbstractContextManager[tuple["DataFrame", BatchOutcomes]]]
"""Reads records again, and makes rows of them."""


@dataclass(frozen=True, kw_only=True)
class TableChange:
    """The statements that make one table ready for a feed.

    Attributes:
        is_laid_out_anew: whether new files have other partitions or another order than those that are there.
        statements: in Spark SQL, in their order; none if the table is ready as it is.
    """

    table: str
    is_new: bool
    is_laid_out_anew: bool = False
    statements: tuple[str, ...] = ()


class RowSink(SchemaKeeper, Protocol):
    """A place for rows, in one commit."""

    keeps_ledger: bool
    """Whether it knows which offsets it holds."""

    def position(self) -> Position | None:
        """Return where the feed stands; None if the sink has nothing of it, or keeps no ledger."""

    def take_fence(self) -> str | None:
        """Make this driver the only one that can commit to the feed; None if the sink knows no fences."""

    def commits(self) -> Iterator[Commit]:
        """Return the feed's commits, newest first; none if the sink keeps no ledger."""

    def has(self, commit: Commit) -> bool:
        """Whether the sink has this batch already."""

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Write a batch in one commit; return how many rows it wrote, or None if its log has the batch already."""


class MovableSink(SinkState, Protocol):
    """A sink as a start uses it."""

    def location(self) -> str:
        """Return the place that errors name."""

    def land_move(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        """Commit a move of the feed; a ConfigError if the sink cannot be moved."""


class Sink(RowSink, MovableSink, Protocol):
    """A place for the rows of a feed, one batch in one commit."""

    def begin(self, reread: Reread | None) -> None:
        """Prepare for the first batch, after the columns fit; a sink that lags catches up.

        Args:
            reread: reads records again; None if the query has state, so that nothing can be made of them alone.
        """

    def files_of(self, batch_ids: Iterable[int]) -> int | None:
        """Return how many data files these batches have written; None if the sink does not count them."""

    def lagging(self) -> Mapping[str, str]:
        """Return the sinks that are behind the feed, and why."""


class SchemaPlanner(Protocol):
    """Plans how a start would change the columns of a sink."""

    def stored_schema(self) -> StoredSchema | None:
        """Return the reader's schema that the sink remembers."""

    def changes(
        self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()
    ) -> tuple[TableChange, ...]:
        """Return what ``apply_schema`` would do with the same arguments; raise what that would raise."""


class LedgerTable(Sink, SchemaPlanner, Protocol):
    """An Iceberg table with a feed's rows and its ledger."""

    @property
    def name(self) -> str:
        """catalog.namespace.table"""

    ledger: IcebergLedger

    def take_fence(self, suffix: str = "") -> str:
        """Make this driver the only one that can commit to the feed.

        Args:
            suffix: behind the feed's name, for work that is fenced apart from its batches.
        """


class RealTimeSink(Sink, Protocol):
    """A sink that takes each record by itself, by a writer of Spark."""

    @property
    def options(self) -> dict[str, str]:
        """Options of Spark's writer."""

    def records(self, rows: DataFrame, *, batch: Column) -> DataFrame:
        """Return the rows of a stream as the records that Spark writes.

        Args:
            rows: with the columns that ``apply_schema`` was given.
            batch: the query, and the number of the batch that a row belongs to.
        """


class StoredRows(Protocol):
    """The rows of a feed's table, read without Spark."""

    @property
    def columns(self) -> set[str]:
        """The table's columns."""

    @property
    def where(self) -> str:
        """The place that errors name."""

    def read(self, columns: Sequence[str]) -> Any:
        """Read columns as an Arrow record batch reader."""


@dataclass(frozen=True, kw_only=True)
class CommitHistory:
    """The part of a sink's ledger that ``lakefeed verify`` reads at one moment.

    Attributes:
        commits: of the feed, oldest first.
        fence: of the driver that may commit.
        has_keys: whether the table has one row for each key.
        marks_deletes: whether rows are marked as deleted and kept.
        count_rows: counts the rows of a table with keys.
    """

    commits: tuple[Commit, ...]
    fence: str | None
    rows: StoredRows
    has_keys: bool
    marks_deletes: bool
    count_rows: Callable[[], int]


@runtime_checkable
class TriesRows(Protocol):
    """A sink that can say of some rows alone that it refuses them."""

    def try_rows(self, rows: DataFrame, commit: Commit) -> None:
        """Raise what ``land`` would raise because of these rows; write nothing."""
