"""Land old records in a feed's table while the feed runs: in bounded commits, every record once.

Guarantee: exactly-once, like the feed's. A commit carries its offset ranges. It is refused if the table already has one
of these offsets, if the feed has yet to read them, or if another backfill has begun since. After an interruption the
next backfill lands the missing records. Dead letters are a separate commit right after the commit of the rows; after a
crash between the two, the next backfill writes them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from lakefeed.clients.kafka.selection import require_held, topics_of
from lakefeed.clients.kafka.topics import TopicDescription, Topics, partitions_of
from lakefeed.errors import CheckpointMismatch, ConfigError, ResourceMissing
from lakefeed.feed.batch_writer import BatchWriter
from lakefeed.feed.feed import Feed
from lakefeed.lazy import SparkSession
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.outcomes import ZERO, Counts, total
from lakefeed.ledger.snapshot_summary import Backfill, adopted_offsets
from lakefeed.messages.printable import ReadableResult, counted
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition, difference, intersection, portions, union
from lakefeed.records.sources.kafka import read_batch
from lakefeed.sinks.dead_letters.store import BACKFILLS, BackfillOrigin


@dataclass(frozen=True, kw_only=True)
class BackfillRequest:
    """A choice among the missing records; without ``ranges``, ``start`` or ``since`` all of them.

    Attributes:
        ranges: only these ranges; the topic must still have all of their records that the table lacks.
        start: only offsets from this one on, in all partitions.
        since: only offsets from the first record on that has this timestamp or a later one.
    """

    ranges: tuple[OffsetRange, ...] | None = None
    start: int | None = None
    since: datetime | None = None

    def __post_init__(self) -> None:
        if (self.ranges, self.start, self.since).count(None) < 2:
            raise ConfigError("offset ranges and a start exclude each other", hint="give one of the two")


@dataclass(frozen=True, kw_only=True)
class BackfillPlan:
    """The ranges that a backfill lands, and the ranges that are ``gone`` from both table and topic."""

    ranges: tuple[OffsetRange, ...] = ()
    gone: tuple[OffsetRange, ...] = ()
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def offsets(self) -> int:
        """The number of offsets to land."""
        return sum(span.records for span in self.ranges)

    def as_dict(self) -> dict[str, Any]:
        """Return the document of ``--output json``."""
        ranges, gone = ([str(span) for span in spans] for spans in (self.ranges, self.gone))
        return {"offsets": self.offsets, "ranges": ranges, "gone": gone}


@dataclass(frozen=True)
class BackfillCommit:
    """One commit of a backfill: number ``number`` of ``of`` commits, counted from 1."""

    number: int
    of: int
    ranges: tuple[OffsetRange, ...]
    counts: Counts
    rows: int
    seconds: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, repr=False)
class BackfillSummary(ReadableResult):
    """The result of a backfill, or with ``dry_run`` a prediction of its commits.

    ``settled`` is the number of dead letters that this backfill wrote for an earlier, interrupted one. ``stopped`` says
    that the backfill was asked to stop before its end; the next one resumes.
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
        """Return the backfill in one line."""
        commits = counted(self.commits, "commit")
        if self.dry_run:
            return f"would make {commits}"
        stopped = ", stopped before its end" if self.stopped else ""
        return f"{commits}, {counted(self.records, 'record')}, {counted(self.rows, 'row')}{stopped}"

    def as_dict(self) -> dict[str, Any]:
        """Return the document of ``--output json``."""
        return {**asdict(self), "planned": self.planned.as_dict()}


class BackfillJob:
    """Backfills one feed; without a place for dead letters, a bad record stops the backfill."""

    def __init__(self, feed: Feed, spark: SparkSession) -> None:
        self._feed, self._spark, self._source = feed, spark, feed.config.kafka
        self._table = feed.ledger_table(spark)
        self._dead_letters = feed.dead_letter_store(spark) if feed.config.dead_letters else None

    def plan(self, request: BackfillRequest) -> BackfillPlan:
        """Return the plan of what can be landed now; raise a LakefeedError if the feed has landed nothing yet."""
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
        """Return the summary of what ``run`` would do now."""
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
        """Land the missing records; for the arguments see ``Pipeline.backfill``.

        Raises a Py4JJavaError if a commit is refused: another backfill has begun, or the feed was rewound.
        """
        self.plan(request)  # Raise errors before anything is created or changed.
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
                assert self._dead_letters is not None  # Without a place for dead letters there are none.
                landed = next(found for found in self._table.ledger.backfills() if found.ranges == commit.ranges)
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
            raise ResourceMissing(f"there is no table {self._table.name} yet", hint="lakefeed run makes it")
        position = self._table.ledger.position()
        if position is None:
            raise ConfigError(
                f"feed '{self._feed.config.name}' has landed nothing yet: it is not known where it begins",
                where=self._table.name,
                hint="run it first; with source.kafka.start: earliest it reads what is old itself",
            )
        return position

    def _settle(self, writer: BatchWriter) -> int:
        """Write the newest backfill's dead letters if it was interrupted before it wrote them; return their number.

        Only the newest commit can lack them: letters are written before the next commit, and the fence of this driver
        prevents commits of all other drivers.
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
    """Find records that the table lacks, the topic still has, and the feed will never read.

    For ``requested.since``, ``starts`` has the partitions' offsets at that time; None if a partition has no record so
    late. ``adopted`` has the offsets at which the feed took over the table. Another tool has landed the offsets before
    these; only ``requested.ranges`` say which of them it left out. ``where`` are the brokers, for errors.
    """
    if position.covered is None:
        raise CheckpointMismatch(
            "it is not known which records the table has: it was rolled back by an engine that is not lakefeed, or "
            "its newest commits are of a version that did not note it",
            where=where,
            hint="lakefeed read shows or copies old records without touching the feed's table",
        )
    known = position.ranges.topic_ids
    same = {name: found for name, found in topics.items() if known.get(name, found.topic_id) == found.topic_id}
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
        _require_behind(requested.ranges, ends, where=where)
        absent = difference(requested.ranges, has)
        _require_same({span.topic for span in absent}, known, topics, where=where)
        require_held(absent, same, where=where)
    elif requested.start is not None or requested.since is not None:
        first = {key: (starts or {}).get(key) if requested.start is None else requested.start for key in ends}
        later = [OffsetRange(*key, at, ends[key]) for key, at in first.items() if at is not None and at < ends[key]]
        absent = intersection(absent, later)
    return BackfillPlan(
        ranges=tuple(intersection(absent, held)),
        gone=tuple(difference(absent, held)),
        topic_ids={name: found.topic_id for name, found in same.items()},
    )


def _require_same(
    names: Iterable[str], ids: Mapping[str, str], topics: Mapping[str, TopicDescription], *, where: str
) -> None:
    for name in sorted(names):
        known, found = ids.get(name), topics.get(name)
        if found is None or known not in (None, found.topic_id):
            now = "there is none" if found is None else f"it has the id {found.topic_id}"
            raise CheckpointMismatch(
                f"the feed has read a topic {name} with the id {known}, now {now}: what the table lacks of it is gone",
                where=where,
            )


def _require_behind(ranges: Sequence[OffsetRange], ends: Mapping[Partition, int], *, where: str) -> None:
    for span in union(ranges):
        end = ends.get(span.key)
        if end is None:
            raise ConfigError(f"the feed does not know {span.topic}-{span.partition}", where=f"{where}, range {span}")
        if span.end > end:
            raise ConfigError(
                f"the feed stands at {end} in {span.topic}-{span.partition} and reads what comes after it itself",
                where=f"range {span}",
                hint=f"end the range at {end}",
            )
