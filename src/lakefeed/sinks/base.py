"""The bases of sinks: with a ledger, in a server, or without a ledger."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic

from lakefeed.errors import ConfigError
from lakefeed.lazy import DataFrame, SparkSession, StructType
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.continuity import check_commit
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.outcomes import check_outcomes, counts_by_partition
from lakefeed.ledger.protocol import CommitCheck, Ledger
from lakefeed.ledger.snapshot_summary import Commit, SnapshotProperties
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.definition import Reread, Settings, SinkContext


class BaseSink:
    """Defaults of a sink that does nothing before its first batch, and never lags behind the feed."""

    def begin(self, reread: Reread | None) -> None:
        """Do nothing."""

    def files_of(self, batch_ids: Iterable[int]) -> int | None:
        """Return None: files are not counted."""
        return None

    def lagging(self) -> Mapping[str, str]:
        """Return nothing: a failure stops the feed."""
        return {}


@dataclass(frozen=True)
class FeedEntry:
    """The entry of a feed in the ledger of a server, as it was read."""

    fence: str | None
    reader: str | None
    """The reader's schema that ``apply_schema`` got last."""
    keyed: str | None
    """``<keys> <on_delete>`` of the rows; None where they are appended, or there are none yet."""
    topics: Mapping[str, str]
    """The topics whose offsets the rows have, and their ids."""


class LedgerBackedSink(BaseSink):
    """A sink whose ledger answers where the feed stands: see ``lakefeed.ledger.protocol.Ledger``."""

    keeps_ledger = True
    keeps_log = False
    ledger: Ledger

    def take_fence(self) -> str | None:
        return self.ledger.take_fence()

    def fence_taken(self) -> str | None:
        return self.ledger.fence_taken()

    def commits(self) -> Iterator[Commit]:
        return self.ledger.commits()

    def position(self) -> Position | None:
        return self.ledger.position()

    def logged(self) -> int | None:
        """Return None: batch ids prove nothing here."""
        return None

    def commit_reset(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        self.ledger.record_move(commit, commit_id=commit_id, delete_where=delete_where)

    def has(self, commit: Commit) -> bool:
        """Return whether the sink has exactly these ranges already, from before a restart."""
        return self.ledger.check(commit) is CommitCheck.ALREADY_COMMITTED


class ServerSink(LedgerBackedSink, Generic[Settings]):
    """The rows of a feed in a server, with a ledger beside them."""

    def __init__(self, spark: SparkSession, sink: Settings, context: SinkContext) -> None:
        self._spark = spark
        self._sink = sink
        self._context = context
        self._followed = False
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Open what the subclass needs, before anything else is called."""

    def location(self) -> str:
        return self._sink.where


class LedgerlessSink:
    """Defaults of a sink that knows neither which offsets it holds nor which batches."""

    keeps_ledger = False
    keeps_log = False

    def stored_schema(self) -> StoredSchema | None:
        return None

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        """Do nothing."""

    def take_fence(self) -> str | None:
        return None

    def fence_taken(self) -> str | None:
        return None

    def commits(self) -> Iterator[Commit]:
        return iter(())

    def position(self) -> Position | None:
        return None

    def logged(self) -> int | None:
        return None

    def has(self, commit: Commit) -> bool:
        return False


class NotedSink(LedgerlessSink, BaseSink, ABC):
    """A sink for which the feed's checkpoint notes the reader's schema; it knows its newest batch at most."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim

    @abstractmethod
    def location(self) -> str:
        """Return the place that errors name."""

    def stored_schema(self) -> StoredSchema | None:
        return None if self._claim.schema is None else StoredSchema.of_json(self._claim.schema)

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        """Remember the reader's schema."""
        if stored is not None and stored.to_json() != self._claim.schema:
            self._claim.note(schema=stored.to_json())

    def commit_reset(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        """Refuse: only batches change the position."""
        raise ConfigError(
            "this feed cannot be moved: its sink knows no offsets",
            where=self.location(),
            hint="name another checkpoint location, which reads the source again",
        )

    def has(self, commit: Commit) -> bool:
        """Compare a batch with the newest one; without a position any is new.

        Raises:
            CheckpointMismatch: it neither is the newest one nor begins where that ended.
        """
        # The sink may be named beside a running feed, or not know its position.
        last = self.position()
        return last is not None and check_commit(commit, last, where=self.location()) is CommitCheck.ALREADY_COMMITTED


class StatelessSink(NotedSink):
    """A sink that neither says which offsets it holds nor which batches. Subclasses implement ``write``.

    Guarantee: at-least-once. A batch's rows are computed and judged before any is written, so a batch that must not
    land leaves nothing. A crash between the write and Spark's commit of the batch lets the same batch come again, with
    the same records; where the checkpoint is lost, the feed begins where the pipeline file says.
    """

    @abstractmethod
    def write(self, rows: DataFrame, commit: Commit) -> None:
        """Write the rows of one micro-batch, which may be read more than once.

        Args:
            rows: computed already, and kept.
            commit: the batch, with the numbers of its rows and records; ``to_json`` is its entry for a ledger.
        """

    def prepared(self, rows: DataFrame, commit: Commit) -> DataFrame:
        """Return what ``write`` gets of these rows; computed and judged before it is called."""
        return rows

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Compute the rows of one micro-batch, look whether they may land, and write them."""
        if not isinstance(commit, Commit):
            raise ConfigError("this sink takes batches only", where=self.location())
        kept = self.prepared(rows, commit).persist()
        try:
            count = kept.count()
            counts = counts_by_partition(check_outcomes(rows.sparkSession, commit_id))
            self.write(kept, replace(commit, rows=count, grown=count, counts=counts))
        finally:
            kept.unpersist()
        return count
