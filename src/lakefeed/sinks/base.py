"""The common parts of sinks: a ledger has the feed's position, and a writer writes computed batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from lakefeed.errors import ConfigError
from lakefeed.lazy import DataFrame, StructType
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.outcomes import check_outcomes, counts_by_partition
from lakefeed.ledger.partial import BatchLog
from lakefeed.ledger.protocol import CommitCheck, Ledger
from lakefeed.ledger.snapshot_summary import Commit, SnapshotProperties
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.definition import Reread


class BaseSink:
    """A sink whose ``ledger`` has the feed's position. It prepares nothing before the first batch, and never lags."""

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
        keyed: ``<keys> <on_delete>`` of the rows; None if the sink appends rows, or has none yet.
        topics: the ids of the topics whose offsets the rows have, by name.
    """

    fence: str | None
    reader: str | None
    keyed: str | None
    topics: Mapping[str, str]


class Writer(Protocol):
    """Writes the rows of a batch, and nothing else."""

    def begin(self, columns: StructType) -> None:
        """Prepare for rows of these columns. Called at the start, and before the first batch with other columns."""

    def prepared(self, rows: DataFrame, commit: Commit) -> DataFrame:
        """Return the rows for ``write``. These rows are computed and checked before ``write`` is called."""

    def write(self, rows: DataFrame, commit: Commit, *, commit_id: str) -> None:
        """Write the rows, which are cached and may be read more than once."""


class BatchedSink(BaseSink):
    """Lands batches through a writer; stores the reader's schema in the feed's checkpoint.

    Guarantee: that of ``ledger``, or at-least-once without a ledger. All rows of a batch are computed and checked
    before the first row is written, so a refused batch leaves nothing behind. After a crash between the write and
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
