"""Runs a feed into its sink, as a streaming query: in batches or in real time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from lakefeed.clients.kafka.groups import GroupPublisher, MonitoringGroup, publishing
from lakefeed.clients.kafka.topics import TopicDescription
from lakefeed.clients.spark.jvm import java
from lakefeed.config.keyed import POSITION_COLUMNS
from lakefeed.config.values import AVAILABLE_NOW, interval_of
from lakefeed.errors import CheckpointInUse, CheckpointMismatch, ConfigError, LakefeedError
from lakefeed.feed.batch_reader import PlannedRestart
from lakefeed.feed.batch_writer import BatchResult, BatchWriter
from lakefeed.feed.control import ActionRequest
from lakefeed.feed.feed import Feed, FeedSource
from lakefeed.feed.maintenance import tables_of, upkeep_beside_feed
from lakefeed.feed.observe import QueryObserver
from lakefeed.feed.open import FeedStart
from lakefeed.feed.outage import Outage
from lakefeed.feed.progress import FinishedBatch
from lakefeed.feed.recovery import ends
from lakefeed.feed.run import (
    MicroBatches,
    RunOptions,
    RunSummary,
    StopRequested,
    nothing_written,
    trigger_of,
    watch,
)
from lakefeed.feed.s3_requests import FeedRequests, S3Requests, s3_requests
from lakefeed.feed.steering import REAL_TIME_REFUSALS, Steering, with_batches_of
from lakefeed.lazy import DataFrame, SparkSession, StreamingQuery, sf
from lakefeed.ledger.continuity import fence_lost
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.outcomes import BatchOutcomes
from lakefeed.ledger.pauses import CheckpointPauses, LocalPauses
from lakefeed.ledger.stateful_batches import with_batch, without_batches
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition
from lakefeed.records.decode.resolve import put_credentials
from lakefeed.records.sources.kafka import SourceTopics, batch_ranges, query_id
from lakefeed.stopwatch import timed

RIVAL_TRIES, RIVAL_SECONDS = 5, 1.0  # A query that an older driver has disturbed starts again so often, so long after.
CATALOG, CATALOG_CLASS = "lakefeed_batch", "io.lakefeed.copies.BatchCatalog"


def run_stream(feed: Feed, spark: SparkSession, options: RunOptions) -> RunSummary:
    """Run a feed into its sink, as a streaming query; see ``Pipeline.run``."""
    if interval_of(feed.config.trigger) is not None and not options.once:
        return run_real_time(feed, spark, options)
    before = s3_requests(spark)
    try:
        run = StreamRun(feed, spark, options)
    except StopRequested:
        return nothing_written(s3_requests(spark) - before)
    # The steering is outermost: a pause that is requested while the run begins or ends is kept too.
    with run.steering:
        writer = run.begin_writer()
        with (
            FeedRequests(spark, checkpoint=feed.checkpoint_location, written=run.places, since=before) as requests,
            upkeep_beside_feed(feed, spark, monitor=options.monitor) as add_notes,
        ):
            began = time.monotonic()
            with publishing(run.group, options.on_note), closing(writer.reader):
                run.run_queries(writer, requests, on_batch=add_notes(options.on_batch))
            if (published := writer.end()) is not None:
                options.on_note(published)
            seconds = time.monotonic() - began
            startup, total = requests.of_startup(), requests.total()
    return run.summary(seconds, all_requests=s3_requests(spark) - before, requests=total, startup=startup)


class StreamRun:
    """One run of a feed as a streaming query. Making it claims the checkpoint, and decides how the feed starts.

    Without a checkpoint, the query keeps its files in the scratch of the run, and the sink's ledger decides alone.

    Attributes:
        topics: describes the source's topics or stream; None for a source without offsets.
        stateful: whether the query resumes only from its own checkpoint.
    """

    def __init__(self, feed: Feed, spark: SparkSession, options: RunOptions) -> None:
        self.feed, self.spark, self.options = feed, spark, options
        self.source, self.trigger = feed.source, AVAILABLE_NOW if options.once else feed.config.trigger
        self.topics = feed.source.topics(spark)
        self.checkpoint = feed.claim(spark)
        self.by_ledger = feed.config.resumes_by_ledger
        pauses = LocalPauses.of(feed.config) if self.by_ledger else CheckpointPauses(self.checkpoint)
        self.steering = Steering(feed.config, options, pauses, change=self.change)
        self.batches = MicroBatches(options.stop, interrupts=lambda: self.steering.interrupts)
        # Before the sink is touched.
        if self.steering.wait_for_start(sink=feed.identity.owner.sink):
            # Another driver may have come further meanwhile.
            self.checkpoint = feed.claim(spark)
        feed.require_checkpoint_for_state(spark)
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
        self.start = self._decide_start(accept_loss=options.accept_loss)
        self._unfinished = self.start.unfinished_batch
        self._tries = RIVAL_TRIES
        self.observer = QueryObserver(options.monitor, spark)
        self.outage = Outage(stop=options.stop, monitor=options.monitor, say=options.on_note)
        self.group: GroupPublisher | None = None
        self._reached: Mapping[Partition, int] | None = None
        self._places: dict[str, str] = {}
        self._waited = False

    def _decide_start(self, *, accept_loss: bool) -> FeedStart:
        return FeedStart(
            self.feed.identity,
            self.sink,
            checkpoint=None if self.by_ledger else self.checkpoint,
            describe=self.topics.describe if self.topics is not None else lambda position: {},
            stateful=self.stateful,
            is_numbered=self.topics is not None,
            accept_loss=accept_loss,
            source=self.feed.config.source.kafka,
            by_ledger=self.by_ledger,
        )

    def begin_writer(self) -> BatchWriter:
        """Take the fence and prepare the sink; then decide again, and apply the decision."""
        feed, start = self.feed, self.start
        check = feed.query_check(self.checkpoint, is_new_query=start.is_new_query) if self.stateful else None
        records = feed.source.read_stream(self.spark)
        writer = feed.begin_writer(self.spark, self.sink, records, lost=start.lost_partitions, check_query=check)
        if writer.publisher is not None:
            writer.publisher.report = self.options.monitor.audited
        if message := start.decide_again().message:
            self.options.on_note(message)
        if other := start.other_feed():
            self.options.on_note(f"the table has records of this topic from the feed '{other}', and gets more now")
        start.apply(fence=writer.fence)
        writer.follow()
        if self.by_ledger and start.position is not None:
            self._reached = ends(start.position)

        def reread(ranges: Sequence[OffsetRange]) -> AbstractContextManager[tuple[DataFrame, BatchOutcomes]]:
            return writer.rows.counted(feed.source.reread(self.spark, ranges), self.spark)

        self.sink.begin(None if self.stateful else reread)
        path = feed.path(self.spark, writer.rows, lambda: writer.rows.rows(records).schema, stateful=self.stateful)
        self.options.monitor.note_path(str(path))
        kafka = feed.config.source.kafka
        if kafka is not None and kafka.monitoring_group is not None:
            self.group = GroupPublisher(MonitoringGroup(kafka, kafka.monitoring_group))
        position = without_batches(start.position.ranges).ranges if start.position else ()
        sink, why = feed.identity.owner.sink, start.as_dict()
        self.options.monitor.begin(sink=sink, fence=writer.fence, position=position, start=why)
        return writer

    def places(self) -> Iterable[str]:
        """Return the places of rows and dead letters; those of a sink that waits when it does not wait any more."""
        before, self._waited = self._waited, bool(self.sink.lagging())
        if not self._places or (before and not self._waited):
            self._places[""] = self.sink.location()
            config = self.feed.config
            for table in {*tables_of(config, beside=True)} - {config.sink.chosen.snapshot_table, *self._places}:
                with suppress(Exception):  # Of a sink that waits: the feed runs without it.
                    self._places[table] = IcebergLedger(self.spark, table, config.name).location()
        return self._places.values()

    def run_queries(
        self, writer: BatchWriter, requests: FeedRequests, *, on_batch: Callable[[FinishedBatch], None]
    ) -> None:
        """Run the query to its end, and again after each planned restart and each interruption."""
        budget = self.feed.config.budget.s3_requests_per_batch if self.feed.config.budget else None
        is_interrupted, decide_again = False, None
        while (outcome := self.steering.settle()) != "stop":
            if is_interrupted:
                requests.next_query()
            # A planned restart belongs to the batch that needs it.
            is_interrupted = False
            decide_again = self._decide_after_pause if outcome == "resumed" else decide_again
            try:
                if decide_again is not None:
                    decide_again(writer)
                    decide_again = None
                with self.observer:
                    query = self.start_query(writer, requests)
                    self.observer.follow(query)
                    has_ended = watch(
                        query,
                        self.batches,
                        on_batch=on_batch,
                        requests=requests,
                        request_budget=budget,
                        observer=self.observer,
                        on_turn=partial(self._turn, query),
                    )
                if has_ended:
                    return
                is_interrupted = True
            except PlannedRestart as restart:
                self.batches.failure = None
                why = "; ".join((restart.what, *writer.rows.notes()))
                self.options.monitor.restarted(why)
                self.options.on_note(why)
            except LakefeedError as error:
                if (cause := writer.cause_of(error)) is not error:
                    raise cause from error
                if self._outlasts(writer, error):
                    decide_again = self._decide_beside_rival
                elif not self.outage.wait(error):
                    raise
                self.batches.failure = None

    def _outlasts(self, writer: BatchWriter, error: LakefeedError) -> bool:
        """Wait a moment if a driver that this one has replaced got in its way; return False if it was something else.

        It can commit nothing more, but it may plan a batch in the checkpoint, or remove files, until it notices.
        """
        is_first = error is self.batches.failure and not self.outage.has_landed
        is_met = isinstance(error, CheckpointInUse) or (is_first and type(error) is CheckpointMismatch)
        if not is_met or writer.fence is None or self.by_ledger or not self._tries:
            return False
        self._tries -= 1
        self.options.on_note(f"{error.what}; this driver has replaced it, and tries again")
        self.options.stop.wait(RIVAL_SECONDS)
        return True

    def _decide_beside_rival(self, writer: BatchWriter) -> None:
        self.checkpoint.refresh()
        self.start = self._decide_start(accept_loss=False)
        self.start.apply(fence=writer.fence)

    def _turn(self, query: StreamingQuery) -> None:
        self.steering.keep()
        # Without new records no batch shows that the servers answer again.
        if self.outage.since is not None and str(query.status["message"]).startswith("Waiting"):
            self.outage.is_over()

    def change(self, request: ActionRequest) -> None:
        """Take over the trigger and the size of batches for the next query of this run."""
        self.trigger = request.trigger or self.trigger
        if (most := request.max_records_per_batch) is not None:
            self.source = FeedSource(with_batches_of(self.source.config, most), self.feed.connections)

    def _decide_after_pause(self, writer: BatchWriter) -> None:
        """Refuse to resume after a pause where a start would: records were lost, or the feed was moved.

        Nothing is changed here. A query of another driver must not meet this one's in their checkpoint; one that has
        taken the fence and committed nothing yet is noticed by the next commit.
        """
        self.checkpoint.refresh()
        self.start = self._decide_start(accept_loss=False)
        position = self.start.position
        if position is not None and self._reached is not None and ends(position) != self._reached:
            taken = self.sink.fence_taken()
            if taken is None or taken != writer.fence:
                raise fence_lost(taken, writer.fence, where=self.feed.identity.owner.sink)
            raise CheckpointMismatch(
                f"the sink of feed '{self.feed.config.name}' was rolled back while it was paused",
                where=self.feed.identity.owner.sink,
                hint="start it again: lakefeed run",
            )
        if self.start.leaves_checkpoint:
            raise CheckpointMismatch(
                f"feed '{self.feed.config.name}' was moved while it was paused: {self.start.decision.message}",
                where=self.feed.identity.owner.sink,
                hint="start it again: lakefeed run",
            )

    def start_query(self, writer: BatchWriter, requests: FeedRequests) -> StreamingQuery:
        """Start the query where the decision says, or where its checkpoint ends."""
        config, start, trigger = self.feed.config, self.start, self.trigger
        records = self.source.read_stream(
            self.spark, starting=start.starting, marks=start.marks, gather=trigger != AVAILABLE_NOW
        )
        numbered = self.source.config.source.numbered
        if numbered is not None:
            writer.reader.bound_batches(numbered.max_records_per_batch)
        stream = writer.reader.query_frame(records).writeStream
        if self.stateful:
            stream = stream.outputMode(config.output_mode)
        write = partial(self.write_batch, writer, requests)
        with self.feed.plan(self.spark).settings(self.spark):
            return (
                stream.foreachBatch(self.batches.guarded(write))
                .queryName(config.name)
                .option("checkpointLocation", self.feed.checkpoint_location)
                .trigger(**trigger_of(trigger))
                .start()
            )

    def write_batch(self, writer: BatchWriter, requests: FeedRequests, batch: DataFrame, batch_id: int) -> BatchResult:
        """Write one micro-batch, and publish its offsets to the monitoring group."""
        name = self.feed.config.name
        ranges = OffsetRanges(())
        if self.topics is not None:
            ranges = self.topics.identify(batch_ranges(self.spark, name))
            if self.topics.has_new_leaders:
                writer.reader.discard_fetched()
        committed = ranges
        if self.stateful:
            committed = with_batch(ranges, batch_id=batch_id, query_id=query_id(self.spark, name))
        with self.observer.batch(batch_id, ranges.ranges):
            result = writer.write(batch, committed, batch_id)
            self._reached = ranges.ends
            self.outage.has_landed = True
            with timed("publish"):
                note = self.group.publish(ranges.ranges) if self.group is not None else None
        self.options.monitor.paused(self.sink.lagging())
        self.options.monitor.columns = writer.rows.columns
        self.outage.is_over()
        if self.by_ledger:
            requests.end_batch(batch_id)
        return result if note is None else replace(result, notes=(*result.notes, note))

    def summary(
        self, seconds: float, *, all_requests: S3Requests, requests: S3Requests, startup: S3Requests
    ) -> RunSummary:
        written, first = self.batches.written, self.batches.written.first
        config = self.feed.config
        repeats = any(sink.chosen.doubles(config.output_mode) for sink in (config.sink, *config.sinks.values()))
        is_repeated = repeats and first is not None and first.batch_id == self._unfinished
        return RunSummary(
            batches=written.batches,
            records=self.batches.records,
            rows=written.rows,
            dead_letters=written.counts.dead_letters,
            skipped=written.counts.skipped,
            files=self.sink.files_of(chain.from_iterable(written.batch_ids)),
            seconds=round(seconds, 3),
            s3_requests=all_requests.by_operation,
            requests=requests,
            startup_requests=startup,
            batch_requests=self.options.monitor.batch_requests,
            batches_over_budget=self.batches.over_budget,
            paused=dict(self.sink.lagging()),
            repeated=first.rows if is_repeated and first is not None else 0,
        )


def run_real_time(feed: Feed, spark: SparkSession, options: RunOptions) -> RunSummary:
    """Run a feed from topic to topic until it is stopped: Spark forwards each record without waiting for a batch.

    Spark's real-time mode runs a batch's tasks as long as the interval says, and records at its end how far they have
    come. Guarantee: at-least-once. What was sent since then is sent again after a crash or a stop; its headers are as
    the Kafka sink's, and a reader recognizes the copies (docs/kafka-sink.md). No batch can be judged before it is
    written: a record that cannot be read stops the query, and what was sent before it stays.

    Raises:
        ConfigError: the transform is more than columns and filters, or the session has too few task slots.
    """
    config, before = feed.config, s3_requests(spark)
    put_credentials(spark, config.decode)
    spark.conf.set(f"spark.sql.catalog.{CATALOG}", CATALOG_CLASS)
    topics = SourceTopics(config.kafka).describe()
    _require_slots(spark, topics)
    require_fit(feed.rows(feed.source.read_stream(spark)))
    claim = feed.claim(spark)
    steering = Steering(config, options, CheckpointPauses(claim), refusals=REAL_TIME_REFUSALS)
    try:
        if steering.wait_for_start(sink=feed.identity.owner.sink):
            # Another driver may have come further meanwhile, and records may have been removed.
            claim, topics = feed.claim(spark), SourceTopics(config.kafka).describe()
    except StopRequested:
        return nothing_written(s3_requests(spark) - before)
    sink = feed.sink_definition.open_real_time(spark, claim)
    # require_fit has refused a transform with state.
    start = FeedStart(
        feed.identity,
        sink,
        checkpoint=claim,
        describe=lambda position: topics,
        stateful=False,
        accept_loss=options.accept_loss,
        source=config.kafka,
    )
    if message := start.decision.message:
        options.on_note(message)
    rows = feed.rows(feed.source.read_stream(spark, starting=start.starting, bounded=False))
    sink.apply_schema(rows.schema)
    start.apply(fence=None)
    interval = str(interval_of(config.trigger))
    options.on_note(
        f"in real time, at-least-once: what was sent in the last {interval} is sent again after a stop or a crash; the "
        "records' headers tell it, and source.kafka.deduplicate leaves it out"
    )
    batches = MicroBatches(options.stop)
    call = sf.call_function(f"{CATALOG}.batch", sf.concat_ws("/", *POSITION_COLUMNS))
    began = time.monotonic()
    # Spark's real-time mode requires update, which is append where there are no groups.
    stream = sink.records(rows, batch=call).writeStream.format("kafka").options(**sink.options).outputMode("update")
    writer: Any = stream.queryName(config.name).option("checkpointLocation", feed.checkpoint_location)
    gateway: Any = spark._jvm
    # PySpark 4.1 has no word for this trigger.
    writer._jwrite.trigger(gateway.org.apache.spark.sql.streaming.Trigger.RealTime(interval))
    options.monitor.begin(sink=feed.identity.owner.sink, fence=None)
    with steering, QueryObserver(options.monitor, spark) as observer:
        query: StreamingQuery = writer.start()
        observer.follow(query)
        watch(query, batches, on_batch=options.on_batch, observer=observer)
    requests = s3_requests(spark) - before
    return RunSummary(
        batches=batches.finished,
        records=batches.records,
        rows=batches.sent,
        seconds=round(time.monotonic() - began, 3),
        s3_requests=requests.by_operation,
        requests=requests,
    )


def require_fit(rows: DataFrame) -> None:
    """Refuse a transform that is not computed record by record, or drops the record's position."""
    frame: Any = rows
    if not java(rows.sparkSession).query.StreamingPlan.onePerRecord(frame._jdf):
        raise ConfigError(
            "in real time each record makes one row or none: the transform has to be columns and a WHERE, without "
            "joins, groups and explode",
            where="transform, trigger: real-time",
            hint="trigger: 1 second runs it in batches",
        )
    if missing := [name for name in POSITION_COLUMNS if name not in rows.columns]:
        raise ConfigError(
            f"the rows do not say which record they are made of: they lack {', '.join(missing)}",
            where="transform, trigger: real-time",
            hint="keep these columns: SELECT *, … or by name; they go into the headers",
        )


def _require_slots(spark: SparkSession, topics: dict[str, TopicDescription | None]) -> None:
    """Refuse a session with fewer task slots than partitions, because each partition occupies a task."""
    partitions = sum(len(topic.partitions) for topic in topics.values() if topic is not None)
    slots = spark.sparkContext.defaultParallelism
    if partitions > slots:
        raise ConfigError(
            f"in real time each partition keeps a task at work: there are {partitions} partitions and {slots} slots",
            where="trigger: real-time",
            hint=f"a master with as many cores, as --master 'local[{partitions + 1}]'; or trigger: 1 second",
        )
