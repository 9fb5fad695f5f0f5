"""Declares a place where dead letters are kept: a table or a topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from lakefeed.clients.spark.decode_failures import BAD_TIMESTAMP_PATTERN
from lakefeed.ledger.snapshot_summary import BATCH_ID, FEED, RANGES, Commit
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.records.sources.kafka import BAD_TIMESTAMP
from lakefeed.sinks.dead_letters.query import DeadLetterFilter
from lakefeed.sinks.protocol import TableChange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Judge = Callable[[DataFrame], DataFrame]
    """Decodes records and adds ``RECORD``, as it was done for the rows of their commit."""

RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""The columns that a letter keeps of its record, and that are decoded again."""

BACKFILLS = ".backfills"
"""Behind the feed's name: the fence of its backfills, and the ledger of their dead letters (``Ledger.java``)."""


def with_bad_timestamp(letters: DataFrame) -> DataFrame:
    """Return the records of letters as they came: with the timestamp that Spark cannot hold, which their reason says.

    Args:
        letters: with the columns of a dead-letter table.
    """
    from pyspark.sql import functions as sf

    named = sf.regexp_extract("reason", BAD_TIMESTAMP_PATTERN, 1)
    bad = sf.when(sf.col("timestamp").isNull() & (named != ""), named.cast("bigint"))
    return letters.select(*RECORD_COLUMNS, bad.alias(BAD_TIMESTAMP))


@dataclass(frozen=True, kw_only=True)
class TopicCreation:
    """A topic that the first start creates."""

    topic: str
    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True)
class BackfillOrigin:
    """The dead letters of one commit of a backfill.

    Their offsets may lie anywhere before those of the batches, so they have a ledger of their own. In place of offsets
    it has the number of the rows' commit: each number once, in their order.

    Attributes:
        number: of the rows' commit, ``Backfill.number``.
        committed_at: when that was, in seconds since 1970; 0 if that was a moment ago.
    """

    feed: str
    number: int
    committed_at: float = 0.0

    @property
    def batch_id(self) -> int:
        """Negative: it is no batch."""
        return -self.number

    @property
    def ranges(self) -> OffsetRanges:
        """The number, as if it were an offset."""
        return OffsetRanges((OffsetRange("backfills", 0, self.number, self.number + 1),))

    def properties(self) -> dict[str, str]:
        """For the summary of the letters' snapshot."""
        return {FEED: f"{self.feed}{BACKFILLS}", BATCH_ID: str(self.number), RANGES: self.ranges.to_json()}


SourceCommit: TypeAlias = Commit | BackfillOrigin
"""The commit whose records became dead letters: of a batch, or of a backfill."""


class DeadLetterStore(Protocol):
    """Keeps the dead letters of one feed.

    A letter is there from ``write`` until it is dropped or a replay has landed it. While a replay is at work, its
    letters are marked with its id, and no other choice has them.
    """

    def ensure(self) -> None:
        """Create the table or topic if it is missing."""

    def change(self) -> TableChange | TopicCreation | None:
        """Return what ``ensure`` does; None if nothing."""

    def write(self, judge: Judge, commit: SourceCommit, *, spans: Sequence[OffsetRange], expected: int) -> None:
        """Write the dead letters of a commit.

        Args:
            commit: that of the rows.
            spans: the offset ranges that hold its dead letters.
            expected: how many they are; others are refused.
        """

    def complete(self, judge: Judge, commit: SourceCommit, *, spans: Sequence[OffsetRange], expected: int) -> bool:
        """Write the dead letters of the last commit that a crash has left out; False if all were there."""

    def check(self, position: OffsetRanges | None, *, moved: bool) -> None:
        """Raise what ``follow`` would; nothing is changed."""

    def follow(self, position: OffsetRanges | None, *, moved: bool) -> int:
        """Remove the letters of records past a feed's position, since they are read again; return how many.

        Args:
            position: the newest commit of the feed's rows; None if there is none.
            moved: whether the feed was moved there on purpose.

        Raises:
            CheckpointMismatch: such letters exist, and the feed was not moved.
        """

    def records(self, choice: DeadLetterFilter) -> DataFrame:
        """Return the chosen letters that are unmarked, as the records that they were."""

    def drop(self, choice: DeadLetterFilter) -> int:
        """Remove the chosen letters that are unmarked; return how many."""

    def mark(self, positions: DataFrame, replay_id: str) -> None:
        """Mark the letters at these (topic, partition, offset)."""

    def marked(self, replay_id: str) -> DataFrame:
        """Return the records of one replay."""

    def unmark(self, replay_id: str) -> None:
        """Remove a replay's marks."""

    def delete_marked(self, replay_id: str) -> None:
        """Remove the letters of one replay."""

    def open_replays(self) -> list[str]:
        """Return the ids of the replays whose marks are still there."""
