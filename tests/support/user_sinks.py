"""The sink of a user's class, asked as a ledger is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.protocol import CommitCheck
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.sinks.python import PythonSink


class PythonSinkLedger:
    """The newest batch of a ``PythonSink``; the checkpoint is not asked."""

    def __init__(self, own: Any) -> None:
        self._sink = PythonSink(own, cast(Claim, None), where="python:Memory")

    def position(self) -> Position | None:
        return self._sink.position()

    def commits(self) -> Iterator[Commit]:
        return self._sink.commits()

    def take_fence(self) -> str | None:
        return self._sink.take_fence()

    def fence_taken(self) -> str | None:
        return self._sink.fence_taken()

    def check(self, commit: Commit) -> CommitCheck:
        return CommitCheck.ALREADY_COMMITTED if self._sink.has(commit) else CommitCheck.NEW

    def record_move(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        self._sink.commit_reset(commit, commit_id=commit_id, delete_where=delete_where)
