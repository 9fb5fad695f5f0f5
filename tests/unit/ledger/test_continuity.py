"""The commits that may follow a commit, by the rule that all ledgers in Python use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.errors import CheckpointMismatch
from lakefeed.ledger.continuity import check_commit, violations
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.protocol import CommitCheck
from lakefeed.ledger.snapshot_summary import Commit, PositionReset
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition

LAST = OffsetRanges((OffsetRange("a", 0, 0, 10), OffsetRange("a", 1, 0, 7)), {"a": "one"})


topics = st.sampled_from(["a", "nyc-avro-topic", "x.y_z"])
positions = st.dictionaries(st.tuples(topics, st.integers(0, 20)), st.integers(0, 10**12), min_size=1)


def advanced(position: dict[Partition, int], by: int) -> dict[Partition, int]:
    return {(topic, partition): offset + by * (partition % 3) for (topic, partition), offset in position.items()}


def batch(ranges: OffsetRanges) -> Commit:
    return Commit("feed", 1, ranges)


def commit(
    *ranges: tuple[str, int, int, int], ids: dict[str, str] | None = None, move: PositionReset | None = None
) -> Commit:
    spans = tuple(OffsetRange(*each) for each in ranges)
    return Commit("feed", 1, OffsetRanges(spans, ids or {"a": "one"}), move=move)


@pytest.mark.parametrize(
    "follows",
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
def test_what_follows(follows: Commit) -> None:
    assert violations(LAST, follows) == []


@pytest.mark.parametrize(
    ("does_not", "message"),
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
def test_what_does_not_follow(does_not: Commit, message: str) -> None:
    assert message in violations(LAST, does_not)


def test_the_same_number_at_another_place_of_the_source_does_not_follow() -> None:
    last = OffsetRanges((OffsetRange("s", 0, 0, 10, ("oldest", "4959")),), {"s": "one"})
    follows, other = (
        Commit("feed", 1, OffsetRanges((OffsetRange("s", 0, 10, 12, (mark, "4970")),), {"s": "one"}))
        for mark in ("4959", "4960")
    )
    assert violations(last, follows) == []
    assert violations(last, other) == ["s-0 begins after 4960, the table ends at 4959"]


@given(positions, st.integers(0, 10**6), st.integers(0, 10**6))
def test_consecutive_batches_follow_each_other(start: dict[Partition, int], first: int, second: int) -> None:
    middle = advanced(start, first)
    one = OffsetRanges.between(start, middle)
    two = OffsetRanges.between(middle, advanced(middle, second))
    assert violations(one, batch(two)) == []


@given(positions, st.integers(1, 10**6))
def test_a_batch_that_begins_elsewhere_does_not_follow(start: dict[Partition, int], shift: int) -> None:
    one = OffsetRanges.at(start)
    (topic, partition), offset = next(iter(start.items()))
    two = OffsetRanges.at({**start, (topic, partition): offset + shift})
    assert violations(one, batch(two)) == [
        f"{topic}-{partition} begins at {offset + shift}, the table ends at {offset}"
    ]


def test_a_new_partition_may_begin_anywhere() -> None:
    one = OffsetRanges.between({("a", 0): 0}, {("a", 0): 5})
    two = OffsetRanges.between({("a", 0): 5}, {("a", 0): 5, ("a", 1): 7})
    assert violations(one, batch(two)) == []
    assert two.ranges[1] == OffsetRange("a", 1, 0, 7)


def test_a_partition_that_is_gone_breaks_continuity() -> None:
    one = OffsetRanges.between({}, {("a", 0): 5, ("a", 1): 7})
    two = OffsetRanges.between({("a", 0): 5}, {("a", 0): 9})
    assert violations(one, batch(two)) == ["a-1 is in the table but not in the batch"]


def test_a_batch_is_new_or_committed_or_refused() -> None:
    next_batch = commit(("a", 0, 10, 20), ("a", 1, 7, 7))
    last = Position(next_batch.ranges, snapshot_id=3)
    assert check_commit(next_batch, Position(LAST, snapshot_id=2), where="t") is CommitCheck.NEW
    assert check_commit(next_batch, last, where="t") is CommitCheck.ALREADY_COMMITTED
    with pytest.raises(CheckpointMismatch, match="a-0 begins at 11, the table ends at 20") as refused:
        check_commit(commit(("a", 0, 11, 30), ("a", 1, 7, 7)), last, where="t")
    assert refused.value.where == "t, snapshot 3"
    with pytest.raises(CheckpointMismatch, match="topic a was recreated"):
        check_commit(commit(("a", 0, 20, 30), ("a", 1, 7, 7), ids={"a": "two"}), last, where="t")


def test_a_first_batch_needs_an_empty_ledger_and_a_later_one_a_commit() -> None:
    first = Commit("feed", 0, LAST)
    assert check_commit(first, None, where="t") is CommitCheck.NEW
    with pytest.raises(CheckpointMismatch, match="the table has no commit of this feed"):
        check_commit(Commit("feed", 1, LAST), None, where="t")
