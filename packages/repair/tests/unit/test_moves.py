"""The plan of a rewind, its effect on dead letters, and the rows that ``verify`` expects after the rewind."""

import pytest

from lakefeed.clients.iceberg.sql import rows_where
from lakefeed.clients.kafka.topics import PartitionDescription, TopicDescription
from lakefeed.errors import ConfigError, LakefeedError, RecordsLost, ResourceMissing
from lakefeed.ledger.feed_position import step_back
from lakefeed.ledger.outcomes import Counts
from lakefeed.ledger.snapshot_summary import Commit, PositionReset
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.operations.verify.audit import findings
from lakefeed.operations.verify.evidence import Evidence, Letters
from lakefeed.operations.verify.row_offsets import Letter, RowCoverage
from lakefeed_repair.moves import PartitionMove, move_commit, parse_offsets, plan_moves, require_own_records

P0, P1 = ("t", 0), ("t", 1)


def topic(*offsets: tuple[int, int], topic_id: str = "A") -> TopicDescription:
    partitions = tuple(
        PartitionDescription(id=number, leader=1, start_offset=start, end_offset=end)
        for number, (start, end) in enumerate(offsets)
    )
    return TopicDescription(name="t", topic_id=topic_id, partitions=partitions)


def spans(*ranges: tuple[int, int], topic_id: str = "A") -> OffsetRanges:
    return OffsetRanges(tuple(OffsetRange("t", number, *each) for number, each in enumerate(ranges)), {"t": topic_id})


@pytest.mark.parametrize("text", ["t:0:12,t:1:3", " t:0:12 , t:1:3", '{"t": {"0": 12, "1": 3}}'])
def test_target_offsets_are_parsed_in_the_short_form_and_in_sparks_json(text: str) -> None:
    assert parse_offsets(text) == {P0: 12, P1: 3}


@pytest.mark.parametrize("text", ["", "t:0", "t:0:x", "soon", "{", '{"t": 3}', '{"t": {"a": 3}}', "t:0:1,,"])
def test_a_target_that_has_no_offsets_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_offsets(text)


def test_a_plan_counts_the_offsets_that_are_read_again_and_those_that_are_skipped() -> None:
    topics = {"t": topic((2, 20), (0, 20))}
    [first] = plan_moves({P0: 9, P1: 5}, {P0: 2, P1: 5}, topics, ids={"t": "A"}, accept_loss=False)
    assert (first.partition, first.start, first.to, first.again, first.given_up) == (0, 9, 2, 7, 0)
    [last] = plan_moves({P0: 9, P1: 5}, {P0: 20}, topics, ids={"t": "A"}, accept_loss=True)
    assert (last.again, last.given_up) == (0, 11)
    unknown = plan_moves({}, {P0: 9, P1: 4}, topics, ids={}, accept_loss=False)
    assert [(each.start, each.again, each.given_up) for each in unknown] == [(None, 0, 0), (None, 0, 0)]


@pytest.mark.parametrize(
    ("targets", "topics", "error"),
    [
        ({P0: 1}, {"t": topic((2, 20), (0, 20))}, ResourceMissing),
        ({P0: 21}, {"t": topic((2, 20), (0, 20))}, ResourceMissing),
        ({P0: 2}, {"t": None}, ResourceMissing),
        ({("t", 7): 2}, {"t": topic((2, 20))}, ConfigError),
        ({P0: 2}, {"t": topic((2, 20), topic_id="B")}, RecordsLost),
        ({P0: 2, P1: 20}, {"t": topic((2, 20), (0, 20))}, ConfigError),
    ],
)
def test_moves_to_impossible_targets_are_refused(
    targets: dict[tuple[str, int], int], topics: dict[str, TopicDescription | None], error: type[LakefeedError]
) -> None:
    with pytest.raises(error):
        plan_moves({P0: 9, P1: 5}, targets, topics, ids={"t": "A"}, accept_loss=True)


def test_a_move_forward_needs_accept_loss() -> None:
    with pytest.raises(ConfigError, match=r"never read 3 offsets: \[9, 12\) of t-0"):
        plan_moves({P0: 9}, {P0: 12}, {"t": topic((2, 20))}, ids={"t": "A"}, accept_loss=False)


def test_the_commit_of_a_rewind_has_every_partition() -> None:
    topics = {"t": topic((0, 20), (0, 20))}
    moves = plan_moves({P0: 9, P1: 5}, {P0: 2}, topics, ids={"t": "A"}, accept_loss=False)
    commit = move_commit("f", spans((4, 9), (0, 5)), moves, topics, deletes=True)
    assert commit.ranges == spans((2, 2), (5, 5))
    assert commit.move == PositionReset("rewind", {P0: (9, 2)}, {}, {P0: 0})
    for rows, deleted in ((None, None), (3, None), (0, {P0: 0})):
        back = (PartitionMove(topic="t", partition=0, start=9, to=2, rows=rows),)
        kept = move_commit("f", spans((4, 9)), back, topics, deletes=False).move
        assert kept is not None
        assert kept.deleted_rows == deleted, "without rows, none is kept"
    unknown = plan_moves({}, {P0: 2, P1: 0}, topics, ids={}, accept_loss=False)
    commit = move_commit("f", None, unknown, topics, deletes=False)
    assert commit.ranges == spans((2, 2), (0, 0))
    assert commit.move == PositionReset("rewind", unknown=True)


def test_the_filter_of_a_rewind_selects_exactly_the_rows_to_delete() -> None:
    columns = ("kafka_topic", "kafka_partition", "kafka_offset")
    assert rows_where({P0: (2, 9)}, columns=columns) == (
        "(kafka_topic = 't' AND kafka_partition = 0 AND kafka_offset >= 2 AND kafka_offset < 9)"
    )
    both = rows_where({P0: (2, 9), P1: (0, 1)}, columns=("", "p", "o"))
    assert both == "(p = 0 AND o >= 2 AND o < 9) OR (p = 1 AND o >= 0 AND o < 1)"
    assert rows_where({}, columns=columns) == "false"


def test_the_position_of_dead_letters_is_moved_back_only_if_it_is_ahead_of_the_table() -> None:
    assert step_back("f", spans((4, 9)), spans((9, 12))) is None
    assert step_back("f", spans((4, 9)), spans((9, 9), (3, 3))) is None
    step = step_back("f", spans((4, 9), (0, 5)), spans((2, 2), (7, 7)))
    assert step is not None
    assert step.deleted == {P0: (2, 9)}
    assert step.commit.ranges == spans((2, 2), (5, 5))
    assert step.commit.move == PositionReset("rewind", {P0: (9, 2)}, {})
    nothing = step_back("f", spans((4, 9)), None)
    assert nothing is not None
    assert nothing.deleted == {P0: (0, 9)}


def test_a_rewind_keeps_dead_letters_of_a_recreated_topic() -> None:
    step = step_back("f", spans((4, 9), (0, 5)), spans((0, 0), topic_id="B"))
    assert step is not None
    assert step.deleted == {}
    assert step.commit.ranges == spans((0, 0), topic_id="B")
    assert step.commit.move == PositionReset("rewind", {P0: (9, 0)}, {"t": "A"})
    left = step_back("f", spans((4, 9)), OffsetRanges((OffsetRange("u", 0, 0, 3),), {"u": "U"}))
    assert left is None


def batch(number: int, start: int, end: int, *, dead: int = 0, topic_id: str = "A") -> Commit:
    counts = {P0: Counts(end - start, dead, 0)}
    ranges = spans((start, end), topic_id=topic_id)
    return Commit("f", number, ranges, snapshot_id=number, rows=end - start - dead, counts=counts)


def moved(number: int, start: int, to: int, *, deleted: bool = True) -> Commit:
    move = PositionReset("rewind", {P0: (start, to)}, {"t": "A"}, {P0: start - to} if deleted else None)
    return Commit("f", 0, spans((to, to)), snapshot_id=number, move=move)


def evidence(*commits: Commit, rows: int, offsets: int | None = None, letters: Letters | None = None) -> Evidence:
    return Evidence(
        commits=commits,
        dead_letters=letters,
        topics={"t": topic((0, 100), topic_id=commits[-1].ranges.topic_ids["t"])},
        row_coverage={P0: RowCoverage(rows=rows, offsets=rows if offsets is None else offsets, repeated=((1, 2),))},
    )


def kinds(known: Evidence, *, fault: bool) -> set[str]:
    return {each.kind for each in findings(known) if each.fault == fault}


def test_verify_no_longer_expects_rows_of_rewound_ranges() -> None:
    before = (batch(1, 0, 10), batch(2, 10, 20))
    assert kinds(evidence(*before, moved(3, 20, 15), rows=15), fault=True) == set()
    assert kinds(evidence(*before, moved(3, 20, 15), rows=14), fault=True) == {"missing"}
    again = (*before, moved(3, 20, 15), batch(4, 15, 22))
    assert kinds(evidence(*again, rows=22), fault=True) == set()
    assert kinds(evidence(*again, rows=21), fault=True) == {"missing"}
    assert kinds(evidence(*again, rows=25, offsets=22), fault=True) == {"duplicates"}


def test_verify_notes_duplicates_of_rows_that_a_rewind_kept() -> None:
    commits = (batch(1, 0, 10), moved(2, 10, 5, deleted=False), batch(3, 5, 10))
    known = evidence(*commits, rows=15, offsets=10)
    assert kinds(known, fault=True) == set()
    assert kinds(known, fault=False) == {"rewind", "duplicates"}


def test_verify_does_not_report_dead_letters_of_rewound_ranges_as_missing() -> None:
    def kept(*offsets: int, commits: tuple[Commit, ...]) -> Letters:
        return Letters(commits, letters=tuple(Letter("t", 0, each) for each in offsets))

    def written(number: int, start: int, end: int, rows: int) -> Commit:
        return Commit("f", number, spans((start, end)), snapshot_id=number, rows=rows)

    before = (batch(1, 0, 10, dead=2), moved(2, 10, 0))
    letters = kept(commits=(written(5, 0, 10, 2), moved(6, 10, 0)))
    assert kinds(evidence(*before, rows=0, letters=letters), fault=True) == set()
    again = (*before, batch(3, 0, 10, dead=1))
    letters = kept(4, commits=(written(5, 0, 10, 2), moved(6, 10, 0), written(7, 0, 10, 1)))
    known = evidence(*again, rows=9, letters=letters)
    assert (kinds(known, fault=True), kinds(known, fault=False)) == (set(), {"rewind"})
    surplus = kept(4, 5, commits=letters.commits)
    assert kinds(evidence(*again, rows=9, letters=surplus), fault=True) == {"letters-surplus"}
    unwritten = kept(commits=letters.commits[:2])
    assert kinds(evidence(*again, batch(4, 10, 12), rows=11, letters=unwritten), fault=True) == {"letters"}


def test_verify_does_not_report_dead_letters_written_again_after_a_move_as_surplus() -> None:
    def written(number: int, start: int, end: int) -> Commit:
        return Commit("f", number, spans((start, end)), snapshot_id=number, rows=1)

    letters = Letters(
        (written(5, 0, 4), written(6, 4, 6), moved(7, 6, 4), written(8, 4, 6)),
        letters=(Letter("t", 0, 3), Letter("t", 0, 5)),
    )
    known = evidence(batch(1, 0, 4, dead=1), batch(2, 4, 6, dead=1), rows=4, letters=letters)
    assert kinds(known, fault=True) == set()


def test_verify_notes_that_rows_of_two_topics_with_the_same_name_cannot_be_distinguished() -> None:
    entered = Commit(
        "f",
        0,
        spans((0, 0), topic_id="B"),
        snapshot_id=2,
        move=PositionReset("accepted-loss", {P0: (10, 0)}, {"t": "A"}),
    )
    known = evidence(batch(1, 0, 10), entered, batch(3, 0, 4, topic_id="B"), rows=14, offsets=10)
    assert kinds(known, fault=True) == set()
    assert kinds(known, fault=False) == {"accepted-loss", "renamed"}


def test_a_rewind_to_before_the_takeover_of_a_table_is_refused() -> None:
    moves = (
        PartitionMove(topic="t", partition=0, start=90, to=50),
        PartitionMove(topic="t", partition=1, start=9, to=2),
    )
    require_own_records(moves, {("t", 0): 50}, where="lake.a.b")
    with pytest.raises(
        ConfigError, match=r"took the table over at offset 5 of t-1: from 2 on, it would land records that"
    ):
        require_own_records(moves, {("t", 0): 50, ("t", 1): 5}, where="lake.a.b")
