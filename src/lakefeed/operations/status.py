"""Reads where a feed stands, from checkpoint, table, group and topics, and decides what a start would do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.clients.kafka.monitoring import MonitoringGroup
from lakefeed.clients.kafka.topics import TopicDescription
from lakefeed.config.connections import Connections
from lakefeed.config.kafka_source import KafkaSource
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import CheckpointMismatch, ConfigError, LakefeedError
from lakefeed.feed.facts import Facts, FeedIdentity, Start, collect_facts
from lakefeed.feed.feed import Feed
from lakefeed.feed.recovery import decide, ends
from lakefeed.ledger.checkpoint import Note, noted, owned
from lakefeed.ledger.checkpoint_state import CheckpointState, checkpoint_state
from lakefeed.ledger.checkpoint_store import StoredCheckpoint
from lakefeed.ledger.feed_position import Position
from lakefeed.offsets.ranges import Partition
from lakefeed.records.sources.kafka import SourceTopics
from lakefeed.records.transform.plan import QueryPlan, keeps_no_state
from lakefeed.sinks.factory import sink_of
from lakefeed.sinks.stored import stored_letters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class PartitionStatus:
    """The status of one partition; None for what is not known.

    Attributes:
        topic: its name.
        partition: the partition.
        checkpoint: up to where the checkpoint takes the records for landed.
        table: up to where the table's ledger has them.
        group: what the monitoring group is set to.
        topic_start: the first offset that the topic still has.
        topic_end: one more than its last.
        covered: the offsets that the table has.
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
        """Offsets that are in the topic and not landed; transactions leave some without a record."""
        stands = self.checkpoint if self.table is None else self.table
        return None if stands is None or self.topic_end is None else max(0, self.topic_end - stands)


@dataclass(frozen=True, kw_only=True)
class FeedStatus:
    """The status of a feed.

    Attributes:
        feed: its name.
        sink: its table or path.
        batch_id: the newest batch that the checkpoint has planned; None without any.
        committed: whether the checkpoint has it as done.
        partitions: all that checkpoint, table or topics know of.
        start: what a start would do now, as a message.
        refusal: why a start would be refused; None if it would not.
        position: where the feed stands in the table; None if that has nothing of it, or does not say.
        is_position_known: whether the table has the feed's position; not after some rollbacks.
        topics: those that the pipeline reads.
        decided: how a start would begin; None if it would be refused, or if that is not decided.
        checkpoint: how far the checkpoint has come.
        note: what lakefeed has noted beside it; None if there is none yet.
        logged: the newest batch in the log of a sink without a ledger.
    """

    feed: str
    sink: str
    batch_id: int | None
    committed: bool
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

    def as_dict(self) -> dict[str, Any]:
        """For ``--output json``."""
        return {
            "feed": self.feed,
            "sink": self.sink,
            "batch_id": self.batch_id,
            "committed": self.committed,
            "start": self.start,
            "refusal": self.refusal.as_dict() if self.refusal else None,
            "partitions": [{**asdict(each), "lag": each.lag} for each in self.partitions],
        }


def read_status(
    config: PipelineConfig,
    *,
    connections: Connections,
    folder: Path | None = None,
    query_plan: Callable[[], QueryPlan] | None = None,
) -> FeedStatus:
    """Read where a feed stands, and decide how it would start; changes nothing.

    Reads two or three small files of the checkpoint, and the table's metadata.

    Args:
        config: the pipeline.
        connections: store and catalogs.
        folder: where the pipeline file is.
        query_plan: analyzes the query with Spark. Called only if the transform has changed since the last start, and
            the decision depends on the state that it keeps. Default: such a start is not decided.

    Raises:
        CheckpointMismatch: the checkpoint is another pipeline's.
        Unreachable: broker, store or catalog do not answer.
        MissingExtra: pyiceberg and pyarrow are not installed.
    """
    feed = FeedIdentity.of(config, folder=folder)
    found, files = None, None
    if config.checkpoint:
        files = StoredCheckpoint(config.checkpoint, s3=connections.s3)
        found = noted(files, where=config.checkpoint)
        owned(found, feed.owner, where=config.checkpoint)
    never = keeps_no_state(config)
    state = checkpoint_state(files, with_query_id=not never) if files is not None else CheckpointState()
    topics = SourceTopics(config.kafka).describe()
    sink = sink_of(config, connections, folder=folder).state()
    logged, position = sink.logged(), None
    decided: Start | None = None
    refusal: LakefeedError | None = None
    letters: Position | None = None
    letters_refusal: LakefeedError | None = None
    # As in a run: letters follow a feed only by its ledger, and a topic of letters has none.
    kept = config.dead_letters.table if config.dead_letters and sink.keeps_ledger else None
    if kept is not None:
        try:
            letters = stored_letters(kept, config.name, connections=connections)
        except (CheckpointMismatch, ConfigError) as unknown:
            letters_refusal = unknown
    stateful = False if never else _known_statefulness(feed, state, found)
    try:
        facts = collect_facts(
            feed,
            sink,
            checkpoint=state,
            note=found,
            topics=topics,
            stateful=bool(stateful),
            letters=letters.ranges if letters else None,
            letters_table=kept or "",
        )
    except CheckpointMismatch as unknown:
        is_position_known, refusal = False, unknown
    else:
        is_position_known, position = True, facts.last
        if stateful is None:
            decided, refusal = _decide_by_plan(
                facts, files, query_plan, noted_state=found.state if found else (), checkpoint=config.checkpoint
            )
        else:
            decided, refusal = _decide(facts, files, stateful=stateful)
        if refusal is None and letters_refusal is not None:
            decided, refusal = None, letters_refusal
    return FeedStatus(
        feed=config.name,
        sink=feed.owner.sink,
        batch_id=state.batch_id,
        committed=state.committed,
        partitions=_partition_statuses(config.kafka, state, position, topics),
        start=_start_text(config, decided, is_new=state.batch_id is None and position is None),
        refusal=refusal,
        position=position,
        is_position_known=is_position_known,
        topics=topics,
        decided=decided,
        checkpoint=state,
        note=found,
        logged=logged,
    )


def _known_statefulness(feed: FeedIdentity, state: CheckpointState, note: Note | None) -> bool | None:
    """Whether the query keeps state, as its last start noted; None if its transform has changed since."""
    # The state is noted before the first batch is planned, so that the note counts from then on.
    if state.batch_id is None or note is None or note.transform != feed.transform_id:
        return None
    return bool(note.state)


def _decide(
    facts: Facts, files: StoredCheckpoint | None, *, stateful: bool
) -> tuple[Start | None, LakefeedError | None]:
    """Decide as a run of such a query, which reads no query id if it keeps no state."""
    state = checkpoint_state(files) if files is not None and not stateful else facts.checkpoint
    try:
        return decide(replace(facts, stateful=stateful, checkpoint=state)), None
    except LakefeedError as refusal:
        return None, refusal


def _decide_by_plan(
    facts: Facts,
    files: StoredCheckpoint | None,
    query_plan: Callable[[], QueryPlan] | None,
    *,
    noted_state: Sequence[str],
    checkpoint: str,
) -> tuple[Start | None, LakefeedError | None]:
    """Decide for a changed transform; its query is analyzed only where the decision depends on the state it keeps."""
    (start, refusal), (other, other_refusal) = (_decide(facts, files, stateful=stateful) for stateful in (False, True))
    if facts.checkpoint.batch_id is None and start == other and str(refusal) == str(other_refusal):
        return start, refusal
    if query_plan is None:
        return None, None
    try:
        plan = query_plan()
        if not plan.stateful:
            return start, refusal
        if other is not None and not other.reset_checkpoint and facts.checkpoint.batch_id is not None:
            plan.require_same_state(noted_state, checkpoint=checkpoint)
    except LakefeedError as unfit:
        return None, unfit
    return other, other_refusal


def _start_text(config: PipelineConfig, start: Start | None, *, is_new: bool) -> str:
    if start is None:
        return "refused"
    if start.message is not None and config.checkpoint:
        return start.message
    return f"begins at the {config.kafka.start} records" if is_new else "resumes where the last batch ended"


def _partition_statuses(
    source: KafkaSource,
    state: CheckpointState,
    position: Position | None,
    topics: Mapping[str, TopicDescription | None],
) -> tuple[PartitionStatus, ...]:
    there = {(name, each.id): each for name, found in topics.items() if found for each in found.partitions}
    checkpoint = state.position or {}
    table = ends(position) if position else {}
    covered = position.covered.intervals if position and position.covered else None
    known = sorted({*there, *checkpoint, *table})
    group: Mapping[Partition, int] = {}
    if source.monitoring_group is not None:
        group = MonitoringGroup(source, source.monitoring_group).offsets(known) or {}
    return tuple(
        PartitionStatus(
            topic=key[0],
            partition=key[1],
            checkpoint=checkpoint.get(key),
            table=table.get(key),
            group=group.get(key),
            topic_start=there[key].start_offset if key in there else None,
            topic_end=there[key].end_offset if key in there else None,
            covered=None if covered is None else tuple(covered.get(key, ())),
        )
        for key in known
    )


def feed_status(feed: Feed, spark: Callable[[], SparkSession]) -> FeedStatus:
    """Read where the feed stands, and decide what a start would do now.

    Args:
        feed: the feed.
        spark: gives a session; called only if the transform has changed, and may keep other state now.
    """
    return read_status(
        feed.config,
        connections=feed.connections,
        folder=feed.folder,
        query_plan=lambda: feed.plan(spark()),
    )
