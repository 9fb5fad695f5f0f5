"""Collects the facts that decide how a feed starts: for each way to run it, ``offsets show`` and ``plan``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from lakefeed.clients.kafka.topics import TopicDescription
from lakefeed.config.models import PipelineConfig
from lakefeed.ledger.checkpoint import Note, Owner
from lakefeed.ledger.checkpoint_state import CheckpointState
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.protocol import SinkState
from lakefeed.offsets.ranges import OffsetRanges, Partition
from lakefeed.records.transform.plan import transform_id

Kind = Literal["recreated", "overtaken", "ahead", "gone", "unread"]
Topics = Mapping[str, TopicDescription | None]
"""The topics that a pipeline reads, as the broker describes them; None for one that does not exist."""


@dataclass(frozen=True, kw_only=True)
class FeedIdentity:
    """Names a feed, and what a start has to know of its settings.

    Attributes:
        owner: the feed and its sink, as checkpoint and messages name them.
        rewinds: whether ``lakefeed offsets rewind`` moves the sink.
    """

    owner: Owner
    rewinds: bool = True
    transform_id: str | None = None

    @classmethod
    def of(cls, config: PipelineConfig, *, folder: Path | None) -> FeedIdentity:
        """Name a pipeline's feed; Python functions of its transform are searched in ``folder`` too."""
        return cls(
            owner=Owner.of(config),
            rewinds=config.sink.refusal("rewind") is None,
            transform_id=transform_id(config, folder=folder),
        )


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known before a feed starts.

    Attributes:
        sink: the table or the path.
        last: where the feed stands in the sink's ledger; None if that has nothing of it.
        unknown_move: whether that is a move that the checkpoint was not made for.
        logged: the newest batch in the log of a sink without a ledger.
        noted_ids: the topics' ids as the checkpoint location has them, for a sink without a ledger.
        rewinds: whether ``lakefeed offsets rewind`` moves the sink.
        stateful: whether the query keeps state from batch to batch, or its source has no offsets. Known, never guessed.
        had_state: whether a query that kept state has made the checkpoint.
        letters: the newest commit of the feed's dead letters; None without any, or where the writer compares them.
    """

    feed: str
    sink: str
    keeps_ledger: bool
    checkpoint: CheckpointState
    last: Position | None = None
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


def collect_facts(
    feed: FeedIdentity,
    sink: SinkState,
    *,
    checkpoint: CheckpointState,
    note: Note | None,
    topics: Topics,
    stateful: bool,
    letters: OffsetRanges | None = None,
    letters_table: str = "",
) -> Facts:
    """Collect what ``decide`` needs, for each way to open a feed; asks the sink only.

    The arguments are as in ``Facts``; ``note`` is lakefeed's file beside the checkpoint. A run leaves ``letters`` out:
    its writer compares them, with the requests that it makes anyway. A CheckpointMismatch if the table was rolled back,
    and its position is unknown.
    """
    position = sink.position()
    moved_by = position.moved_by if position is not None else None
    return Facts(
        feed=feed.owner.feed,
        sink=feed.owner.sink,
        keeps_ledger=sink.keeps_ledger,
        keeps_log=sink.keeps_log,
        checkpoint=checkpoint,
        last=position,
        unknown_move=moved_by not in (None, note.move if note else None),
        logged=sink.logged(),
        topics=topics,
        noted_ids=note.topic_ids if note else {},
        rewinds=feed.rewinds,
        stateful=stateful,
        had_state=bool(note and note.state),
        letters=letters,
        letters_table=letters_table,
    )


@dataclass(frozen=True, kw_only=True)
class DataLoss:
    """Records of one partition that a feed can never read, or cannot distinguish from others.

    Attributes:
        kind: ``recreated``: another topic has the name now; ``overtaken``: retention has removed records before they
            were read; ``ahead``: the topic ends before the feed's position; ``gone``: the topic or partition
            does not exist any more; ``unread``: the pipeline does not read the topic any more.
        position: the feed's.
        resume_at: where it can resume; None if it cannot.
    """

    kind: Kind
    topic: str
    partition: int
    position: int
    resume_at: int | None
    message: str


@dataclass(frozen=True, kw_only=True)
class Start:
    """How a feed starts.

    Attributes:
        reset_checkpoint: whether the checkpoint is removed first.
        positions: where it begins, for partitions that it knows; others begin at their first record. None to leave
            that to the checkpoint, or where there is none, to the pipeline file.
        message: what to report to the user; None for an ordinary start.
        data_loss: records that are given up, to be recorded in the ledger.
    """

    reset_checkpoint: bool = False
    positions: Mapping[Partition, int] | None = None
    message: str | None = None
    data_loss: tuple[DataLoss, ...] = ()


def find_data_loss(positions: Mapping[Partition, int], ids: Mapping[str, str], topics: Topics) -> Iterator[DataLoss]:
    """Find the records that keep a feed from resuming; ``ids`` are those of the topics when it read them, if known."""
    for (topic, number), position in sorted(positions.items()):
        described = topics.get(topic)
        partitions = described.partitions if described is not None else ()
        found = next((partition for partition in partitions if partition.id == number), None)
        first = ids.get(topic, "")
        name = f"{topic}-{number}"
        kind: Kind
        resume_at = None
        if described is not None and first and first != described.topic_id:
            kind, resume_at = "recreated", found.start_offset if found else None
            there = f"[{found.start_offset}, {found.end_offset})" if found else "nothing"
            message = (
                f"the topic was recreated (its id was {first}, and is {described.topic_id}); the feed has "
                f"read the old one up to {position}, the new one holds {there}"
            )
        elif topic not in topics:
            kind = "unread"
            message = f"the pipeline does not read this topic any more; the feed has read it up to {position}"
        elif found is None:
            kind, message = "gone", f"it does not exist any more; the feed has read it up to {position}"
        elif found.lost is not None:
            kind, resume_at, name, message = "overtaken", position, topic, found.lost
        elif position < found.start_offset:
            kind, resume_at = "overtaken", found.start_offset
            message = (
                f"the feed is at {position}, the topic begins at {found.start_offset}: "
                f"{found.start_offset - position:,} offsets were removed before they were read"
            )
        elif position > found.end_offset:
            kind, resume_at = "ahead", found.end_offset
            message = (
                f"the feed is at {position}, the topic ends at {found.end_offset}: the broker has lost "
                "records, or it is another cluster"
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
