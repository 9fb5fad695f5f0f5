"""Tests that all ledgers must pass: a test module imports them, and defines a fixture ``case``."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pytest
from pyspark.sql import DataFrame

from lakefeed.errors import CheckpointMismatch, ConfigError
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.protocol import CommitCheck, Ledger
from lakefeed.ledger.snapshot_summary import Commit, PositionReset
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges


@dataclass(frozen=True, kw_only=True)
class Case:
    """A ledger, and a function that lands batches through its sink.

    Attributes:
        ledger: the ledger of one feed.
        feed: the feed's name.
        land: a function that commits the rows of a batch.
        read: a function that reads the position without Spark.
    """

    ledger: Ledger
    feed: str
    land: Callable[[Commit], None]
    read: Callable[[], Position | None]

    def batch(self, number: int, start: int, end: int, fence: str | None, topic_id: str = "id-one") -> Commit:
        ranges = OffsetRanges((OffsetRange("topic", 0, start, end),), {"topic": topic_id})
        return Commit(self.feed, number, ranges, fence=fence)


class Landing(Protocol):
    """A sink that lands rows, and its ledger."""

    ledger: Any

    def land(self, rows: DataFrame, commit: Commit, *, commit_id: str) -> int | None: ...


class ServerFeed(Protocol):
    """A feed whose sink is a server."""

    @property
    def name(self) -> str: ...

    def started(self) -> Landing: ...

    def rows(self, count: int, *, start: int = 0) -> DataFrame: ...


def of_feed(feed: ServerFeed, read: Callable[[], Position | None]) -> Case:
    """Return the case of a feed whose sink is a server; ``read`` reads the position without Spark."""
    sink = feed.started()

    def land(commit: Commit) -> None:
        [span] = commit.ranges.ranges
        sink.land(feed.rows(span.records, start=span.start), commit, commit_id=uuid.uuid4().hex)

    return Case(ledger=sink.ledger, feed=feed.name, land=land, read=read)


@pytest.mark.quick
def test_a_ledger_accepts_the_next_batch_skips_the_last_batch_and_refuses_all_others(case: Case) -> None:
    ledger = case.ledger
    fence = ledger.take_fence()
    first, second = case.batch(0, 0, 3, fence), case.batch(1, 3, 5, fence)
    assert ledger.position() is None
    assert list(ledger.commits()) == []
    assert ledger.check(first) is CommitCheck.NEW
    case.land(first)
    # After a lost checkpoint, batch numbers start from 0 again, so only the ranges identify a batch.
    assert ledger.check(case.batch(7, 0, 3, fence)) is CommitCheck.ALREADY_COMMITTED
    assert ledger.check(second) is CommitCheck.NEW
    case.land(second)
    for start, end in ((0, 3), (4, 6), (6, 8), (3, 6)):
        with pytest.raises(CheckpointMismatch, match=f"topic-0 begins at {start}, the table ends at 5"):
            ledger.check(case.batch(2, start, end, fence))
    with pytest.raises(CheckpointMismatch, match="topic topic was recreated"):
        ledger.check(case.batch(2, 5, 6, fence, topic_id="id-two"))


@pytest.mark.quick
def test_the_position_is_the_same_with_and_without_spark(case: Case) -> None:
    assert case.read() is None
    fence = case.ledger.take_fence()
    case.land(case.batch(0, 10, 13, fence))
    landed = case.ledger.position()
    assert landed is not None
    assert landed.ranges == case.batch(0, 10, 13, fence).ranges
    assert case.read() == landed


def test_a_replaced_driver_can_commit_neither_batches_nor_moves(case: Case) -> None:
    old, new = case.ledger.take_fence(), case.ledger.take_fence()
    if old is None:
        assert new is None
        return
    assert old != new
    case.land(case.batch(0, 0, 3, new))
    move = PositionReset("accepted-loss", {("topic", 0): (3, 9)})
    attempts: tuple[Callable[[], None], ...] = (
        lambda: case.land(case.batch(1, 3, 5, old)),
        lambda: case.ledger.record_move(moved(case, 9, old, move), commit_id=uuid.uuid4().hex),
    )
    for attempt in attempts:
        with pytest.raises(Exception, match="another driver has taken over"):
            attempt()
    [commit] = case.ledger.commits()
    assert (commit.batch_id, commit.fence) == (0, new)


def test_a_move_begins_at_the_last_commits_end_and_the_next_batch_at_the_end_of_the_move(case: Case) -> None:
    ledger, fence = case.ledger, case.ledger.take_fence()
    case.land(case.batch(0, 0, 3, fence))
    forward = moved(case, 9, fence, PositionReset("accepted-loss", {("topic", 0): (3, 9)}))
    if fence is None:
        with pytest.raises(ConfigError, match="cannot be moved"):
            ledger.record_move(forward, commit_id=uuid.uuid4().hex)
        return
    elsewhere = moved(case, 9, fence, PositionReset("accepted-loss", {("topic", 0): (2, 9)}))
    with pytest.raises(Exception, match="topic-0 is to be moved from 2, the table ends at 3"):
        ledger.record_move(elsewhere, commit_id=uuid.uuid4().hex)
    ledger.record_move(forward, commit_id=uuid.uuid4().hex)
    position = case.read()
    assert position is not None
    assert position.is_move
    assert ledger.check(case.batch(1, 9, 10, fence)) is CommitCheck.NEW
    with pytest.raises(CheckpointMismatch, match="topic-0 begins at 3, the table ends at 9"):
        ledger.check(case.batch(1, 3, 10, fence))


def moved(case: Case, to: int, fence: str | None, move: PositionReset) -> Commit:
    return Commit(case.feed, 0, case.batch(0, to, to, fence).ranges, fence, move=move)
