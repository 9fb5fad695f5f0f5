"""Ledgers of sinks that store no offsets, only batch ids, or only the newest batch's ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from lakefeed.errors import ConfigError
from lakefeed.ledger.continuity import check_commit
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.protocol import CommitCheck
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.offsets.ranges import OffsetRanges


class NoLedger:
    """The ledger of a sink that stores no offsets; errors name the sink by ``where``."""

    keeps_offsets: ClassVar[bool] = False

    def __init__(self, where: str, *, move_hint: str = "name another checkpoint, which reads the source again") -> None:
        self.where = where
        self._move_hint = move_hint

    def position(self) -> Position | None:
        return None

    def commits(self) -> Iterator[Commit]:
        return iter(())

    def take_fence(self) -> str | None:
        return None

    def fence_taken(self) -> str | None:
        return None

    def check(self, commit: Commit) -> CommitCheck:
        return CommitCheck.NEW

    def record_move(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        what = "this feed's position cannot be moved: its sink stores no offsets"
        raise ConfigError(what, where=self.where, hint=self._move_hint)


class BatchLog(NoLedger):
    """The ledger of a sink with a log of batch ids; ``newest`` reads the newest id."""

    def __init__(self, where: str, newest: Callable[[], int | None], *, move_hint: str) -> None:
        super().__init__(where, move_hint=move_hint)
        self.newest = newest


class RangesLedger(NoLedger):
    """The ledger of a sink that stores the newest batch's ranges as JSON, which ``last`` reads."""

    keeps_offsets: ClassVar[bool] = True

    def __init__(self, where: str, last: Callable[[], str | None]) -> None:
        super().__init__(where)
        self._last = last

    def position(self) -> Position | None:
        text = self._last()
        return None if text is None else Position(OffsetRanges.from_json(text), snapshot_id=0)

    def check(self, commit: Commit) -> CommitCheck:
        # A sink that was added to a running feed has no position yet, and its first batch is not batch 0.
        last = self.position()
        return CommitCheck.NEW if last is None else check_commit(commit, last, where=self.where)
