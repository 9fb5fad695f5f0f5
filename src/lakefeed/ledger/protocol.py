"""The protocol of a feed's ledger, which records the offsets that a sink has and the driver that may commit."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import ClassVar, Protocol

from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.snapshot_summary import Commit


class CommitCheck(Enum):
    """The ledger's decision about a batch: write it or skip it."""

    NEW = "new"
    """The batch begins where the last commit ended: write it."""

    ALREADY_COMMITTED = "already committed"
    """The batch is the last commit, and Spark repeats it after a restart: skip it."""


class Ledger(Protocol):
    keeps_offsets: ClassVar[bool]
    """Whether the sink stores offsets; otherwise the feed resumes from its checkpoint."""

    def position(self) -> Position | None:
        """Return the feed's position; None without a commit. Raise CheckpointMismatch if a rollback made it unknown."""

    def commits(self) -> Iterator[Commit]:
        """Yield the feed's commits that the sink still has, newest first."""

    def take_fence(self) -> str | None:
        """Take a new fence, so that only this driver can commit to the feed. Return None if the sink has no fences."""

    def fence_taken(self) -> str | None:
        """Return the feed's newest fence; None if no driver has taken a fence yet."""

    def check(self, commit: Commit) -> CommitCheck:
        """Return whether a batch has to be written.

        Raises CheckpointMismatch if the batch does not begin where the last commit ended, or another driver has taken
        the feed over.
        """

    def record_move(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        """Commit a move of the feed's position, and delete the rows that meet a condition in Spark SQL.

        Raises CheckpointMismatch if the move does not begin where the last commit ended, and ConfigError if the sink
        cannot delete rows with a move.
        """


class SinkState(Protocol):
    """The facts about a sink that a feed's start needs, read without Spark."""

    @property
    def keeps_ledger(self) -> bool:
        """Return True if the sink stores the offsets of its rows."""

    @property
    def keeps_log(self) -> bool:
        """Return True if the sink has a log of its batches instead of a ledger."""

    def position(self) -> Position | None:
        """Return the feed's position; None if the sink has no commit of the feed, or no ledger."""

    def logged(self) -> int | None:
        """Return the newest batch id in the sink's log; None without a batch or without a log."""
