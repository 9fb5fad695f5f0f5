"""``verify`` finds every kind of fault in a feed's commits, and no fault in correct commits."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lakefeed.clients.kafka.topics import PartitionDescription, TopicDescription
from lakefeed.ledger.outcomes import Counts, total
from lakefeed.ledger.snapshot_summary import Commit, PositionReset
from lakefeed.ledger.snapshots import OtherCommit, ReplayCommit
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.operations.verify.audit import findings
from lakefeed.operations.verify.evidence import Evidence, Finding, Letters, begins, spans, sparse
from lakefeed.operations.verify.row_offsets import Letter, RowCoverage

TOPIC = "trips"
ID = "id-one"
Step = tuple[int, int, int]


def described(ends: Sequence[int], *, starts: Sequence[int] = (), topic_id: str = ID) -> TopicDescription:
    return TopicDescription(
        name=TOPIC,
        topic_id=topic_id,
        partitions=tuple(
            PartitionDescription(id=number, leader=1, start_offset=starts[number] if starts else 0, end_offset=end)
            for number, end in enumerate(ends)
        ),
    )


def feed(batches: Sequence[Sequence[Step]], *, partitions: int) -> tuple[Commit, ...]:
    """Return a commit per batch; a step has the numbers of (good, dead, skipped) records of a partition in a batch."""
    position = [0] * partitions
    commits = []
    for number, steps in enumerate(batches):
        ranges, counts = [], {}
        for partition, (good, dead, skipped) in enumerate(steps):
            start, records = position[partition], good + dead + skipped
            position[partition] += records
            ranges.append(OffsetRange(TOPIC, partition, start, position[partition]))
            if records:
                counts[TOPIC, partition] = Counts(records, dead, skipped)
        commits.append(
            Commit(
                "f",
                number,
                OffsetRanges(tuple(ranges), {TOPIC: ID}),
                fence="1 a",
                snapshot_id=100 + number,
                rows=total(counts).rows,
                counts=counts,
            )
        )
    return tuple(commits)


def evidence(commits: tuple[Commit, ...]) -> Evidence:
    """Return evidence of these commits in which verify finds no fault."""
    letters, written = [], []
    for commit in commits:
        for each in commit.ranges.ranges:
            counts = commit.counts.get((each.topic, each.partition), Counts())
            letters += [Letter(each.topic, each.partition, each.start + index) for index in range(counts.dead_letters)]
        if dead := total(commit.counts).dead_letters:
            written.append(replace(commit, rows=dead))
    ends = [end for _, (_, end) in sorted(spans(commits).items())]
    return Evidence(
        commits=commits,
        recorded=commits[-1].ranges,
        fence="1 a",
        dead_letters=Letters(tuple(written), True, tuple(letters)),
        topics={TOPIC: described(ends)},
    )


def faults(given_evidence: Evidence) -> list[str]:
    return [each.kind for each in findings(given_evidence) if each.fault]


def notes(given_evidence: Evidence) -> list[str]:
    return [each.kind for each in findings(given_evidence) if not each.fault]


def only(given_evidence: Evidence) -> Finding:
    [found] = findings(given_evidence)
    return found


def step() -> st.SearchStrategy[Step]:
    return st.tuples(st.integers(0, 9), st.integers(0, 2), st.integers(0, 2))


feeds = st.integers(1, 4).flatmap(
    lambda partitions: st.lists(st.lists(step(), min_size=partitions, max_size=partitions), min_size=1, max_size=6).map(
        lambda batches: feed(batches, partitions=partitions)
    )
)
GOOD = feed([[(10, 1, 0), (5, 0, 1)], [(3, 0, 0), (0, 0, 0)], [(7, 1, 0), (2, 0, 0)]], partitions=2)


def changed(commits: tuple[Commit, ...], number: int, ranges: tuple[OffsetRange, ...]) -> tuple[Commit, ...]:
    commit = replace(commits[number], ranges=OffsetRanges(ranges, commits[number].ranges.topic_ids))
    return (*commits[:number], commit, *commits[number + 1 :])


@given(feeds)
def test_verify_finds_nothing_in_a_correct_feed(commits: tuple[Commit, ...]) -> None:
    assert findings(evidence(commits)) == []


@given(feeds, st.data())
def test_a_missing_commit_leaves_a_gap_in_all_its_ranges(commits: tuple[Commit, ...], data: st.DataObject) -> None:
    assume(len(commits) > 2)
    gone = data.draw(st.integers(1, len(commits) - 2))
    left = (*commits[:gone], *commits[gone + 1 :])
    gaps = {
        (each.partition, each.start, each.end)
        for each in findings(replace(evidence(commits), commits=left))
        if each.kind == "gap"
    }
    assert gaps == {(each.partition, each.start, each.end) for each in commits[gone].ranges.ranges if each.records}


@given(feeds, st.data())
def test_a_commit_that_landed_twice_is_an_overlap_in_all_its_ranges(
    commits: tuple[Commit, ...], data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, len(commits) - 1))
    twice = (*commits[: number + 1], commits[number], *commits[number + 1 :])
    found = [each for each in findings(replace(evidence(commits), commits=twice)) if each.kind == "overlap"]
    assert {(each.partition, each.start, each.end) for each in found} == {
        (each.partition, each.start, each.end) for each in commits[number].ranges.ranges if each.records
    }
    assert all(each.snapshot_id == commits[number].snapshot_id and each.fault for each in found)


@given(feeds, st.data())
def test_offsets_without_a_record_must_be_confirmed_by_the_broker(
    commits: tuple[Commit, ...], data: st.DataObject
) -> None:
    places = [(number, each) for number, commit in enumerate(commits) for each in commit.ranges.ranges if each.records]
    assume(places)
    number, place = data.draw(st.sampled_from(places))
    key = (place.topic, place.partition)
    counts = commits[number].counts[key]
    uncounted = replace(counts, records=counts.dead_letters + counts.skipped)
    assume(uncounted.records < counts.records)
    less = {**commits[number].counts, key: uncounted}
    commit = replace(commits[number], counts=less, rows=total(less).rows)
    left = (*commits[:number], commit, *commits[number + 1 :])
    assert sparse(left) == [place]
    base = replace(evidence(commits), commits=left)
    assert faults(replace(base, broker_record_counts={place: counts.records})) == ["records"]
    assert findings(replace(base, broker_record_counts={place: uncounted.records})) == []
    # Compaction may have removed the counted records since the batch.
    assert findings(replace(base, broker_record_counts={place: 0})) == []
    assert notes(replace(base, broker_record_counts={place: None})) == ["untold"]
    assert faults(replace(base, broker_record_counts={place: None})) == []


def test_a_commit_may_add_a_partition_but_must_not_drop_a_partition() -> None:
    grown = changed(GOOD, 2, (*GOOD[2].ranges.ranges, OffsetRange(TOPIC, 2, 0, 0)))
    base = evidence(grown)
    assert findings(base) == []
    shrunk = changed(GOOD, 1, GOOD[1].ranges.ranges[:1])
    found = only(evidence(shrunk))
    assert (found.kind, found.partition, found.batch_id, found.start) == ("forgotten", 1, 1, 6)


def test_verify_finds_a_recreated_topic_in_the_ledger_and_on_the_broker() -> None:
    other = replace(GOOD[2], ranges=OffsetRanges(GOOD[2].ranges.ranges, {TOPIC: "id-two"}))
    mixed = replace(evidence((*GOOD[:2], other)), topics={TOPIC: described([22, 8], topic_id="id-two")})
    assert only(mixed).kind == "topic-changed"
    assert (
        only(replace(evidence(GOOD), topics={TOPIC: described([99, 99], topic_id="id-two")})).kind == "topic-recreated"
    )
    missing = replace(evidence(GOOD), topics={TOPIC: None})
    assert (faults(missing), notes(missing)) == ([], ["topic-missing"])


def test_a_topic_whose_offsets_do_not_include_the_tables_position_is_a_fault() -> None:
    lost = only(replace(evidence(GOOD), topics={TOPIC: described([22, 7])}))
    assert (lost.kind, lost.partition, lost.start, lost.end) == ("ahead", 1, 7, 8)
    passed = only(replace(evidence(GOOD), topics={TOPIC: described([50, 50], starts=[22, 11])}))
    assert (passed.kind, passed.partition, passed.start, passed.end) == ("overtaken", 1, 8, 11)


def test_a_truncated_topic_is_a_fault_even_if_it_has_grown_beyond_the_tables_position() -> None:
    now = described([99, 99])
    now = replace(now, partitions=(now.partitions[0], replace(now.partitions[1], agreed=5)))
    found = only(replace(evidence(GOOD), topics={TOPIC: now}))
    assert (found.kind, found.partition, found.start, found.end) == ("cut-off", 1, 5, 8)
    all_there = replace(now, partitions=(now.partitions[0], replace(now.partitions[1], agreed=8)))
    assert findings(replace(evidence(GOOD), topics={TOPIC: all_there})) == []


def test_verify_compares_the_number_of_rows_with_the_counts_unless_there_is_a_transform() -> None:
    more = (*GOOD[:2], replace(GOOD[2], rows=GOOD[2].rows + 1))
    found = only(evidence(more))
    assert (found.kind, found.batch_id, found.snapshot_id) == ("rows", 2, 102)
    transformed = replace(evidence(more), transformed=True)
    assert (faults(transformed), notes(transformed)) == ([], ["transform"])


def test_verify_finds_the_commit_of_a_replaced_driver_by_its_fence() -> None:
    fenced = tuple(replace(each, fence=fence) for each, fence in zip(GOOD, ("1 a", "2 b", "1 a"), strict=True))
    assert faults(replace(evidence(fenced), fence="2 b")) == ["fence"]
    assert faults(replace(evidence(fenced[:2]), fence="1 a")) == ["fence"]
    assert faults(replace(evidence(fenced[:2]), fence="3 c")) == []


def test_a_position_in_the_table_properties_that_differs_from_the_newest_commit_is_a_fault() -> None:
    assert faults(replace(evidence(GOOD), recorded=GOOD[1].ranges)) == ["position"]
    assert faults(replace(evidence(GOOD), recorded=None, recorded_known=False)) == ["position"]
    nothing = Evidence(commits=(), recorded=GOOD[2].ranges)
    assert faults(nothing) == ["position"]
    assert findings(Evidence(commits=())) == []
    assert (faults(replace(nothing, history_complete=False)), notes(replace(nothing, history_complete=False))) == (
        [],
        ["expired"],
    )


def test_verify_notes_expired_snapshots_and_commits_of_other_clients() -> None:
    others = (OtherCommit(7, "append", 3, 0), OtherCommit(8, "delete", 0, 2))
    found = findings(replace(evidence(GOOD), history_complete=False, foreign_commits=others))
    assert [each.kind for each in found] == ["expired", "others"]
    assert "from batch 0" in found[0].what
    assert "added 3 rows and deleted 2" in found[1].what


def test_each_dead_letter_is_in_the_table_replayed_or_dropped() -> None:
    base = evidence(GOOD)
    assert base.dead_letters is not None
    first, last = base.dead_letters.letters
    replay = ReplayCommit("r", 200, 1, {(TOPIC, 0): Counts(1, 0, 0)})
    replayed = replace(base, replays=(replay,), dead_letters=replace(base.dead_letters, letters=(last,)))
    assert findings(replayed) == []
    # The replay was interrupted after it had landed its letters; the next replay deletes the letters.
    marked = replace(first, replay_id="r")
    assert findings(replace(replayed, dead_letters=replace(base.dead_letters, letters=(marked, last)))) == []
    assert faults(replace(base, replays=(replay,))) == ["letters-surplus"]
    dropped = replace(base, dead_letters=replace(base.dead_letters, letters=(last,)))
    assert (faults(dropped), notes(dropped)) == ([], ["letters-dropped"])
    assert faults(replace(base, dead_letters=replace(base.dead_letters, letters=(first, first)))) == ["letters-twice"]
    assert faults(replace(base, dead_letters=None)) == ["letters-unkept"]
    assert notes(replace(base, dead_letters=None, dead_letter_topic="dead")) == ["letters-in-topic"]


def test_unwritten_dead_letters_are_a_fault_except_in_the_newest_batch() -> None:
    base = evidence(GOOD)
    assert base.dead_letters is not None
    kept = base.dead_letters
    newest = replace(base, dead_letters=Letters(kept.commits[:1], True, kept.letters[:1]))
    assert (faults(newest), notes(newest)) == ([], ["letters-pending"])
    oldest = replace(base, dead_letters=Letters(kept.commits[1:], True, kept.letters[1:]))
    assert faults(oldest) == ["letters"]
    # If snapshots of the dead-letter table have expired, only the number of letters is checked.
    cut = replace(base, dead_letters=Letters((), False, kept.letters))
    assert findings(cut) == []


def test_verify_compares_the_offsets_in_the_rows_with_the_ledger() -> None:
    right = {(TOPIC, 0): RowCoverage(20, 20), (TOPIC, 1): RowCoverage(7, 7)}
    base = replace(evidence(GOOD), row_coverage=right)
    assert findings(base) == []

    def with_first(place: RowCoverage, **more: object) -> Evidence:
        return replace(base, row_coverage={**right, (TOPIC, 0): place}, **more)  # type: ignore[arg-type]

    doubled = only(with_first(RowCoverage(22, 20, repeated=((3, 2), (4, 2)))))
    assert (doubled.kind, doubled.start, doubled.end) == ("duplicates", 3, 5)
    assert "2 rows" in doubled.what
    # The commit of the rewind that kept the rows may have expired; the stored position still has the kept offsets.
    kept = with_first(RowCoverage(22, 20, repeated=((3, 2), (4, 2))), rows_kept={(TOPIC, 0): ((3, 5),)})
    assert (faults(kept), notes(kept)) == ([], ["duplicates"])
    elsewhere = with_first(RowCoverage(22, 20, repeated=((3, 2), (4, 2))), rows_kept={(TOPIC, 1): ((3, 5),)})
    assert faults(elsewhere) == ["duplicates"]
    missing = only(with_first(RowCoverage(18, 18, absent=((4, 6),))))
    assert (missing.kind, missing.start, missing.end) == ("missing", 4, 6)
    assert "2 of 20 rows" in missing.what
    deleted = with_first(RowCoverage(18, 18), foreign_commits=(OtherCommit(7, "delete", 0, 2),))
    assert (faults(deleted), sorted(notes(deleted))) == ([], ["missing", "others"])
    assert faults(with_first(RowCoverage(20, 20, outside=1))) == ["outside"]
    assert faults(with_first(RowCoverage(20, 20, before=1))) == ["outside"]
    assert notes(with_first(RowCoverage(20, 20, before=1), history_complete=False)) == ["expired", "before"]


@pytest.mark.parametrize("count", [0, 12])
def test_counts_of_a_partition_without_a_range_are_a_fault(count: int) -> None:
    counts = {**GOOD[1].counts, (TOPIC, 9): Counts(count)}
    stray = replace(GOOD[1], counts=counts, rows=total(counts).rows)
    assert faults(evidence((GOOD[0], stray, GOOD[2]))) == ["counts"]


@pytest.mark.parametrize(("deleted", "below"), [(None, 30), ({(TOPIC, 0): 20}, 10)])
def test_rows_that_a_rewind_kept_are_accepted_although_their_commits_have_expired(
    deleted: dict[tuple[str, int], int] | None, below: int
) -> None:
    move = PositionReset("rewind", {(TOPIC, 0): (30, 10)}, {TOPIC: ID}, deleted)
    ranges = OffsetRanges((OffsetRange(TOPIC, 0, 10, 10), OffsetRange(TOPIC, 1, 5, 5)), {TOPIC: ID})
    assert begins([Commit("f", 0, ranges, move=move)]) == {(TOPIC, 0): below, (TOPIC, 1): 5}


def test_rows_that_a_rewind_kept_are_accepted_even_if_the_rewinds_commit_has_expired() -> None:
    commit = Commit("f", 0, OffsetRanges((OffsetRange(TOPIC, 0, 10, 20), OffsetRange(TOPIC, 1, 5, 9)), {TOPIC: ID}))
    assert begins([commit], {(TOPIC, 0): ((2, 4), (10, 30))}) == {(TOPIC, 0): 30, (TOPIC, 1): 5}
