"""What a place where dead letters are kept can do: a table or a topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from lakefeed.commit.ledger import Commit
from lakefeed.commit.ranges import OffsetRange, OffsetRanges
from lakefeed.dead_letters.letters import Choice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Judge = Callable[[DataFrame], DataFrame]

RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""What a letter keeps of its record, and what is decoded again."""


class DeadLetterReader(Protocol):
    """Looks at the dead letters of feeds, without Spark."""

    kind: str
    """``table`` or ``topic``, as a pipeline file calls it."""

    name: str

    def find(self, choice: Choice, *, whole: bool = False) -> list[dict[str, Any]]:
        """The letters that are meant, by position; ``whole`` with key, value and headers, which may be large."""


class DeadLetterPlace(Protocol):
    """Keeps the dead letters of one feed.

    A letter is there from ``write`` until it is dropped or a replay has landed it. While a replay is at work, its
    letters are marked with its id, and no other choice has them.
    """

    def ensure(self) -> None:
        """Makes the place if it is missing."""

    def write(self, judge: Judge, commit: Commit, *, spans: Sequence[OffsetRange], expected: int) -> None:
        """Writes the dead letters of a batch.

        Args:
            judge: decodes records and adds ``RECORD``, just as it was done for the batch's rows.
            commit: of the batch.
            spans: the offset ranges that hold its dead letters.
            expected: how many they are.
        """

    def complete(self, judge: Judge, commit: Commit, *, spans: Sequence[OffsetRange], expected: int) -> None:
        """Writes what a crash has left out of the last commit's dead letters; nothing if it has all of them."""

    def follow(self, position: OffsetRanges | None, *, moved: bool) -> int:
        """Removes the letters of records past a feed's position, since they are read again; returns how many.

        Args:
            position: the newest commit of the feed's rows; None if there is none.
            moved: whether the feed was moved there on purpose.

        Raises:
            CheckpointMismatch: there are such letters, and nobody has moved the feed.
        """

    def records(self, choice: Choice) -> DataFrame:
        """The unmarked letters that are meant, as the records that they were."""

    def drop(self, choice: Choice) -> int:
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
