"""Decides how a feed with state starts: it resumes only from its own checkpoint, which has the state."""

from __future__ import annotations

from lakefeed.errors import CheckpointMismatch, RecordsLost
from lakefeed.feed.facts import Facts, Start
from lakefeed.ledger.stateful_batches import BATCHES, has_state, without_batches


def require_state(facts: Facts) -> Start:
    """Decide how a feed with state starts.

    Raises:
        CheckpointMismatch: checkpoint and sink do not belong together: the state is lost, or is another query's.
    """
    from lakefeed.feed.facts import Start

    state, last = facts.checkpoint, facts.last
    planned = -1 if state.batch_id is None else state.batch_id
    if last is None:
        if planned < 0:
            return Start(reset_checkpoint=state.damage is not None)
        if planned == 0 and not state.committed:
            return Start()
        raise _behind(facts, f"the checkpoint is at batch {planned}, and the table holds no commit of the feed")
    if not has_state(last.ranges):
        if _has_unlogged_state(facts):
            return Start()
        if state.has_state:
            raise _lost(facts, "the table has no log of its batches, and is at other offsets than the checkpoint")
        raise CheckpointMismatch(
            f"the query of feed '{facts.feed}' keeps state now, and the table was filled by one that kept none",
            where=facts.sink,
            hint="name a new table and a new checkpoint location, which read the topics again",
        )
    landed = next(each.end for each in last.ranges.ranges if each.topic == BATCHES)
    if planned < 0 or state.damage is not None:
        damage = "is empty" if planned < 0 and state.damage is None else f"is damaged: {state.damage}"
        raise _lost(facts, f"the checkpoint {damage}, and the table has {landed} batches")
    if state.query_id != last.ranges.topic_ids[BATCHES]:
        raise _lost(
            facts,
            f"the checkpoint is of query {state.query_id}, the table's batches are of {last.ranges.topic_ids[BATCHES]}",
        )
    if landed > planned + 1:
        raise _lost(facts, f"the checkpoint is at batch {planned}, and the table has {landed} batches")
    if landed < (planned + 1 if state.committed else planned):
        raise _behind(facts, f"the checkpoint is at batch {planned}, and the table has {landed} batches")
    ends = {(each.topic, each.partition): each.end for each in without_batches(last.ranges).ranges}
    if landed == planned + 1 and any(state.end.get(key, end) != end for key, end in ends.items()):
        raise _lost(facts, f"batch {planned} is committed with other records than the checkpoint has for it")
    return Start()


def _has_unlogged_state(facts: Facts) -> bool:
    """Whether an older version of ``write_table`` wrote the table, which kept no log of the query's batches.

    The state is in the checkpoint, and the offsets of both agree. The next commit begins the log.
    """
    state = facts.checkpoint
    if facts.last is None or state.batch_id is None or not state.has_state or state.damage is not None:
        return False
    table = {(each.topic, each.partition): each.end for each in facts.last.ranges.ranges}
    positions = [state.end] if state.committed else [state.end, state.start]
    return table in [{key: at for key, at in (each or {}).items() if key in table} for each in positions]


def require_no_state(facts: Facts) -> None:
    """Refuse to resume without the state that the table's batches were computed with.

    Raises:
        CheckpointMismatch: if they were.
    """
    begun = (facts.had_state or facts.checkpoint.has_state) and facts.checkpoint.batch_id is not None
    if begun or (facts.last is not None and has_state(facts.last.ranges)):
        raise CheckpointMismatch(
            f"the table of feed '{facts.feed}' was filled by a transform that keeps state, and this one keeps none",
            where=facts.sink,
            hint="put the transform back; or name a new table and a new checkpoint location, which read the topics "
            "again",
        )


def lost_under_state(facts: Facts, losses: str) -> RecordsLost:
    """Return the error for a feed with state that has lost records."""
    return RecordsLost(
        f"feed '{facts.feed}' cannot resume: {losses}",
        where=facts.sink,
        hint="bring the records back; or name a new table and a new checkpoint location, which read what the topics "
        "have. State cannot be moved over a gap",
    )


def _lost(facts: Facts, difference: str) -> CheckpointMismatch:
    return CheckpointMismatch(
        f"the state of feed '{facts.feed}' is lost: {difference}. What its windows and keys have counted so far, and "
        "what it has read of a source without offsets, is only in the checkpoint; without it the rows would be wrong",
        where=facts.sink,
        hint="restore the checkpoint; or name a new table and a new checkpoint location, which read the topics again",
    )


def _behind(facts: Facts, difference: str) -> CheckpointMismatch:
    return CheckpointMismatch(
        f"the table of feed '{facts.feed}' is behind its checkpoint: {difference}. The table was rolled back or "
        "recreated, or is another one",
        where=facts.sink,
        hint="restore the table; or name a new table and a new checkpoint location, which read the topics again: state "
        "cannot go back",
    )
