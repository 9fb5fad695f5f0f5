"""Runs a feed into its sink as a streaming query in batches; ``feed/real_time.py`` runs a query without batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import replace
from functools import partial
from itertools import chain

from lakefeed.clients.kafka.groups import GroupPublisher, MonitoringGroup, publishing
from lakefeed.config.values import AVAILABLE_NOW, interval_of
from lakefeed.errors import CheckpointInUse, CheckpointMismatch, ConfigError, LakefeedError
from lakefeed.feed.batch_reader import PlannedRestart
from lakefeed.feed.batch_writer import BatchResult, BatchWriter
from lakefeed.feed.control import ActionRequest
from lakefeed.feed.feed import Feed
from lakefeed.feed.observer import QueryObserver
from lakefeed.feed.open import FeedStart
from lakefeed.feed.progress import FinishedBatch
from lakefeed.feed.real_time import run_real_time
from lakefeed.feed.recovery import ends
from lakefeed.feed.run import MicroBatches, RunOptions, RunSummary, StopRequested, nothing_written, watch
from lakefeed.feed.s3_requests import FeedRequests, S3Requests, s3_requests
from lakefeed.feed.steering import Outage, Steering, with_batches_of
from lakefeed.lazy import DataFrame, SparkSession, StreamingQuery
from lakefeed.ledger.continuity import fence_lost
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.outcomes import BatchOutcomes
from lakefeed.ledger.pauses import CheckpointPauses, LocalPauses
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition, with_batch, without_batches
from lakefeed.records.sources import batch_ranges, query_id
from lakefeed.sinks.definition import RoutesRows
from lakefeed.stopwatch import timed

RIVAL_TRIES, RIVAL_SECONDS = 5, 1.0
"""How often a query restarts after an older driver has disturbed it, and how many seconds it waits before a restart."""


def run_stream(feed: Feed, spark: SparkSession, options: RunOptions) -> RunSummary:
    """Run a feed into its sink as a streaming query; see ``Pipeline.run``."""
    if interval_of(feed.config.trigger) is not None and not options.once:
        return run_real_time(feed, spark, options)
    before = s3_requests(spark)
    try:
        run = StreamRun(feed, spark, options)
    except StopRequested:
        return nothing_written(s3_requests(spark) - before)
    # The steering is the outermost context, because it also stores a pause that is requested while the run begins or
    # ends.
    with run.steering:
        writer = run.begin_writer()
        with FeedRequests(spark, checkpoint=feed.checkpoint_location, written=run.places, since=before) as requests:
            began = time.monotonic()
            with publishing(run.group, options.on_note), closing(writer.reader):
                run.run_queries(writer, requests, on_batch=options.on_batch)
            if (published := writer.end()) is not None:
                options.on_note(published)
            seconds = time.monotonic() - began
            startup, total = requests.of_startup(), requests.total()
    return run.summary(seconds, all_requests=s3_requests(spark) - before, requests=total, startup=startup)


class StreamRun:
    """One run of a feed as a streaming query.

    Without a checkpoint, the query's files are in the feed's ``scratch``, and only the sink's ledger has the position.

    Attributes:
        topics: describes the source's topics or stream; None for a source without offsets.
        stateful: whether the query resumes only from its own checkpoint.
        trigger: the trigger of the run's next query; ``source`` is the source of that query.
    """

    def __init__(self, feed: Feed, spark: SparkSession, options: RunOptions) -> None:
        """Claim the checkpoint, wait while the feed is paused, open the sink, and decide how the feed starts.

        Raises:
            StopRequested: the run was stopped while it waited.
        """
        config = feed.config
        self.feed, self.spark, self.options = feed, spark, options
        self.by_ledger = config.resumes_by_ledger
        self.topics, self.checkpoint = feed.source.topics(spark), feed.claim(spark)
        self.trigger, self.source = AVAILABLE_NOW if options.once else config.trigger, feed.source
        pauses = LocalPauses.of(config) if self.by_ledger else CheckpointPauses(self.checkpoint)
        self.steering = Steering(config, options, pauses, change=self._change)
        if self.steering.wait_for_start(sink=feed.identity.owner.sink):
            # During the pause, another driver may have advanced the feed.
            self.checkpoint = feed.claim(spark)
        feed.require_checkpoint_for_state(spark)
        # Only the checkpoint has the progress in a source without offsets, so treat the query as stateful.
        self.stateful = feed.plan(spark).stateful or self.topics is None
        self.sink = feed.sink(spark, self.checkpoint, note=options.on_note)
        if self.stateful and (lagging := next((name for name, sink in config.sinks.items() if sink.can_lag), None)):
            raise ConfigError(
                "the transform keeps state: after a pause, a sink could not get the rows of the batches in between",
                where=f"sinks.{lagging}.on_failure",
                hint="write on_failure: stop",
            )
        self.start = self._decide(accept_loss=options.accept_loss)
        self.batches = MicroBatches(options.stop, interrupts=lambda: self.steering.interrupts)
        self.observer = QueryObserver(options.monitor, spark, say=options.on_note)
        self.outage = Outage(stop=options.stop, monitor=options.monitor, say=options.on_note)
        self.group: GroupPublisher | None = None
        self._unfinished = self.start.unfinished_batch
        self._tries = RIVAL_TRIES
        self._reached: Mapping[Partition, int] | None = None
        self._places: dict[str, str] = {}
        self._lagged = False

    def _change(self, request: ActionRequest) -> None:
        self.trigger = request.trigger or self.trigger
        if (most := request.max_records_per_batch) is not None:
            self.source = replace(self.source, config=with_batches_of(self.source.config, most))

    def _decide(self, *, accept_loss: bool = False) -> FeedStart:
        topics = self.topics
        return FeedStart(
            self.feed.identity,
            self.sink,
            checkpoint=None if self.by_ledger else self.checkpoint,
            describe=topics.describe if topics is not None else lambda position: {},
            stateful=self.stateful,
            is_numbered=topics is not None,
            accept_loss=accept_loss,
            source=self.feed.config.source.kafka,
            by_ledger=self.by_ledger,
        )

    def begin_writer(self) -> BatchWriter:
        """Take the fence, prepare the sink, decide again, apply the decision, and return the writer."""
        feed, start = self.feed, self.start
        check = feed.query_check(self.checkpoint, is_new_query=start.is_new_query) if self.stateful else None
        records = feed.source.read_stream(self.spark)
        writer = feed.begin_writer(self.spark, self.sink, records, lost=start.lost_partitions, check_query=check)
        if writer.publisher is not None:
            writer.publisher.report = self.options.monitor.audited
        self._finish_interrupted(writer)
        if message := start.decide_again().message:
            self.options.on_note(message)
        if other := start.other_feed():
            self.options.on_note(
                f"the table also has rows of this topic from feed '{other}'; this feed writes its own rows beside them"
            )
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

    def _finish_interrupted(self, writer: BatchWriter) -> None:
        """If only some of the feed's tables have a batch, write the batch with the same offset ranges."""
        if isinstance(self.sink, RoutesRows) and (batch := self.sink.interrupted_batch()) is not None:
            ranges, batch_id = batch
            self.options.on_note("some tables have a batch that others lack: the batch is written to the others")
            writer.write(self.feed.source.reread(self.spark, ranges.ranges), ranges, batch_id)

    def places(self) -> Iterable[str]:
        """Return the locations of rows and dead letters; the locations of sinks that lag are left out."""
        lagged, self._lagged = self._lagged, bool(self.sink.lagging())
        if not self._places or (lagged and not self._lagged):
            self._places[""] = self.sink.location()
            config = self.feed.config
            for table in {*config.iceberg_tables(beside=True)} - {config.sink.chosen.snapshot_table, *self._places}:
                with suppress(Exception):  # The table of a sink that lags may be unavailable; the feed runs without it.
                    self._places[table] = IcebergLedger(self.spark, table, config.name).location()
        return self._places.values()

    def run_queries(
        self, writer: BatchWriter, requests: FeedRequests, *, on_batch: Callable[[FinishedBatch], None]
    ) -> None:
        """Run the query to its end; start it again after planned restarts and interruptions."""
        budget = self.feed.config.budget.s3_requests_per_batch if self.feed.config.budget else None
        is_interrupted, decide_again = False, None
        while (outcome := self.steering.settle()) != "stop":
            if is_interrupted:
                requests.next_query()
            # A planned restart is not an interruption: its S3 requests belong to the batch that caused the restart.
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
                if self._waits_for_rival(writer, error):
                    decide_again = self._decide_beside_rival
                elif not self.outage.wait(error):
                    raise
                self.batches.failure = None

    def _waits_for_rival(self, writer: BatchWriter, error: LakefeedError) -> bool:
        """Return whether a replaced driver may have caused the error; if so, first wait a moment.

        A replaced driver cannot commit. But before it notices that it was replaced, it may plan a batch in the
        checkpoint or remove files.
        """
        is_first = error is self.batches.failure and not self.outage.has_landed
        may_be_rival = isinstance(error, CheckpointInUse) or (is_first and type(error) is CheckpointMismatch)
        if not may_be_rival or writer.fence is None or self.by_ledger or not self._tries:
            return False
        self._tries -= 1
        self.options.on_note(f"{error.what}; this driver has replaced the other one, and tries again")
        self.options.stop.wait(RIVAL_SECONDS)
        return True

    def _decide_beside_rival(self, writer: BatchWriter) -> None:
        self.checkpoint.refresh()
        self.start = self._decide()
        self.start.apply(fence=writer.fence)

    def _turn(self, query: StreamingQuery) -> None:
        self.steering.keep()
        # Without new records, no batch would show that the servers answer again.
        if self.outage.since is not None and str(query.status["message"]).startswith("Waiting"):
            self.outage.is_over()

    def _decide_after_pause(self, writer: BatchWriter) -> None:
        """Raise an error if the feed was moved during a pause, or if a new start would be refused now.

        This method changes nothing, because two drivers must not write to one checkpoint. If another driver has taken
        the fence but has not committed yet, this driver's next commit is refused.
        """
        self.checkpoint.refresh()
        self.start = self._decide()
        name, where, position = self.feed.config.name, self.feed.identity.owner.sink, self.start.position
        changed = None
        if position is not None and self._reached is not None and ends(position) != self._reached:
            taken = self.sink.fence_taken()
            if taken is None or taken != writer.fence:
                raise fence_lost(taken, writer.fence, where=where)
            changed = f"the sink of feed '{name}' was rolled back while it was paused"
        elif self.start.leaves_checkpoint:
            changed = f"feed '{name}' was moved while it was paused: {self.start.decision.message}"
        if changed is not None:
            raise CheckpointMismatch(changed, where=where, hint="start the feed again: lakefeed run pipeline.yaml")

    def start_query(self, writer: BatchWriter, requests: FeedRequests) -> StreamingQuery:
        """Start the query where ``FeedStart`` has decided: at given offsets, or where its checkpoint ends."""
        config, start = self.feed.config, self.start
        trigger, source = self.trigger, self.source
        records = source.read_stream(
            self.spark, starting=start.starting, marks=start.marks, gather=trigger != AVAILABLE_NOW
        )
        numbered = source.config.source.numbered
        if numbered is not None:
            writer.reader.bound_batches(numbered.max_records_per_batch)
        frame = writer.reader.query_frame(records)
        with self.feed.plan(self.spark).settings(self.spark):
            return self.batches.start(
                frame,
                partial(self.write_batch, writer, requests),
                name=config.name,
                checkpoint=self.feed.checkpoint_location,
                trigger=trigger,
                output_mode=config.output_mode if self.stateful else None,
            )

    def write_batch(self, writer: BatchWriter, requests: FeedRequests, batch: DataFrame, batch_id: int) -> BatchResult:
        """Write one micro-batch, and commit its end offsets to the consumer group ``monitoring_group``."""
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
