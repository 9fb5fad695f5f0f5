"""Collects the facts that decide how a feed starts, for a run, ``write_table``, ``offsets show`` and ``plan``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from lakefeed.commit.checkpoint import Note, Owner
from lakefeed.commit.checkpoint_state import CheckpointState
from lakefeed.commit.covered import Position
from lakefeed.commit.ranges import OffsetRanges
from lakefeed.commit.start import Facts
from lakefeed.kafka.topics import TopicDescription


class SinkState(Protocol):
    """What a start has to know of a sink, read with Spark or without."""

    keeps_ledger: bool
    """Whether it says which offsets it holds."""

    keeps_log: bool
    """Whether it keeps no ledger, but a log of the batches that it has."""

    def position(self) -> Position | None:
        """Where the feed stands; None if the sink has nothing of it, or keeps no ledger."""

    def logged(self) -> int | None:
        """The newest batch that a log by batch ids has; None without any, or without such a log."""


def collect_facts(
    owner: Owner,
    sink: SinkState,
    *,
    checkpoint: CheckpointState,
    note: Note | None,
    topics: Mapping[str, TopicDescription | None],
    stateful: bool,
    rewinds: bool = True,
    letters: OffsetRanges | None = None,
    letters_table: str = "",
) -> Facts:
    """Collects what ``decide`` needs; asks the sink only.

    Args:
        owner: the feed, and its sink as messages name it.
        sink: where its rows go.
        checkpoint: how far the checkpoint has come.
        note: what lakefeed noted beside the checkpoint; None without one.
        topics: those that the feed reads, as they are now.
        stateful: whether the query keeps state from batch to batch, or its source has no offsets.
        rewinds: whether ``lakefeed offsets rewind`` moves the sink.
        letters: the newest commit of the feed's dead letters. A run leaves it out: its writer compares them, with the
            requests that it makes anyway.
        letters_table: the table of the dead letters.

    Raises:
        CheckpointMismatch: the table was rolled back, and its position is unknown.
    """
    position = sink.position()
    moved_by = position.moved_by if position is not None else None
    return Facts(
        feed=owner.feed,
        sink=owner.sink,
        keeps_ledger=sink.keeps_ledger,
        keeps_log=sink.keeps_log,
        checkpoint=checkpoint,
        last=position,
        unknown_move=moved_by not in (None, note.move if note else None),
        logged=sink.logged(),
        topics=topics,
        noted_ids=note.topic_ids if note else {},
        rewinds=rewinds,
        stateful=stateful,
        had_state=bool(note and note.state),
        letters=letters,
        letters_table=letters_table,
    )
