"""Declares the ledger of a feed: which offsets a sink holds, who may commit, and whether a batch is committed."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import ClassVar, Protocol

from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.snapshot_summary import Commit


class CommitCheck(Enum):
    """The answer to whether a batch has to be written."""

    NEW = "new"
    """It begins where the last commit ended: write it."""

    ALREADY_COMMITTED = "already committed"
    """It is the last commit, from before a restart: skip it."""


class Ledger(Protocol):
    """The ledger of one feed. ``position`` and ``commits`` work with Spark and without."""

    keeps_offsets: ClassVar[bool]
    """False if the sink knows none, so that the feed resumes by its checkpoint."""

    def position(self) -> Position | None:
        """Return where the feed stands; None if the sink has no commit of it.

        Raises:
            CheckpointMismatch: the sink was rolled back, and the position is unknown.
        """

    def commits(self) -> Iterator[Commit]:
        """Return the feed's commits that the sink still knows, newest first."""

    def take_fence(self) -> str | None:
        """Make this driver the only one that can commit to the feed; None if the sink has no fences."""

    def fence_taken(self) -> str | None:
        """Return the fence that was taken last; None without any."""

    def check(self, commit: Commit) -> CommitCheck:
        """Return whether a batch has to be written.

        Raises:
            CheckpointMismatch: it neither is the last commit nor begins where that ended, or another driver has taken
                the feed over.
        """

    def record_move(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        """Commit a move of the feed's position.

        Args:
            commit: with its ``move``.
            commit_id: known to it alone.
            delete_where: a condition in Spark SQL; the same commit deletes the rows for which it is true.

        Raises:
            CheckpointMismatch: the move does not begin where the last commit ended.
            ConfigError: the sink cannot delete rows with a move.
        """


class SinkState(Protocol):
    """The state of a sink that a start requires, read with Spark or without."""

    @property
    def keeps_ledger(self) -> bool:
        """Return True if it says which offsets it holds."""

    @property
    def keeps_log(self) -> bool:
        """Return True if it keeps no ledger, but a log of the batches that it has."""

    def position(self) -> Position | None:
        """Return the feed's position; None if the sink has nothing of it, or keeps no ledger."""

    def logged(self) -> int | None:
        """The newest batch that a log by batch ids has; None without any, or without such a log."""
