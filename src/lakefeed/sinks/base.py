"""The common parts of sinks: a ledger with the feed's position, and a writer of computed batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from lakefeed.clients.retry import retry_until
from lakefeed.config.sinks import SinkConfig
from lakefeed.errors import ConfigError, Unreachable
from lakefeed.lazy import DataFrame, SparkSession, StructType
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.continuity import BatchLog, NoLedger
from lakefeed.ledger.entries import Batch, EntryLedger
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.outcomes import check_outcomes, counts_by_partition
from lakefeed.ledger.protocol import CommitCheck, Ledger, SinkState
from lakefeed.ledger.snapshot_summary import Commit, SnapshotProperties
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.definition import Check, CommitHistory, Reread, SinkContext, SinkDefinition, StoredState, checked


class BaseSink:
    """A sink whose ``ledger`` has the feed's position. By default it prepares nothing for a batch, and never lags."""

    ledger: Ledger

    @property
    def keeps_ledger(self) -> bool:
        return self.ledger.keeps_offsets

    @property
    def keeps_log(self) -> bool:
        return isinstance(self.ledger, BatchLog)

    def logged(self) -> int | None:
        return self.ledger.newest() if isinstance(self.ledger, BatchLog) else None

    def take_fence(self) -> str | None:
        return self.ledger.take_fence()

    def fence_taken(self) -> str | None:
        return self.ledger.fence_taken()

    def commits(self) -> Iterator[Commit]:
        return self.ledger.commits()

    def position(self) -> Position | None:
        return self.ledger.position()

    def has(self, commit: Commit) -> bool:
        return self.ledger.check(commit) is CommitCheck.ALREADY_COMMITTED

    def commit_reset(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        self.ledger.record_move(commit, commit_id=commit_id, delete_where=delete_where)

    def begin(self, reread: Reread | None) -> None: ...

    def files_of(self, batch_ids: Iterable[int]) -> int | None:
        return None

    def lagging(self) -> Mapping[str, str]:
        return {}

    def take_notes(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class FeedEntry:
    """A feed's entry in the ledger of a server.

    Attributes:
        reader: the reader's schema of the last ``apply_schema``.
        keyed: ``<keys> <on_delete>`` of the stored rows; None if the sink appends rows, or has no rows yet.
        topics: by name, the ids of the topics whose offsets are in the rows.
    """

    fence: str | None
    reader: str | None
    keyed: str | None
    topics: Mapping[str, str]


class Writer(Protocol):
    """Writes the rows of a batch; a ``BatchedSink`` does all other work."""

    def begin(self, columns: StructType) -> None:
        """Prepare for rows with these columns. Called at the start, and before a batch whose columns differ."""

    def prepared(self, rows: DataFrame, commit: Commit) -> DataFrame:
        """Return the rows in the form for ``write``; they are computed and checked before ``write`` is called."""

    def write(self, rows: DataFrame, commit: Commit, *, commit_id: str) -> None:
        """Write the rows, which are cached and may be read more than once."""


class BatchedSink(BaseSink):
    """Lands batches with a ``Writer``, and stores the reader's schema in the feed's checkpoint.

    Guarantee: that of ``ledger``, or at-least-once without a ledger. All rows of a batch are computed and checked
    before the first row is written, so no row of a refused batch is written. After a crash between the write and
    Spark's commit of the batch, Spark repeats the batch with the same records. If the checkpoint is lost, the feed
    begins where the pipeline file says.
    """

    def __init__(self, writer: Writer, claim: Claim, ledger: Ledger, *, where: str) -> None:
        self.writer = writer
        self.ledger = ledger
        self._claim = claim
        self._where = where

    def location(self) -> str:
        return self._where

    def stored_schema(self) -> StoredSchema | None:
        return None if self._claim.schema is None else StoredSchema.of_json(self._claim.schema)

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        self.writer.begin(rows)
        note_schema(self._claim, stored)

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Compute the rows of a micro-batch, check its outcomes, and write the rows; return their number."""
        if not isinstance(commit, Commit):
            what, hint = "this sink takes only the batches of a feed", "write these records to an Iceberg table"
            raise ConfigError(what, where=self._where, hint=hint)
        cached = self.writer.prepared(rows, commit).persist()
        try:
            count = cached.count()
            counts = counts_by_partition(check_outcomes(rows.sparkSession, commit_id))
            self.writer.write(cached, replace(commit, rows=count, grown=count, counts=counts), commit_id=commit_id)
        finally:
            cached.unpersist()
        return count


def note_schema(claim: Claim, stored: StoredSchema | None) -> None:
    """Store the reader's schema in the feed's checkpoint, for a sink that stores no schema itself."""
    if stored is not None and stored.to_json() != claim.schema:
        claim.note(schema=stored.to_json())


__all__ = ["Batch", "BatchSink", "ChecksServer", "KeepsEntries", "ReadsRows"]


class BatchSink(Protocol):
    """A sink that receives batches at least once: after a crash, it receives the interrupted batch again.

    lakefeed creates it as ``kind(settings, feed)``, also in commands that need neither Spark nor a server.
    """

    def begin(self, columns: StructType) -> None:
        """Create or extend the table for these columns; called in the driver at each start, and when columns change."""

    def write(self, rows: DataFrame | None, batch: Batch) -> None:
        """Store the rows. The driver calls this method for one batch after another.

        If ``write`` raises ``lakefeed.errors.Unreachable``, it is called again after a second, for up to five minutes.
        Any other error stops the feed.

        Args:
            rows: computed and checked; may be read more than once.
            batch: the batch's number and, for a sink with ``entries``, the ledger's entry.
        """


@runtime_checkable
class KeepsEntries(Protocol):
    """A sink that stores ``batch.entry`` and the rows in one transaction, and therefore has every record exactly once.

    ``write`` must fail and store nothing if the feed already has an entry with ``batch.number``: use a unique key of
    feed and number. ``rows`` is None for an entry without rows, such as the entry of a driver that takes over the feed.
    """

    def entries(self) -> Iterable[str]:
        """Return the feed's entries, the highest number first; none without a table. Called without Spark."""


@runtime_checkable
class ReadsRows(Protocol):
    """A sink with entries whose rows ``lakefeed verify --deep`` can compare with the ledger."""

    def read(self, columns: Sequence[str] | None) -> Any:
        """Return these columns (None: all columns) as a ``pyarrow.RecordBatchReader``. Called without Spark."""


@runtime_checkable
class ChecksServer(Protocol):
    """A sink that can check its server or folder for ``lakefeed check --connect`` and ``lakefeed plan``."""

    def check(self) -> None:
        """Raise a LakefeedError, such as Unreachable, if a run could not write to the server. Called without Spark."""


class BatchSinkDefinition(SinkDefinition[SinkConfig]):
    def __init__(self, settings: SinkConfig, context: SinkContext, kind: Callable[[Any, str], Any]) -> None:
        super().__init__(settings, context)
        self.own = kind(settings, context.feed)
        keeps = isinstance(self.own, KeepsEntries)
        self._ledger = EntryLedger(context.feed, self.own, where=settings.target) if keeps else None

    def open(self, spark: SparkSession, claim: Claim) -> BatchedSink:
        writer, where = BatchSinkWriter(self.own, self._ledger, self.context.patience), self.settings.target
        return BatchedSink(writer, claim, self._ledger or NoLedger(where), where=where)

    def state(self) -> SinkState:
        if self._ledger is None:
            return StoredState()
        return StoredState(keeps_ledger=True, position=self._ledger.position)

    def preflight(self, rows: Callable[[], StructType | None]) -> list[Check]:
        return [checked(self.context.place, self.own.check)] if isinstance(self.own, ChecksServer) else []

    @contextmanager
    def history(self) -> Iterator[CommitHistory]:
        if self._ledger is None:
            hint = "verify needs a sink with entries (lakefeed.sinks.base.KeepsEntries)"
            raise ConfigError("this sink stores no entries", where=self.context.place, hint=hint)
        commits, fence = tuple(self._ledger.commits())[::-1], self._ledger.fence_taken()
        yield CommitHistory(commits=commits, fence=fence, rows=SinkRows(self.own, self.settings.target))


@dataclass(frozen=True)
class SinkRows:
    """The rows of a sink, read for ``lakefeed verify --deep``."""

    own: Any
    where: str

    @property
    def columns(self) -> set[str]:
        return set(self._read(None).schema.names)

    def read(self, columns: Sequence[str]) -> Any:
        return self._read(columns)

    def _read(self, columns: Sequence[str] | None) -> Any:
        if isinstance(self.own, ReadsRows):
            return self.own.read(columns)
        what, hint = "this sink's rows cannot be read: it has no read(columns)", "run verify without --deep"
        raise ConfigError(what, where=self.where, hint=hint)


@dataclass(frozen=True)
class BatchSinkWriter:
    """Writes batches with a ``BatchSink``: rows alone, or rows with an entry of the ledger."""

    own: BatchSink
    ledger: EntryLedger | None
    patience: float

    def begin(self, columns: StructType) -> None:
        self.own.begin(columns)

    def prepared(self, rows: DataFrame, commit: Commit) -> DataFrame:
        return rows

    def write(self, rows: DataFrame, commit: Commit, *, commit_id: str) -> None:
        def attempt() -> None:
            if self.ledger is not None:
                self.ledger.add(rows, commit, commit_id=commit_id)
            else:
                self.own.write(rows, Batch(commit.feed, commit.batch_id, commit.to_json()))

        retry_until(attempt, is_transient=lambda error: isinstance(error, Unreachable), seconds=self.patience)
