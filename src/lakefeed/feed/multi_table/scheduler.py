"""Schedules the tables of a job: in each round, each table with new records writes its next batch.

Not a streaming query. Spark shares a query's limit out by lag, so that a loud topic leaves a quiet one next to nothing;
one table that cannot be written ends the query; and a checkpoint for all would know less than the tables' own ledgers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from lakefeed.clients.kafka.record_counts import ISOLATION
from lakefeed.clients.kafka.topics import TopicDescription, Topics
from lakefeed.config.durations import seconds_of
from lakefeed.config.kafka_options import CONSUMER_DEFAULTS
from lakefeed.config.topic_tables import at_once, on_failure, retry_seconds
from lakefeed.config.triggers import AVAILABLE_NOW
from lakefeed.errors import Unreachable
from lakefeed.feed.batch_writer import BatchResult
from lakefeed.feed.feed import Feed
from lakefeed.feed.multi_table.sharing import Taken, shares_a_table
from lakefeed.feed.multi_table.table import TableTask
from lakefeed.feed.multi_table.writers import Writers
from lakefeed.feed.progress.progress import BatchProgress
from lakefeed.feed.progress.requests import S3Requests, s3_requests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakefeed.feed.run import RunOptions

LOOK_FOR_TOPICS_SECONDS = 10.0
PATIENCE_SECONDS = 300.0
PAUSE_SECONDS = 1.0


class MultiTableScheduler:
    """Runs a pipeline with a table for each topic.

    Args:
        feed: with ``{topic}`` in its table's name.
        spark: the session, one for all.
        options: the run; rounds are its batches.

    Attributes:
        tables: by topic, in the order in which they were found.
        done: rounds in which something was landed.
    """

    def __init__(self, feed: Feed, spark: SparkSession, options: RunOptions) -> None:
        config = feed.config
        self.tables: dict[str, TableTask] = {}
        self.done = 0
        self.over_budget = 0
        self._taken: Taken[TableTask] = Taken()
        self._feed = feed
        self._spark = spark
        self._writers = Writers(spark, at_once(config))
        self._source = config.kafka
        self._accept_loss = options.accept_loss
        self._topics = Topics(self._source.bootstrap_servers, options=dict(self._source.options))
        self._isolation = str(self._source.options.get(ISOLATION, CONSUMER_DEFAULTS[ISOLATION]))
        self._once = options.once or config.trigger == AVAILABLE_NOW
        self._seconds = 0.0 if self._once else float(seconds_of(config.trigger))
        self._stop = options.stop
        self._on_batch = options.on_batch
        self._budget = config.budget.s3_requests_per_batch if config.budget else None
        self._looked_at = -LOOK_FOR_TOPICS_SECONDS
        self._answered_at = time.monotonic()

    def run(self, *, on_batch: Callable[[BatchProgress], None] | None = None) -> None:
        """Run rounds until stopped, or with ``once`` until each table has the records of the start, or has failed.

        Args:
            on_batch: called after each round, instead of the run's own.

        Raises:
            LakefeedError: of a table whose failure is to end the job; or the broker is away for minutes.
        """
        self._on_batch = on_batch or self._on_batch
        until: Mapping[str, TopicDescription] | None = None
        with self._writers:
            while not self._stop.is_set():
                began = time.monotonic()
                topics = self._described()
                if topics is None:
                    self._stop.wait(PAUSE_SECONDS)
                    continue
                until = until or (topics if self._once else None)
                landed = self._round(topics, until)
                if landed and not self._all_taken(topics, until):
                    continue
                if self._once and not landed:
                    return
                self._stop.wait(max(0.0, self._seconds - (time.monotonic() - began)))

    def _described(self) -> dict[str, TopicDescription] | None:
        """Describe the topics, and add tasks for new ones; None while no broker answers."""
        try:
            if time.monotonic() - self._looked_at >= LOOK_FOR_TOPICS_SECONDS and not (self._once and self.tables):
                self._take_up()
            topics = self._topics.describe_all(list(self.tables), committed=self._isolation == "read_committed")
        except Unreachable:
            if time.monotonic() - self._answered_at > PATIENCE_SECONDS:
                raise
            return None
        self._answered_at = time.monotonic()
        return topics

    def _take_up(self) -> None:
        first = not self.tables
        for topic in sorted(name for name in self._topics.list() if self._source.reads(name)):
            if topic in self.tables:
                continue
            config = self._feed.config
            table = TableTask(
                topic,
                self._feed.for_topic(topic),
                self._writers.session(len(self.tables)),
                on_failure(config, topic),
                retry_seconds(config),
                from_latest=first and self._source.start == "latest",
                accept_loss=self._accept_loss,
            )
            self.tables[topic] = table
            if (clash := self._taken.take(topic, table.feed.config, table)) is not None:
                other, place = clash
                # Whose rows are there already; at a start both come at once, in the order of their names.
                owner, late = (table, other) if table.has_landed() and not other.has_landed() else (other, table)
                late.refuse(shares_a_table(owner.topic, late.topic, place))
        self._looked_at = time.monotonic()

    def _round(
        self, topics: Mapping[str, TopicDescription], until: Mapping[str, TopicDescription] | None
    ) -> list[BatchResult]:
        began, before = time.monotonic(), s3_requests(self._spark)

        def step(table: TableTask) -> tuple[str, BatchResult | None, str | None]:
            topic = topics[table.topic]
            limit = self._source.max_records_per_batch
            return table.topic, *table.step(topic, limit=limit, until=_ends(until, table.topic))

        due = [
            (number, table)
            for number, (name, table) in enumerate(self.tables.items())
            if name in topics and table.is_due(topics[name], until=_ends(until, name))
        ]
        steps = self._writers.each(step, due)
        landed = [each for _, each, _ in steps if each is not None]
        notes = [f"{topic}: {note}" for topic, _, note in steps if note]
        notes += [f"{topic}: {note}" for topic, each, _ in steps if each is not None for note in each.notes]
        if landed or notes:
            self._report(topics, landed, notes, seconds=time.monotonic() - began, before=before)
        return landed

    def _report(
        self,
        topics: Mapping[str, TopicDescription],
        landed: list[BatchResult],
        notes: list[str],
        *,
        seconds: float,
        before: S3Requests,
    ) -> None:
        progress = BatchProgress(
            batch_id=self.done,
            records=sum(each.counts.records for each in landed),
            rows=sum(each.rows or 0 for each in landed),
            seconds=seconds,
            lag=sum(table.backlog(topics[name]) for name, table in self.tables.items() if name in topics),
            requests=s3_requests(self._spark) - before,
            request_budget=None if self._budget is None else self._budget * max(1, len(landed)),
            dead_letters=sum(each.counts.dead_letters for each in landed),
            skipped=sum(each.counts.skipped for each in landed),
            notes=tuple(notes),
        )
        self.done += bool(landed)
        self.over_budget += progress.over_budget
        self._on_batch(progress)

    def _all_taken(self, topics: Mapping[str, TopicDescription], until: Mapping[str, TopicDescription] | None) -> bool:
        """Whether each table that can continue has the records that the topics had when the round began."""
        return not any(
            name in topics and table.is_due(topics[name], until=_ends(until, name))
            for name, table in self.tables.items()
        )


def _ends(until: Mapping[str, TopicDescription] | None, topic: str) -> dict[int, int] | None:
    if until is None:
        return None
    found = until.get(topic)
    return {each.id: each.end_offset for each in found.partitions} if found else {}
