"""Opens a feed: decides how the feed starts, and prepares checkpoint and ledger. All kinds of runs use this module.

A run decides twice: before it changes anything, and again when it has the fence, because then no other driver can
commit. Then the run applies the second decision.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lakefeed.clients.kafka.selection import first_offsets
from lakefeed.config.models import PipelineConfig
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import CheckpointMismatch
from lakefeed.feed.recovery import DataLoss, Facts, Start, Topics, decide, starting_offsets
from lakefeed.ledger.checkpoint import CheckpointState, Claim, Note, Owner, checkpoint_state
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.protocol import SinkState
from lakefeed.ledger.snapshot_summary import Commit, PositionReset
from lakefeed.offsets.ranges import OLDEST, OffsetRanges, Partition
from lakefeed.records.transform import transform_id
from lakefeed.sinks.definition import Sink

MOST_SHOWN = 100


@dataclass(frozen=True, kw_only=True)
class FeedIdentity:
    """The names of a feed and its sink, and whether ``lakefeed offsets rewind`` can move the feed (``rewinds``)."""

    owner: Owner
    rewinds: bool = True
    transform_id: str | None = None

    @classmethod
    def of(cls, config: PipelineConfig, *, folder: Path | None) -> FeedIdentity:
        """Return the identity of a pipeline's feed; ``folder`` may have the modules of its Python functions."""
        return cls(
            owner=Owner.of(config),
            rewinds=config.sink.refusal("rewind") is None,
            transform_id=transform_id(config, folder=folder),
        )


def collect_facts(
    feed: FeedIdentity,
    sink: SinkState,
    *,
    checkpoint: CheckpointState,
    has_checkpoint: bool = True,
    note: Note | None,
    describe: Callable[[Position | None], Topics],
    stateful: bool,
    letters: OffsetRanges | None = None,
    letters_table: str = "",
) -> Facts:
    """Return the facts from which ``decide`` decides how a feed starts.

    The arguments are as in ``Facts``; ``note`` is lakefeed's file beside the checkpoint, and ``describe`` is called
    with the feed's position. A run omits ``letters``, because its writer compares them. Raises CheckpointMismatch if
    the table was rolled back and its position is unknown.
    """
    position = sink.position()
    # Describe the topics after reading the position. In the other order, another driver could commit in between, and
    # the position would be after the topic's end, as if the topic had lost records.
    topics = describe(position)
    reset_snapshot_id = position.reset_snapshot_id if position is not None else None
    return Facts(
        feed=feed.owner.feed,
        sink=feed.owner.sink,
        keeps_ledger=sink.keeps_ledger,
        keeps_log=sink.keeps_log,
        checkpoint=checkpoint,
        has_checkpoint=has_checkpoint,
        last=position,
        unknown_move=reset_snapshot_id not in (None, note.move if note else None),
        logged=sink.logged(),
        topics=topics,
        noted_ids=note.topic_ids if note else {},
        rewinds=feed.rewinds,
        stateful=stateful,
        had_state=bool(note and note.state),
        letters=letters,
        letters_table=letters_table,
    )


def at_first_offsets(
    start: Start, state: CheckpointState, source: KafkaSource | None, topics: Topics, *, by_ledger: bool = False
) -> Start:
    """For a new feed, set the start offsets that the pipeline file asks for.

    Spark itself finds the offsets of ``earliest``. Spark also finds those of ``latest``, unless the feed resumes
    ``by_ledger``: then the ledger has to record them. Raises the same errors as ``first_offsets``.
    """
    has_begun = state.batch_id is not None and not start.reset_checkpoint
    if source is None or has_begun or start.positions is not None:
        return start
    if source.starting.kind == "earliest" or (source.starting.kind == "latest" and not by_ledger):
        return start
    begins = f"begins at {source.starting.described}"
    message = begins if start.message is None else f"{start.message}; {begins}"
    return replace(start, positions=first_offsets(source, topics), message=message)


@dataclass
class FeedStart:
    """How one run of a feed starts. The constructor decides, without changing anything.

    Attributes:
        checkpoint: the feed's checkpoint; None if only the ledger has the position.
        describe: returns the topics' descriptions; called with the feed's position.
        stateful: whether the query keeps state between batches, or its source has no offsets.
        source: the source, with the setting where a new feed begins; None if the caller sets the start.
        by_ledger: whether only the sink's ledger has the feed's position. If so, the start is recorded in the ledger
            before the first batch, unless the feed starts at the earliest records.
        check: raises an error if the feed must not start at its position; called before the decision.
        position: the feed's position in the sink's ledger; None if the ledger has no commit of the feed.

    Raises the same errors as ``decide``.
    """

    feed: FeedIdentity
    sink: Sink
    _: KW_ONLY
    checkpoint: Claim | None
    describe: Callable[[Position | None], Topics]
    stateful: bool
    is_numbered: bool = True
    accept_loss: bool = False
    source: KafkaSource | None = None
    by_ledger: bool = False
    check: Callable[[Position | None], None] = lambda position: None
    decision: Start = field(init=False)
    position: Position | None = field(init=False)
    topics: Topics = field(init=False)
    _state: CheckpointState = field(init=False)

    def __post_init__(self) -> None:
        self._state = CheckpointState()
        if self.checkpoint is not None:
            self._state = checkpoint_state(self.checkpoint, with_query_id=self.stateful, is_numbered=self.is_numbered)
        self._decide()

    def decide_again(self) -> Start:
        """Decide again, now that this driver has the fence and no other driver can commit; raise the same errors."""
        # Without a ledger there is no fence, so a second decision would not be safer than the first one.
        if self.sink.keeps_ledger:
            self._decide()
        return self.decision

    def _decide(self) -> None:
        facts = collect_facts(
            self.feed,
            self.sink,
            checkpoint=self._state,
            has_checkpoint=self.checkpoint is not None,
            note=self.checkpoint.noted if self.checkpoint is not None else None,
            describe=self.describe,
            stateful=self.stateful,
        )
        self.position, self.topics = facts.last, facts.topics
        self.check(facts.last)
        decision = decide(facts, accept_loss=self.accept_loss)
        self.decision = at_first_offsets(decision, self._state, self.source, self.topics, by_ledger=self.by_ledger)
        if self.checkpoint is not None and not self.sink.keeps_ledger:
            self.checkpoint.remember(topic_ids=_ids(self.topics))

    def other_feed(self) -> str | None:
        """Return another feed that has landed a topic of this feed in the table; None if this feed has a position."""
        feeds_of = getattr(self.sink, "feeds_of", None)
        others = feeds_of(self.topics) if self.position is None and feeds_of is not None else []
        return others[0] if others else None

    @property
    def is_new_query(self) -> bool:
        """Return whether the query starts with an empty checkpoint."""
        return self.decision.reset_checkpoint or self._state.batch_id is None

    @property
    def unfinished_batch(self) -> int | None:
        """The id of the batch that the last run began but did not finish; this run repeats it with the same records."""
        return None if self._state.committed or self.decision.reset_checkpoint else self._state.batch_id

    @property
    def lost_partitions(self) -> set[Partition]:
        """The partitions with lost records that the feed gives up."""
        return {loss.key for loss in self.decision.data_loss}

    @property
    def starting(self) -> Mapping[str, Mapping[int, int]] | None:
        """The offsets where a query with an empty checkpoint begins; None if Spark finds them by the pipeline file."""
        positions = self.decision.positions
        return None if positions is None else starting_offsets(positions, self.topics)

    @property
    def marks(self) -> Mapping[Partition, str]:
        """The source's own names for the feed's offsets, such as sequence numbers; empty for Kafka."""
        return self.position.ranges.end_marks if self.position is not None else {}

    @property
    def leaves_checkpoint(self) -> bool:
        """Return whether the checkpoint has batches, but the feed does not resume from it."""
        return self.decision.reset_checkpoint and self._state.batch_id is not None

    @property
    def reason(self) -> str:
        """Why the run starts at its position, in one sentence."""
        if self.decision.message:
            return self.decision.message
        if self.unfinished_batch is not None:
            return f"the last run began batch {self.unfinished_batch} and did not finish it: this run repeats the batch"
        if self.position is not None and self.checkpoint is None:
            return "the feed resumes at its position in the sink"
        if self.position is not None:
            checkpoint = "a new checkpoint" if self.is_new_query else "its checkpoint"
            return f"the feed resumes at its position in the sink, with {checkpoint}"
        return "the feed begins where its source says" if self.is_new_query else "the feed resumes at its checkpoint"

    def as_dict(self) -> dict[str, Any]:
        """Return the decision for the trace of the run, with at most ``MOST_SHOWN`` partitions."""
        position = self.position.ranges.ends if self.position is not None else {}
        return {
            "reason": self.reason,
            "resets_checkpoint": self.decision.reset_checkpoint,
            "is_new_query": self.is_new_query,
            "unfinished_batch": self.unfinished_batch,
            "position": [
                {"topic": topic, "partition": partition, "offset": offset}
                for (topic, partition), offset in sorted(position.items())[:MOST_SHOWN]
            ],
            "data_loss": [asdict(loss) for loss in self.decision.data_loss[:MOST_SHOWN]],
        }

    def require_resume(self) -> None:
        """Raise an error if the feed would leave its checkpoint: the source of a DataFrame has a fixed start."""
        if self.leaves_checkpoint:
            raise CheckpointMismatch(
                f"feed '{self.feed.owner.feed}' cannot resume from this checkpoint: {self.decision.message}",
                where=self.feed.owner.sink,
                hint="land the topic by a pipeline (lakefeed run), which resumes at the table's position; or build the "
                "stream with startingOffsets at the table's position, and name another checkpoint",
            )

    def apply(self, *, fence: str | None) -> None:
        """Apply the decision: record a data loss, and reset a checkpoint that the feed does not resume from."""
        if self.decision.data_loss and self.position is not None:
            commit = loss_commit(
                self.feed.owner.feed, self.position.ranges, self.decision.data_loss, self.topics, fence=fence
            )
            self.sink.commit_reset(commit, commit_id=uuid.uuid4().hex)
            self.position = self.sink.position()
        if self.by_ledger and self.position is None and self.decision.positions is not None:
            record_beginning(self.sink, self.feed.owner.feed, self.decision.positions, self.topics, fence=fence)
            self.position = self.sink.position()
        if self.checkpoint is None:
            return
        if self.decision.reset_checkpoint:
            self.checkpoint.discard()
            if self.position is not None and self.position.is_move:
                self.checkpoint.remember(move=self.position.reset_snapshot_id)
        self.checkpoint.note(transform=self.feed.transform_id)


def record_beginning(
    sink: Sink, feed: str, positions: Mapping[Partition, int], topics: Topics, *, fence: str | None
) -> OffsetRanges:
    """Commit a new feed's start offsets before its first batch, so that a restart does not begin at later offsets."""
    ranges = OffsetRanges.at(positions, _ids(topics)).in_epochs(_epochs(topics))
    sink.commit_reset(Commit(feed, 0, ranges, fence=fence), commit_id=uuid.uuid4().hex)
    return ranges


def loss_commit(
    feed: str, before: OffsetRanges, lost: Sequence[DataLoss], topics: Topics, *, fence: str | None
) -> Commit:
    """Return the commit that records a data loss; ``before`` has the ranges of the feed's newest commit."""
    resume_at = {loss.key: loss.resume_at for loss in lost}
    left = {loss.topic for loss in lost if loss.kind in ("recreated", "gone", "unread")}
    present = _ids(topics)
    ends = {key: at for key, at in {**before.ends, **resume_at}.items() if at is not None and key[0] in present}
    marks = {key: OLDEST if key in resume_at else mark for key, mark in before.end_marks.items()}
    ids = {topic: present[topic] for topic, _ in ends}
    ranges = OffsetRanges.between(ends, ends, ids, marks={key: (mark, mark) for key, mark in marks.items()})
    ranges = ranges.in_epochs(_epochs(topics))
    move = PositionReset(
        reason="accepted-loss",
        positions={loss.key: (loss.position, loss.resume_at) for loss in lost if loss.resume_at is not None},
        left_ids={topic: topic_id for topic, topic_id in before.topic_ids.items() if topic in left},
    )
    return Commit(feed, 0, ranges, fence=fence, move=move)


def _ids(topics: Topics) -> dict[str, str]:
    return {name: topic.topic_id for name, topic in topics.items() if topic is not None}


def _epochs(topics: Topics) -> dict[Partition, int]:
    return {key: epoch for topic in topics.values() if topic is not None for key, epoch in topic.epochs.items()}
