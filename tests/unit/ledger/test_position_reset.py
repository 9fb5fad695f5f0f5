"""Moves of a feed's position are stored as JSON, and an audit accepts them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.errors import ConfigError
from lakefeed.ledger.feed_position import CommittedOffsets, Position
from lakefeed.ledger.outcomes import Counts
from lakefeed.ledger.snapshot_summary import Commit, PositionReset
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.operations.verify.audit import findings
from lakefeed.operations.verify.audit_rows import renamed_topics
from lakefeed.operations.verify.evidence import Evidence, Finding
from lakefeed.operations.verify.row_offsets import RowCoverage

keys = st.tuples(st.sampled_from(["a", "b.c"]), st.integers(0, 12))
offsets = st.integers(0, 10**12)


def at(*ends: int, topic_id: str = "one", start: int | None = None) -> OffsetRanges:
    """Return ranges of topic t that end at these offsets; by default empty ranges."""
    ranges = (OffsetRange("t", number, end if start is None else start, end) for number, end in enumerate(ends))
    return OffsetRanges(tuple(ranges), {"t": topic_id})


def batch(number: int, start: int, end: int, *, topic_id: str = "one") -> Commit:
    ranges = OffsetRanges((OffsetRange("t", 0, start, end),), {"t": topic_id})
    return Commit("f", number, ranges, rows=end - start, counts={("t", 0): Counts(end - start)}, snapshot_id=number)


def kinds(*commits: Commit, fault: bool) -> list[str]:
    """Return the kinds of an audit's faults or notes."""
    found = findings(Evidence(commits=commits, recorded=commits[-1].ranges))
    return [each.kind for each in found if each.fault is fault and each.kind != "topic-missing"]


@given(
    st.sampled_from(["rewind", "accepted-loss"]),
    st.dictionaries(keys, st.tuples(offsets, offsets)),
    st.none() | st.dictionaries(keys, offsets),
    st.booleans(),
)
def test_a_move_is_read_from_its_json(
    reason: str,
    positions: dict[tuple[str, int], tuple[int, int]],
    deleted: dict[tuple[str, int], int] | None,
    unknown: bool,
) -> None:
    ids = {"a": "id-a", "b.c": "id-b"}
    left = {topic: ids[topic] for topic, _ in positions}
    move = PositionReset(reason, positions, left, deleted, unknown)  # type: ignore[arg-type]
    assert PositionReset.from_json(move.to_json(OffsetRanges((), ids))) == move


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"reason":"rewind","positions":{"t":{"id":"x","ranges":{"0":[1]}}}}']
)
def test_from_json_refuses_a_text_that_is_no_move(text: str) -> None:
    with pytest.raises(ConfigError, match="not a move"):
        PositionReset.from_json(text)


def test_the_ranges_after_a_move_differ_only_in_the_moved_partitions() -> None:
    assert PositionReset("rewind", {("t", 1): (7, 3)}).reaches(at(5, 7, start=1)) == at(5, 3)


def test_a_position_is_read_from_the_json_of_the_jvm_module() -> None:
    text = json.dumps(
        {
            "commit-id": "c",
            "snapshot-id": 7,
            "sequence-number": 2,
            "moved": False,
            "ranges": json.loads(at(5, start=1).to_json()),
            "covered": {"t": {"id": "one", "offsets": {"0": [0, 2, 4, 5]}}},
        }
    )
    covered = CommittedOffsets({("t", 0): ((0, 2), (4, 5))}, {"t": "one"})
    assert Position.from_json(text) == Position(at(5, start=1), 7, "c", covered)
    kept = json.loads(text) | {"kept": {"t": {"id": "one", "offsets": {"0": [2, 9], "1": []}}}}
    position = Position.from_json(json.dumps(kept))
    assert position is not None
    assert position.kept == CommittedOffsets({("t", 0): ((2, 9),), ("t", 1): ()}, {"t": "one"})
    assert Position.from_json("rolled-back") is None
    # Only the field "moved" makes a commit a move, because batches may have empty ranges, too.
    empty = {"snapshot-id": 7, "ranges": json.loads(at(5).to_json())}
    found = [Position.from_json(json.dumps({**empty, "moved": moved})) for moved in (False, True)]
    assert [each.reset_snapshot_id for each in found if each] == [None, 7]
    with pytest.raises(ConfigError, match="not the position"):
        Position.from_json("{}")


def test_an_audit_notes_moves_and_finds_no_fault_in_them() -> None:
    rewind = Commit(
        "f", 0, at(2), snapshot_id=9, move=PositionReset("rewind", {("t", 0): (4, 2)}, {"t": "one"}, {("t", 0): 2})
    )
    assert kinds(batch(0, 0, 4), rewind, batch(1, 2, 6), fault=True) == []
    assert "rewind" in kinds(batch(0, 0, 4), rewind, batch(1, 2, 6), fault=False)
    given_up = Commit("f", 0, at(9), move=PositionReset("accepted-loss", {("t", 0): (4, 9)}, {"t": "one"}))
    assert kinds(batch(0, 0, 4), given_up, batch(1, 9, 10), fault=True) == []
    assert "accepted-loss" in kinds(batch(0, 0, 4), given_up, batch(1, 9, 10), fault=False)


def test_an_audit_finds_gaps_and_overlaps_between_batches_and_a_move() -> None:
    rewind = Commit("f", 0, at(2), move=PositionReset("rewind", {("t", 0): (4, 2)}, {"t": "one"}))
    assert kinds(batch(0, 0, 4), rewind, batch(1, 3, 6), fault=True) == ["gap"]
    assert kinds(batch(0, 0, 5), rewind, batch(1, 2, 6), fault=True) == ["overlap"]
    elsewhere = Commit("f", 0, at(3), move=PositionReset("rewind", {("t", 0): (4, 2)}, {"t": "one"}))
    assert kinds(batch(0, 0, 4), elsewhere, fault=True) == ["gap"]


def test_an_audit_accepts_a_recreated_topic_only_after_a_move() -> None:
    left = Commit("f", 0, at(0, topic_id="two"), move=PositionReset("accepted-loss", {("t", 0): (4, 0)}, {"t": "one"}))
    assert kinds(batch(0, 0, 4), left, batch(1, 0, 3, topic_id="two"), fault=True) == []
    assert kinds(batch(0, 0, 4), batch(1, 0, 3, topic_id="two"), fault=True) == ["topic-changed"]


def moved(move: PositionReset, ranges: OffsetRanges) -> list[Finding]:
    """Audit a batch of four records and a move; return the audit's notes on the move."""
    commits = (batch(0, 0, 4), Commit("f", 0, ranges, snapshot_id=9, move=move))
    return [each for each in findings(Evidence(commits=commits)) if each.kind == move.reason]


@pytest.mark.parametrize("begin", [0, 2])
def test_an_audit_reports_no_lost_offsets_for_a_recreated_topic(begin: int) -> None:
    move = PositionReset("accepted-loss", {("t", 0): (4, begin)}, {"t": "one"})
    found = moved(move, at(begin, topic_id="two"))
    assert not [each for each in found if "given up" in each.what]
    [partition] = [each for each in found if each.partition == 0]
    assert f"t-0 of the topic with the id one at 4, and resumes at {begin} of the topic with the id two" in (
        partition.what
    )
    assert (partition.start, partition.end) == (None, None)


def test_an_audit_reports_lost_offsets_only_for_a_move_forward() -> None:
    [found] = moved(PositionReset("accepted-loss", {("t", 0): (4, 3)}, {"t": "one"}), at(3))
    assert "given up" not in found.what
    assert "t-0 moved back from 4 to 3; the rows of the offsets [3, 4) were kept" in found.what
    [forward] = moved(PositionReset("accepted-loss", {("t", 0): (4, 9)}, {"t": "one"}), at(9))
    assert "5 offsets of t-0, [4, 9), were given up" in forward.what


def test_an_audit_accepts_rows_of_the_old_topic_after_a_recreation() -> None:
    move = PositionReset("accepted-loss", {("t", 0): (4, 0)}, {"t": "one"})
    left = Commit("f", 0, at(0, topic_id="two"), move=move)
    after = batch(1, 0, 3, topic_id="two")
    rows = {("t", 0): RowCoverage(rows=3, offsets=3, outside=4)}
    found = findings(Evidence(commits=(left, after), history_complete=False, recorded=after.ranges, row_coverage=rows))
    assert [each.kind for each in found if each.fault] == []
    assert "renamed" in [each.kind for each in found]
    # A topic that the pipeline no longer reads does not count as recreated.
    dropped = Commit("f", 0, at(4), move=PositionReset("accepted-loss", {}, {"other": "o"}))
    assert renamed_topics((dropped,)) == set()
