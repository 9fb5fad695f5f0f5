"""The part that ledgers in a database and in a search server share: they decide in Python what may be committed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from lakefeed.clients.spark.errors import ONE_PLACE, TAKEN_OVER
from lakefeed.errors import CheckpointMismatch
from lakefeed.ledger.continuity import check_commit, violations
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.protocol import CommitCheck
from lakefeed.ledger.snapshot_summary import Commit


@dataclass(frozen=True)
class StoredCommit:
    """A commit as a server keeps it.

    Attributes:
        commit: the commit.
        commit_id: known to its attempt alone, so that a lost answer is recognized.
    """

    commit: Commit
    commit_id: str

    @property
    def position(self) -> Position:
        """Where the feed stands after it."""
        commit = self.commit
        return Position(commit.ranges, commit.snapshot_id or 0, self.commit_id, is_move=commit.move is not None)


class ServerLedger(ABC):
    """The ledger of one feed beside its rows in a server.

    Subclasses read and write; see ``lakefeed.ledger.protocol.Ledger``.

    Attributes:
        feed: its name.
        where: the sink, as errors name it.
    """

    def __init__(self, feed: str, *, where: str) -> None:
        self.feed = feed
        self.where = where

    @abstractmethod
    def position(self) -> Position | None:
        """Return where the feed stands; None if the sink has no commit of it."""

    @abstractmethod
    def commits(self) -> Iterator[Commit]:
        """Return the feed's commits that the sink still knows, newest first."""

    @abstractmethod
    def take_fence(self) -> str:
        """Make this driver the only one that can commit to the feed."""

    @abstractmethod
    def record_move(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        """Commit a move of the feed's position: see ``Ledger.record_move``."""

    def check(self, commit: Commit) -> CommitCheck:
        """Return whether a batch has to be written, before its rows are computed.

        Raises:
            CheckpointMismatch: it neither is the last commit nor begins where that ended.
        """
        return check_commit(commit, self.position(), where=self.where)

    def admit(self, commit: Commit, *, commit_id: str, last: StoredCommit | None, fence: str | None) -> CommitCheck:
        """Return whether a commit has to be written, in the step that writes it.

        Args:
            commit: a batch or a move.
            commit_id: known to it alone.
            last: the newest commit.
            fence: that was taken last.

        Raises:
            CheckpointMismatch: another driver has taken over, or the commit does not begin where the last one ended.
        """
        # Before the fence: the commit may have landed, its answer been lost, and another driver taken over.
        if last is not None and last.commit_id == commit_id and last.commit.ranges == commit.ranges:
            return CommitCheck.ALREADY_COMMITTED
        if fence != commit.fence:
            raise CheckpointMismatch(
                TAKEN_OVER, where=f"{self.where}: fence {fence}, this driver's {commit.fence}", hint=ONE_PLACE
            )
        # A sink that is named beside a running feed begins with a batch that is not the first, but never with a move.
        if last is None:
            if commit.move is not None:
                raise CheckpointMismatch(
                    f"the sink has no commit of feed '{self.feed}' that this one could follow", where=self.where
                )
        elif found := violations(last.commit.ranges, commit):
            raise CheckpointMismatch(
                f"the batch does not continue where feed '{self.feed}' ended: {'; '.join(found)}",
                where=self.where,
                hint="lakefeed offsets show prints where the feed stands",
            )
        return CommitCheck.NEW

    def removed(self, name: str) -> CheckpointMismatch:
        """The error for a ledger that was removed while the feed runs.

        Args:
            name: of its table or index.
        """
        return CheckpointMismatch(
            f"the ledger has nothing of feed '{self.feed}' any more: {name} was changed while the feed runs",
            where=self.where,
            hint="restore it; or start again with another checkpoint location",
        )
