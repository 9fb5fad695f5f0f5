"""What a place where dead letters are kept can do: a table or a topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from lakefeed.clients.spark.decode_failures import BAD_TIMESTAMP_PATTERN
from lakefeed.ledger.snapshot_summary import BATCH_ID, FEED, RANGES
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.records.sources.kafka import BAD_TIMESTAMP
from lakefeed.sinks.dead_letters.filter import DeadLetterFilter
from lakefeed.sinks.protocol import TableChange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Judge = Callable[[DataFrame], DataFrame]

RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""What a letter keeps of its record, and what is decoded again."""


def with_bad_timestamp(letters: DataFrame) -> DataFrame:
    """The records of letters as they came: with the timestamp that Spark cannot hold, which their reason says.

    Args:
        letters: with the columns of a dead-letter table.
    """
    from pyspark.sql import functions as sf

    named = sf.regexp_extract("reason", BAD_TIMESTAMP_PATTERN, 1)
    bad = sf.when(sf.col("timestamp").isNull() & (named != ""), named.cast("bigint"))
    return letters.select(*RECORD_COLUMNS, bad.alias(BAD_TIMESTAMP))


BACKFILLS = ".backfills"
"""Behind the feed's name: the fence of its backfills, and the ledger of their dead letters (``Ledger.java``)."""


@dataclass(frozen=True, kw_only=True)
class TopicCreation:
    """A topic that is made at the first start.

    Attributes:
        topic: its name.
        partitions: how many.
        config: its settings.
    """

    topic: str
    partitions: int
    config: Mapping[str, str]


class SourceCommit(Protocol):
    """What dead letters are of: the commit of a batch, or of a backfill."""

    @property
    def feed(self) -> str:
        """The feed's name."""

    @property
    def batch_id(self) -> int:
        """As the letters have it."""

    @property
    def ranges(self) -> OffsetRanges:
        """What they are known by in the dead-letter table's ledger: a later commit begins at their end or after."""

    @property
    def committed_at(self) -> float:
        """When the rows were committed, in seconds since 1970; 0 if that was a moment ago."""

    def properties(self) -> dict[str, str]:
        """For the summary of the letters' snapshot, with feed, batch id and ranges as that ledger has them."""


@dataclass(frozen=True)
class BackfillOrigin:
    """The dead letters of one commit of a backfill.

    Their offsets may lie anywhere before those of the batches, so they have a ledger of their own. In place of offsets
    it has the number of the rows' commit: each number once, in their order.

    Attributes:
        feed: the feed's name.
        number: of the rows' commit, ``Backfill.number``.
        committed_at: when that was, in seconds since 1970.
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


class DeadLetterReader(Protocol):
    """Looks at the dead letters of feeds, without Spark."""

    kind: str
    """``table`` or ``topic``, as a pipeline file calls it."""

    name: str

    def find(self, choice: DeadLetterFilter, *, whole: bool = False) -> list[dict[str, Any]]:
        """The letters that are meant, by position; ``whole`` with key, value and headers, which may be large."""


class DeadLetterStore(Protocol):
    """Keeps the dead letters of one feed.

    A letter is there from ``write`` until it is dropped or a replay has landed it. While a replay is at work, its
    letters are marked with its id, and no other choice has them.
    """

    def ensure(self) -> None:
        """Makes the place if it is missing."""

    def change(self) -> TableChange | TopicCreation | None:
        """What ``ensure`` does; nothing is changed."""

    def write(self, judge: Judge, commit: SourceCommit, *, spans: Sequence[OffsetRange], expected: int) -> None:
        """Writes the dead letters of a commit.

        Args:
            judge: decodes records and adds ``RECORD``, just as it was done for its rows.
            commit: that of the rows.
            spans: the offset ranges that hold its dead letters.
            expected: how many they are.
        """

    def complete(self, judge: Judge, commit: SourceCommit, *, spans: Sequence[OffsetRange], expected: int) -> bool:
        """Writes what a crash has left out of the last commit's dead letters; False if they were all there."""

    def check(self, position: OffsetRanges | None, *, moved: bool) -> None:
        """Raises what ``follow`` would; nothing is changed."""

    def follow(self, position: OffsetRanges | None, *, moved: bool) -> int:
        """Removes the letters of records past a feed's position, since they are read again; returns how many.

        Args:
            position: the newest commit of the feed's rows; None if there is none.
            moved: whether the feed was moved there on purpose.

        Raises:
            CheckpointMismatch: such letters exist, and the feed was not moved.
        """

    def records(self, choice: DeadLetterFilter) -> DataFrame:
        """The unmarked letters that are meant, as the records that they were."""

    def drop(self, choice: DeadLetterFilter) -> int:
        """Removes the unmarked letters that are meant; returns how many."""

    def mark(self, positions: DataFrame, replay_id: str) -> None:
        """Marks the letters at these (topic, partition, offset)."""

    def marked(self, replay_id: str) -> DataFrame:
        """The records of one replay."""

    def unmark(self, replay_id: str) -> None:
        """Takes a replay's marks away."""

    def delete_marked(self, replay_id: str) -> None:
        """Removes the letters of one replay."""

    def open_replays(self) -> list[str]:
        """Ids of the replays whose marks are still there."""
