"""Opens a feed: finds how it starts, and makes checkpoint, ledger and dead letters ready for it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakefeed.clients.kafka.topics import TopicDescription
from lakefeed.errors import CheckpointMismatch
from lakefeed.feed.data_loss import DataLoss
from lakefeed.feed.facts import Start, collect_facts
from lakefeed.feed.recovery import decide, starting_offsets
from lakefeed.ledger.checkpoint import Claim, Owner
from lakefeed.ledger.checkpoint_state import CheckpointState
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.position_reset import Move
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.offsets.ranges import OLDEST, OffsetRange, OffsetRanges, Partition
from lakefeed.sinks.protocol import MovableSink


@dataclass
class FeedStart:
    """How one run of a feed starts.

    Attributes:
        owner: the feed and its sink, as the pipeline file names them.
        claim: its hold on the checkpoint location.
        sink: where its rows go.
        topics: those that it reads, as they are now.
        accept_loss: go on although records are lost.
        stateful: whether the query keeps state from batch to batch, or its source has no offsets.
        is_numbered: whether its source's records have offsets.
        rewinds: whether ``lakefeed offsets rewind`` moves the sink.
        transform_id: what the transform is known by: see ``lakefeed.records.transform.identity``.
        start: what was decided last.
    """

    owner: Owner
    claim: Claim
    sink: MovableSink
    topics: Mapping[str, TopicDescription | None]
    accept_loss: bool = False
    stateful: bool = False
    is_numbered: bool = True
    rewinds: bool = True
    transform_id: str | None = None
    start: Start = field(default_factory=Start)
    _state: CheckpointState | None = None
    _position: Position | None = None

    def decide(self) -> Start:
        """Decides. Before anything is changed, and again when no other driver can move the table any more.

        Raises:
            CheckpointMismatch: the sink lacks what the checkpoint takes for landed.
            RecordsLost: a topic is not the one that was read, or lacks what was not read yet.
        """
        if self._state is None:
            self._state = self.claim.state(with_query_id=self.stateful, is_numbered=self.is_numbered)
        elif not self.sink.keeps_ledger:
            # No fence keeps others away, so that nothing is known better than before.
            return self.start
        facts = collect_facts(
            self.owner,
            self.sink,
            checkpoint=self._state,
            note=self.claim.noted,
            topics=self.topics,
            stateful=self.stateful,
            rewinds=self.rewinds,
        )
        self._position = facts.last
        self.start = decide(facts, accept_loss=self.accept_loss)
        if not self.sink.keeps_ledger:
            ids = {name: each.topic_id for name, each in self.topics.items() if each is not None}
            self.claim.remember(topic_ids=ids)
        return self.start

    @property
    def begins(self) -> bool:
        """Whether nothing of the query is there yet."""
        return self.start.reset_checkpoint or self._state is None or self._state.batch_id is None

    @property
    def cut_off(self) -> int | None:
        """The batch that the last run has begun and not finished: it comes again with the same records."""
        state = self._state
        return None if state is None or state.committed or self.start.reset_checkpoint else state.batch_id

    def require_resume(self) -> None:
        """Refuses to leave a checkpoint, for a query whose source begins where its DataFrame says.

        Raises:
            CheckpointMismatch: the query would have to begin where the table ends.
        """
        if self.start.reset_checkpoint and self._state is not None and self._state.batch_id is not None:
            raise CheckpointMismatch(
                f"feed '{self.owner.feed}' cannot resume from this checkpoint: {self.start.message}",
                where=self.owner.sink,
                hint="a DataFrame cannot be moved to where its table ends: land the topic by a pipeline (lakefeed "
                "run), or name another checkpoint and build the stream with startingOffsets of the table's position",
            )

    def apply(self, *, fence: str | None) -> None:
        """Does what was decided: records a loss, and removes a checkpoint that is not to be gone on from."""
        if self.start.data_loss and self._position is not None:
            commit = loss_move(self.owner.feed, self._position.ranges, self.start.data_loss, self.topics, fence=fence)
            self.sink.land_move(commit, commit_id=uuid.uuid4().hex)
            self._position = self.sink.position()
        if self.start.reset_checkpoint:
            self.claim.discard()
            if self._position is not None and self._position.is_move:
                self.claim.remember(move=self._position.moved_by)
        self.claim.note(transform=self.transform_id)

    @property
    def starting(self) -> Mapping[str, Mapping[int, int]] | None:
        """Where a query without a checkpoint begins; None to leave it to the pipeline file."""
        if self.start.positions is None:
            return None
        return starting_offsets(self.start.positions, self.topics)

    @property
    def marks(self) -> Mapping[Partition, str]:
        """What the source calls the places where the feed stands in the ledger, if it has names of its own for them."""
        ranges = self._position.ranges.ranges if self._position is not None else ()
        return {(each.topic, each.partition): each.marks[1] for each in ranges if each.marks is not None}


def loss_move(
    feed: str,
    before: OffsetRanges,
    lost: Sequence[DataLoss],
    topics: Mapping[str, TopicDescription | None],
    *,
    fence: str | None,
) -> Commit:
    """The commit that records what is given up.

    Args:
        feed: its name.
        before: of its newest commit.
        lost: what is given up.
        topics: as they are now.
        fence: of this driver.
    """
    left = {each.topic for each in lost if each.kind in ("recreated", "gone", "unread")}
    moved = {(each.topic, each.partition): (each.position, each.resume_at) for each in lost}
    ends: dict[Partition, tuple[int, tuple[str, str] | None]] = {}
    ids: dict[str, str] = {}
    for each in before.ranges:
        _, to = moved.get((each.topic, each.partition), (each.end, each.end))
        described = topics.get(each.topic)
        if to is not None and described is not None:
            marks = None
            if each.marks is not None:
                mark = OLDEST if (each.topic, each.partition) in moved else each.marks[1]
                marks = mark, mark
            ends[each.topic, each.partition] = to, marks
            ids[each.topic] = described.topic_id
    move = Move(
        reason="accepted-loss",
        positions={key: (start, to) for key, (start, to) in moved.items() if to is not None},
        left_ids={topic: topic_id for topic, topic_id in before.topic_ids.items() if topic in left},
    )
    ranges = OffsetRanges(tuple(OffsetRange(*key, at, at, marks) for key, (at, marks) in ends.items()), ids)
    return Commit(feed, 0, ranges, fence=fence, move=move)
