"""Decides how a feed starts, from facts about its checkpoint, sink and topics; this module asks no server.

The table is the truth; the checkpoint is derived from the table. If the table is ahead of the checkpoint, the feed
resumes at the table's position, with a new checkpoint. If the table is behind, or a topic was recreated, the start is
refused. A feed with state resumes only from its own checkpoint, which has the state.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from lakefeed.clients.kafka.topics import TopicDescription, partitions_of
from lakefeed.errors import CheckpointMismatch, RecordsLost
from lakefeed.ledger.checkpoint import CheckpointState
from lakefeed.ledger.feed_position import Position, letters_ahead, step_back
from lakefeed.offsets.ranges import BATCHES, OffsetRanges, Partition, has_state, without_batches

MOST_SHOWN = 10
GIVE_UP = (
    "bring the records back, or give them up: lakefeed run pipeline.yaml --accept-loss, which records the loss in the "
    "table's ledger"
)
TO_TABLE = "lakefeed offsets rewind pipeline.yaml --to table"
NEW_TABLE = "name a new table and a new checkpoint location: the feed then reads the source again"
WITHOUT_CHECKPOINT = "remove the checkpoint: the feed then resumes at the table's position"
AT_TABLE = "resumes at the table's position, with a new checkpoint"
Kind = Literal["recreated", "cut-off", "overtaken", "ahead", "gone", "unread"]
Topics = Mapping[str, TopicDescription | None]
"""The broker's descriptions of a pipeline's topics; None for a topic that does not exist."""


@dataclass(frozen=True, kw_only=True)
class DataLoss:
    """Records of one partition that the feed can no longer read, or cannot distinguish from other records.

    Attributes:
        kind: ``recreated``: a new topic has the same name; ``cut-off``: a new leader lacked records that the feed had
            read (unclean election), so other records may have these offsets now; ``overtaken``: retention removed
            records before the feed read them; ``ahead``: the topic ends before the feed's position; ``gone``: the topic
            or partition does not exist any more; ``unread``: the pipeline does not read the topic any more.
        resume_at: the offset where the feed can resume; None if the feed cannot resume.
    """

    kind: Kind
    topic: str
    partition: int
    position: int
    resume_at: int | None
    message: str

    @property
    def key(self) -> Partition:
        return self.topic, self.partition


@dataclass(frozen=True, kw_only=True)
class Start:
    """The decision how a feed starts.

    Attributes:
        reset_checkpoint: whether the run first removes Spark's files in the checkpoint.
        positions: the start offsets by partition; a partition without an offset begins at its first record. None if the
            checkpoint has these offsets, or if the feed is new and begins where the pipeline file says.
        data_loss: the lost records that the feed gives up; the ledger records them.
    """

    reset_checkpoint: bool = False
    positions: Mapping[Partition, int] | None = None
    message: str | None = None
    data_loss: tuple[DataLoss, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The facts before a feed starts.

    Attributes:
        last: the feed's position in the sink's ledger; None if the ledger has no commit of the feed.
        unknown_move: whether ``last`` is a move, such as a rewind, that was not applied to the checkpoint yet.
        has_checkpoint: whether the feed has a checkpoint; otherwise only the ledger has its position.
        logged: the newest batch in the sink's log; None if the log is empty, or if the sink has no log.
        noted_ids: the topics' ids from the checkpoint location, for a sink without a ledger.
        rewinds: whether ``lakefeed offsets rewind`` can move the feed.
        stateful: whether the query keeps state between batches, or its source has no offsets.
        letters: the ranges of the dead letters' newest commit; None without letters, or if the writer compares them.
    """

    feed: str
    sink: str
    keeps_ledger: bool
    checkpoint: CheckpointState
    last: Position | None = None
    has_checkpoint: bool = True
    unknown_move: bool = False
    logged: int | None = None
    topics: Topics = field(default_factory=dict)
    noted_ids: Mapping[str, str] = field(default_factory=dict)
    rewinds: bool = True
    stateful: bool = False
    had_state: bool = False
    keeps_log: bool = True
    letters: OffsetRanges | None = None
    letters_table: str = ""


def decide(facts: Facts, *, accept_loss: bool = False) -> Start:
    """Decide how a feed starts, or raise an error; ``accept_loss`` allows a start although records are lost.

    Raises:
        CheckpointMismatch: the checkpoint or the dead letters are ahead of the sink, or the state is lost.
        RecordsLost: a topic was recreated, or lacks records that the feed has not read yet.
    """
    start = _start(facts, accept_loss=accept_loss)
    if facts.letters is not None and not (facts.last and facts.last.is_move):
        position = facts.last.ranges if facts.last else None
        if step_back(facts.feed, facts.letters, position) is not None:
            raise letters_ahead(facts.feed, where=facts.letters_table)
    return start


def _start(facts: Facts, *, accept_loss: bool) -> Start:
    if not facts.stateful:
        require_no_state(facts)
    if facts.keeps_ledger:
        start = _from_state(facts) if facts.stateful else _from_ledger(facts)
    else:
        start = _from_log(facts) if facts.keeps_log else _from_checkpoint(facts)
    positions, ids = _position(facts, start)
    lost = tuple(find_data_loss(positions, ids, facts.topics))
    if not lost:
        return start if facts.stateful else _without_unreadable_batch(facts, start, positions)
    losses = "; ".join(loss.message for loss in lost[:MOST_SHOWN])
    losses += f"; and {len(lost) - MOST_SHOWN} more partitions" if len(lost) > MOST_SHOWN else ""
    if facts.stateful:
        hint = f"bring the records back; or {NEW_TABLE}, because a query's state cannot skip records"
    elif not facts.keeps_ledger:
        hint = (
            "bring the records back; or name another path and another checkpoint location, because this sink has no "
            "ledger that could record the loss"
        )
    elif not accept_loss:
        known = {topic for topic, _ in positions}
        new = next((name for name, topic in facts.topics.items() if topic is None and name not in known), None)
        # If a topic of the pipeline file does not exist and the feed has never read it, its name is probably misspelt.
        hint = GIVE_UP if new is None else f"there is no topic '{new}': correct source.kafka.topics"
        if new is not None and (near := difflib.get_close_matches(new, known, n=1)):
            hint += f"; did you mean {near[0]}?"
    else:
        resumed = {**positions, **{loss.key: loss.resume_at for loss in lost}}
        return Start(
            reset_checkpoint=True,
            positions={key: position for key, position in resumed.items() if position is not None},
            message=f"resumes although records are lost: {losses}",
            data_loss=lost if facts.last else (),
        )
    raise RecordsLost(f"feed '{facts.feed}' cannot resume: {losses}", where=facts.sink, hint=hint)


def ends(position: Position) -> dict[Partition, int]:
    """Return the offsets where a feed resumes, by partition."""
    return without_batches(position.ranges).ends


def _from_ledger(facts: Facts) -> Start:
    """Return the start of a query without state, from the table's ledger and the checkpoint."""
    state = facts.checkpoint
    if facts.last is None:
        return _without_commits(facts)
    table = ends(facts.last)
    if not facts.has_checkpoint:
        return Start(positions=table)

    def at_table(message: str) -> Start:
        return Start(reset_checkpoint=True, positions=table, message=message)

    if facts.unknown_move:
        return at_table("resumes where the feed was moved to")
    if state.batch_id is None:
        return at_table(f"the checkpoint is empty; {AT_TABLE}")
    if state.damage is not None:
        return at_table(f"the checkpoint is damaged: {state.damage}; {AT_TABLE}")
    position = state.position or {}
    if state.batch_id == 0 and not state.committed:
        # The first batch was not committed: ignore partitions that the table does not have yet.
        position = {key: at for key, at in position.items() if key in table}
    if table in (_known(state.end, table), _known(position, table)):
        # The table is at the end of the checkpoint's last batch, or at its start if that batch was not committed.
        return Start()
    if ahead := {key: at for key, at in position.items() if at > table.get(key, 0)}:
        behind = "; ".join(
            f"{key[0]}-{key[1]} is at {at} in the checkpoint, and at {table.get(key, 0)} in the table"
            for key, at in sorted(ahead.items())[:MOST_SHOWN]
        )
        raise _table_behind(facts, behind)
    return at_table(f"the checkpoint is older than the table; {AT_TABLE}")


def _without_commits(facts: Facts) -> Start:
    """Return the start of a feed without a commit; its checkpoint may have planned the first batch, but no more."""
    state = facts.checkpoint
    if state.batch_id is None:
        # The checkpoint may be damaged because its removal was interrupted.
        return Start(reset_checkpoint=state.damage is not None)
    if state.batch_id == 0 and not state.committed and (facts.stateful or state.start is not None):
        return Start()
    raise _table_behind(facts, f"the checkpoint is at batch {state.batch_id}, and the table has no commit of the feed")


def _table_behind(facts: Facts, behind: str) -> CheckpointMismatch:
    again = f"read these records again: {TO_TABLE if facts.rewinds else WITHOUT_CHECKPOINT}"
    if facts.stateful:
        again = f"{NEW_TABLE}, because a query's state cannot go back"
    return CheckpointMismatch(
        f"the table of feed '{facts.feed}' is behind its checkpoint: {behind}. The table was rolled back or recreated, "
        "or it is the wrong table",
        where=facts.sink,
        hint=f"restore the table; or {again}",
    )


def _from_state(facts: Facts) -> Start:
    """Return the start of a query with state; refuse if table and checkpoint have batches of different queries."""
    state, last = facts.checkpoint, facts.last
    if last is None:
        return _without_commits(facts)
    planned = -1 if state.batch_id is None else state.batch_id
    if not has_state(last.ranges):
        raise CheckpointMismatch(
            f"the query of feed '{facts.feed}' keeps state now, but a query without state has filled its table",
            where=facts.sink,
            hint=NEW_TABLE,
        )
    landed = last.ranges.ends[BATCHES, 0]
    difference = f"the checkpoint is at batch {planned}, and the table has {landed} batches"
    if planned < 0 or state.damage is not None:
        damage = "is empty" if state.damage is None else f"is damaged: {state.damage}"
        raise _state_lost(facts, f"the checkpoint {damage}, and the table has {landed} batches")
    if state.query_id != last.ranges.topic_ids[BATCHES]:
        query_id = last.ranges.topic_ids[BATCHES]
        raise _state_lost(facts, f"the checkpoint is of query {state.query_id}, and the table's batches of {query_id}")
    if landed > planned + 1:
        raise _state_lost(facts, difference)
    if landed < (planned + 1 if state.committed else planned):
        raise _table_behind(facts, difference)
    if landed == planned + 1 and any(state.end.get(key, end) != end for key, end in ends(last).items()):
        raise _state_lost(facts, f"the table has other records of batch {planned} than the checkpoint")
    return Start()


def _state_lost(facts: Facts, difference: str) -> CheckpointMismatch:
    return CheckpointMismatch(
        f"the state of feed '{facts.feed}' is lost: {difference}. Without the state of windows and keys, and the "
        "position in a source without offsets, the rows would be wrong",
        where=facts.sink,
        hint=f"restore the checkpoint; or {NEW_TABLE}",
    )


def require_no_state(facts: Facts) -> None:
    """Refuse a transform without state if the checkpoint or the table has batches of a transform with state."""
    begun = (facts.had_state or facts.checkpoint.has_state) and facts.checkpoint.batch_id is not None
    if begun or (facts.last is not None and has_state(facts.last.ranges)):
        raise CheckpointMismatch(
            f"a transform with state has filled the table of feed '{facts.feed}', but the transform now keeps no state",
            where=facts.sink,
            hint=f"restore the earlier transform; or {NEW_TABLE}",
        )


def _from_log(facts: Facts) -> Start:
    """Return the start for a file sink; refuse if log and checkpoint differ: Spark would lose or repeat a batch."""
    state, logged = facts.checkpoint, -1 if facts.logged is None else facts.logged
    planned = -1 if state.batch_id is None else state.batch_id
    landed = planned if state.committed else planned - 1
    if max(landed, -1) <= logged <= planned:
        return Start()
    if logged > planned:
        raise CheckpointMismatch(
            f"the log below the path of feed '{facts.feed}' ends at batch {logged}, and the checkpoint "
            f"{f'is at batch {planned}' if planned >= 0 else 'is empty'}: the checkpoint was lost or rolled back. "
            "Spark would skip the next batches, because the log has their numbers",
            where=facts.sink,
            hint="restore the checkpoint; or name another path and another checkpoint location: the feed then reads "
            "the topics again. (A feed into an Iceberg table resumes without its checkpoint)",
        )
    raise CheckpointMismatch(
        f"the log below the path of feed '{facts.feed}' {f'ends at batch {logged}' if logged >= 0 else 'is empty'}, "
        f"and the checkpoint has committed batch {landed}: the log was removed, or the path is the wrong one",
        where=f"{facts.sink}/_spark_metadata",
        hint="restore the path; or name another path and another checkpoint location: the feed then reads the source "
        "again",
    )


def _from_checkpoint(facts: Facts) -> Start:
    """Return the start for a sink without ledger and log, from the checkpoint alone."""
    state = facts.checkpoint
    if state.damage is None:
        return Start()
    if facts.stateful:
        raise CheckpointMismatch(
            f"the state of feed '{facts.feed}' is lost: the checkpoint is damaged: {state.damage}",
            where=facts.sink,
            hint="restore the checkpoint; or name another checkpoint location: the feed then starts over",
        )
    return Start(reset_checkpoint=True, message=f"the checkpoint is damaged: {state.damage}; the feed starts over")


def _position(facts: Facts, start: Start) -> tuple[Mapping[Partition, int], Mapping[str, str]]:
    if facts.last is not None:
        return ends(facts.last), facts.last.ranges.topic_ids
    if start.reset_checkpoint:
        return {}, {}
    return facts.checkpoint.position or {}, facts.noted_ids


def _without_unreadable_batch(facts: Facts, start: Start, positions: Mapping[Partition, int]) -> Start:
    """Let the run reset a checkpoint whose uncommitted batch ends after the topic's end: Spark plans a new batch."""
    state = facts.checkpoint
    if start.reset_checkpoint or state.batch_id is None or state.committed or not facts.keeps_ledger:
        return start
    partitions = partitions_of(facts.topics)
    if all(key in partitions and end <= partitions[key].end_offset for key, end in state.end.items()):
        return start
    return Start(reset_checkpoint=True, positions=positions, message="the topics no longer have the planned batch")


def _known(offsets: Mapping[Partition, int], table: Mapping[Partition, int]) -> Mapping[Partition, int] | None:
    """Return the offsets of partitions in the table; None if any other partition has an offset above 0."""
    if any(key not in table and at > 0 for key, at in offsets.items()):
        return None
    return {key: at for key, at in offsets.items() if key in table}


def starting_offsets(positions: Mapping[Partition, int], topics: Topics) -> dict[str, dict[int, int]]:
    """Return an offset for every partition, as Spark requires; -2 (the first offset) for one without a position."""
    return {
        name: {number: positions.get((name, number), -2) for number in topic.ends}
        for name, topic in topics.items()
        if topic is not None
    }


def find_data_loss(positions: Mapping[Partition, int], ids: Mapping[str, str], topics: Topics) -> Iterator[DataLoss]:
    """Yield the data losses that prevent a feed from resuming; ``ids`` has the topic ids that the feed has read."""
    partitions = partitions_of(topics)
    for (topic, number), position in sorted(positions.items()):
        described = topics.get(topic)
        current = partitions.get((topic, number))
        noun = described.noun if described is not None else "topic"
        first = ids.get(topic, "")
        name = f"{topic}-{number}"
        kind: Kind
        resume_at = None
        if described is not None and first and first != described.topic_id:
            kind, resume_at = "recreated", current.start_offset if current else None
            offsets = f"the offsets [{current.start_offset}, {current.end_offset})" if current else "no such partition"
            message = (
                f"the {noun} was recreated (its id was {first}, and is {described.topic_id}); the feed has "
                f"read the old one up to {position}, the new one has {offsets}"
            )
        elif topic not in topics:
            kind = "unread"
            message = f"the pipeline does not read it any more; the feed has read it up to {position}"
        elif current is None:
            kind, message = "gone", f"it does not exist any more; the feed has read it up to {position}"
        elif current.lost is not None:
            kind, resume_at, name, message = "overtaken", position, topic, current.lost
        elif current.agreed is not None and current.agreed < position:
            kind, resume_at = "cut-off", current.agreed
            message = (
                f"the feed has read it up to {position}, but a replica without all records became the leader, and the "
                f"{noun} was cut off at {current.agreed}: its later offsets have other records than the feed has read"
            )
        elif position < current.start_offset:
            kind, resume_at = "overtaken", current.start_offset
            message = (
                f"the feed is at {position}, the {noun} begins at {current.start_offset}: "
                f"{current.start_offset - position:,} offsets were removed before they were read"
            )
        elif position > current.end_offset:
            kind, resume_at = "ahead", current.end_offset
            message = (
                f"the feed is at {position}, the {noun} ends at {current.end_offset}: the broker has lost "
                "records, or the servers are those of another cluster"
            )
        else:
            continue
        yield DataLoss(
            kind=kind,
            topic=topic,
            partition=number,
            position=position,
            resume_at=resume_at,
            message=f"{name}: {message}",
        )
