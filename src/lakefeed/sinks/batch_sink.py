"""Defines the interface of sinks from other packages, and writes a feed's batches through them.

docs/extension-points.md has an example. The feed reads, decodes and checks a batch before the sink gets it. The feed
also manages the ledger: the sink only stores its entries, which are texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from lakefeed.clients.retry import retry_until
from lakefeed.config.sinks import SinkConfig
from lakefeed.errors import ConfigError, Unreachable
from lakefeed.lazy import DataFrame, SparkSession, StructType
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.entries import Batch, EntryLedger
from lakefeed.ledger.partial import NoLedger
from lakefeed.ledger.protocol import SinkState
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.sinks.base import BatchedSink
from lakefeed.sinks.definition import Check, CommitHistory, SinkContext, SinkDefinition, StoredState, checked

__all__ = ["Batch", "BatchSink", "ChecksServer", "KeepsEntries", "ReadsRows"]


class BatchSink(Protocol):
    """A sink that takes batches, at least once: after a crash, it gets the interrupted batch again.

    lakefeed creates the sink as ``kind(settings, feed)``, with the sink's settings and the feed's name. Commands that
    only look at a feed also create the sink, so its constructor must not need Spark or a server.
    """

    def begin(self, columns: StructType) -> None:
        """Prepare the sink for rows of these columns: create or extend its table.

        Called in the driver at each start, and again before the first batch with other columns.
        """

    def write(self, rows: DataFrame | None, batch: Batch) -> None:
        """Store the rows. Called in the driver for one batch after the other.

        If ``write`` raises ``lakefeed.errors.Unreachable``, it is called again after a second, for up to five minutes.
        Any other error stops the feed.

        Args:
            rows: computed and checked; may be read more than once.
            batch: the batch's number and, for a sink with ``entries``, the ledger's entry.
        """


@runtime_checkable
class KeepsEntries(Protocol):
    """A sink that stores ``batch.entry`` and the rows in one transaction, and so has every record once.

    ``write`` must fail and store nothing if the feed already has an entry with ``batch.number``: use a unique key of
    feed and number. ``rows`` is None for an entry without rows, such as the entry of a driver that takes over the feed.
    """

    def entries(self) -> Iterable[str]:
        """Return the feed's entries, the highest number first; none if there is no table yet. Called without Spark."""


@runtime_checkable
class ReadsRows(Protocol):
    """A sink with entries whose rows ``lakefeed verify --deep`` can compare with the ledger."""

    def read(self, columns: Sequence[str] | None) -> Any:
        """Return these columns (None: all columns) as a ``pyarrow.RecordBatchReader``. Called without Spark."""


@runtime_checkable
class ChecksServer(Protocol):
    """A sink that can check its server or folder for ``lakefeed check --connect`` and ``lakefeed plan``."""

    def check(self) -> None:
        """Raise a LakefeedError, such as Unreachable, if a run could not start. Called without Spark."""


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
            hint = "verify needs a sink with entries (lakefeed.sinks.batch_sink.KeepsEntries)"
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
    """Writes batches through a ``BatchSink``: only rows, or rows with an entry of the ledger."""

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
