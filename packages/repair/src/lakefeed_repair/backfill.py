"""Land old records in a feed's table while the feed runs: in bounded commits, each record exactly once.

A commit carries its offset ranges. The commit is refused if the table already has one of these offsets, if the feed
will read one of them itself, or if a newer backfill has begun. After an interruption the next backfill lands the
missing records. A backfill writes a commit's dead letters right after the commit. If it crashes between the two, the
next backfill writes these dead letters.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from lakefeed import Pipeline
from lakefeed.clients.kafka.selection import require_held, topics_of
from lakefeed.clients.kafka.topics import TopicDescription, Topics, partitions_of
from lakefeed.clients.spark.connect import classic
from lakefeed.clients.spark.errors import translating
from lakefeed.errors import CheckpointMismatch, ConfigError, ResourceMissing
from lakefeed.feed.batch_writer import BatchWriter
from lakefeed.feed.feed import Feed
from lakefeed.lazy import SparkSession
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.outcomes import ZERO, Counts, total
from lakefeed.ledger.snapshot_summary import Backfill, adopted_offsets
from lakefeed.messages.printable import ReadableResult, counted
from lakefeed.offsets.ranges import (
    OffsetRange,
    OffsetRanges,
    Partition,
    difference,
    intersection,
    ranges_by_partition,
    union,
)
from lakefeed.records.sources import read_batch
from lakefeed.sinks.dead_letters.store import BACKFILLS, BackfillOrigin

PAGE = "read-and-backfill"


@dataclass(frozen=True, kw_only=True)
class BackfillRequest:
    """The records to land among those that the table lacks; without ``ranges``, ``start`` or ``since`` all of them.

    Attributes:
        ranges: land only records of these ranges; if the table lacks such a record, the topic must still have it.
        start: land only records from this offset on, in all partitions.
        since: land only records whose timestamp is at or after this time.
    """

    ranges: tuple[OffsetRange, ...] | None = None
    start: int | None = None
    since: datetime | None = None

    def __post_init__(self) -> None:
        if (self.ranges, self.start, self.since).count(None) < 2:
            raise ConfigError(
                "offset ranges exclude a first offset or time", hint="name either ranges, or one first offset"
            )


@dataclass(frozen=True, kw_only=True)
class BackfillPlan:
    """The ranges that a backfill lands, and the ranges ``gone`` that neither the table nor the topic has."""

    ranges: tuple[OffsetRange, ...] = ()
    gone: tuple[OffsetRange, ...] = ()
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def offsets(self) -> int:
        return sum(span.records for span in self.ranges)

    def as_dict(self) -> dict[str, Any]:
        ranges, gone = ([str(span) for span in spans] for spans in (self.ranges, self.gone))
        return {"offsets": self.offsets, "ranges": ranges, "gone": gone}


@dataclass(frozen=True)
class BackfillCommit:
    """One commit of a backfill: ``number`` counts from 1, and ``of`` is the number of all its commits."""

    number: int
    of: int
    ranges: tuple[OffsetRange, ...]
    counts: Counts
    rows: int
    seconds: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, repr=False)
class BackfillSummary(ReadableResult):
    """The result of a backfill, or with ``dry_run`` the expected result.

    ``settled`` counts dead letters that this backfill wrote for an interrupted earlier one. ``stopped`` means that the
    user ended the backfill before its last commit; the next backfill lands the remaining records.
    """

    dry_run: bool = False
    planned: BackfillPlan
    commits: int = 0
    records: int = 0
    rows: int = 0
    dead_letters: int = 0
    skipped: int = 0
    settled: int = 0
    stopped: bool = False
    seconds: float = 0.0

    @property
    def headline(self) -> str:
        commits = counted(self.commits, "commit")
        if self.dry_run:
            return f"would make {commits}"
        stopped = ", stopped before its end" if self.stopped else ""
        return f"{commits}, {counted(self.records, 'record')}, {counted(self.rows, 'row')}{stopped}"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "planned": self.planned.as_dict()}


def backfill(
    pipeline: Pipeline,
    requested: BackfillRequest | None = None,
    *,
    spark: SparkSession | None = None,
    dry_run: bool = False,
    stop: threading.Event | None = None,
    on_commit: Callable[[BackfillCommit], None] = lambda commit: None,
    step: Callable[[str], None] = lambda done: None,
) -> BackfillSummary:
    """Land old records that the table lacks and the feed will never read; the feed may run meanwhile.

    Args:
        requested: the choice of records. Default: all records that the topics still have.
        dry_run: write nothing, and return the expected summary.
        stop: set it to end after the current commit.
        step: called with ``landed`` after each commit.

    Raises:
        ConfigError: the sink stores no offsets, or the feed itself will read a requested range.
        CheckpointMismatch: another backfill has begun, or the table's position is unknown.
        ResourceMissing: neither the table nor the topic has some records of a range.
    """
    requested = requested or BackfillRequest()
    pipeline.require_one_table()
    pipeline.require_one_sink()
    pipeline.config.sink.require("backfill", where=pipeline.config.name)
    spark = classic(spark) or pipeline.session()
    with translating():
        job = BackfillJob(pipeline.feed, spark)
        if dry_run:
            return job.predict(requested)
        return job.run(requested, stop=stop or threading.Event(), on_commit=on_commit, step=step)


class BackfillJob:
    """Backfills one feed; if the feed keeps no dead letters, a bad record stops the backfill."""

    def __init__(self, feed: Feed, spark: SparkSession) -> None:
        self._feed, self._spark, self._source = feed, spark, feed.config.kafka
        self._table = feed.ledger_table(spark)
        self._dead_letters = feed.dead_letter_store(spark) if feed.config.dead_letters else None

    def plan(self, request: BackfillRequest) -> BackfillPlan:
        """Find the records to land; raise a LakefeedError if the feed has committed nothing yet."""
        position = self._position()
        topics = topics_of(self._source)
        starts: dict[Partition, int | None] = {}
        if request.since is not None:
            cluster = Topics(self._source.bootstrap_servers, options=self._source.client_options)
            for name in topics:
                starts |= {(name, at): offset for at, offset in cluster.offsets_at(name, request.since).items()}
        adopted = adopted_offsets(self._table.ledger.properties(), self._feed.config.name)
        servers = self._source.bootstrap_servers
        return find_missing(position, topics, request, starts=starts, adopted=adopted, where=servers)

    def predict(self, request: BackfillRequest) -> BackfillSummary:
        planned = self.plan(request)
        commits = len(list(portions(planned.ranges, self._source.max_records_per_batch)))
        return BackfillSummary(dry_run=True, planned=planned, commits=commits)

    def run(
        self,
        request: BackfillRequest,
        *,
        stop: threading.Event,
        on_commit: Callable[[BackfillCommit], None],
        step: Callable[[str], None],
    ) -> BackfillSummary:
        """Land the missing records; for the arguments see ``backfill``.

        Raises a Py4JJavaError if a commit is refused: another backfill has begun, or the user has rewound the feed.
        """
        self.plan(request)  # This call can raise errors, so it comes before anything is created or changed.
        read = partial(read_batch, self._spark, self._source, headers=self._feed.source.keeps_headers)
        writer = self._feed.begin_writer(self._spark, self._table, read(), fenced=False)
        started = time.monotonic()
        fence = self._table.take_fence(BACKFILLS)
        settled = self._settle(writer)
        planned = self.plan(request)
        cut = list(portions(planned.ranges, self._source.max_records_per_batch))
        counts, rows, commits = ZERO, 0, 0
        for ranges in cut:
            if stop.is_set():
                break
            began = time.monotonic()
            ids = {span.topic: planned.topic_ids[span.topic] for span in ranges}
            commit = Backfill(self._feed.config.name, OffsetRanges(tuple(ranges), ids), fence)
            committed = writer.commit_rows(read(ranges=ranges), commit)
            added, outcomes = committed.rows or 0, committed.outcomes
            step("landed")
            if expected := outcomes.counts.dead_letters:
                assert self._dead_letters is not None  # Without dead letters, a bad record stops the commit.
                landed = next(each for each in self._table.ledger.backfills() if each.ranges == commit.ranges)
                origin = BackfillOrigin(landed.feed, landed.number, landed.committed_at)
                self._dead_letters.write(writer.rows.classify, origin, spans=outcomes.dead_ranges, expected=expected)
            commits, counts, rows = commits + 1, counts + outcomes.counts, rows + added
            seconds = round(time.monotonic() - began, 3)
            notes = writer.rows.notes()
            on_commit(BackfillCommit(commits, len(cut), tuple(ranges), outcomes.counts, added, seconds, notes))
        return BackfillSummary(
            planned=planned,
            commits=commits,
            records=counts.records,
            rows=rows,
            dead_letters=counts.dead_letters,
            skipped=counts.skipped,
            settled=settled,
            stopped=commits < len(cut),
            seconds=round(time.monotonic() - started, 3),
        )

    def _position(self) -> Position:
        if not self._spark.catalog.tableExists(self._table.name):
            raise ResourceMissing(f"there is no table {self._table.name} yet", hint="lakefeed run creates it")
        position = self._table.ledger.position()
        if position is None:
            raise ConfigError(
                f"feed '{self._feed.config.name}' has committed nothing yet, so its first offset is unknown",
                where=self._table.name,
                hint="run the feed first; with source.kafka.start: earliest it reads the old records itself",
            )
        return position

    def _settle(self, writer: BatchWriter) -> int:
        """Write the dead letters of the newest backfill commit if a crash prevented that; return their number.

        Only the newest commit can lack its letters: a backfill writes a commit's letters before it makes the next
        commit, and this driver's fence stops other backfills.
        """
        newest = next(self._table.ledger.backfills(), None)
        expected = total(newest.counts).dead_letters if newest else 0
        if newest is None or self._dead_letters is None or not expected:
            return 0
        spans = [span for span in newest.ranges.ranges if newest.counts.get(span.key, ZERO).dead_letters]
        origin = BackfillOrigin(newest.feed, newest.number, newest.committed_at)
        judge = writer.judge_again(newest, spans, expected)
        written = self._dead_letters.complete(judge, origin, spans=spans, expected=expected)
        return expected if written else 0


def find_missing(
    position: Position,
    topics: Mapping[str, TopicDescription],
    requested: BackfillRequest,
    *,
    starts: Mapping[Partition, int | None] | None = None,
    adopted: Mapping[Partition, int] | None = None,
    where: str,
) -> BackfillPlan:
    """Return the ranges of records that the table lacks, the topic still has, and the feed will never read.

    For ``requested.since``, ``starts`` has each partition's offset at that time; None for a partition without a later
    record. ``adopted`` has the offsets at which the feed took the table over from another tool; records before these
    offsets count as landed unless ``requested.ranges`` names them. ``where`` has the brokers, for errors.
    """
    if position.covered is None:
        raise CheckpointMismatch(
            "lakefeed does not know which records the table has: another engine has rolled it back, or an old version "
            "of lakefeed wrote its newest commits",
            where=where,
            hint="lakefeed read shows or copies old records without touching the feed's table",
        )
    known = position.ranges.topic_ids
    same = {name: topic for name, topic in topics.items() if known.get(name, topic.topic_id) == topic.topic_id}
    has = [
        OffsetRange(topic, partition, start, end)
        for (topic, partition), intervals in position.covered.intervals.items()
        for start, end in intervals
    ]
    ends = position.ranges.ends
    below = [OffsetRange(*key, min((adopted or {}).get(key, 0), end), end) for key, end in ends.items()]
    held = [
        OffsetRange(*key, part.start_offset, max(part.start_offset, part.end_offset))
        for key, part in partitions_of(same).items()
        if key in ends
    ]
    absent = difference(below, has)
    if requested.ranges is not None:
        _require_committed(requested.ranges, ends, where=where)
        absent = difference(requested.ranges, has)
        _require_not_recreated({span.topic for span in absent}, known, topics, where=where)
        require_held(absent, same, where=where)
    elif requested.start is not None or requested.since is not None:
        first = {key: (starts or {}).get(key) if requested.start is None else requested.start for key in ends}
        later = [OffsetRange(*key, at, ends[key]) for key, at in first.items() if at is not None and at < ends[key]]
        absent = intersection(absent, later)
    return BackfillPlan(
        ranges=tuple(intersection(absent, held)),
        gone=tuple(difference(absent, held)),
        topic_ids={name: topic.topic_id for name, topic in same.items()},
    )


def _require_not_recreated(
    names: Iterable[str], ids: Mapping[str, str], topics: Mapping[str, TopicDescription], *, where: str
) -> None:
    for name in sorted(names):
        known, topic = ids.get(name), topics.get(name)
        if topic is None or known not in (None, topic.topic_id):
            now = "was deleted" if topic is None else f"was recreated with the id {topic.topic_id}"
            raise CheckpointMismatch(
                f"the topic {name}, which the feed has read with the id {known}, {now}: records that the table lacks "
                "are lost",
                where=where,
                hint="leave out the ranges of this topic",
            )


def _require_committed(ranges: Sequence[OffsetRange], ends: Mapping[Partition, int], *, where: str) -> None:
    for span in union(ranges):
        end, name = ends.get(span.key), f"{span.topic}-{span.partition}"
        if end is None:
            hint = "lakefeed offsets show lists the partitions that it reads"
            raise ConfigError(f"the feed does not read {name}", where=f"{where}, range {span}", hint=hint)
        if span.end > end:
            what = f"the feed has committed {name} up to {end} and reads the later records itself"
            raise ConfigError(what, where=f"range {span}", hint=f"end the range at {end}")


def portions(ranges: Iterable[OffsetRange], size: int) -> Iterator[list[OffsetRange]]:
    """Cut ranges into portions of at most ``size`` offsets, and of at most one range per partition."""
    queues = {key: here[::-1] for key, here in ranges_by_partition(union(ranges)).items()}
    while queues:
        room, portion = size, []
        # Begin with the shortest ranges, so that longer ranges share the room that shorter ones leave.
        shortest_first = sorted(queues, key=lambda key: queues[key][-1].records)
        for left, key in zip(range(len(queues), 0, -1), shortest_first, strict=True):
            first = queues[key][-1]
            count = min(first.records, -(-room // left))
            if not count:
                continue
            room -= count
            middle = first.start + count
            portion.append(first.cut(first.start, middle))
            queues[key].pop()
            if middle < first.end:
                queues[key].append(first.cut(middle, first.end))
        queues = {key: queue for key, queue in queues.items() if queue}
        yield sorted(portion)
