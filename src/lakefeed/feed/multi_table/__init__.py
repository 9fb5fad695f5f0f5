"""Writes many topics to separate tables in one job."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, nullcontext
from typing import TypeVar

from lakefeed.clients.kafka.librdkafka import isolation_level
from lakefeed.clients.kafka.topics import TopicDescription, Topics
from lakefeed.clients.spark.session import activate, copy_of
from lakefeed.config.topic_tables import on_failure
from lakefeed.config.values import AVAILABLE_NOW, seconds_of, trigger_seconds
from lakefeed.errors import Unreachable
from lakefeed.feed.batch_writer import BatchResult
from lakefeed.feed.control import ActionRequest
from lakefeed.feed.feed import Feed
from lakefeed.feed.multi_table.table import TableTask, Taken, is_begun, shares_a_table
from lakefeed.feed.observer import task_counter
from lakefeed.feed.progress import FinishedBatch
from lakefeed.feed.run import RunOptions, RunSummary, StopRequested
from lakefeed.feed.s3_requests import s3_requests
from lakefeed.feed.steering import Outage, Steering
from lakefeed.lazy import SparkSession
from lakefeed.ledger.outcomes import ZERO
from lakefeed.ledger.pauses import LocalPauses

LOOK_FOR_TOPICS_SECONDS = 10.0
TICK_SECONDS = 1.0

T = TypeVar("T")


def run_multi_table(feed: Feed, spark: SparkSession, options: RunOptions) -> RunSummary:
    """Run a pipeline with one table per topic; see ``Pipeline.run``."""
    before, began = s3_requests(spark), time.monotonic()
    scheduler = MultiTableScheduler(feed, spark, options)
    options.monitor.note_path("reader and encoder: chosen for each table; lakefeed plan --topic … names them")
    try:
        scheduler.run(on_batch=options.on_batch)
    finally:
        for task in scheduler.tables.values():
            task.close()
    tables = tuple(task.summary() for task in scheduler.tables.values())
    requests = s3_requests(spark) - before
    counts = sum((table.counts for table in tables), ZERO)
    return RunSummary(
        batches=sum(table.batches for table in tables),
        records=counts.records,
        rows=sum(table.rows for table in tables),
        dead_letters=counts.dead_letters,
        skipped=counts.skipped,
        seconds=round(time.monotonic() - began, 3),
        s3_requests=requests.by_operation,
        requests=requests,
        batches_over_budget=scheduler.over_budget,
        tables=tables,
    )


class MultiTableScheduler:
    """Runs a pipeline with one table per topic in rounds: in a round, each table with new records writes one batch.

    Attributes:
        tables: the tables by topic, in the order of their discovery.
        done: the number of rounds in which a table has written a batch.
        over_budget: the number of rounds with more S3 requests than their batches' budgets allow.
    """

    def __init__(self, feed: Feed, spark: SparkSession, options: RunOptions) -> None:
        config = feed.config
        self.tables: dict[str, TableTask] = {}
        self.done = 0
        self.over_budget = 0
        self._feed = feed
        self._spark = spark
        self._options = options
        self._source = config.kafka
        self._taken: Taken[TableTask] = Taken()
        self._steering = Steering(config, options, LocalPauses.of(config), change=self._change)
        self._limit: int | None = None
        self._sessions = [copy_of(spark) for _ in range(config.table_rules.at_once)]
        self._threads: list[ThreadPoolExecutor] = []
        self._topics = Topics(self._source.bootstrap_servers, options=self._source.client_options)
        self._isolation = isolation_level(self._source)
        self._once = options.once or config.trigger == AVAILABLE_NOW
        self._seconds = 0.0 if self._once else trigger_seconds(config.trigger)
        self._looked_at = -LOOK_FOR_TOPICS_SECONDS
        self._outage = Outage(stop=options.stop, monitor=options.monitor, say=options.on_note)

    def run(self, *, on_batch: Callable[[FinishedBatch], None]) -> None:
        """Run rounds until stopped; with ``once``, until each table has failed or has the records of the run's start.

        Raises:
            LakefeedError: a table with ``on_failure: fail`` has failed, or no broker has answered for minutes.
        """
        try:
            self._steering.wait_for_start(sink=self._feed.identity.owner.sink)
        except StopRequested:
            return
        with ExitStack() as threads, self._steering:
            for number, session in enumerate(self._sessions):
                name = f"tables-{number}"
                thread = ThreadPoolExecutor(1, thread_name_prefix=name, initializer=activate, initargs=(session,))
                self._threads.append(threads.enter_context(thread))
            self._options.monitor.begin(sink=self._feed.identity.owner.sink, fence=None)
            counter = task_counter(self._spark, group=None, say=self._options.on_note)
            self._options.monitor.count_tasks_by(counter)
            while (outcome := self._steering.settle()) != "stop":
                began = time.monotonic()
                if outcome == "resumed":
                    # No broker was asked during the pause, so do not count the pause as an outage.
                    self._outage.is_over()
                self._options.monitor.tick()
                topics = self._describe()
                if topics is None:
                    continue
                for name, table in self.tables.items():
                    if self._once and table.until is None:
                        table.until = topics[name].ends if name in topics else {}
                results = self._round(topics, on_batch)
                if results and self._due(topics):
                    continue
                if self._once and not results and not any(each.waits_for_server for each in self.tables.values()):
                    return
                while (left := self._seconds - (time.monotonic() - began)) > 0:
                    if self._options.stop.wait(min(left, TICK_SECONDS)) or self._steering.interrupts:
                        break
                    self._options.monitor.tick()

    def _change(self, request: ActionRequest) -> None:
        if request.trigger is not None:
            self._seconds = trigger_seconds(request.trigger)
        self._limit = request.max_records_per_batch or self._limit

    def _describe(self) -> dict[str, TopicDescription] | None:
        """Return the topics' descriptions, and add a ``TableTask`` for each new topic; None while no broker answers."""
        try:
            if time.monotonic() - self._looked_at >= LOOK_FOR_TOPICS_SECONDS and not (self._once and self.tables):
                self._add_tables()
            topics = self._topics.describe_all(list(self.tables), committed=self._isolation == "read_committed")
        except Unreachable as error:
            if not self._outage.wait(error):
                raise
            return None
        self._outage.is_over()
        return topics

    def _add_tables(self) -> None:
        config = self._feed.config
        new = sorted(name for name in self._topics.list() if self._source.reads(name) and name not in self.tables)
        has_begun = bool(self.tables) or self._has_begun(new)
        for topic in new:
            feed = self._feed.for_topic(topic)
            table = TableTask(
                topic,
                feed.as_new_topic() if has_begun else feed,
                self._sessions[len(self.tables) % len(self._sessions)],
                on_failure(config, topic),
                seconds_of(config.table_rules.retry_after),
                accept_loss=self._options.accept_loss,
                has_answered=lambda: self.done > 0,
            )
            self.tables[topic] = table
            if (clash := self._taken.take(topic, table.feed.config, table)) is not None:
                other, place = clash
                # A shared table belongs to the topic whose rows it has, or else to the first topic by name.
                is_owner = is_begun(table.feed, table.spark) and not is_begun(other.feed, other.spark)
                owner, late = (table, other) if is_owner else (other, table)
                late.refuse(shares_a_table(owner.topic, late.topic, place))
        self._looked_at = time.monotonic()

    def _has_begun(self, topics: Sequence[str]) -> bool:
        """Return whether a table of the pipeline has rows; if so, topics without rows start at ``new_topics``."""
        if self._source.new_topics == self._source.start:
            return False  # Old and new topics start alike, so do not ask the tables.
        return any(is_begun(self._feed.for_topic(topic), self._spark) for topic in topics)

    def _due(self, topics: Mapping[str, TopicDescription]) -> list[tuple[int, TableTask]]:
        return [
            (number, table)
            for number, (name, table) in enumerate(self.tables.items())
            if name in topics and table.is_due(topics[name])
        ]

    def _round(
        self, topics: Mapping[str, TopicDescription], on_batch: Callable[[FinishedBatch], None]
    ) -> list[BatchResult]:
        began, before = time.monotonic(), s3_requests(self._spark)

        def step(table: TableTask) -> tuple[str, BatchResult | None, str | None]:
            return table.topic, *table.step(topics[table.topic], limit=self._limit)

        # Tables that share a session write one after another, because a session has one thread.
        due = self._due(topics)
        begun = [self._threads[number % len(self._threads)].submit(step, table) for number, table in due]
        try:
            with self._options.monitor.round(self.done) if begun else nullcontext():
                steps = [self._result_of(future) for future in begun]
        finally:
            # If the failure of one table ends the job, the tables that have not begun must not begin.
            for future in begun:
                future.cancel()
        results = [result for _, result, _ in steps if result is not None]
        notes = [f"{topic}: {note}" for topic, _, note in steps if note]
        notes += [f"{topic}: {note}" for topic, result, _ in steps if result is not None for note in result.notes]
        self._observe({topic: result for topic, result, _ in steps}, topics)
        if results or notes:
            budget = self._feed.config.budget.s3_requests_per_batch if self._feed.config.budget else None
            requests = s3_requests(self._spark) - before
            batch = FinishedBatch(
                batch_id=self.done,
                finished_at=time.time(),
                records=sum(result.counts.records for result in results),
                rows=sum(result.rows for result in results),
                seconds=time.monotonic() - began,
                lag=sum(table.backlog(topics[name]) for name, table in self.tables.items() if name in topics),
                requests=requests.of_one_batch(None if budget is None else budget * max(1, len(results))),
                dead_letters=sum(result.counts.dead_letters for result in results),
                skipped=sum(result.counts.skipped for result in results),
                left_out=sum(result.counts.left_out for result in results),
                left_out_field=next((each.left_out_field for each in results if each.left_out_field), None),
                notes=tuple(notes),
            )
            self.done += bool(results)
            self.over_budget += batch.over_budget
            on_batch(self._options.monitor.finish(batch))
        return results

    def _result_of(self, future: Future[T]) -> T:
        """Wait for a table's result and return it; meanwhile record that the driver is alive."""
        while not wait([future], timeout=TICK_SECONDS).done:
            self._options.monitor.tick()
        return future.result()

    def _observe(self, steps: Mapping[str, BatchResult | None], topics: Mapping[str, TopicDescription]) -> None:
        """Report to the monitor the tables' positions, this round's results and the topics' ends."""
        monitor = self._options.monitor
        parts = [(name, part) for name, topic in topics.items() for part in topic.partitions]
        for name, table in self.tables.items():
            if steps.get(name) is not None:
                monitor.committed(table.reached.ranges)
                continue
            monitor.reached(table.reached.ranges)
            if name in steps and table.failure is not None and not table.waits_for_server:
                monitor.failed(table.failure)
        failures = {name: table.failure for name, table in self.tables.items() if table.failure is not None}
        waiting = {name: error for name, error in failures.items() if self.tables[name].waits_for_server}
        monitor.tables_failed({name: error for name, error in failures.items() if name not in waiting})
        monitor.waits_for(next(iter(waiting.values()), None))
        monitor.starts_at({(name, part.id): part.start_offset for name, part in parts})
        monitor.observe_ends({(name, part.id): part.end_offset for name, part in parts})
