"""The parts of sinks that are the same for all: a ledger answers for the feed, and a writer takes computed batches."""

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
    """A sink whose ``ledger`` answers where the feed stands; it neither prepares a first batch nor lags."""

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
        """Return whether the sink has exactly these ranges already, from before a restart."""
        return self.ledger.check(commit) is CommitCheck.ALREADY_COMMITTED

    def commit_reset(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        self.ledger.record_move(commit, commit_id=commit_id, delete_where=delete_where)

    def begin(self, reread: Reread | None) -> None:
        """Do nothing."""

    def files_of(self, batch_ids: Iterable[int]) -> int | None:
        """Return None: files are not counted."""
        return None

    def lagging(self) -> Mapping[str, str]:
        """Return nothing: a failure stops the feed."""
        return {}

    def take_notes(self) -> tuple[str, ...]:
        """Return what users should know of the last batch; a note is returned once."""
        return ()


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


class Writer(Protocol):
    """Writes the rows of a batch, and nothing else."""

    def begin(self, columns: StructType) -> None:
        """Prepare for rows of these columns: at the start, and before the first batch with other ones."""

    def prepared(self, rows: DataFrame, commit: Commit) -> DataFrame:
        """Return what ``write`` gets of these rows; computed and judged before it is called."""

    def write(self, rows: DataFrame, commit: Commit, *, commit_id: str) -> None:
        """Write the rows, which are computed and kept; they may be read more than once."""


class BatchedSink(BaseSink):
    """Lands batches through a writer; the feed's checkpoint notes the reader's schema.

    Guarantee: that of ``ledger``; without one, at-least-once. A batch's rows are computed and judged before any is
    written, so a batch that must not land leaves nothing. A crash between the write and Spark's commit of the batch
    lets the same batch come again, with the same records; where the checkpoint is lost, the feed begins where the
    pipeline file says.
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
        """Compute the rows of one micro-batch, look whether they may land, and write them."""
        if not isinstance(commit, Commit):
            raise ConfigError("this sink takes batches only", where=self._where)
        kept = self.writer.prepared(rows, commit).persist()
        try:
            count = kept.count()
            counts = counts_by_partition(check_outcomes(rows.sparkSession, commit_id))
            self.writer.write(kept, replace(commit, rows=count, grown=count, counts=counts), commit_id=commit_id)
        finally:
            kept.unpersist()
        return count


def note_schema(claim: Claim, stored: StoredSchema | None) -> None:
    """Note the reader's schema in the feed's checkpoint, for a sink that stores none."""
    if stored is not None and stored.to_json() != claim.schema:
        claim.note(schema=stored.to_json())
