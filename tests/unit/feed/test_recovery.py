"""``decide`` determines how a feed starts from facts about its checkpoint, table and topics."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lakefeed.clients.kafka.topics import PartitionDescription, TopicDescription
from lakefeed.errors import CheckpointMismatch, LakefeedError, RecordsLost
from lakefeed.feed.recovery import Facts, Start, decide, find_data_loss, starting_offsets
from lakefeed.ledger.checkpoint import CheckpointState, Note, Owner, checkpoint_state, read_note, require_owner
from lakefeed.ledger.feed_position import Position
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, with_batch

P0, P1 = ("t", 0), ("t", 1)


def topic(*offsets: tuple[int, int], topic_id: str = "A") -> TopicDescription:
    partitions = tuple(
        PartitionDescription(id=number, leader=1, start_offset=start, end_offset=end)
        for number, (start, end) in enumerate(offsets)
    )
    return TopicDescription(name="t", topic_id=topic_id, partitions=partitions)


def cut_off(described: TopicDescription, agreed: int) -> TopicDescription:
    """Return the topic after an unclean leader election, which kept only the records up to `agreed`."""
    return replace(described, partitions=tuple(replace(part, agreed=agreed) for part in described.partitions))


def position(*ends: int, start: int = 0, topic_id: str = "A") -> Position:
    ranges = tuple(OffsetRange("t", number, min(start, end), end) for number, end in enumerate(ends))
    return Position(OffsetRanges(ranges, {"t": topic_id}), snapshot_id=7)


def checkpoint(batch: int | None, end: int = 0, *, start: int | None = None, **others: Any) -> CheckpointState:
    """Return a checkpoint; its last batch is planned but not committed if `start` is given."""
    if batch is None:
        return CheckpointState(**others)
    begins = None if start is None else {P0: start}
    return CheckpointState(batch_id=batch, committed=start is None, start=begins, end={P0: end}, **others)


def facts(state: CheckpointState, last: Position | None, **others: Any) -> Facts:
    known: dict[str, Any] = {"topics": {"t": topic((0, 100))}, "keeps_ledger": True, **others}
    return Facts(feed="f", sink="lake.n.t", checkpoint=state, last=last, **known)


NEW_CHECKPOINT = Start(reset_checkpoint=True, positions={P0: 9})


@pytest.mark.parametrize(
    ("state", "last", "expected"),
    [
        pytest.param(checkpoint(None), None, Start(), id="a new feed"),
        pytest.param(checkpoint(0, 9, start=0), None, Start(), id="first batch planned"),
        pytest.param(checkpoint(1, 9), position(9), Start(), id="equal"),
        pytest.param(checkpoint(1, 9, start=5), position(9), Start(), id="committed, not logged by Spark"),
        pytest.param(checkpoint(2, 20, start=9), position(9), Start(), id="checkpoint one batch ahead"),
        pytest.param(checkpoint(None), position(9), NEW_CHECKPOINT, id="checkpoint lost"),
        pytest.param(checkpoint(0, 5), position(9), NEW_CHECKPOINT, id="rolled back"),
        pytest.param(checkpoint(1, 7, start=5), position(9), NEW_CHECKPOINT, id="rolled back, another batch planned"),
        pytest.param(checkpoint(1, 9, damage="x"), position(9), NEW_CHECKPOINT, id="damaged"),
        pytest.param(
            checkpoint(None, damage="x"), position(9), NEW_CHECKPOINT, id="removal of the checkpoint interrupted"
        ),
        pytest.param(
            checkpoint(None, damage="x"), None, Start(reset_checkpoint=True), id="removal interrupted, no table"
        ),
        pytest.param(checkpoint(2, 200, start=9), position(9), NEW_CHECKPOINT, id="planned batch ends after the topic"),
    ],
)
def test_decide_resumes_at_the_checkpoint_or_at_the_table(
    state: CheckpointState, last: Position | None, expected: Start
) -> None:
    found = decide(facts(state, last))
    assert (found.reset_checkpoint, found.positions, found.data_loss) == (
        expected.reset_checkpoint,
        expected.positions,
        (),
    )
    assert (found.message is not None) == (found.positions is not None)


@pytest.mark.parametrize(
    ("state", "last"),
    [
        pytest.param(checkpoint(1, 9), position(5), id="table rolled back"),
        pytest.param(checkpoint(2, 20, start=9), position(5), id="table rolled back, next batch planned"),
        pytest.param(checkpoint(0, 9), None, id="table dropped"),
        pytest.param(checkpoint(1, 9, start=5), None, id="table dropped, next batch planned"),
    ],
)
def test_a_table_behind_its_checkpoint_is_refused(state: CheckpointState, last: Position | None) -> None:
    with pytest.raises(CheckpointMismatch, match="is behind its checkpoint") as refused:
        decide(facts(state, last), accept_loss=True)
    assert refused.value.hint is not None
    assert "--to table" in refused.value.hint


def test_a_move_that_is_missing_in_the_checkpoint_resets_the_checkpoint() -> None:
    moved = position(3, start=3)
    assert (moved.reset_snapshot_id, replace(moved, is_move=True).reset_snapshot_id) == (None, 7)
    found = decide(facts(checkpoint(1, 9), moved, unknown_move=True))
    assert (found.reset_checkpoint, found.positions) == (True, {P0: 3})
    with pytest.raises(CheckpointMismatch):
        decide(facts(checkpoint(1, 9), moved))


def test_without_a_checkpoint_a_feed_resumes_at_the_ledgers_position() -> None:
    alone = facts(checkpoint(None), position(9), has_checkpoint=False, unknown_move=True)
    assert decide(alone) == Start(positions={P0: 9})
    assert decide(replace(alone, last=None)) == Start()
    with pytest.raises(RecordsLost):
        decide(replace(alone, topics={"t": topic((12, 90))}))
    with pytest.raises(CheckpointMismatch, match="transform with state"):
        decide(replace(alone, last=Position(with_batch(position(9).ranges, batch_id=3, query_id="q"), snapshot_id=7)))


def test_a_new_partition_begins_at_its_first_offset() -> None:
    grown = {"t": topic((0, 100), (40, 50))}
    assert starting_offsets({P0: 9}, grown) == {"t": {0: 9, 1: -2}}
    # The new checkpoint has planned its first batch, with the new partition, but the batch did not land.
    planned = CheckpointState(batch_id=0, start={P0: 9, P1: 40}, end={P0: 12, P1: 50})
    assert decide(facts(planned, position(9), topics=grown)) == Start()
    later = CheckpointState(batch_id=4, start={P0: 9}, end={P0: 12, P1: 50})
    assert decide(facts(later, position(9), topics=grown)) == Start()
    # The checkpoint committed the new partition, but the table has none of its records.
    landed = CheckpointState(batch_id=4, committed=True, end={P0: 9, P1: 50})
    with pytest.raises(CheckpointMismatch, match="t-1 is at 50 in the checkpoint"):
        decide(facts(landed, position(9), topics=grown))


@pytest.mark.parametrize(
    ("now", "kind", "resume_at"),
    [
        (topic((0, 5), topic_id="B"), "recreated", 0),
        (topic((0, 9), topic_id="B"), "recreated", 0),
        (topic((2, 90), topic_id="B"), "recreated", 2),
        (topic((12, 90)), "overtaken", 12),
        (topic((0, 8)), "ahead", 8),
        (cut_off(topic((0, 90)), 5), "cut-off", 5),
        (cut_off(topic((0, 8)), 5), "cut-off", 5),
        (cut_off(topic((0, 90)), 0), "cut-off", 0),
        (topic(), "gone", None),
        (None, "gone", None),
    ],
)
def test_lost_records_are_skipped_only_with_accept_loss(
    now: TopicDescription | None, kind: str, resume_at: int | None
) -> None:
    known = facts(checkpoint(1, 9), position(9), topics={"t": now})
    with pytest.raises(RecordsLost) as refused:
        decide(known)
    assert refused.value.hint is not None
    assert "lakefeed run pipeline.yaml --accept-loss" in refused.value.hint
    found = decide(known, accept_loss=True)
    [lost] = found.data_loss
    assert (lost.kind, lost.position, lost.resume_at) == (kind, 9, resume_at)
    assert (found.reset_checkpoint, found.positions) == (True, {} if resume_at is None else {P0: resume_at})


def test_a_misspelt_topic_gets_a_hint_with_the_known_name() -> None:
    with pytest.raises(RecordsLost) as refused:
        decide(facts(checkpoint(1, 9), position(9), topics={"t1": None}))
    assert refused.value.hint == "there is no topic 't1': correct source.kafka.topics; did you mean t?"


def test_a_position_at_the_topics_start_or_end_loses_nothing() -> None:
    assert list(find_data_loss({P0: 9}, {"t": "A"}, {"t": topic((9, 9))})) == []
    assert list(find_data_loss({P0: 9}, {}, {"t": topic((0, 20))})) == []
    assert list(find_data_loss({P0: 9}, {}, {"t": cut_off(topic((0, 90)), 9)})) == []


@pytest.mark.parametrize(
    ("state", "logged", "refused"),
    [
        (checkpoint(None), None, None),
        (checkpoint(0, 9, start=0), None, None),
        (checkpoint(0, 9, start=0), 0, None),
        (checkpoint(3, 9), 3, None),
        (checkpoint(3, 9, start=5, damage="metadata"), 3, None),
        (checkpoint(None), 2, "the checkpoint is empty"),
        (checkpoint(3, 9), 4, "ends at batch 4, and the checkpoint is at batch 3"),
        (checkpoint(3, 9), 2, "ends at batch 2, and the checkpoint has committed batch 3"),
        (checkpoint(3, 9, start=5), 1, "ends at batch 1"),
        (checkpoint(3, 9), None, "is empty"),
    ],
)
def test_a_sinks_log_must_end_at_the_checkpoints_batch(
    state: CheckpointState, logged: int | None, refused: str | None
) -> None:
    known = facts(state, None, keeps_ledger=False, logged=logged, noted_ids={"t": "A"})
    if refused is None:
        assert decide(known) == Start()
        return
    with pytest.raises(CheckpointMismatch, match=refused):
        decide(known, accept_loss=True)


def test_accept_loss_is_refused_without_a_ledger() -> None:
    again = {"t": topic((0, 50), topic_id="B")}
    known = facts(checkpoint(3, 9), None, keeps_ledger=False, logged=3, noted_ids={"t": "A"}, topics=again)
    with pytest.raises(RecordsLost, match="recreated"):
        decide(known, accept_loss=True)


class Files:
    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files

    def names(self) -> list[str]:
        return list(self._files)

    def read(self, name: str) -> str:
        return self._files[name]


def entry(offset: int) -> str:
    return f'v1\n{{"batchWatermarkMs":0}}\n{{"t":{{"0":{offset}}}}}'


WHOLE = {
    "metadata": "",
    "sources/0/0": '\0v1\n{"t":{"0":2}}',
    "offsets/0": entry(5),
    "commits/0": "v1",
    "offsets/1": entry(9),
    "commits/1": "v1",
    "offsets/.2.tmp": "",
}


def without(*names: str) -> Files:
    return Files({name: text for name, text in WHOLE.items() if name not in names})


def test_checkpoint_state_reads_position_and_commits() -> None:
    assert checkpoint_state(without()) == checkpoint(1, 9)
    assert checkpoint_state(without("commits/1")) == checkpoint(1, 9, start=5)
    assert checkpoint_state(without("offsets/1", "commits/1", "commits/0")) == checkpoint(0, 5, start=2)
    assert checkpoint_state(Files({})) == checkpoint(None)
    assert checkpoint_state(Files({"metadata": "", "sources/0/0": ""})) == checkpoint(None)


@pytest.mark.parametrize(
    ("files", "damage"),
    [
        (without("metadata"), "'metadata' is gone"),
        (without("commits/0", "commits/1"), "'commits'"),
        (without("offsets/1"), None),
        (without("offsets/0", "commits/1"), "folder 'offsets' or"),
        (without("offsets/0", "offsets/1"), "folder 'offsets' are gone"),
        (Files({"sources/0/0": ""}), "folder 'offsets' are gone"),
        (Files({**WHOLE, "offsets/1": ""}), "'offsets/1' is broken"),
        (Files({**WHOLE, "offsets/1": "v1\n{}"[:4]}), "'offsets/1' is broken"),
    ],
)
def test_checkpoint_state_finds_damage(files: Files, damage: str | None) -> None:
    found = checkpoint_state(files).damage
    if damage is None:
        # commits has a newer entry than offsets; Spark never leaves such a checkpoint.
        assert found is not None
    else:
        assert found is not None
        assert damage in found


def test_read_note_reads_notes_of_older_and_newer_versions() -> None:
    older = Files({"lakefeed.json": '{"feed": "f", "sink": "s"}'})
    assert read_note(older, where="x") == Note("f", "s")
    newer = Files({"lakefeed.json": '{"feed": "f", "sink": "s", "move": 3, "more": 1}'})
    found = read_note(newer, where="x")
    assert found == Note("f", "s", move=3)
    assert '"move": 3' in found.to_json()
    assert read_note(Files({}), where="x") is None
    for wrong in ({"metadata": ""}, {"lakefeed.json": "{}"}, {"lakefeed.json": "["}, {"lakefeed.json": "[]"}):
        with pytest.raises(CheckpointMismatch):
            read_note(Files(wrong), where="x")


def test_a_checkpoint_of_another_pipeline_is_refused_with_the_difference() -> None:
    with pytest.raises(LakefeedError) as refused:
        require_owner(Note("f", "iceberg a.b.c"), Owner("f", "iceberg a.b.d"), where="x")
    assert "sink: iceberg a.b.c → iceberg a.b.d: the rows until now are in the old sink" in str(refused.value)
    assert "name: " not in str(refused.value)


def batches(landed: int, *, end: int = 9, query: str = "Q") -> Position:
    """Return the position of a feed with state after `landed` batches."""
    topics = OffsetRanges((OffsetRange("t", 0, 0, end),), {"t": "A"})
    return Position(with_batch(topics, batch_id=landed - 1, query_id=query), snapshot_id=7)


@pytest.mark.parametrize(
    ("state", "last"),
    [
        pytest.param(checkpoint(None), None, id="a new feed"),
        pytest.param(checkpoint(0, 9, start=0, query_id="Q"), None, id="first batch planned"),
        pytest.param(checkpoint(2, 9, query_id="Q"), batches(3), id="equal"),
        pytest.param(checkpoint(2, 9, start=5, query_id="Q"), batches(3), id="committed, not logged by Spark"),
        pytest.param(checkpoint(3, 20, start=9, query_id="Q"), batches(3), id="checkpoint one batch ahead"),
    ],
)
def test_a_feed_with_state_resumes_at_its_checkpoint(state: CheckpointState, last: Position | None) -> None:
    assert decide(facts(state, last, stateful=True)) == Start()


@pytest.mark.parametrize(
    ("state", "last", "said"),
    [
        pytest.param(checkpoint(None), batches(3), "the checkpoint is empty", id="checkpoint lost"),
        pytest.param(checkpoint(2, 9, damage="x", query_id="Q"), batches(3), "is damaged", id="damaged"),
        pytest.param(checkpoint(2, 9, query_id="R"), batches(3), "of query R", id="another query"),
        pytest.param(checkpoint(1, 5, query_id="Q"), batches(3), "at batch 1", id="rolled back"),
        pytest.param(
            checkpoint(2, 20, start=5, query_id="Q"), batches(3), "other records", id="rolled back, then new records"
        ),
        pytest.param(checkpoint(3, 20, query_id="Q"), batches(3), "is behind its checkpoint", id="table behind"),
        pytest.param(checkpoint(4, 20, query_id="Q"), None, "has no commit", id="table empty"),
        pytest.param(checkpoint(2, 9, query_id="Q"), position(9), "keeps state now", id="without state before"),
        pytest.param(checkpoint(None), position(9), "keeps state now", id="without state before, checkpoint lost"),
    ],
)
def test_a_feed_with_state_is_refused_without_its_checkpoint(
    state: CheckpointState, last: Position | None, said: str
) -> None:
    with pytest.raises(CheckpointMismatch, match=said):
        decide(facts(state, last, stateful=True))


def test_a_feed_with_state_cannot_skip_lost_records() -> None:
    gone = {"t": topic((20, 100))}
    with pytest.raises(RecordsLost, match="state cannot skip records"):
        decide(facts(checkpoint(2, 9, query_id="Q"), batches(3), stateful=True, topics=gone), accept_loss=True)


def test_a_stateless_transform_is_refused_after_a_stateful_transform() -> None:
    with pytest.raises(CheckpointMismatch, match="a transform with state has filled the table"):
        decide(facts(checkpoint(2, 9), batches(3)))
    with pytest.raises(CheckpointMismatch, match="a transform with state has filled the table"):
        decide(facts(checkpoint(2, 9, has_state=True), position(9)))


def test_dead_letters_ahead_of_the_table_are_refused_unless_the_feed_was_moved() -> None:
    letters = {"letters": position(9).ranges, "letters_table": "lake.n.dead"}
    equal = facts(checkpoint(1, 9), position(9), **letters)
    assert decide(equal) == Start()
    for behind in (facts(checkpoint(1, 5), position(5), **letters), facts(checkpoint(None), None, **letters)):
        with pytest.raises(CheckpointMismatch, match="dead letters of feed 'f' are ahead of its rows") as refused:
            decide(behind)
        assert refused.value.where == "lake.n.dead"
    moved = replace(position(5), is_move=True)
    assert decide(facts(checkpoint(1, 9), moved, unknown_move=True, **letters)).reset_checkpoint
    # The letters belong to a deleted topic, not to the new topic of the same name, so the start is refused only because
    # of the lost records.
    recreated = {"topics": {"t": topic((0, 100), topic_id="B")}}
    with pytest.raises(RecordsLost):
        decide(facts(checkpoint(1, 5), position(5), **letters, **recreated))
