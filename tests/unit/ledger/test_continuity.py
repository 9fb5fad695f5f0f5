"""In all ledgers, the same commits may follow the last commit."""

import pytest

from lakefeed.errors import CheckpointMismatch
from lakefeed.ledger.continuity import check_commit, violations
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.protocol import CommitCheck
from lakefeed.ledger.snapshot_summary import Commit, PositionReset
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges

LAST = OffsetRanges((OffsetRange("a", 0, 0, 10), OffsetRange("a", 1, 0, 7)), {"a": "one"})


def commit(
    *ranges: tuple[str, int, int, int], ids: dict[str, str] | None = None, move: PositionReset | None = None
) -> Commit:
    spans = tuple(OffsetRange(*each) for each in ranges)
    return Commit("feed", 1, OffsetRanges(spans, ids or {"a": "one"}), move=move)


@pytest.mark.parametrize(
    "next_commit",
    [
        commit(("a", 0, 10, 20), ("a", 1, 7, 7)),
        commit(("a", 0, 10, 10), ("a", 1, 7, 8), ("a", 2, 5, 9)),
        commit(("a", 0, 10, 10), ("a", 1, 7, 8), ("b", 0, 3, 9), ids={"a": "one", "b": "new"}),
        commit(("a", 0, 30, 30), ("a", 1, 7, 7), move=PositionReset("accepted-loss", {("a", 0): (10, 30)})),
        commit(
            ("a", 0, 0, 0),
            ids={"a": "two"},
            move=PositionReset("accepted-loss", {("a", 0): (10, 0)}, left_ids={"a": "one"}),
        ),
        commit(("b", 0, 0, 0), ids={"b": "new"}, move=PositionReset("accepted-loss", {}, left_ids={"a": "one"})),
    ],
)
def test_a_commit_that_continues_the_last_commit_has_no_violations(next_commit: Commit) -> None:
    assert violations(LAST, next_commit) == []


@pytest.mark.parametrize(
    ("next_commit", "message"),
    [
        (commit(("a", 0, 11, 20), ("a", 1, 7, 7)), "a-0 begins at 11, the table ends at 10"),
        (commit(("a", 0, 9, 20), ("a", 1, 7, 7)), "a-0 begins at 9, the table ends at 10"),
        (commit(("a", 0, 10, 20)), "a-1 is in the table but not in the batch"),
        (commit(("a", 0, 10, 20), ("a", 1, 7, 7), ids={"a": "two"}), "topic a was recreated (id two, was one)"),
        (
            commit(("a", 0, 30, 30), ("a", 1, 7, 7), move=PositionReset("accepted-loss", {("a", 0): (12, 30)})),
            "a-0 is to be moved from 12, the table ends at 10",
        ),
        (
            commit(("a", 0, 31, 31), ("a", 1, 7, 7), move=PositionReset("accepted-loss", {("a", 0): (10, 30)})),
            "a-0 is to be moved to 30 and begins at 31",
        ),
        (
            commit(
                ("a", 0, 0, 0),
                ids={"a": "two"},
                move=PositionReset("rewind", {("a", 0): (10, 0)}, left_ids={"a": "zero"}),
            ),
            "topic a was recreated (id two, was one)",
        ),
    ],
)
def test_a_commit_that_does_not_continue_the_last_commit_has_violations(next_commit: Commit, message: str) -> None:
    assert message in violations(LAST, next_commit)


def test_a_batch_with_the_right_offset_and_another_leader_epoch_has_a_violation() -> None:
    last = OffsetRanges((OffsetRange("s", 0, 0, 10, ("oldest", "4959")),), {"s": "one"})
    right, wrong = (
        Commit("feed", 1, OffsetRanges((OffsetRange("s", 0, 10, 12, (mark, "4970")),), {"s": "one"}))
        for mark in ("4959", "4960")
    )
    assert violations(last, right) == []
    assert violations(last, wrong) == ["s-0 begins after 4960, the table ends at 4959"]


def test_a_batch_is_new_already_committed_or_refused() -> None:
    next_batch = commit(("a", 0, 10, 20), ("a", 1, 7, 7))
    last = Position(next_batch.ranges, snapshot_id=3)
    assert check_commit(next_batch, Position(LAST, snapshot_id=2), where="t") is CommitCheck.NEW
    assert check_commit(next_batch, last, where="t") is CommitCheck.ALREADY_COMMITTED
    with pytest.raises(CheckpointMismatch, match="a-0 begins at 11, the table ends at 20") as refused:
        check_commit(commit(("a", 0, 11, 30), ("a", 1, 7, 7)), last, where="t")
    assert refused.value.where == "t, snapshot 3"
    with pytest.raises(CheckpointMismatch, match="topic a was recreated"):
        check_commit(commit(("a", 0, 20, 30), ("a", 1, 7, 7), ids={"a": "two"}), last, where="t")


def test_without_a_last_commit_only_batch_0_is_accepted() -> None:
    first = Commit("feed", 0, LAST)
    assert check_commit(first, None, where="t") is CommitCheck.NEW
    with pytest.raises(CheckpointMismatch, match="the table has no commit of this feed"):
        check_commit(Commit("feed", 1, LAST), None, where="t")
