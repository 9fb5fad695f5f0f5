"""Which commit may follow which, as ledgers in a database ask."""

from __future__ import annotations

import pytest

from lakefeed.ledger.continuity import faults
from lakefeed.ledger.position_reset import Move
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges

LAST = OffsetRanges((OffsetRange("a", 0, 0, 10), OffsetRange("a", 1, 0, 7)), {"a": "one"})


def commit(*ranges: tuple[str, int, int, int], ids: dict[str, str] | None = None, move: Move | None = None) -> Commit:
    spans = tuple(OffsetRange(*each) for each in ranges)
    return Commit("feed", 1, OffsetRanges(spans, ids or {"a": "one"}), move=move)


@pytest.mark.parametrize(
    "follows",
    [
        commit(("a", 0, 10, 20), ("a", 1, 7, 7)),
        commit(("a", 0, 10, 10), ("a", 1, 7, 8), ("a", 2, 5, 9)),
        commit(("a", 0, 10, 10), ("a", 1, 7, 8), ("b", 0, 3, 9), ids={"a": "one", "b": "new"}),
        commit(("a", 0, 30, 30), ("a", 1, 7, 7), move=Move("accepted-loss", {("a", 0): (10, 30)})),
        commit(
            ("a", 0, 0, 0),
            ids={"a": "two"},
            move=Move("accepted-loss", {("a", 0): (10, 0)}, left_ids={"a": "one"}),
        ),
        commit(("b", 0, 0, 0), ids={"b": "new"}, move=Move("accepted-loss", {}, left_ids={"a": "one"})),
    ],
)
def test_what_follows(follows: Commit) -> None:
    assert faults(LAST, follows) == []


@pytest.mark.parametrize(
    ("does_not", "message"),
    [
        (commit(("a", 0, 11, 20), ("a", 1, 7, 7)), "a-0 begins at 11, the table ends at 10"),
        (commit(("a", 0, 9, 20), ("a", 1, 7, 7)), "a-0 begins at 9, the table ends at 10"),
        (commit(("a", 0, 10, 20)), "a-1 is in the table but not in the commit"),
        (commit(("a", 0, 10, 20), ("a", 1, 7, 7), ids={"a": "two"}), "topic a was recreated (id two, was one)"),
        (
            commit(("a", 0, 30, 30), ("a", 1, 7, 7), move=Move("accepted-loss", {("a", 0): (12, 30)})),
            "a-0 is to be moved from 12, the table ends at 10",
        ),
        (
            commit(("a", 0, 31, 31), ("a", 1, 7, 7), move=Move("accepted-loss", {("a", 0): (10, 30)})),
            "a-0 is to be moved to 30 and begins at 31",
        ),
        (
            commit(("a", 0, 0, 0), ids={"a": "two"}, move=Move("rewind", {("a", 0): (10, 0)}, left_ids={"a": "zero"})),
            "topic a was recreated (id two, was one)",
        ),
    ],
)
def test_what_does_not_follow(does_not: Commit, message: str) -> None:
    assert message in faults(LAST, does_not)


def test_the_same_number_at_another_place_of_the_source_does_not_follow() -> None:
    last = OffsetRanges((OffsetRange("s", 0, 0, 10, ("oldest", "4959")),), {"s": "one"})
    follows, other = (
        Commit("feed", 1, OffsetRanges((OffsetRange("s", 0, 10, 12, (mark, "4970")),), {"s": "one"}))
        for mark in ("4959", "4960")
    )
    assert faults(last, follows) == []
    assert faults(last, other) == ["s-0 begins after 4960, the table ends at 4959"]
