"""What sinks without a ledger have in common.

Guarantee: at-least-once. A batch's rows are computed and judged before any is written, so a batch that must not land
leaves nothing. A crash between the write and Spark's commit of the batch lets the same batch come again, with the same
records; where the checkpoint is lost, the feed begins where the pipeline file says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lakefeed.clients.spark import jvm
from lakefeed.errors import ConfigError
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.continuity import check_commit
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.protocol import CommitCheck
from lakefeed.ledger.snapshot_summary import Commit, SnapshotProperties
from lakefeed.offsets.ranges import OffsetRanges
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.definition import Reread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


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


class LedgerlessSink:
    """Defaults of a sink that knows neither which offsets it holds nor which batches."""

    keeps_ledger = False
    keeps_log = False

    def stored_schema(self) -> StoredSchema | None:
        return None

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        """Do nothing."""

    def take_fence(self) -> str | None:
        """Take no fence: two drivers meet at the checkpoint."""
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
    """A sink for which the feed's checkpoint notes the reader's schema."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim

    @abstractmethod
    def location(self) -> str:
        """Return the place that errors name."""

    def stored_schema(self) -> StoredSchema | None:
        """Return the reader's schema that the feed had last."""
        return None if self._claim.schema is None else StoredSchema.of_json(self._claim.schema)

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        """Remember the reader's schema."""
        if stored is not None and stored.to_json() != self._claim.schema:
            self._claim.note_schema(stored.to_json())

    def land_move(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        """Refuse, since there is no ledger to move in."""
        raise cannot_move(self.location())


class StatelessSink(NotedSink):
    """A sink that neither says which offsets it holds nor which batches.

    Subclasses write: see ``write``.

    Args:
        claim: the feed's checkpoint, where the schema is noted.
    """

    @abstractmethod
    def write(self, rows: DataFrame, commit: Commit) -> None:
        """Writes the rows of one micro-batch, which may be read more than once.

        Args:
            rows: computed already, and kept.
            commit: which batch it is.
        """

    def prepared(self, rows: DataFrame, commit: Commit) -> DataFrame:
        """What ``write`` is to get of these rows; computed and judged before it is called."""
        return rows

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Computes the rows of one micro-batch, looks whether they may land, and writes them.

        Raises:
            Py4JJavaError: Spark could not, or the batch was refused.
        """
        if not isinstance(commit, Commit):
            raise ConfigError("this sink takes batches only", where=self.location())
        kept = self.prepared(rows, commit).persist()
        try:
            count = kept.count()
            jvm.java(rows.sparkSession).commit.Outcomes.of(commit_id).check()
            self.write(kept, commit)
        finally:
            kept.unpersist()
        return count


class LedgerSink(StatelessSink):
    """A sink that stores a batch's offset ranges and its rows in one transaction, so that it is exactly-once.

    Subclasses implement ``location``, ``last_ranges`` and ``write``, which stores ``commit.ranges`` with the rows. The
    settings declare ``guarantee = "exactly-once"``.
    """

    keeps_ledger = True

    @abstractmethod
    def last_ranges(self) -> OffsetRanges | None:
        """Return the ranges of the newest batch; None before the first one."""

    def position(self) -> Position | None:
        """Where the feed stands."""
        ranges = self.last_ranges()
        return None if ranges is None else Position(ranges, snapshot_id=0)

    def has(self, commit: Commit) -> bool:
        """Return whether the sink has this batch already.

        Raises:
            CheckpointMismatch: the batch does not continue where the newest one ended.
        """
        return is_newest(commit, self.position(), where=self.location())


def is_newest(commit: Commit, position: Position | None, *, where: str) -> bool:
    """Return whether a batch is the newest one of a sink.

    Args:
        commit: the batch.
        position: where the feed stands in the sink.
        where: the sink, as errors name it.

    Raises:
        CheckpointMismatch: it is neither that one nor the next one.
    """
    # Without a position any batch is new: the sink may be named beside a running feed.
    if position is None:
        return False
    return check_commit(commit, position, where=where) is CommitCheck.ALREADY_COMMITTED


def cannot_move(where: str) -> ConfigError:
    """Return the error for a sink whose position only its batches change."""
    return ConfigError(
        "this feed cannot be moved: its sink knows no offsets",
        where=where,
        hint="name another checkpoint location, which reads the topics again",
    )
