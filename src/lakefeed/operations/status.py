"""Read a feed's position from checkpoint, table, group and topics, and decide what a start would do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.groups import MonitoringGroup
from lakefeed.clients.kafka.topics import TopicDescription, partitions_of
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import CheckpointMismatch, ConfigError, LakefeedError, ResourceMissing
from lakefeed.feed.feed import Feed
from lakefeed.feed.open import at_first_offsets, collect_facts
from lakefeed.feed.recovery import Facts, Start, decide, ends
from lakefeed.lazy import SparkSession
from lakefeed.ledger.checkpoint import (
    CheckpointState,
    Note,
    StoredCheckpoint,
    checkpoint_state,
    read_note,
    require_owner,
)
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.publication import BranchState, branch_state
from lakefeed.ledger.snapshots import stored_position
from lakefeed.offsets.ranges import Partition
from lakefeed.records.sources.kafka import SourceTopics
from lakefeed.records.transform.plan import keeps_no_state


@dataclass(frozen=True, kw_only=True)
class PartitionStatus:
    """The status of one partition; unknown fields are None.

    ``checkpoint``, ``table`` and ``group`` are the offsets up to which each of these counts records as committed;
    ``covered`` are the offset ranges that the table has.
    """

    topic: str
    partition: int
    checkpoint: int | None
    table: int | None
    group: int | None
    topic_start: int | None
    topic_end: int | None
    covered: tuple[tuple[int, int], ...] | None

    @property
    def lag(self) -> int | None:
        """The number of uncommitted offsets; transactions leave some offsets without a record."""
        reached = self.checkpoint if self.table is None else self.table
        return None if reached is None or self.topic_end is None else max(0, self.topic_end - reached)


@dataclass(frozen=True, kw_only=True)
class FeedStatus:
    """The status of a feed.

    Attributes:
        start: a message that says what a start would do now.
        position: the feed's position in the table; None if the table has no position, or if it is unknown.
        is_position_known: whether the feed's position in the table is known; False after some rollbacks.
        decided: how a start would begin; None if it would be refused, or if only Spark can decide.
        note: lakefeed's note next to the checkpoint, if it exists.
        logged: the newest batch in the log of a sink without a ledger.
        publication: the state of the branch that the feed lands in, if it lands in one.
    """

    feed: str
    sink: str
    partitions: tuple[PartitionStatus, ...]
    start: str
    refusal: LakefeedError | None
    position: Position | None
    is_position_known: bool
    topics: Mapping[str, TopicDescription | None]
    decided: Start | None
    checkpoint: CheckpointState
    note: Note | None
    logged: int | None
    publication: BranchState | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "feed": self.feed,
            "sink": self.sink,
            "batch_id": self.checkpoint.batch_id,
            "committed": self.checkpoint.committed,
            "start": self.start,
            "refusal": self.refusal.as_dict() if self.refusal else None,
            "partitions": [{**asdict(part), "lag": part.lag} for part in self.partitions],
            **({} if self.publication is None else {"publication": self.publication.as_dict()}),
        }


def feed_status(feed: Feed, spark: Callable[[], SparkSession] | None = None) -> FeedStatus:
    """Read a feed's position, and decide how it would start; change nothing.

    ``spark`` is called only if the transform has changed since the last start and the decision depends on the state
    that the query keeps; in this case, without ``spark``, the start stays undecided.

    Raises:
        CheckpointMismatch: the checkpoint belongs to another pipeline.
    """
    config, identity = feed.config, feed.identity
    note, files = None, None
    if config.checkpoint:
        files = StoredCheckpoint(config.checkpoint, s3=feed.connections.s3)
        note = read_note(files, where=config.checkpoint)
        require_owner(note, identity.owner, where=config.checkpoint)
    stateless = keeps_no_state(config)
    state = checkpoint_state(files, with_query_id=not stateless) if files is not None else CheckpointState()
    source, sink = SourceTopics(config.kafka), feed.sink_definition.state()
    logged = sink.logged()
    position: Position | None = None
    topics: Mapping[str, TopicDescription | None]
    decided: Start | None = None
    refusal: LakefeedError | None = None
    letters: Position | None = None
    letters_refusal: LakefeedError | None = None
    # As in a run, only dead letters in a table are compared with the ledger, because a topic of letters has no ledger.
    letters_table = config.dead_letters.table if config.dead_letters and sink.keeps_ledger else None
    if letters_table is not None:
        try:
            letters = stored_position(letters_table, config.name, connections=feed.connections)
        except (CheckpointMismatch, ConfigError) as unknown:
            letters_refusal = unknown
    stateful: bool | None = False
    if not stateless and not config.resumes_by_ledger:
        # A run notes the state of its query before its first batch, so after a batch the note is valid.
        is_noted = state.batch_id is not None and note is not None and note.transform == identity.transform_id
        stateful = bool(note and note.state) if is_noted else None
    try:
        facts = collect_facts(
            identity,
            sink,
            checkpoint=state,
            has_checkpoint=files is not None,
            note=note,
            describe=source.describe,
            stateful=bool(stateful),
            letters=letters.ranges if letters else None,
            letters_table=letters_table or "",
        )
    except CheckpointMismatch as unknown:
        is_position_known, refusal, topics = False, unknown, source.describe()
    else:
        is_position_known, position, topics = True, facts.last, facts.topics
        if stateful is None:
            decided, refusal = _decide_by_plan(facts, files, feed, spark, noted_state=note.state if note else ())
        else:
            decided, refusal = _decide(facts, files, stateful=stateful)
        try:
            decided = decided and at_first_offsets(
                decided, state, config.kafka, topics, by_ledger=config.resumes_by_ledger
            )
        except LakefeedError as error:
            decided, refusal = None, error
        if refusal is None and letters_refusal is not None:
            decided, refusal = None, letters_refusal
    return FeedStatus(
        feed=config.name,
        sink=identity.owner.sink,
        partitions=_partition_statuses(config, state, position, topics),
        start=_start_text(config, decided, is_new=state.batch_id is None and position is None),
        refusal=refusal,
        position=position,
        is_position_known=is_position_known,
        topics=topics,
        decided=decided,
        checkpoint=state,
        note=note,
        logged=logged,
        publication=_publication(config, feed.connections),
    )


def _publication(config: PipelineConfig, connections: Connections) -> BranchState | None:
    if config.sink.chosen.landing_branch is None:
        return None
    try:
        return branch_state(open_table(config.sink.ledger_table, connections=connections), config.name)
    except ResourceMissing:
        return None


def _decide(
    facts: Facts, files: StoredCheckpoint | None, *, stateful: bool
) -> tuple[Start | None, LakefeedError | None]:
    """Decide how the feed would start; like a run, read the query id only if the query keeps state."""
    state = checkpoint_state(files) if files is not None and not stateful else facts.checkpoint
    try:
        return decide(replace(facts, stateful=stateful, checkpoint=state)), None
    except LakefeedError as refusal:
        return None, refusal


def _decide_by_plan(
    facts: Facts,
    files: StoredCheckpoint | None,
    feed: Feed,
    spark: Callable[[], SparkSession] | None,
    *,
    noted_state: Sequence[str],
) -> tuple[Start | None, LakefeedError | None]:
    """Decide how a feed with a changed transform would start; let Spark analyze the query only if its state matters."""
    (start, refusal), (other, other_refusal) = (_decide(facts, files, stateful=stateful) for stateful in (False, True))
    if facts.checkpoint.batch_id is None and start == other and str(refusal) == str(other_refusal):
        return start, refusal
    if spark is None:
        return None, None
    try:
        plan = feed.plan(spark())
        if not plan.stateful:
            return start, refusal
        if other is not None and not other.reset_checkpoint and facts.checkpoint.batch_id is not None:
            plan.require_same_state(noted_state, checkpoint=feed.config.checkpoint)
    except LakefeedError as error:
        return None, error
    return other, other_refusal


def _start_text(config: PipelineConfig, start: Start | None, *, is_new: bool) -> str:
    if start is None:
        return "refused"
    if start.message is not None:
        return start.message
    return f"begins at {config.kafka.starting.described}" if is_new else "resumes where the last batch ended"


def _partition_statuses(
    config: PipelineConfig,
    state: CheckpointState,
    position: Position | None,
    topics: Mapping[str, TopicDescription | None],
) -> tuple[PartitionStatus, ...]:
    in_topics = partitions_of(topics)
    checkpoint = state.position or {}
    table = ends(position) if position else {}
    covered = position.covered.intervals if position and position.covered else None
    known = sorted({*in_topics, *checkpoint, *table})
    group: Mapping[Partition, int] = {}
    if config.kafka.monitoring_group is not None:
        group = MonitoringGroup(config.kafka, config.kafka.monitoring_group).offsets(known) or {}
    return tuple(
        PartitionStatus(
            topic=key[0],
            partition=key[1],
            checkpoint=checkpoint.get(key),
            table=table.get(key),
            group=group.get(key),
            topic_start=in_topics[key].start_offset if key in in_topics else None,
            topic_end=in_topics[key].end_offset if key in in_topics else None,
            covered=None if covered is None else tuple(covered.get(key, ())),
        )
        for key in known
    )
