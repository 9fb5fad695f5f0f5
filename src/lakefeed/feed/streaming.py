"""One run of a feed into its sink, as a streaming query."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from lakefeed.clients.kafka.monitoring import MonitoringGroup
from lakefeed.config.values import AVAILABLE_NOW, interval_of
from lakefeed.errors import ConfigError
from lakefeed.feed.batch_writer import BatchResult, BatchWriter, PlannedRestart
from lakefeed.feed.feed import Feed
from lakefeed.feed.maintenance import UpkeepBesideFeed
from lakefeed.feed.open import FeedStart
from lakefeed.feed.progress import BatchProgress, FeedRequests, S3Requests, s3_requests
from lakefeed.feed.real_time import run_real_time
from lakefeed.feed.run import MicroBatches, RunOptions, RunSummary, trigger_of, watch
from lakefeed.ledger.outcomes import ZERO, BatchOutcomes
from lakefeed.ledger.stateful_batches import with_batch
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.records.sources.kafka import batch_ranges, query_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def run_stream(feed: Feed, spark: SparkSession, options: RunOptions) -> RunSummary:
    """Run a feed into its sink, as a streaming query; see ``Pipeline.run``."""
    if interval_of(feed.config.trigger) is not None and not options.once:
        return run_real_time(feed, spark, options)
    before = s3_requests(spark)
    run = StreamRun(feed, spark, options)
    writer = run.begin_writer()
    with (
        FeedRequests(spark, checkpoint=feed.config.checkpoint, sink=run.sink.location(), since=before) as requests,
        UpkeepBesideFeed(feed.config, spark=spark, connections=feed.connections) as upkeep,
    ):
        began = time.monotonic()
        run.run_queries(writer, requests, on_batch=upkeep.add_notes(options.on_batch))
        seconds = time.monotonic() - began
        writer.counting.close()
        startup, total = requests.of_startup(), requests.total()
    return run.summary(seconds, all_requests=s3_requests(spark) - before, requests=total, startup=startup)


class StreamRun:
    """One run of a feed as a streaming query. Making it claims the checkpoint, and decides how the feed starts.

    Attributes:
        topics: describes the source's topics or stream; None for a source without offsets.
        stateful: whether the query resumes only from its own checkpoint.
    """

    def __init__(self, feed: Feed, spark: SparkSession, options: RunOptions) -> None:
        self.feed, self.spark, self.options = feed, spark, options
        self.batches = MicroBatches(options.stop)
        self.topics = feed.source.topics(spark)
        self.checkpoint = feed.claim(spark)
        # Without offsets only the checkpoint records progress, so treat the query as stateful.
        self.stateful = feed.plan(spark).stateful or self.topics is None
        self.sink = feed.sink(spark, self.checkpoint, note=options.on_note)
        lagging = [name for name, sink in feed.config.sinks.items() if sink.can_lag]
        if self.stateful and lagging:
            raise ConfigError(
                "the transform keeps state, and a sink that pauses could not be given what it has missed",
                where=f"sinks.{lagging[0]}.on_failure",
                hint="on_failure: stop",
            )
        self.start = FeedStart(
            feed.identity,
            self.sink,
            checkpoint=self.checkpoint,
            topics=self.topics.describe(self.sink.position()) if self.topics is not None else {},
            stateful=self.stateful,
            is_numbered=self.topics is not None,
            accept_loss=options.accept_loss,
        )
        self._group: MonitoringGroup | None = None

    def begin_writer(self) -> BatchWriter:
        """Take the fence and prepare the sink; then decide again, and apply the decision."""
        feed, start = self.feed, self.start
        check = feed.query_check(self.checkpoint, is_new_query=start.is_new_query) if self.stateful else None
        records = feed.source.read_stream(self.spark)
        writer = feed.begin_writer(self.spark, self.sink, records, lost=start.lost_partitions, check_query=check)
        if message := start.decide_again().message:
            self.options.on_note(message)
        start.apply(fence=writer.fence)
        writer.follow()

        def reread(ranges: Sequence[OffsetRange]) -> AbstractContextManager[tuple[DataFrame, BatchOutcomes]]:
            return writer.rows.counted(feed.source.reread(self.spark, ranges), self.spark)

        self.sink.begin(None if self.stateful else reread)
        kafka = feed.config.source.kafka
        if kafka is not None and kafka.monitoring_group is not None:
            self._group = MonitoringGroup(kafka, kafka.monitoring_group)
        return writer

    def run_queries(
        self, writer: BatchWriter, requests: FeedRequests, *, on_batch: Callable[[BatchProgress], None]
    ) -> None:
        """Run the query to its end, and again after each planned restart."""
        budget = self.feed.config.budget.s3_requests_per_batch if self.feed.config.budget else None
        while True:
            try:
                query = self.start_query(writer)
                watch(query, self.batches, on_batch=on_batch, requests=requests, request_budget=budget)
                return
            except PlannedRestart as restart:
                self.batches.failure = None
                self.options.on_note("; ".join((restart.what, *writer.rows.notes())))

    def start_query(self, writer: BatchWriter) -> StreamingQuery:
        """Start the query where the decision says, or where its checkpoint ends."""
        config, start = self.feed.config, self.start
        trigger = AVAILABLE_NOW if self.options.once else config.trigger
        records = self.feed.source.read_stream(
            self.spark, starting=start.starting, marks=start.marks, gather=trigger != AVAILABLE_NOW
        )
        stream = writer.counting.query_frame(records).writeStream
        if self.stateful:
            stream = stream.outputMode(config.output_mode)

        def write(batch: DataFrame, batch_id: int) -> BatchResult:
            return self.write_batch(writer, batch, batch_id)

        with self.feed.plan(self.spark).settings(self.spark):
            return (
                stream.foreachBatch(self.batches.guarded(write))
                .queryName(config.name)
                .option("checkpointLocation", config.checkpoint)
                .trigger(**trigger_of(trigger))
                .start()
            )

    def write_batch(self, writer: BatchWriter, batch: DataFrame, batch_id: int) -> BatchResult:
        """Write one micro-batch, and publish its offsets to the monitoring group."""
        name = self.feed.config.name
        ranges = OffsetRanges(())
        if self.topics is not None:
            ranges = self.topics.identify(batch_ranges(self.spark, name))
        committed = ranges
        if self.stateful:
            committed = with_batch(ranges, batch_id=batch_id, query_id=query_id(self.spark, name))
        result = writer.write(batch, committed, batch_id)
        note = self._group.publish(ranges.ranges) if self._group is not None else None
        return result if note is None else replace(result, notes=(*result.notes, note))

    def summary(
        self, seconds: float, *, all_requests: S3Requests, requests: S3Requests, startup: S3Requests
    ) -> RunSummary:
        written = [result for result in self.batches.landed if not result.replayed]
        config = self.feed.config
        repeats = any(sink.chosen.doubles(config.output_mode) for sink in (config.sink, *config.sinks.values()))
        unfinished = self.start.unfinished_batch if repeats else None
        counts = sum((result.counts for result in written), ZERO)
        return RunSummary(
            batches=len(written),
            records=self.batches.records,
            rows=sum(result.rows for result in written),
            dead_letters=counts.dead_letters,
            skipped=counts.skipped,
            files=self.sink.files_of(result.batch_id for result in written),
            seconds=round(seconds, 3),
            s3_requests=all_requests.by_operation,
            requests=requests,
            startup_requests=startup,
            batches_over_budget=self.batches.over_budget,
            paused=dict(self.sink.lagging()),
            repeated=sum(result.rows for result in written if result.batch_id == unfinished),
        )
