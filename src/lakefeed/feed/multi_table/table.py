"""Writes one topic to its table, independently of the other topics."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from lakefeed.clients.kafka.selection import first_offsets
from lakefeed.clients.kafka.topics import TopicDescription, mark_cut_offs
from lakefeed.clients.retry import PATIENCE_SECONDS
from lakefeed.clients.spark.errors import translate
from lakefeed.config.addresses import Place
from lakefeed.config.blocks import OnFailure
from lakefeed.config.models import PipelineConfig
from lakefeed.config.places import tables_of_topic
from lakefeed.config.topic_tables import require_fit
from lakefeed.errors import (
    BrokerUnreachable,
    ConfigError,
    DriverReplaced,
    LakefeedError,
    RecordsLost,
    Unreachable,
)
from lakefeed.feed.batch_writer import BatchResult, BatchWriter
from lakefeed.feed.feed import Feed
from lakefeed.feed.open import FeedStart, record_beginning
from lakefeed.feed.recovery import GIVE_UP, find_data_loss
from lakefeed.feed.run import TableSummary
from lakefeed.feed.steering import LONGEST_PAUSE_SECONDS
from lakefeed.lazy import SparkSession, py4j, spark_errors
from lakefeed.ledger.continuity import is_of_earlier_driver
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.outcomes import ZERO, Counts
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition

MOST_SHOWN = 3
TOGETHER = timedelta(minutes=2)
NOTHING = OffsetRanges(())
Part = TypeVar("Part")


def next_ranges(
    position: Mapping[int, int],
    topic: TopicDescription,
    *,
    limit: int = sys.maxsize,
    until: Mapping[int, int] | None = None,
) -> OffsetRanges:
    """Return the next batch's ranges: each partition gets a share of ``limit`` by its lag, at least one offset.

    A partition without a ``position`` begins at its first offset. No range ends after ``until``, by default the topic's
    end.
    """
    left = []
    for partition in topic.partitions:
        start, end = position.get(partition.id, partition.start_offset), partition.end_offset
        if until is not None:
            end = min(end, until.get(partition.id, end))
        left.append((partition.id, start, max(0, end - start)))
    total = sum(lag for _, _, lag in left)
    ranges = []
    for number, start, lag in left:
        share = lag if total <= limit else min(lag, max(1, limit * lag // total))
        ranges.append(OffsetRange(topic.name, number, start, start + share))
    return OffsetRanges(tuple(ranges), {topic.name: topic.topic_id}).in_epochs(topic.epochs)


class Taken(Generic[Part]):
    """Finds topics of a job that would share a table; ``Part`` is the type of the object that represents a topic."""

    def __init__(self) -> None:
        self._at: dict[str, list[tuple[Place, Part]]] = defaultdict(list)

    def take(self, topic: str, config: PipelineConfig, part: Part) -> tuple[Part, str] | None:
        """Register a topic's tables. If a table is already registered, return it and the ``Part`` that has it."""
        clash = None
        for place in tables_of_topic(topic, config):
            there = self._at[place.name]
            if clash is None:
                clash = next(((other, place.name) for taken, other in there if place.mixes_with(taken)), None)
            there.append((place, part))
        return clash


def has_landed(position: Position | None, topic: str) -> bool:
    """Return whether a table's position includes offsets of this topic."""
    return position is not None and topic in {span.topic for span in position.ranges.ranges}


def is_begun(feed: Feed, spark: SparkSession) -> bool:
    """Return whether the table of a feed has offsets of the feed's topic; False if the table is unavailable."""
    try:
        position = feed.ledger_table(spark).position()
        return any(has_landed(position, topic) for topic in feed.config.kafka.topics or ())
    except _failures():
        return False


def require_own(position: Position | None, topic: str, table: str) -> None:
    """Raise an error if the table's ledger has offsets of another topic under the same feed name.

    In a topic's feed name, '_' replaces special characters, so two topics can have the same feed name.
    """
    if position is not None and position.ranges.ranges and not has_landed(position, topic):
        raise shares_a_table(position.ranges.ranges[0].topic, topic, table)


def shares_a_table(first: str, topic: str, table: str) -> ConfigError:
    return ConfigError(
        f"the topics {first} and {topic} would share one table",
        where=table,
        hint=f"give one of them another table: tables: {{topics: {{{topic}: {{table: …}}}}}}",
    )


@dataclass
class TableTask:
    """Writes one topic to its table in batches; a failure does not stop other tables.

    The table resumes at the position in its own ledger, so after a failure it lags behind the other tables.

    Attributes:
        feed: the feed of this topic alone.
        until: the end offsets for a run that ends by itself.
        failure: the error that has paused or stopped the table.
        has_answered: returns whether any table of the job has landed a batch in this run, so that all servers have
            answered.
        reached: the ranges of the newest batch; empty before the first one.
    """

    topic: str
    feed: Feed
    spark: SparkSession
    on_failure: OnFailure
    retry_seconds: int
    accept_loss: bool = False
    until: Mapping[int, int] | None = None
    failure: LakefeedError | None = None
    has_answered: Callable[[], bool] = lambda: False
    batches: int = 0
    rows: int = 0
    counts: Counts = ZERO
    reached: OffsetRanges = NOTHING
    _writer: BatchWriter | None = None
    _latest: Mapping[Partition, int] | None = None
    _created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    _retry_at: float = 0.0
    _unanswered_since: float | None = None
    """When a server stopped answering that had answered before; None while all servers answer."""
    _waiting_since: float | None = None
    _batch_id: int = 0

    @property
    def table(self) -> str:
        return self.feed.config.sink.ledger_table

    def is_due(self, topic: TopicDescription) -> bool:
        """Return whether the table has records to write, and is not paused or stopped after a failure."""
        stopped = self.on_failure == "stop" and not self.waits_for_server
        if self.failure is not None and (stopped or time.monotonic() < self._retry_at):
            return False
        if self.feed.config.kafka.starting.kind == "latest" and self._latest is None:
            self._latest = self._first_offsets(topic)
        if self._writer is None:
            # Wait for the topic's first record, because an empty topic may have no schema yet.
            return any(topic.ends.values())
        lag = next_ranges(self._position, topic, until=self.until).records
        source = self.feed.config.kafka
        if lag == 0 or self.until is not None or lag >= (source.min_records_per_batch or 0):
            return lag > 0
        # The batch would have fewer than min_records_per_batch: wait for more, at most max_wait_seconds.
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since >= source.max_wait_seconds

    def backlog(self, topic: TopicDescription) -> int:
        """Return the number of unwritten offsets; until the table is open, the number of all offsets of the topic."""
        return next_ranges(self._position, topic).records

    @property
    def waits_for_server(self) -> bool:
        """Return whether the table waits for a server; if so, it tries again despite ``on_failure``: see ``Outage``."""
        since = self._unanswered_since
        return since is not None and time.monotonic() - since < PATIENCE_SECONDS

    @property
    def _position(self) -> Mapping[int, int]:
        return {span.partition: span.end for span in self.reached.ranges}

    def step(self, topic: TopicDescription, *, limit: int | None = None) -> tuple[BatchResult | None, str | None]:
        """Write the next batch if there are records; return its result, and a message for the user.

        The batch has at most ``limit`` records, by default ``max_records_per_batch``. If the batch fails, ``on_failure:
        fail`` raises its error.
        """
        try:
            result = self._write_next(topic, limit=limit)
        except _failures() as error:
            failure = translate(error)
            return None, self._fail(failure if self._writer is None else self._writer.cause_of(failure))
        note = None if self.failure is None else "resumes"
        self.failure = self._unanswered_since = None
        return result, note

    def refuse(self, error: LakefeedError) -> None:
        """Stop the table with this error until the pipeline file changes."""
        self.on_failure = "stop"
        self.failure = error

    def close(self) -> None:
        if self._writer is not None:
            self._writer.reader.close()

    def summary(self) -> TableSummary:
        return TableSummary(
            topic=self.topic,
            table=self.table,
            batches=self.batches,
            counts=self.counts,
            rows=self.rows,
            failure=None if self.failure is None else str(self.failure),
        )

    def _write_next(self, topic: TopicDescription, *, limit: int | None) -> BatchResult | None:
        writer = self._writer or self._begin(topic)
        now = mark_cut_offs(self.feed.config.kafka, {self.topic: topic}, self.reached.ranges)
        if lost := list(find_data_loss(self.reached.ends, self.reached.topic_ids, now)):
            raise RecordsLost(
                f"topic {self.topic} cannot resume: {'; '.join(loss.message for loss in lost[:MOST_SHOWN])}",
                where=self.table,
                hint=GIVE_UP,
            )
        limit = limit or self.feed.config.kafka.max_records_per_batch
        writer.reader.bound_batches(limit)
        ranges = next_ranges(self._position, topic, limit=limit, until=self.until)
        if not ranges.records:
            return None
        if any(span.epoch is not None and topic.epochs.get(span.key) != span.epoch for span in self.reached.ranges):
            writer.reader.discard_fetched()
        result = writer.write(self.feed.source.reread(self.spark, ranges.ranges), ranges, self._batch_id)
        self.reached = ranges
        self._batch_id += 1
        self._waiting_since = None
        self.batches += not result.replayed
        self.rows += result.rows
        self.counts += result.counts
        return result

    def _begin(self, topic: TopicDescription) -> BatchWriter:
        """Open the table at its topic's first records, since opening thousands takes long; return the writer."""
        require_fit(self.feed.config)
        self.feed.require_stateless(self.spark)
        sink = self.feed.ledger_table(self.spark)
        start = FeedStart(
            self.feed.identity,
            sink,
            checkpoint=None,
            describe=lambda position: mark_cut_offs(
                self.feed.config.kafka, {self.topic: topic}, position.ranges.ranges if position else ()
            ),
            stateful=False,
            accept_loss=self.accept_loss,
            check=lambda position: require_own(position, self.topic, self.table),
        )
        no_records = self.feed.source.reread(self.spark, next_ranges({}, topic, limit=0).ranges)
        writer = self.feed.begin_writer(self.spark, sink, no_records, lost=start.lost_partitions)
        start.decide_again()
        start.apply(fence=writer.fence)
        if start.decision.data_loss:
            writer.follow()
        newest = next(sink.commits(), None)
        self._batch_id = newest.batch_id + 1 if newest else 0
        self.reached = start.position.ranges if start.position else NOTHING
        if start.position is None and self.feed.config.kafka.starting.kind != "earliest":
            positions, topics = self._latest or self._first_offsets(topic), {self.topic: topic}
            self.reached = record_beginning(sink, self.feed.config.name, positions, topics, fence=writer.fence)
            self._batch_id = 1
        self._writer = writer
        return writer

    def _first_offsets(self, topic: TopicDescription) -> Mapping[Partition, int]:
        return first_offsets(self.feed.config.kafka, {self.topic: topic}, now=self._created_at)

    def _began_together(self) -> bool:
        """Return whether the driver with the table's fence started just before this one, which then takes it back."""
        if self._writer is None or self.batches or datetime.now(UTC) - self._created_at > TOGETHER:
            return False
        return is_of_earlier_driver(self._writer.sink.fence_taken(), self._writer.fence)

    def _is_outage(self, error: LakefeedError) -> bool:
        """Return whether the cause is a server that has answered before, and so not the pipeline file."""
        if isinstance(error, BrokerUnreachable) or self.batches:
            return True
        # Batches of other tables prove that the addresses are right, but not that this table may be written.
        return isinstance(error, Unreachable) and self.has_answered()

    def _fail(self, error: LakefeedError) -> str:
        """Pause or stop the table; return a message for the user, empty if the last attempt failed likewise."""
        if not error.passes:
            self._unanswered_since = None
        elif self._unanswered_since is None and self._is_outage(error):
            self._unanswered_since = time.monotonic()
        # Do not open the table again: two drivers would take the fence from each other forever.
        if isinstance(error, DriverReplaced):
            if not self._began_together():
                raise error
            error = DriverReplaced(
                "another driver of the feed began at the same time, and has taken over the table",
                hint="this driver takes the fence back; if the error remains, stop the other driver",
            )
            self._unanswered_since = time.monotonic()
        if self.on_failure == "fail" and not self.waits_for_server:
            raise error
        is_known = self.failure is not None and self.failure.what == error.what
        self.failure = error
        self.close()
        # The next attempt opens the table again, because outdated columns or an outdated position may be the cause.
        self._writer, self.reached = None, NOTHING
        pause = min(self.retry_seconds, LONGEST_PAUSE_SECONDS) if self.waits_for_server else self.retry_seconds
        self._retry_at = time.monotonic() + pause
        stops = self.on_failure == "stop" and not self.waits_for_server
        then = "the table stays as it is until the next start" if stops else f"the next attempt is in {pause:g} s"
        return "" if is_known else f"{error.what}; {then}"


def _failures() -> tuple[type[Exception], ...]:
    return LakefeedError, py4j.Py4JError, spark_errors.PySparkException
