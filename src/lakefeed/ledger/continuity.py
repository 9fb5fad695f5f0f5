"""Checks that a commit begins exactly where the last commit ended, or is a move of the feed from that position.

All ledgers use this check before a write. ``CheckedOperations`` of the JVM module checks again inside the commit of an
Iceberg table. ``lakefeed verify`` has its own check, because it must not trust the code that it verifies.
"""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from lakefeed.clients.spark.errors import ONE_PLACE, TAKEN_OVER
from lakefeed.errors import CheckpointMismatch, ConfigError, DriverReplaced, FeedMoved
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.protocol import CommitCheck
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.offsets.ranges import OffsetRanges

REWIND = "rewind-"
"""The name in a fence begins with this prefix if no driver but a move of the feed's position has taken the fence."""

DRIVER = f"{time.time_ns() // 1_000_000:011x}{uuid.uuid4().hex[:5]}"
"""The name in a fence of this process begins with this prefix. Names sort by the drivers' start times."""


def check_commit(commit: Commit, last: Position | None, *, where: str) -> CommitCheck:
    """Return whether a batch has to be written; refuse a batch that does not begin where the last commit ended."""
    if last is None:
        if commit.batch_id == 0:
            return CommitCheck.NEW
        raise CheckpointMismatch(
            f"the checkpoint of feed '{commit.feed}' is at batch {commit.batch_id}, but the table has no commit of "
            "this feed: if the feed resumed, the records of all earlier batches would be lost",
            where=where,
            hint="restore the table, or name another checkpoint location to read the source again",
        )
    if last.ranges == commit.ranges:
        return CommitCheck.ALREADY_COMMITTED
    if not (faults := violations(last.ranges, commit)):
        return CommitCheck.NEW
    raise CheckpointMismatch(
        f"batch {commit.batch_id} does not continue where feed '{commit.feed}' ended in the table: {'; '.join(faults)}",
        where=f"{where}, snapshot {last.snapshot_id}" if last.snapshot_id else where,
        hint="the checkpoint belongs to another table, or the table or the checkpoint was rolled back or lost: restore "
        "what was lost, or start with a new table and a new checkpoint location",
    )


def violations(last: OffsetRanges, commit: Commit) -> list[str]:
    """Return the reasons why ``commit`` cannot follow a commit with the ranges ``last``; no reason if it can."""
    faults: list[str] = []
    left, ends, marks = commit.left_ids, last.ends, last.end_marks
    positions = commit.move.positions if commit.move else {}
    for topic, topic_id in commit.ranges.topic_ids.items():
        if (before := last.topic_ids.get(topic, topic_id)) != topic_id and left.get(topic) != before:
            faults.append(f"topic {topic} was recreated (id {topic_id}, was {before})")

    for span in commit.ranges.ranges:
        key, name = span.key, f"{span.topic}-{span.partition}"
        ended, moves = ends.get(key), positions.get(key)
        if moves is not None and ended is not None and moves[0] != ended:
            faults.append(f"{name} is to be moved from {moves[0]}, the table ends at {ended}")
        elif moves is not None and moves[1] != span.start:
            faults.append(f"{name} is to be moved to {moves[1]} and begins at {span.start}")
        elif moves is None and ended is not None and span.start != ended:
            faults.append(f"{name} begins at {span.start}, the table ends at {ended}")
        elif moves is None and span.marks is not None and span.marks[0] != marks.get(key, span.marks[0]):
            faults.append(f"{name} begins after {span.marks[0]}, the table ends at {marks[key]}")

    for topic, partition in sorted(ends.keys() - commit.ranges.ends.keys()):
        if topic not in left or left[topic] != last.topic_ids.get(topic):
            faults.append(f"{topic}-{partition} is in the table but not in the batch")
    return faults


def recreated_topic(known: Mapping[str, str], ranges: OffsetRanges) -> str | None:
    """Return a topic whose id in the batch differs from its id in the sink (``known``); None if all ids agree."""
    return next((topic for topic, own in ranges.topic_ids.items() if known.get(topic, own) != own), None)


def fence_lost(taken: str | None, fence: str | None, *, where: str) -> DriverReplaced | FeedMoved:
    """Return the error of the driver with ``fence`` after another driver, or a move, has taken the fence ``taken``."""
    where = where if fence is None else f"{where}: fence {taken}, this driver's {fence}"
    if taken is not None and taken.partition(" ")[2].startswith(REWIND):
        what = "the feed was moved to other offsets while it ran; this driver has stopped"
        return FeedMoved(what, where=where, hint="start the feed again: it resumes at these offsets")
    return DriverReplaced(TAKEN_OVER, where=where, hint=ONE_PLACE)


def next_fence(taken: str | None, *, prefix: str = "") -> str:
    """Return the fence that follows ``taken``, or the first fence: ``"<number> <unique name>"``."""
    return f"{int((taken or '0').split()[0]) + 1} {prefix}{DRIVER}{uuid.uuid4().hex[:8]}"


def is_of_earlier_driver(taken: str | None, fence: str | None) -> bool:
    """Return whether the driver with the fence ``taken`` started before the driver with ``fence``."""
    drivers = [(each or "").partition(" ")[2][: len(DRIVER)] for each in (taken, fence)]
    return bool(drivers[0]) and drivers[0] < drivers[1]


@dataclass(frozen=True)
class StoredCommit:
    commit: Commit
    commit_id: str
    """The id of the attempt to commit: if the server's answer is lost, the driver finds its own commit by this id."""

    @property
    def position(self) -> Position:
        commit = self.commit
        return Position(commit.ranges, commit.snapshot_id or 0, self.commit_id, is_move=commit.move is not None)


class ServerLedger(ABC):
    """The ledger of one feed, in the server that stores the feed's rows: see ``lakefeed.ledger.protocol.Ledger``."""

    keeps_offsets: ClassVar[bool] = True

    def __init__(self, feed: str, *, where: str) -> None:
        self.feed = feed
        self.where = where

    @abstractmethod
    def position(self) -> Position | None: ...

    def check(self, commit: Commit) -> CommitCheck:
        return check_commit(commit, self.position(), where=self.where)

    def admit(self, commit: Commit, *, commit_id: str, last: StoredCommit | None, fence: str | None) -> CommitCheck:
        """Return whether a batch or move has to be written. Call this method in the transaction that writes. ``last``
        is the newest commit, ``fence`` the newest fence. Raises CheckpointMismatch if another driver has taken over, or
        if the commit does not begin where the last commit ended.
        """
        # Look for this commit before the fence is checked: another driver may have taken over after the commit landed.
        if last is not None and last.commit_id == commit_id and last.commit.ranges == commit.ranges:
            return CommitCheck.ALREADY_COMMITTED
        if fence != commit.fence:
            raise fence_lost(fence, commit.fence, where=self.where)
        # A sink that the user added to an existing feed may begin with any batch, but never with a move.
        if last is None:
            if commit.move is not None:
                what = f"the sink has no commit of feed '{self.feed}', so its position cannot be moved"
                hint = "run the feed until its first batch is committed, then move the feed"
                raise CheckpointMismatch(what, where=self.where, hint=hint)
        elif faults := violations(last.commit.ranges, commit):
            what = f"the batch does not continue where feed '{self.feed}' ended: {'; '.join(faults)}"
            hint = "compare the batch with the feed's position: lakefeed offsets show pipeline.yaml"
            raise CheckpointMismatch(what, where=self.where, hint=hint)
        return CommitCheck.NEW

    def removed(self, name: str) -> CheckpointMismatch:
        """Return the error for a running feed whose ledger entries another program has removed from ``name``."""
        what = f"the ledger no longer has entries of feed '{self.feed}': another program has changed {name}"
        hint = f"restore {name}; or start again with another checkpoint location"
        return CheckpointMismatch(what, where=self.where, hint=hint)


class NoLedger:
    """The ledger of a sink that stores no offsets; ``where`` is the sink's name in errors."""

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
        # A sink that the user added to an existing feed has no position yet, and its first batch is not batch 0.
        last = self.position()
        return CommitCheck.NEW if last is None else check_commit(commit, last, where=self.where)
