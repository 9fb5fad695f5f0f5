"""One run: a streaming query into one sink, or rounds over many tables; and what came of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from lakefeed.clients.kafka.monitoring import MonitoringGroup
from lakefeed.config.models import PipelineConfig
from lakefeed.config.triggers import AVAILABLE_NOW, interval_of
from lakefeed.errors import ConfigError
from lakefeed.feed.batch_writer import BatchResult
from lakefeed.feed.counting import PlannedRestart
from lakefeed.feed.feed import Feed
from lakefeed.feed.maintenance import UpkeepBesideFeed, tables_of
from lakefeed.feed.multi_table.scheduler import MultiTableScheduler
from lakefeed.feed.open import FeedStart
from lakefeed.feed.progress.requests import FeedRequests, S3Requests, s3_requests
from lakefeed.feed.query import MicroBatches, trigger_of, watch
from lakefeed.feed.real_time import run_real_time
from lakefeed.feed.run import RunOptions, RunSummary
from lakefeed.ledger.checkpoint import Owner
from lakefeed.ledger.outcomes import ZERO, BatchOutcomes
from lakefeed.ledger.stateful_batches import with_batch
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.records.sources.source import batch_ranges, query_id, read_batch
from lakefeed.sinks.fan_out import FanOutSink
from lakefeed.sinks.iceberg.table import IcebergTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def run_stream(feed: Feed, spark: SparkSession, options: RunOptions) -> RunSummary:
    """Runs a feed into its sink, as a streaming query; see ``Pipeline.run``."""
    if interval_of(feed.config.trigger) is not None and not options.once:
        return run_real_time(feed, spark, options)
    before = s3_requests(spark)
    batches = MicroBatches(options.stop)
    kafka = feed.config.source.kafka
    topics = feed.described(spark)
    claim = feed.claim(spark)
    # What a source without offsets has given is known to the checkpoint alone, as state is.
    stateful = feed.plan(spark).stateful or topics is None
    sink = feed.sink(spark, claim, note=options.on_note)
    for name, side in feed.config.sinks.items():
        if stateful and side.can_lag:
            raise ConfigError(
                "the transform keeps state, and a sink that pauses could not be given what it has missed",
                where=f"sinks.{name}.on_failure",
                hint="on_failure: stop",
            )
    start = FeedStart(
        Owner.of(feed.config),
        claim,
        sink,
        topics.described(sink.position()) if topics is not None else {},
        accept_loss=options.accept_loss,
        stateful=stateful,
        is_numbered=topics is not None,
        rewinds=feed.config.sink.chosen.rewinds,
        transform_id=feed.transform_id,
    )
    start.decide()
    lost = {(each.topic, each.partition) for each in start.start.data_loss}

    def again(ranges: Sequence[OffsetRange]) -> AbstractContextManager[tuple[DataFrame, BatchOutcomes]]:
        headers = "headers" in feed.config.decode.metadata
        return writer.rows.counted(read_batch(spark, feed.config.kafka, ranges=ranges, headers=headers), spark)

    check_query = feed.ready(claim, begins=start.begins) if stateful else None
    writer = feed.begin_writer(spark, sink, feed.read(spark), lost=lost, check_query=check_query)
    # Again: now no other driver can move the table.
    if message := start.decide().message:
        options.on_note(message)
    start.apply(fence=writer.fence)
    writer.follow()
    if isinstance(sink, FanOutSink):
        sink.begin(None if stateful else again)

    named = kafka.monitoring_group if kafka is not None else None
    group = MonitoringGroup(kafka, named) if kafka is not None and named is not None else None

    def land(batch: DataFrame, batch_id: int) -> BatchResult:
        ranges = OffsetRanges(())
        if topics is not None:
            ranges = topics.identify(batch_ranges(spark, feed.config.name))
        marked = ranges
        if stateful:
            marked = with_batch(ranges, batch_id=batch_id, query_id=query_id(spark, feed.config.name))
        landed = writer.write(batch, marked, batch_id)
        told = group.publish(ranges.ranges) if group is not None else None
        return landed if told is None else replace(landed, notes=(*landed.notes, told))

    ends = options.once or feed.config.trigger == AVAILABLE_NOW

    def started() -> StreamingQuery:
        records = feed.read(spark, starting=start.starting, marks=start.marks, gather=not ends)
        stream = writer.query_frame(records).writeStream
        if stateful:
            stream = stream.outputMode(feed.config.output_mode)
        with feed.plan(spark).settings(spark):
            return _started(feed.config, stream.foreachBatch(batches.guarded(land)), once=ends)

    budget = feed.config.budget.s3_requests_per_batch if feed.config.budget else None
    with (
        FeedRequests(spark, checkpoint=feed.config.checkpoint, sink=sink.location(), since=before) as requests,
        UpkeepBesideFeed(feed.config, spark=spark, connections=feed.connections) as upkeep,
    ):
        began, over = time.monotonic(), False
        while not over:
            try:
                watch(
                    started(),
                    batches,
                    on_batch=upkeep.telling(options.on_batch),
                    requests=requests,
                    request_budget=budget,
                )
                over = True
            except PlannedRestart as restart:
                batches.failure = None
                options.on_note("; ".join((restart.what, *writer.notes())))
        seconds = time.monotonic() - began
        writer.close()
        startup, total = requests.of_startup(), requests.total()
    landed = [each for each in batches.landed if not each.replayed]
    doubles = any(
        each.chosen.doubles(feed.config.output_mode) for each in (feed.config.sink, *feed.config.sinks.values())
    )
    again_landed = [each for each in landed if doubles and each.batch_id == start.cut_off]
    counts = sum((each.counts for each in landed), ZERO)
    return RunSummary(
        batches=len(landed),
        records=batches.records,
        rows=_rows(landed),
        dead_letters=counts.dead_letters,
        skipped=counts.skipped,
        files=sink.files_of(each.batch_id for each in landed) if isinstance(sink, IcebergTable) else None,
        seconds=round(seconds, 3),
        s3_requests=(s3_requests(spark) - before).by_operation,
        requests=total,
        startup_requests=startup,
        batches_over_budget=batches.over_budget,
        paused=sink.paused if isinstance(sink, FanOutSink) else {},
        repeated=_rows(again_landed),
    )


def run_multi_table(feed: Feed, spark: SparkSession, options: RunOptions) -> RunSummary:
    """Runs a pipeline whose topics go to a table each; see ``Pipeline.run``."""
    before, began = s3_requests(spark), time.monotonic()
    rounds = MultiTableScheduler(feed, spark, options)
    with UpkeepBesideFeed(
        feed.config,
        spark=spark,
        connections=feed.connections,
        tables=lambda: tables_of(*(each.feed.config for each in list(rounds.tables.values()))),
    ) as upkeep:
        rounds.run(on_batch=upkeep.telling(options.on_batch))
    tables = tuple(each.summary() for each in rounds.tables.values())
    requests = s3_requests(spark) - before
    counts = sum((each.counts for each in tables), ZERO)
    return RunSummary(
        batches=sum(each.batches for each in tables),
        records=counts.records,
        rows=sum(each.rows for each in tables),
        dead_letters=counts.dead_letters,
        skipped=counts.skipped,
        files=None,
        seconds=round(time.monotonic() - began, 3),
        s3_requests=requests.by_operation,
        requests=requests,
        startup_requests=S3Requests(),
        batches_over_budget=rounds.over_budget,
        tables=tables,
    )


def _rows(landed: Sequence[BatchResult]) -> int:
    return sum(each.rows for each in landed)


def _started(config: PipelineConfig, writer: DataStreamWriter, *, once: bool) -> StreamingQuery:
    return (
        writer.queryName(config.name)
        .option("checkpointLocation", config.checkpoint)
        .trigger(**trigger_of(AVAILABLE_NOW if once else config.trigger))
        .start()
    )
