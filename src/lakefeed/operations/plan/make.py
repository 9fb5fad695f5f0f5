"""Makes the plan of a run: where it starts, what it says to the catalog, what it reads and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypedDict

from lakefeed.clients.kafka.failures import missing_topic
from lakefeed.clients.kafka.record_counts import ISOLATION
from lakefeed.clients.kafka.topics import TopicDescription, Topics
from lakefeed.config.kafka_options import CONSUMER_DEFAULTS
from lakefeed.config.kafka_source import KafkaSource
from lakefeed.config.triggers import AVAILABLE_NOW
from lakefeed.errors import CheckpointMismatch, ConfigError, LakefeedError
from lakefeed.feed.feed import Feed
from lakefeed.feed.multi_table.sharing import Taken, has_landed, require_own, shares_a_table
from lakefeed.ledger.checkpoint import Owner
from lakefeed.operations.plan.batches import (
    Batches,
    Begin,
    batches,
    begin_of_query,
    begin_of_topic,
    spread_by_round,
    spread_by_spark,
)
from lakefeed.operations.plan.estimates import estimates
from lakefeed.operations.plan.past import Past, past_of
from lakefeed.operations.plan.plan import Again, CheckpointPlan, Kind, PartitionPlan, Plans, RunPlan
from lakefeed.operations.plan.sample import Sample, sampled
from lakefeed.operations.plan.tables import Prepared, prepared
from lakefeed.operations.status import FeedStatus, feed_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def planned(pipeline: str, feeds: Sequence[Feed], *, many: bool, spark: Callable[[], SparkSession]) -> Plans:
    """Plans a run.

    Args:
        pipeline: its name.
        feeds: one for each table, newly built.
        many: whether each topic has a table of its own.
        spark: gives a session; asked only if something would start.

    Raises:
        Unreachable: broker, store or catalog do not answer.
        LakefeedError: the session cannot be had.
    """
    session = cache(spark)
    looks = [_look(feed, spark=session) for feed in feeds]
    if many:
        _refuse_shared_tables(looks)
    starting = [each for each in looks if each.refusal is None]
    if starting:
        topics = _described(starting)
        for each in starting:
            each.count({name: topics[name] for name in each.survey.topics if name in topics}, many=many)
    going = [each for each in starting if each.work is not None]
    samples = _samples(going)
    return Plans(pipeline=pipeline, tables=tuple(_plan(each, samples, spark=session) for each in looks))


class _Heading(TypedDict):
    feed: str
    topics: tuple[str, ...]
    sink: str
    kind: Kind
    start: str


@dataclass
class _Work:
    begin: Begin
    batches: Batches


class _Look:
    """What is found out about one table, step by step."""

    def __init__(self, feed: Feed, survey: FeedStatus | None, refusal: LakefeedError | None) -> None:
        self.feed = feed
        self._survey = survey
        self.refusal = refusal
        self.work: _Work | None = None

    @property
    def survey(self) -> FeedStatus:
        """Where the feed stands; not to be asked of one whose checkpoint is another's."""
        assert self._survey is not None
        return self._survey

    @property
    def has_survey(self) -> bool:
        """Whether it is known where the feed stands."""
        return self._survey is not None

    @property
    def topic(self) -> str:
        """Of many, the one that it is of."""
        assert self.source.topics is not None
        return self.source.topics[0]

    @property
    def table(self) -> str:
        """Of many, the topic's own."""
        return self.feed.config.sink.ledger_table

    @property
    def has_landed(self) -> bool:
        """Of many, whether the table has rows of this topic."""
        return self.has_survey and has_landed(self.survey.position, self.topic)

    @property
    def source(self) -> KafkaSource:
        """Where it reads."""
        return self.feed.config.kafka

    def count(self, topics: Mapping[str, TopicDescription], *, many: bool) -> None:
        """Takes up what there is to read; nothing, if a topic of many has never had a record."""
        survey, limit = self.survey, self.source.max_records_per_batch
        if many:
            [topic] = topics.values()
            if not any(each.end_offset for each in topic.partitions):
                # Nothing is begun for it: it may be without a schema too.
                return
            begin = begin_of_topic(survey.position, topic, from_latest=self.source.start == "latest")
            spread = spread_by_round(limit, topic)
        else:
            assert survey.decided is not None
            begin = begin_of_query(
                survey.decided,
                checkpoint=survey.checkpoint,
                position=survey.position,
                logged=survey.logged,
                topics=topics,
                from_latest=self.source.start == "latest",
            )
            spread = spread_by_spark(limit)
        self.work = _Work(begin, batches(begin, topics, limit=limit, spread=spread))


def _look(feed: Feed, *, spark: Callable[[], SparkSession]) -> _Look:
    try:
        survey = feed_status(feed, spark)
    except CheckpointMismatch as refusal:
        return _Look(feed, None, refusal)
    if survey.refusal is None and (gone := [name for name, found in survey.topics.items() if found is None]):
        source = feed.config.kafka
        there = Topics(source.bootstrap_servers, options=dict(source.options)).list()
        return _Look(feed, survey, missing_topic(gone[0], there, where=source.bootstrap_servers))
    return _Look(feed, survey, survey.refusal)


def _refuse_shared_tables(looks: Sequence[_Look]) -> None:
    """As the rounds do: of two topics the one has the table whose rows are there, or else the first."""
    taken: Taken[_Look] = Taken()
    for each in looks:
        clash = taken.take(each.topic, each.feed.config, each)
        if clash is not None:
            other, place = clash
            first, late = (each, other) if each.has_landed and not other.has_landed else (other, each)
            late.refusal = shares_a_table(first.topic, late.topic, place)
        elif each.has_survey and each.refusal is None:
            try:
                require_own(each.survey.position, each.topic, each.table)
            except ConfigError as refusal:
                each.refusal = refusal


def _described(looks: Sequence[_Look]) -> dict[str, TopicDescription]:
    """The topics as a reader sees them, who may have to stop at an open transaction."""
    source = looks[0].source
    committed = source.options.get(ISOLATION, CONSUMER_DEFAULTS[ISOLATION]) == "read_committed"
    names = sorted({name for each in looks for name in each.survey.topics})
    return Topics(source.bootstrap_servers, options=dict(source.options)).describe_all(names, committed=committed)


def _samples(looks: Sequence[_Look]) -> Mapping[str, Sample]:
    if not looks:
        return {}
    return sampled(looks[0].source, [each for look in looks if look.work for each in look.work.batches.backlog])


def _plan(look: _Look, samples: Mapping[str, Sample], *, spark: Callable[[], SparkSession]) -> RunPlan:
    ready = Prepared(refusal=look.refusal)
    if look.work is not None:
        ready = prepared(look.feed, look.survey, spark=spark())
    if ready.refusal is not None or look.work is None:
        return _without_work(look, ready)
    config, survey, work = look.feed.config, look.survey, look.work
    past = Past()
    if (table := config.sink.chosen.snapshot_table) is not None:
        past = past_of(table, config.name, connections=look.feed.connections)
    again = work.begin.again
    ends = {(each.topic, each.partition): each.end for each in work.batches.first}
    starts = {(each.topic, each.partition): each.start for each in work.batches.first}
    is_new = survey.position is None and survey.checkpoint.batch_id is None
    planned_again = again is not None and not work.begin.again_is_landed
    return RunPlan(
        **_heading(look, kind="fresh" if is_new else "goes on", start=survey.start),
        refusal=None,
        checkpoint=_checkpoint(look),
        tables=tuple(ready.tables),
        dead_letter_topic=ready.dead_letter_topic,
        again=None
        if again is None
        else Again(batch_id=work.begin.batch_id, ranges=again.ranges, is_landed=not planned_again),
        batch_id=work.begin.batch_id + (again is not None and not planned_again) if config.checkpoint else None,
        partitions=tuple(
            PartitionPlan(
                topic=each.topic,
                partition=each.partition,
                start=starts.get((each.topic, each.partition), each.start),
                first_end=ends.get((each.topic, each.partition), each.start),
                end=each.end,
            )
            for each in work.batches.backlog
        ),
        batches=work.batches.count,
        estimates=estimates(
            config,
            batches=work.batches,
            past=past,
            sample=_added(samples, survey.topics),
            is_laid_out_anew=any(each.is_laid_out_anew for each in ready.tables),
            has_state=look.feed.plan(spark()).stateful,
        ),
        notes=(*ready.notes, *_notes(look, past)),
    )


def _without_work(look: _Look, ready: Prepared) -> RunPlan:
    """A start that is refused, or waits for a record."""
    if ready.refusal is not None:
        kind: Kind = "refused"
        start = "would be refused"
    else:
        kind, start = "waits", "waits for the topic's first record"
    return RunPlan(
        **_heading(look, kind=kind, start=start),
        refusal=ready.refusal,
        checkpoint=None,
        tables=tuple(ready.tables),
        dead_letter_topic=ready.dead_letter_topic,
        again=None,
        batch_id=None,
        partitions=(),
        batches=0,
        estimates=None,
        notes=ready.notes,
    )


def _heading(look: _Look, *, kind: Kind, start: str) -> _Heading:
    config = look.feed.config
    topics = look.survey.topics if look.has_survey else config.kafka.topics or []
    return {
        "feed": config.name,
        "topics": tuple(sorted(topics)),
        "sink": Owner.of(config).sink,
        "kind": kind,
        "start": start,
    }


def _checkpoint(look: _Look) -> CheckpointPlan | None:
    config, survey = look.feed.config, look.survey
    if not config.checkpoint:
        return None
    owner = f"feed '{config.name}' into {Owner.of(config).sink}"
    state = survey.checkpoint
    if survey.note is None:
        return CheckpointPlan(location=config.checkpoint, action="make", told=f"new; it becomes that of {owner}")
    if state.batch_id is None and state.damage is None:
        return CheckpointPlan(location=config.checkpoint, action="make", told=f"is that of {owner}, and empty")
    if survey.decided is not None and survey.decided.reset_checkpoint:
        message = f"is that of {owner}, and is removed: {survey.start}"
        return CheckpointPlan(location=config.checkpoint, action="make anew", told=message)
    has = f"batch {state.batch_id} {'done' if state.committed else 'planned'}"
    return CheckpointPlan(location=config.checkpoint, action="keep", told=f"is that of {owner}, and has {has}")


def _added(samples: Mapping[str, Sample], topics: Mapping[str, object]) -> Sample | None:
    found = [samples[name] for name in topics if name in samples]
    if not found:
        return None
    return Sample(records=sum(each.records for each in found), bytes=sum(each.bytes for each in found))


def _notes(look: _Look, past: Past) -> list[str]:
    config = look.feed.config
    notes = []
    if config.decode.registry is not None and config.schema_.on_change == "evolve":
        notes.append(
            "records may name schemas that the table has not met: its columns follow when their batch comes, not at "
            "the start"
        )
    if config.decode.is_sampled and look.survey.position is None:
        notes.append(
            "unless the sink remembers a schema, its columns are guessed from the newest records of the moment"
        )
    if past.dead_letters:
        notes.append(
            f"{past.dead_letters} of the last {len(past.batches)} batches had dead letters, which make a commit and "
            "requests of their own"
        )
    if config.trigger != AVAILABLE_NOW:
        notes.append(f"what comes later is landed at each trigger ({config.trigger}); lakefeed run --once ends before")
    return notes
