"""Plans a run: where it would start, what it would change, read and cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from lakefeed.clients.kafka.librdkafka import isolation_level, missing_topic
from lakefeed.clients.kafka.selection import first_offsets
from lakefeed.clients.kafka.topics import TopicDescription, Topics
from lakefeed.clients.spark.errors import translate
from lakefeed.config.models import PipelineConfig
from lakefeed.config.places import is_on_disk
from lakefeed.config.values import AVAILABLE_NOW
from lakefeed.errors import CheckpointMismatch, ConfigError, LakefeedError
from lakefeed.feed.feed import Feed, FeedPath
from lakefeed.feed.multi_table.table import Taken, has_landed, require_own, shares_a_table
from lakefeed.lazy import DataFrame, SparkSession, StructType, py4j, spark_errors
from lakefeed.ledger.checkpoint import Owner
from lakefeed.ledger.continuity import NoLedger
from lakefeed.messages.printable import ReadableResult, counted
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.operations.plan.estimates import (
    Batches,
    Begin,
    Estimates,
    batches,
    begin_of_query,
    begin_of_topic,
    estimates,
    spread_by_round,
    spread_by_spark,
    total,
)
from lakefeed.operations.plan.history import Past, Sample, read_past, sample_records
from lakefeed.operations.status import FeedStatus, feed_status
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.base import BaseSink
from lakefeed.sinks.dead_letters.store import TopicCreation
from lakefeed.sinks.definition import SchemaPlanner, TableChange

if TYPE_CHECKING:
    from lakefeed.ledger.snapshot_summary import SnapshotProperties


@dataclass(frozen=True, kw_only=True)
class CheckpointPlan:
    """The action on the checkpoint that the run would take, and why, in one sentence."""

    location: str
    action: Literal["create", "keep", "recreate"]
    reason: str


@dataclass(frozen=True)
class PartitionPlan:
    """The offsets to read from one partition; the first batch reads up to ``first_end``."""

    topic: str
    partition: int
    start: int
    first_end: int
    end: int

    @property
    def first(self) -> int:
        """The number of offsets in the first batch."""
        return self.first_end - self.start

    @property
    def backlog(self) -> int:
        """The number of offsets in the topic that have not landed yet."""
        return self.end - self.start


@dataclass(frozen=True, kw_only=True)
class Again:
    """A batch that Spark planned in the last run, and that the next run repeats with the same offsets.

    If ``is_landed``, the sink already has the batch, and the run skips it. Otherwise it is the run's first batch.
    """

    batch_id: int
    ranges: tuple[OffsetRange, ...]
    is_landed: bool


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """The effects of a run on one table or path.

    Attributes:
        sink: ``iceberg catalog.namespace.table`` or ``parquet s3a://…``.
        kind: whether the feed begins, resumes, is refused, or waits for its topic's first record.
        start: a sentence that says how the run would start, or why it would not.
        checkpoint: the planned action on the checkpoint; None if the feed has no checkpoint.
        tables: the changes of the feed's table and of other tables.
        batch_id: the id of the first batch that lands records; None without a checkpoint.
        batches: the number of batches that land the present records.
        path: the reader and the encoder of the records; None if the feed waits or is refused.
    """

    feed: str
    topics: tuple[str, ...]
    sink: str
    kind: Literal["fresh", "continues", "refused", "waits"]
    start: str
    refusal: LakefeedError | None = None
    checkpoint: CheckpointPlan | None = None
    tables: tuple[TableChange, ...] = ()
    dead_letter_topic: TopicCreation | None = None
    again: Again | None = None
    batch_id: int | None = None
    partitions: tuple[PartitionPlan, ...] = ()
    batches: int = 0
    path: FeedPath | None = None
    estimates: Estimates | None = None
    notes: tuple[str, ...] = ()

    @property
    def statements(self) -> tuple[str, ...]:
        """All statements before the first batch, in order, except the statement that takes the fence."""
        return tuple(statement for table in self.tables for statement in table.statements)

    @property
    def first_ranges(self) -> tuple[OffsetRange, ...]:
        return tuple(OffsetRange(part.topic, part.partition, part.start, part.first_end) for part in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        document = asdict(replace(self, refusal=None))
        document["refusal"] = self.refusal.as_dict() if self.refusal else None
        parts = self.partitions
        document["partitions"] = [{**asdict(part), "first": part.first, "backlog": part.backlog} for part in parts]
        if self.again is not None:
            document["again"]["ranges"] = [str(span) for span in self.again.ranges]
        return document


@dataclass(frozen=True, kw_only=True, repr=False)
class Plans(ReadableResult):
    """The plans of a pipeline's run: one plan for each table."""

    pipeline: str
    tables: tuple[RunPlan, ...]

    @property
    def headline(self) -> str:
        batches = counted(sum(plan.batches for plan in self.tables), "batch", "batches")
        refused = f", {len(self.refusals)} refused" if self.refusals else ""
        return f"{self.pipeline}: {counted(len(self.tables), 'table')}, {batches}{refused}"

    @property
    def figures(self) -> dict[str, str]:
        """The figures that a notebook shows: by sink, how the first 20 tables would start, or why they would not."""
        shown = {plan.sink: plan.start if plan.refusal is None else str(plan.refusal) for plan in self.tables[:20]}
        return shown | ({"more": f"{len(self.tables) - 20:,} tables"} if len(self.tables) > 20 else {})

    @property
    def refusals(self) -> tuple[LakefeedError, ...]:
        return tuple(each.refusal for each in self.tables if each.refusal)

    @property
    def total(self) -> Estimates | None:
        """The cost of all tables that would start; None if all are refused."""
        known = [each.estimates for each in self.tables if each.estimates]
        return total(known) if known else None

    @property
    def exit_status(self) -> int:
        """Return 0 if all tables would start; else 1 for many tables, or the status of the only table's refusal."""
        if not self.refusals:
            return 0
        return self.refusals[0].exit_status if len(self.tables) == 1 else 1

    def as_dict(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "starts": not self.refusals,
            "tables": [each.as_dict() for each in self.tables],
            "batches": sum(each.batches for each in self.tables),
            "total": asdict(self.total) if self.total else None,
        }


@dataclass
class _Table:
    """The plan of one table while it is made; ``status`` is None if the checkpoint belongs to another pipeline."""

    feed: Feed
    status: FeedStatus | None = None
    refusal: LakefeedError | None = None
    begin: Begin | None = None
    batches: Batches = field(default_factory=Batches)
    changes: list[TableChange] = field(default_factory=list)
    dead_letter_topic: TopicCreation | None = None
    path: FeedPath | None = None
    notes: tuple[str, ...] = ()

    @property
    def topic(self) -> str:
        assert self.feed.config.kafka.topics is not None
        return self.feed.config.kafka.topics[0]

    @property
    def has_landed(self) -> bool:
        return self.status is not None and has_landed(self.status.position, self.topic)


def plan_run(pipeline: str, feeds: Sequence[Feed], *, many: bool, spark: Callable[[], SparkSession]) -> Plans:
    """Plan a run that writes to one table, or with ``many`` to a table for each topic.

    Calls ``spark`` only if a feed would start. ``feeds`` must be newly created, one for each table, so that they use
    the registry's present schemas.
    """
    session = cache(spark)
    tables = [_look(feed, spark=session) for feed in feeds]
    if many:
        if any(table.has_landed for table in tables):
            # As in a run, a topic without a position is new if any other topic has one.
            is_new = [table.status is not None and table.status.position is None for table in tables]
            pairs = zip(tables, is_new, strict=True)
            tables = [_look(table.feed.as_new_topic(), spark=session) if new else table for table, new in pairs]
        _refuse_shared_tables(tables)
    topics = _describe_topics([table for table in tables if table.refusal is None])
    for table in tables:
        if table.refusal is None and table.status is not None:
            here = {name: topics[name] for name in table.status.topics if name in topics}
            _count_batches(table, table.status, here, many=many)
    backlog = [span for table in tables for span in table.batches.backlog]
    samples = sample_records(feeds[0].config.kafka, backlog) if backlog else {}
    return Plans(pipeline=pipeline, tables=tuple(_plan(table, samples, spark=session) for table in tables))


def _look(feed: Feed, *, spark: Callable[[], SparkSession]) -> _Table:
    try:
        status = feed_status(feed, spark)
    except CheckpointMismatch as refusal:
        return _Table(feed, refusal=refusal)
    if status.refusal is None and (gone := [name for name, found in status.topics.items() if found is None]):
        source = feed.config.kafka
        there = Topics(source.bootstrap_servers, options=source.client_options).list()
        return _Table(feed, status, missing_topic(gone[0], there, where=source.bootstrap_servers))
    return _Table(feed, status, status.refusal)


def _refuse_shared_tables(tables: Sequence[_Table]) -> None:
    """If topics share a table, refuse all but one: the topic whose rows are in the table, or else the first topic."""
    taken: Taken[_Table] = Taken()
    for table in tables:
        clash = taken.take(table.topic, table.feed.config, table)
        if clash is not None:
            other, place = clash
            first, late = (table, other) if table.has_landed and not other.has_landed else (other, table)
            late.refusal = shares_a_table(first.topic, late.topic, place)
        elif table.status is not None and table.refusal is None:
            try:
                require_own(table.status.position, table.topic, table.feed.config.sink.ledger_table)
            except ConfigError as refusal:
                table.refusal = refusal


def _describe_topics(starting: Sequence[_Table]) -> dict[str, TopicDescription]:
    """Describe the topics as the feed reads them: with read_committed, they end at the first open transaction."""
    if not starting:
        return {}
    source = starting[0].feed.config.kafka
    committed = isolation_level(source) == "read_committed"
    names = sorted({name for table in starting if table.status is not None for name in table.status.topics})
    return Topics(source.bootstrap_servers, options=source.client_options).describe_all(names, committed=committed)


def _count_batches(table: _Table, status: FeedStatus, topics: Mapping[str, TopicDescription], *, many: bool) -> None:
    source = table.feed.config.kafka
    limit = source.max_records_per_batch
    decided = status.decided.positions if status.decided is not None else None
    first = first_offsets(source, topics) if decided is None and source.starting.is_word else decided or {}
    if many:
        [topic] = topics.values()
        if not any(partition.end_offset for partition in topic.partitions):
            # The table of a topic without records does not start yet, because the topic may lack a schema.
            return
        table.begin = begin_of_topic(status.position, topic, first=first)
        spread = spread_by_round(limit, topic)
    else:
        assert status.decided is not None
        table.begin = begin_of_query(
            status.decided,
            checkpoint=status.checkpoint,
            position=status.position,
            logged=status.logged,
            topics=topics,
            first=first,
        )
        spread = spread_by_spark(limit)
    table.batches = batches(table.begin, topics, limit=limit, spread=spread)


def _plan(table: _Table, samples: Mapping[str, Sample], *, spark: Callable[[], SparkSession]) -> RunPlan:
    config, status, begin = table.feed.config, table.status, table.begin
    if status is not None and begin is not None:
        _prepare(table, status, spark())
    topics = status.topics if status is not None else config.kafka.topics or []
    plan = RunPlan(
        feed=config.name,
        topics=tuple(sorted(topics)),
        sink=Owner.of(config).sink,
        kind="waits",
        start="waits for the topic's first record",
        refusal=table.refusal,
        tables=tuple(table.changes),
        dead_letter_topic=table.dead_letter_topic,
        path=table.path,
        notes=table.notes,
    )
    if table.refusal is not None:
        return replace(plan, kind="refused", start="would be refused")
    if status is None or begin is None:
        return plan
    name = config.sink.chosen.snapshot_table
    past = read_past(name, config.name, connections=table.feed.connections) if name is not None else Past()
    again = None
    if begin.again is not None:
        again = Again(batch_id=begin.batch_id, ranges=begin.again.ranges, is_landed=begin.again_is_landed)
    is_new = status.position is None and status.checkpoint.batch_id is None
    sampled = [samples[name] for name in status.topics if name in samples]
    return replace(
        plan,
        kind="fresh" if is_new else "continues",
        start=status.start,
        checkpoint=_checkpoint(config, status),
        again=again,
        batch_id=begin.batch_id + (again is not None and again.is_landed) if config.checkpoint else None,
        partitions=tuple(_partitions(table.batches)),
        batches=table.batches.count,
        estimates=estimates(
            config,
            batches=table.batches,
            past=past,
            sample=sum(sampled, Sample()),
            is_laid_out_anew=any(change.is_laid_out_anew for change in table.changes),
            has_state=table.feed.plan(spark()).stateful,
            is_on_disk=is_on_disk(config, table.feed.connections),
        ),
        notes=(*table.notes, *_notes(config, status, past)),
    )


def _partitions(counted: Batches) -> Iterator[PartitionPlan]:
    first = {span.key: span for span in counted.first}
    for span in counted.backlog:
        now = first.get(span.key, replace(span, end=span.start))
        yield PartitionPlan(span.topic, span.partition, start=now.start, first_end=now.end, end=span.end)


def _prepare(table: _Table, status: FeedStatus, spark: SparkSession) -> None:
    feed = table.feed
    try:
        feed.require_checkpoint_for_state(spark)
        sink = _PlannedSink(feed.schema_planner(spark, status.note.schema if status.note else None))
        letters = feed.dead_letter_store(spark) if feed.config.dead_letters is not None else None
        if letters is not None:
            change = letters.change()
            if isinstance(change, TableChange):
                table.changes.append(change)
            else:
                table.dead_letter_topic = change
        writer = feed.batch_writer(spark, sink, letters).begin(feed.source.read_stream(spark), fenced=False)
        table.changes += sink.changes
        has_state = feed.plan(spark).stateful
        table.path = feed.path(spark, writer.rows, lambda: sink.columns, stateful=has_state)
        table.notes = (*writer.rows.notes(), *(note for change in sink.changes for note in change.notes))
        if letters is not None and feed.sink_definition.state().keeps_ledger:
            position = status.position
            letters.check(position.ranges if position else None, moved=position is not None and position.is_move)
    except (LakefeedError, py4j.Py4JError, spark_errors.PySparkException) as error:
        table.refusal = translate(error)


class _PlannedSink(BaseSink):
    """A sink that plans the changes of its columns without making them."""

    ledger = NoLedger("a plan")

    def __init__(self, planner: SchemaPlanner) -> None:
        self._planner = planner
        self.changes: tuple[TableChange, ...] = ()
        self.columns: StructType | None = None

    def stored_schema(self) -> StoredSchema | None:
        return self._planner.stored_schema()

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        self.changes = self._planner.changes(rows, stored, entries)
        self.columns = rows

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> None:
        """Do nothing: a plan writes no rows."""


def _checkpoint(config: PipelineConfig, status: FeedStatus) -> CheckpointPlan | None:
    location, state = config.checkpoint, status.checkpoint
    if not location:
        return None
    owner = f"feed '{config.name}' into {Owner.of(config).sink}"
    if status.note is None:
        return CheckpointPlan(location=location, action="create", reason=f"new, for {owner}")
    if state.batch_id is None and state.damage is None:
        return CheckpointPlan(location=location, action="create", reason=f"belongs to {owner}, and is empty")
    if status.decided is not None and status.decided.reset_checkpoint:
        message = f"belongs to {owner}, and is removed: {status.start}"
        return CheckpointPlan(location=location, action="recreate", reason=message)
    has = f"batch {state.batch_id} {'done' if state.committed else 'planned'}"
    return CheckpointPlan(location=location, action="keep", reason=f"belongs to {owner}, and has {has}")


def _notes(config: PipelineConfig, status: FeedStatus, past: Past) -> list[str]:
    notes = []
    if config.decode.registry is not None and config.schema_.on_change == "evolve":
        met = "records may have schemas that are new to the table"
        notes.append(f"{met}: their batch, and not the start, then adds the columns")
    if config.decode.is_sampled and status.position is None:
        notes.append("unless the sink has stored a schema, the start guesses the columns from the newest records")
    if dead := sum(batch.dead_letters > 0 for batch in past.batches):
        had = f"{dead} of the last {len(past.batches)} batches had dead letters"
        notes.append(f"{had}, which need a further commit and further requests")
    if merged := Counter(batch.merged_because for batch in past.batches if batch.merged_because):
        [(why, count)] = merged.most_common(1)
        notes.append(f"{merged.total()} of the last {len(past.batches)} batches were a MERGE; of {count}: {why}")
    if config.trigger != AVAILABLE_NOW:
        later = f"a run lands later records at each trigger ({config.trigger})"
        notes.append(f"{later}; lakefeed run --once ends before them")
    return notes
