"""Old records into a feed's table beside the running feed: in bounded commits, each record once, the feed untouched.

Guarantee: exactly-once, as the feed's. Each commit carries its offset ranges; it is refused if the table has one of
these offsets, or the feed is yet to read them, or another backfill has begun since. Whatever ends a backfill, the next
one lands what is missing then. Dead letters are a commit of their own right after the rows'; a crash between the two is
made good by the next backfill.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lakefeed.clients.kafka.selection import topics_of
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.kafka_source import KafkaSource
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.feed.batch_writer import BatchWriter
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.outcomes import ZERO, Counts, total
from lakefeed.ledger.snapshot_summary import Backfill
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.offsets.sets import portions
from lakefeed.operations.missing import BackfillRequest, Missing, missing
from lakefeed.records.sources.kafka import read_batch
from lakefeed.sinks.dead_letters.store import BACKFILLS, BackfillOrigin, DeadLetterStore
from lakefeed.sinks.protocol import LedgerTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class Portion:
    """One commit of a backfill.

    Attributes:
        number: of how many it is which, from 1.
        of: how many there are.
        ranges: what it landed.
        counts: what became of the records.
        rows: rows that it added.
        seconds: how long it took.
        notes: what one should hear of.
    """

    number: int
    of: int
    ranges: tuple[OffsetRange, ...]
    counts: Counts
    rows: int
    seconds: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Backfilled:
    """What a backfill did, or with ``dry_run`` what it would do.

    Attributes:
        dry_run: nothing was written.
        planned: what there was to do.
        commits: how many commits were made, or would be.
        records: records that were landed.
        rows: rows that the commits added.
        dead_letters: of the records.
        skipped: of the records, those left out because the pipeline says so.
        settled: dead letters of an earlier backfill that was cut off, written now.
        stopped: it was asked to stop before the end; the next one resumes.
        seconds: how long it took.
    """

    dry_run: bool = False
    planned: Missing
    commits: int = 0
    records: int = 0
    rows: int = 0
    dead_letters: int = 0
    skipped: int = 0
    settled: int = 0
    stopped: bool = False
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For ``--output json``."""
        return {**asdict(self), "planned": self.planned.as_dict()}


@dataclass(frozen=True, kw_only=True)
class BackfillJob:
    """Backfills one feed.

    Attributes:
        spark: the session.
        feed: the feed's name.
        source: its topics.
        table: its table.
        headers: whether the rows want the records' headers.
        dead_letters: where they go; None if a bad record stops the backfill.
    """

    spark: SparkSession
    feed: str
    source: KafkaSource
    table: LedgerTable
    headers: bool
    dead_letters: DeadLetterStore | None

    def plan(self, request: BackfillRequest) -> Missing:
        """What there is to land now.

        Raises:
            LakefeedError: see ``lakefeed.operations.missing``; or the feed has landed nothing yet.
        """
        position = self._position()
        topics = topics_of(self.source)
        starts: dict[tuple[str, int], int | None] = {}
        if request.since is not None:
            cluster = Topics(self.source.bootstrap_servers, options=dict(self.source.options))
            for name in topics:
                starts |= {(name, at): offset for at, offset in cluster.offsets_at(name, request.since).items()}
        return missing(position, topics, request, starts=starts, where=self.source.bootstrap_servers)

    def tell(self, request: BackfillRequest) -> Backfilled:
        """What ``run`` would do now."""
        planned = self.plan(request)
        return Backfilled(dry_run=True, planned=planned, commits=len(list(self._cut(planned))))

    def records(self, ranges: Sequence[OffsetRange] | None = None) -> DataFrame:
        """The records of these ranges, undecoded, as the feed reads them; of all that there are."""
        return read_batch(self.spark, self.source, ranges=ranges, headers=self.headers)

    def run(
        self,
        writer: BatchWriter,
        request: BackfillRequest,
        *,
        stop: threading.Event,
        on_commit: Callable[[Portion], None] = lambda portion: None,
        step: Callable[[str], None] = lambda done: None,
    ) -> Backfilled:
        """Lands what is missing.

        Args:
            writer: the feed's, begun.
            request: which of the missing records.
            stop: set it to end after the commit at hand.
            on_commit: called after each commit and its dead letters.
            step: called when a commit's rows are ``landed``; for tests that cut a backfill off.

        Raises:
            LakefeedError: as ``plan``; or a record stops it, or there are too many dead letters.
            Py4JJavaError: a commit was refused: another backfill has begun, or the feed was rewound.
        """
        started = time.monotonic()
        fence = self.table.take_fence(BACKFILLS)
        settled = self._settle(writer)
        planned = self.plan(request)
        cut = list(self._cut(planned))
        counts, rows, commits = ZERO, 0, 0
        for number, ranges in enumerate(cut, 1):
            if stop.is_set():
                break
            began = time.monotonic()
            commit = Backfill(self.feed, planned.commit(ranges), fence)
            committed = writer.write_unbatched(self.records(ranges), commit)
            added, outcomes = committed.rows or 0, committed.outcomes
            step("landed")
            if outcomes.counts.dead_letters:
                self._write_letters(writer, commit, spans=outcomes.dead_ranges, expected=outcomes.counts.dead_letters)
            commits, counts, rows = commits + 1, counts + outcomes.counts, rows + added
            on_commit(
                Portion(
                    number=number,
                    of=len(cut),
                    ranges=tuple(ranges),
                    counts=outcomes.counts,
                    rows=added,
                    seconds=round(time.monotonic() - began, 3),
                    notes=writer.notes(),
                )
            )
        return Backfilled(
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

    def _cut(self, planned: Missing) -> Iterator[list[OffsetRange]]:
        return portions(planned.ranges, self.source.max_records_per_batch)

    def _position(self) -> Position:
        if not self.spark.catalog.tableExists(self.table.name):
            raise ResourceMissing(f"there is no table {self.table.name} yet", hint="lakefeed run makes it")
        position = self.table.ledger.position()
        if position is None:
            raise ConfigError(
                f"feed '{self.feed}' has landed nothing yet: it is not known where it begins",
                where=self.table.name,
                hint="run it first; with source.kafka.start: earliest it reads what is old itself",
            )
        return position

    def _settle(self, writer: BatchWriter) -> int:
        """Writes the dead letters of the newest backfill, if it was cut off before; returns how many it wrote.

        Only the newest can lack them: each commit's letters are written before the next commit, and this driver's fence
        keeps all others from making one.
        """
        newest = next(self.table.ledger.backfills(), None)
        expected = total(newest.counts).dead_letters if newest else 0
        if newest is None or self.dead_letters is None or not expected:
            return 0
        spans = [
            each for each in newest.ranges.ranges if newest.counts.get((each.topic, each.partition), ZERO).dead_letters
        ]
        origin = BackfillOrigin(self.feed, newest.number, newest.committed_at)
        written = self.dead_letters.complete(writer.rows.classify, origin, spans=spans, expected=expected)
        return expected if written else 0

    def _write_letters(self, writer: BatchWriter, commit: Backfill, *, spans: list[OffsetRange], expected: int) -> None:
        assert self.dead_letters is not None  # Without a place for them no record becomes one.
        landed = next(each for each in self.table.ledger.backfills() if each.ranges == commit.ranges)
        origin = BackfillOrigin(self.feed, landed.number, landed.committed_at)
        self.dead_letters.write(writer.rows.classify, origin, spans=spans, expected=expected)
