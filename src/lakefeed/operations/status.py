"""Read a feed's position and lag from checkpoint, table, group and topics, and decide what a start would do."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, computed_field

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.groups import MonitoringGroup, group_names, group_offsets
from lakefeed.clients.kafka.scan import record_times
from lakefeed.clients.kafka.topics import TopicDescription, Topics, partitions_of
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.config.sources import KafkaSource, StartingOffsets
from lakefeed.errors import CheckpointMismatch, ConfigError, LakefeedError, ResourceMissing
from lakefeed.feed.feed import Feed
from lakefeed.feed.open import at_first_offsets, collect_facts
from lakefeed.feed.recovery import Facts, Start, decide, ends
from lakefeed.json_model import JsonModel, Seconds
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
from lakefeed.monitor.model import PartitionLag, oldest, total_lag
from lakefeed.offsets.ranges import Partition
from lakefeed.records.sources import SourceTopics
from lakefeed.records.transform import keeps_no_state
from lakefeed.sinks.factory import sink_of


@dataclass(frozen=True, kw_only=True)
class PartitionStatus:
    """The status of one partition; unknown fields are None.

    ``checkpoint``, ``table`` and ``group`` are the offsets after the last record that each of them has as committed;
    ``covered`` has the offset ranges in the table.
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
        position: the feed's position in the table; None without a position, or if it is unknown.
        is_position_known: False if the table was rolled back so that the feed's position is unknown.
        decided: how a start would begin; None if it would be refused, or if only Spark can decide.
        note: lakefeed's file beside the checkpoint, if it exists.
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
    """Read a feed's position, and decide how it would start, without changing anything.

    ``spark`` is called only if the transform has changed since the last start and the decision depends on the state
    that the query keeps. In that case, if ``spark`` is None, the start is not decided.

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
    # As in a run, compare dead letters with the ledger only if they are in a table: a topic of letters has no ledger.
    letters_table = config.dead_letters.table if config.dead_letters and sink.keeps_ledger else None
    if letters_table is not None:
        try:
            letters = stored_position(letters_table, config.name, connections=feed.connections)
        except (CheckpointMismatch, ConfigError) as unknown:
            letters_refusal = unknown
    stateful: bool | None = False
    if not stateless and not config.resumes_by_ledger:
        # A run notes the state that its query keeps before the first batch, so the note is valid if there is a batch.
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
    """Decide how the feed would start. Like a run, read the query id only if the query keeps state."""
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


Times = Callable[[KafkaSource, Mapping[Partition, int]], Mapping[Partition, float | None]]


class Lag(JsonModel):
    """The lag of a feed or a consumer group; ``is_known`` is false if the feed or group has committed nothing yet."""

    name: str
    kind: Literal["feed", "group"]
    partitions: tuple[PartitionLag, ...]
    is_known: bool = Field(True, exclude=True)

    @computed_field(alias="lag")  # type: ignore[prop-decorator]
    @property
    def records(self) -> int | None:
        """The number of uncommitted offsets; None if it is unknown for a partition, or if there are no partitions."""
        return total_lag(self.partitions)

    @computed_field(alias="lag_seconds")  # type: ignore[prop-decorator]
    @property
    def seconds(self) -> Seconds | None:
        """The age of the oldest uncommitted record; None if it is unknown."""
        return oldest(self.partitions)


@dataclass(frozen=True, kw_only=True)
class FeedOffsets:
    """The offsets of a feed, from its ledger or its checkpoint.

    Attributes:
        offsets: the next offset to commit, by partition.
        topic_ids: the ids of the topics that these offsets belong to, if they are known.
        batch_id: the newest committed batch in the checkpoint; None if the offsets come from a ledger.
        committed_at: the time when that batch was committed.
    """

    offsets: Mapping[Partition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    batch_id: int | None = None
    committed_at: float | None = None


def require_read(source: KafkaSource, topics: Sequence[str], *, feed: str) -> None:
    """Raise a ResourceMissing if the feed does not read one of the topics."""
    for topic in topics:
        if not source.reads(topic):
            near = difflib.get_close_matches(topic, source.topics or (), n=3)
            reads = ", ".join(source.topics) if source.topics else f"topics that match {source.topics_pattern}"
            hint = f"did you mean {' or '.join(near)}?" if near else f"the feed reads {reads}"
            raise ResourceMissing(f"the feed '{feed}' does not read the topic {topic}", hint=hint)


def feed_offsets(config: PipelineConfig, *, connections: Connections, folder: Path | None = None) -> FeedOffsets | None:
    """Return a feed's offsets, from its sink's ledger or else from its checkpoint; None if the feed has not begun."""
    sink = sink_of(config, connections, folder=folder).state()
    if sink.keeps_ledger:
        position = sink.position()
        return None if position is None else FeedOffsets(offsets=ends(position), topic_ids=position.ranges.topic_ids)
    if not config.checkpoint:
        return None
    files = StoredCheckpoint(config.checkpoint, s3=connections.s3)
    state = checkpoint_state(files)
    if state.position is None or state.batch_id is None:
        return None
    note = read_note(files, where=config.checkpoint)
    done = state.batch_id if state.committed else state.batch_id - 1
    return FeedOffsets(
        offsets=state.position,
        topic_ids=note.topic_ids if note else {},
        batch_id=done if done >= 0 else None,
        committed_at=files.written_at(f"commits/{done}") or None,
    )


def group_lag(source: KafkaSource, group: str, *, topics: Sequence[str] | None = None) -> Lag:
    """Return the lag of a consumer group in ``topics``; by default, in all topics with offsets of the group.

    Raises a ResourceMissing if a topic does not exist, or if the group has committed nothing in these topics.
    """
    # Read the group's offsets before the topics' end offsets: otherwise an active group could be ahead of them.
    position = group_offsets(source, group, topics, stable=False)
    cluster = Topics(source.bootstrap_servers, options=source.client_options)
    descriptions = cluster.describe_all(topics if topics is not None else sorted({name for name, _ in position}))
    if missing := [name for name in topics or () if name not in descriptions]:
        near = difflib.get_close_matches(missing[0], cluster.list(), n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "lakefeed topics list shows all topics"
        raise ResourceMissing(f"there is no topic {missing[0]}", where=source.bootstrap_servers, hint=hint)
    if not position:
        near = difflib.get_close_matches(group, group_names(source), n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "lakefeed status pipeline.yaml shows a feed's lag"
        what = f"the consumer group {group} has committed no offsets"
        raise ResourceMissing(what, where=source.bootstrap_servers, hint=hint)
    read = {name: topic for name, topic in descriptions.items() if any(name == key[0] for key in position)}
    return Lag(name=group, kind="group", partitions=lag_of(position, read, start=None, source=source))


def lag_of(
    position: Mapping[Partition, int],
    topics: Mapping[str, TopicDescription | None],
    *,
    start: StartingOffsets | None,
    source: KafkaSource,
    topic_ids: Mapping[str, str] | None = None,
    times: Times | None = None,
    now: float | None = None,
) -> tuple[PartitionLag, ...]:
    """Return the lag of a feed or group at ``position``, for all partitions of ``topics``.

    A partition's lag is unknown if its topic was recreated after the position was stored, if the topic ends before the
    position, or if the topic does not exist.

    Args:
        position: the next offset to commit, by partition; topics that are not in ``topics`` are left out.
        topics: the topics, described after the position was read; None for a topic that does not exist.
        start: where a feed without any position begins; None for a group, whose start is not known.
        topic_ids: the ids of the topics that the position belongs to, if they are known.
        times: returns the times of records; by default ``record_times``.
        now: in seconds since 1970. Default: the time after the records were read.
    """
    partitions = partitions_of(topics)
    recreated = {
        name for name, topic in topics.items() if topic and (topic_ids or {}).get(name, "") not in ("", topic.topic_id)
    }
    # After its first start, a feed reads new partitions from their first record on (docs/offsets.md).
    begins_at_first = start is not None and (start.kind == "earliest" or bool(position))
    reached = {key: at for key, at in position.items() if key[0] in topics and key[0] not in recreated}
    for key, part in partitions.items():
        if reached.get(key, 0) > part.end_offset:
            del reached[key]
        elif key in position or key[0] in recreated:
            continue
        elif begins_at_first or part.start_offset == part.end_offset:
            reached[key] = part.start_offset
    # If retention has removed unread records, the next record to read is the partition's first record.
    behind = {
        key: max(reached[key], part.start_offset)
        for key, part in partitions.items()
        if key in reached and part.end_offset > reached[key]
    }
    known = (times or record_times)(source, behind) if behind else {}
    now = time.time() if now is None else now
    lags = []
    for key in sorted({*partitions, *reached}):
        end, committed = (partitions[key].end_offset if key in partitions else None), reached.get(key)
        at = known.get(key)
        seconds = None if at is None else max(0.0, now - at)
        if end is not None and committed is not None and end <= committed:
            seconds = 0.0
        ages = {"unread_seconds": seconds, "uncommitted_seconds": seconds}
        lags.append(PartitionLag(topic=key[0], partition=key[1], end=end, committed=committed, **ages))
    return tuple(lags)
