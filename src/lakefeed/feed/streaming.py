"""One run of a feed: a streaming query into its sink, or rounds over many tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakefeed.clients.kafka.monitoring import MonitoringGroup
from lakefeed.config.models import PipelineConfig
from lakefeed.config.triggers import AVAILABLE_NOW, interval_of
from lakefeed.errors import ConfigError
from lakefeed.feed.batch_writer import BatchResult, BatchWriter
from lakefeed.feed.counting import PlannedRestart
from lakefeed.feed.feed import Feed
from lakefeed.feed.maintenance import UpkeepBesideFeed, tables_of
from lakefeed.feed.multi_table.scheduler import MultiTableScheduler
from lakefeed.feed.open import FeedStart, open_feed
from lakefeed.feed.progress.progress import BatchProgress
from lakefeed.feed.progress.requests import FeedRequests, S3Requests, s3_requests
from lakefeed.feed.query import MicroBatches, trigger_of, watch
from lakefeed.feed.real_time import run_real_time
from lakefeed.feed.run import RunOptions, RunSummary
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.outcomes import ZERO, BatchOutcomes
from lakefeed.ledger.stateful_batches import with_batch
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.records.sources.kafka import SourceTopics, batch_ranges, query_id
from lakefeed.records.sources.kinesis import KinesisStream
from lakefeed.sinks.protocol import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def run_stream(feed: Feed, spark: SparkSession, options: RunOptions) -> RunSummary:
    """Run a feed into its sink, as a streaming query; see ``Pipeline.run``."""
    if interval_of(feed.config.trigger) is not None and not options.once:
        return run_real_time(feed, spark, options)
    before = s3_requests(spark)
    run = StreamRun.open(feed, spark, options)
    writer = run.begin_writer()
    with (
        FeedRequests(spark, checkpoint=feed.config.checkpoint, sink=run.sink.location(), since=before) as requests,
        UpkeepBesideFeed(feed.config, spark=spark, connections=feed.connections) as upkeep,
    ):
        seconds = run.run_queries(writer, requests, on_batch=upkeep.telling(options.on_batch))
        writer.close()
        startup, total = requests.of_startup(), requests.total()
    summary = run.summary(seconds)
    made = (s3_requests(spark) - before).by_operation
    return replace(summary, s3_requests=made, requests=total, startup_requests=startup)


@dataclass
class StreamRun:
    """The parts of one run of a feed as a streaming query, in the order in which they are made.

    Attributes:
        topics: describes the source's topics or stream; None for a source without offsets.
        checkpoint: the feed's hold on its checkpoint location.
        stateful: whether the query resumes only from its own checkpoint.
        sink: where rows go.
        start: how the feed starts.
        batches: the results of the query's batches.
    """

    feed: Feed
    spark: SparkSession
    options: RunOptions
    topics: SourceTopics | KinesisStream | None
    checkpoint: Claim
    stateful: bool
    sink: Sink
    start: FeedStart
    batches: MicroBatches
    _group: MonitoringGroup | None = field(default=None)

    @classmethod
    def open(cls, feed: Feed, spark: SparkSession, options: RunOptions) -> StreamRun:
        """Claim the checkpoint and decide how the feed starts; table and topics stay as they are."""
        batches = MicroBatches(options.stop)
        topics = feed.source.topics(spark)
        checkpoint = feed.claim(spark)
        # Without offsets only the checkpoint records progress, so treat the query as stateful.
        stateful = feed.plan(spark).stateful or topics is None
        sink = feed.sink(spark, checkpoint, note=options.on_note)
        _require_sinks_in_step(feed.config, stateful=stateful)
        start = open_feed(
            feed.identity,
            sink,
            checkpoint=checkpoint,
            topics=topics.describe(sink.position()) if topics is not None else {},
            stateful=stateful,
            is_numbered=topics is not None,
            accept_loss=options.accept_loss,
        )
        return cls(feed, spark, options, topics, checkpoint, stateful, sink, start, batches)

    def begin_writer(self) -> BatchWriter:
        """Take the fence and prepare the sink; then decide again, and apply the decision."""
        feed, start = self.feed, self.start
        check = feed.query_check(self.checkpoint, is_new_query=start.is_new_query) if self.stateful else None
        writer = feed.begin_writer(
            self.spark, self.sink, feed.read(self.spark), lost=start.lost_partitions, check_query=check
        )
        # Again: no other driver can move the table any more.
        if message := start.decide().message:
            self.options.on_note(message)
        start.apply(fence=writer.fence)
        writer.follow()
        self.sink.begin(None if self.stateful else lambda ranges: self._reread(writer, ranges))
        kafka = feed.config.source.kafka
        if kafka is not None and kafka.monitoring_group is not None:
            self._group = MonitoringGroup(kafka, kafka.monitoring_group)
        return writer

    def _reread(
        self, writer: BatchWriter, ranges: Sequence[OffsetRange]
    ) -> AbstractContextManager[tuple[DataFrame, BatchOutcomes]]:
        """Read records again, for a sink that has missed their rows."""
        return writer.rows.counted(self.feed.source.reread(self.spark, ranges), self.spark)

    def run_queries(
        self, writer: BatchWriter, requests: FeedRequests, *, on_batch: Callable[[BatchProgress], None]
    ) -> float:
        """Run the query to its end, and again after each planned restart; returns how many seconds that took."""
        budget = self.feed.config.budget.s3_requests_per_batch if self.feed.config.budget else None
        began = time.monotonic()
        while True:
            try:
                watch(
                    self.start_query(writer),
                    self.batches,
                    on_batch=on_batch,
                    requests=requests,
                    request_budget=budget,
                )
                return time.monotonic() - began
            except PlannedRestart as restart:
                self.batches.failure = None
                self.options.on_note("; ".join((restart.what, *writer.notes())))

    def start_query(self, writer: BatchWriter) -> StreamingQuery:
        """Start the query where the decision says, or where its checkpoint ends."""
        feed, start = self.feed, self.start
        ends = self.options.once or feed.config.trigger == AVAILABLE_NOW
        records = feed.source.read_stream(self.spark, starting=start.starting, marks=start.marks, gather=not ends)
        stream = writer.query_frame(records).writeStream
        if self.stateful:
            stream = stream.outputMode(feed.config.output_mode)

        def write(batch: DataFrame, batch_id: int) -> BatchResult:
            return self.write_batch(writer, batch, batch_id)

        with feed.plan(self.spark).settings(self.spark):
            return _started(feed.config, stream.foreachBatch(self.batches.guarded(write)), once=ends)

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

    def summary(self, seconds: float) -> RunSummary:
        """Summarize what the query's batches did; the requests to S3 are added by the caller."""
        written = [result for result in self.batches.landed if not result.replayed]
        config = self.feed.config
        repeats = any(sink.chosen.doubles(config.output_mode) for sink in (config.sink, *config.sinks.values()))
        unfinished = self.start.unfinished_batch
        repeated = [result for result in written if repeats and result.batch_id == unfinished]
        counts = sum((result.counts for result in written), ZERO)
        return RunSummary(
            batches=len(written),
            records=self.batches.records,
            rows=_rows(written),
            dead_letters=counts.dead_letters,
            skipped=counts.skipped,
            files=self.sink.files_of(result.batch_id for result in written),
            seconds=round(seconds, 3),
            s3_requests={},
            requests=S3Requests(),
            startup_requests=S3Requests(),
            batches_over_budget=self.batches.over_budget,
            paused=dict(self.sink.lagging()),
            repeated=_rows(repeated),
        )


def run_multi_table(feed: Feed, spark: SparkSession, options: RunOptions) -> RunSummary:
    """Run a pipeline whose topics go to a table each; see ``Pipeline.run``."""
    before, began = s3_requests(spark), time.monotonic()
    scheduler = MultiTableScheduler(feed, spark, options)
    with UpkeepBesideFeed(
        feed.config,
        spark=spark,
        connections=feed.connections,
        tables=lambda: tables_of(*(task.feed.config for task in list(scheduler.tables.values()))),
    ) as upkeep:
        scheduler.run(on_batch=upkeep.telling(options.on_batch))
    tables = tuple(task.summary() for task in scheduler.tables.values())
    requests = s3_requests(spark) - before
    counts = sum((table.counts for table in tables), ZERO)
    return RunSummary(
        batches=sum(table.batches for table in tables),
        records=counts.records,
        rows=sum(table.rows for table in tables),
        dead_letters=counts.dead_letters,
        skipped=counts.skipped,
        files=None,
        seconds=round(time.monotonic() - began, 3),
        s3_requests=requests.by_operation,
        requests=requests,
        startup_requests=S3Requests(),
        batches_over_budget=scheduler.over_budget,
        tables=tables,
    )


def _require_sinks_in_step(config: PipelineConfig, *, stateful: bool) -> None:
    """Refuse a sink that may lag, where its missed rows cannot be built again.

    Raises:
        ConfigError: the query keeps state, and a sink may lag.
    """
    for name, sink in config.sinks.items():
        if stateful and sink.can_lag:
            raise ConfigError(
                "the transform keeps state, and a sink that pauses could not be given what it has missed",
                where=f"sinks.{name}.on_failure",
                hint="on_failure: stop",
            )


def _rows(written: Sequence[BatchResult]) -> int:
    return sum(result.rows for result in written)


def _started(config: PipelineConfig, writer: DataStreamWriter, *, once: bool) -> StreamingQuery:
    return (
        writer.queryName(config.name)
        .option("checkpointLocation", config.checkpoint)
        .trigger(**trigger_of(AVAILABLE_NOW if once else config.trigger))
        .start()
    )
