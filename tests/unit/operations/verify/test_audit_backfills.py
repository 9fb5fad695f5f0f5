"""Verify accepts correct backfills, and finds records that landed twice."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from lakefeed.clients.kafka.topics import PartitionDescription, TopicDescription
from lakefeed.ledger.outcomes import Counts
from lakefeed.ledger.snapshot_summary import Backfill, Commit, PositionReset
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.operations.verify.audit import findings
from lakefeed.operations.verify.evidence import Evidence, Letters
from lakefeed.operations.verify.row_offsets import Letter, RowCoverage

TOPIC, ID = "trips", "id-one"


def ranges(start: int, end: int) -> OffsetRanges:
    return OffsetRanges((OffsetRange(TOPIC, 0, start, end),), {TOPIC: ID})


def commit(number: int, start: int, end: int, *, move: PositionReset | None = None) -> Commit:
    counts = {(TOPIC, 0): Counts(end - start)} if end > start else {}
    return Commit("f", number, ranges(start, end), snapshot_id=number, rows=end - start, counts=counts, move=move)


def backfill(number: int, start: int, end: int, *, after: int = 9, dead: int = 0, fence: str = "1 a") -> Backfill:
    return Backfill(
        "f",
        ranges(start, end),
        fence=fence,
        snapshot_id=1000 + number,
        number=number,
        rows=end - start - dead,
        counts={(TOPIC, 0): Counts(end - start, dead)},
        after=after,
    )


def evidence(*commits: Commit, backfills: tuple[Backfill, ...] = (), letters: Letters | None = None) -> Evidence:
    end = commits[-1].ranges.ranges[0].end
    partition = PartitionDescription(id=0, leader=1, start_offset=0, end_offset=end)
    return Evidence(
        commits=commits,
        recorded=commits[-1].ranges,
        backfills=backfills,
        backfill_fence=backfills[-1].fence if backfills else None,
        dead_letters=letters,
        topics={TOPIC: TopicDescription(name=TOPIC, topic_id=ID, partitions=(partition,))},
    )


def kinds(given_evidence: Evidence) -> list[str]:
    return [each.kind for each in findings(given_evidence)]


@settings(deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.data())
def test_verify_finds_a_backfill_that_landed_twice(sizes: list[int], data: st.DataObject) -> None:
    first = sum(sizes)
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    backfills = tuple(
        backfill(number, end - size, end, after=data.draw(st.integers(1, 2)))
        for number, (size, end) in enumerate(zip(sizes, ends, strict=True))
    )
    backfills = tuple(sorted(backfills, key=lambda each: each.after))
    commits = (commit(0, first, first + 5), commit(1, first + 5, first + 7))
    assert findings(evidence(*commits, backfills=backfills)) == []
    again = data.draw(st.sampled_from(backfills))
    [found] = findings(evidence(*commits, backfills=(*backfills, replace(again, after=2))))
    [doubled] = again.ranges.ranges
    assert (found.kind, found.start, found.end, found.fault) == ("overlap", doubled.start, doubled.end, True)


def test_verify_finds_a_backfill_of_records_that_the_feed_had_already_landed() -> None:
    commits = (commit(0, 10, 20), commit(1, 20, 30))
    assert kinds(evidence(*commits, backfills=(backfill(0, 15, 20),))) == ["overlap"]
    assert kinds(evidence(*commits, backfills=(backfill(0, 25, 30, after=1),))) == ["overlap"]


def test_verify_reports_no_overlap_after_a_rewind_to_before_a_backfill() -> None:
    moved = commit(1, 0, 0, move=PositionReset("rewind", {(TOPIC, 0): (20, 0)}))
    right = evidence(commit(0, 10, 20), moved, commit(2, 0, 20), backfills=(backfill(0, 5, 10, after=1),))
    assert kinds(right) == ["rewind"]
    late = replace(right, backfills=(backfill(0, 5, 10, after=3),))
    assert kinds(late) == ["overlap", "rewind"]


def test_verify_checks_counts_fences_and_rows_of_backfills() -> None:
    feed = commit(0, 10, 20)
    assert kinds(evidence(feed, backfills=(replace(backfill(0, 0, 10), rows=9),))) == ["rows"]
    overtaken = (backfill(0, 0, 4, fence="2 b"), backfill(1, 4, 10, fence="1 a"))
    assert kinds(replace(evidence(feed, backfills=overtaken), backfill_fence="2 b")) == ["fence"]
    fewer = replace(backfill(0, 0, 10), counts={(TOPIC, 0): Counts(8)}, rows=8)
    held = {OffsetRange(TOPIC, 0, 0, 10): 9}
    assert kinds(replace(evidence(feed, backfills=(fewer,)), broker_record_counts=held)) == ["records"]
    placed = {(TOPIC, 0): RowCoverage(rows=19, offsets=19, absent=((3, 4),))}
    assert kinds(replace(evidence(feed, backfills=(backfill(0, 0, 10),)), row_coverage=placed)) == ["missing"]


def test_verify_counts_the_dead_letters_of_a_backfill_and_accepts_pending_letters() -> None:
    feed, dead = commit(0, 10, 20), backfill(7, 0, 10, dead=2)
    there = (Letter(TOPIC, 0, 3), Letter(TOPIC, 0, 4))
    assert kinds(evidence(feed, backfills=(dead,), letters=Letters(letters=there, of_backfills={7: 2}))) == []
    assert kinds(evidence(feed, backfills=(dead,), letters=Letters())) == ["letters-pending"]
    older = (dead, backfill(8, 30, 31))
    assert "letters" in kinds(evidence(feed, commit(1, 20, 30), backfills=older, letters=Letters()))
