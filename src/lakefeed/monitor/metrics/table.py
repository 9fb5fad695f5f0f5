"""The table of metrics: docs/metrics.md, ``/metrics``, Spark's sinks and OTLP are generated from it.

Names follow https://prometheus.io/docs/practices/naming/: base units, ``_total`` for counters. Meanings never change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from lakefeed.feed.progress import FinishedBatch, RunningBatch
from lakefeed.messages.pages import page_command
from lakefeed.monitor.counters import DURATION_BOUNDS
from lakefeed.monitor.metrics.reading import (
    Buckets,
    FeedReading,
    Labels,
    Metric,
    Values,
    by_name,
    by_partition,
    one,
    timestamp,
)
from lakefeed.monitor.model import PartitionLag, State

STATES: tuple[State, ...] = get_args(State)


def _last(read: Callable[[FinishedBatch], float | None]) -> Callable[[FeedReading], Values]:
    """Return a reader of the last finished batch."""
    return one(lambda reading: None if reading.progress.last_batch is None else read(reading.progress.last_batch))


def _running(read: Callable[[RunningBatch], float | None]) -> Callable[[FeedReading], Values]:
    """Return a reader of the running batch."""
    return one(lambda reading: None if reading.progress.running is None else read(reading.progress.running))


def _info(reading: FeedReading) -> Values:
    progress = reading.progress
    return [((progress.sink, progress.driver.host, progress.driver.version), 1)]


def _states(reading: FeedReading) -> Values:
    return [((state,), int(reading.progress.state == state)) for state in STATES]


def _durations(reading: FeedReading) -> Values:
    counters = reading.counters
    return [((), Buckets(DURATION_BOUNDS, counters.durations, counters.seconds, counters.shortest, counters.longest))]


def _greatest_lag(reading: FeedReading) -> float | None:
    lags = [partition.lag for partition in reading.progress.partitions]
    return max((lag for lag in lags if lag is not None), default=None)


def _omitted(reading: FeedReading) -> float:
    return len(reading.progress.partitions) - len(reading.shown_partitions)


def _gauge(name: str, meaning: str, read: Callable[[FeedReading], Values], labels: Labels = ()) -> Metric:
    return Metric(name=name, kind="gauge", help=meaning, read=read, labels=labels)


def _counter(name: str, meaning: str, read: Callable[[FeedReading], Values], labels: Labels = ()) -> Metric:
    return Metric(name=name, kind="counter", help=meaning, read=read, labels=labels)


def _of_partition(name: str, meaning: str, read: Callable[[PartitionLag], float | None]) -> Metric:
    of_each = by_partition(read)
    return Metric(name=name, kind="gauge", help=meaning, read=of_each, labels=("topic", "partition"), is_bounded=False)


_FEED = (
    _gauge("lakefeed_feed_up", "Whether the feed's driver answers.", one(lambda r: 1)),
    _gauge("lakefeed_feed_info", "Always 1; its labels describe the feed.", _info, ("sink", "host", "version")),
    _gauge("lakefeed_feed_state", "1 for the state that the feed is in, 0 for the others.", _states, ("state",)),
    _gauge(
        "lakefeed_feed_hangs", "Whether the driver's loop has not turned for a minute.", one(lambda r: r.progress.hangs)
    ),
    _gauge(
        "lakefeed_feed_stalled",
        "Whether records wait and no commit has come for metrics.no_commit_for.",
        one(lambda r: r.health.stalled),
    ),
    _gauge("lakefeed_feed_paused", "Whether the feed is paused.", one(lambda r: r.progress.paused is not None)),
    _gauge("lakefeed_start_timestamp_seconds", "When the run began.", one(lambda r: r.progress.started_at)),
    _gauge(
        "lakefeed_loop_timestamp_seconds", "When the driver's loop turned last.", one(lambda r: r.progress.alive_at)
    ),
    _gauge(
        "lakefeed_progress_timestamp_seconds",
        "When a batch began or ended, or one of its tasks was done, last.",
        one(lambda r: r.progress.progress_at),
    ),
    _gauge(
        "lakefeed_last_commit_timestamp_seconds",
        "When the sink had the last batch; none before the first commit of the run.",
        one(lambda r: r.progress.last_commit_at),
    ),
    _gauge(
        "lakefeed_last_error_timestamp_seconds",
        "When the last error happened; none without an error.",
        one(lambda r: r.progress.last_error.at if r.progress.last_error else None),
    ),
    _counter("lakefeed_errors_total", "Errors of the run.", one(lambda r: r.counters.errors)),
    _counter(
        "lakefeed_query_restarts_total",
        "Restarts of the query within the run, as for a new schema.",
        one(lambda r: r.progress.restarts),
    ),
    _counter(
        "lakefeed_publications_total",
        "Publications of the table's branch, each after its audit.",
        one(lambda r: r.counters.published),
    ),
    _counter(
        "lakefeed_failed_audits_total",
        "Audits that have kept the table's branch from being published while the feed continued.",
        one(lambda r: r.counters.audits_failed),
    ),
    _gauge("lakefeed_sinks_paused", "Sinks that wait after a failure.", one(lambda r: len(r.progress.paused_sinks))),
    _gauge(
        "lakefeed_sink_paused",
        "1 for each sink that waits after a failure.",
        by_name(lambda r: dict.fromkeys(r.progress.paused_sinks, 1)),
        ("sink",),
    ),
)

_LAG = (
    _gauge(
        "lakefeed_lag_offsets",
        "Offsets in the topics that are not committed, over all partitions.",
        one(lambda r: r.progress.lag),
    ),
    _gauge(
        "lakefeed_unread_offsets",
        "Offsets in the topics that are not read, over all partitions.",
        one(lambda r: r.progress.unread),
    ),
    _gauge(
        "lakefeed_lag_seconds", "Age of the oldest record that is not committed.", one(lambda r: r.progress.lag_seconds)
    ),
    _gauge(
        "lakefeed_lag_drain_seconds",
        "How long the lag takes at the rate of the last batch.",
        _last(lambda b: b.seconds_left),
    ),
    _gauge("lakefeed_partitions", "Partitions that the feed reads.", one(lambda r: len(r.progress.partitions))),
    _gauge(
        "lakefeed_partitions_omitted",
        "Partitions beyond metrics.partitions, which have no series of their own.",
        one(_omitted),
    ),
    _gauge(
        "lakefeed_partition_lag_max_offsets", "The greatest lag of a partition, over all of them.", one(_greatest_lag)
    ),
    _of_partition(
        "lakefeed_partition_lag_offsets", "Offsets of the partition that are not committed.", lambda p: p.lag
    ),
    _of_partition(
        "lakefeed_partition_lag_seconds",
        "Age of the partition's oldest record that is not committed.",
        lambda p: p.seconds,
    ),
    _of_partition(
        "lakefeed_partition_end_offset", "One more than the newest offset in the partition.", lambda p: p.end
    ),
    _of_partition(
        "lakefeed_partition_committed_offset", "One more than the last offset that is committed.", lambda p: p.committed
    ),
)

_BATCHES = (
    _counter("lakefeed_batches_total", "Batches that the run has committed.", one(lambda r: r.counters.totals.batches)),
    _counter(
        "lakefeed_batches_replayed_total",
        "Batches that the sink had already, from before a restart.",
        one(lambda r: r.counters.replayed),
    ),
    _counter("lakefeed_records_read_total", "Records read from the source.", one(lambda r: r.counters.totals.records)),
    _counter("lakefeed_rows_written_total", "Rows written to the sink.", one(lambda r: r.counters.totals.rows)),
    _counter(
        "lakefeed_records_skipped_total",
        "Records left out by rules of the pipeline.",
        one(lambda r: r.counters.totals.skipped),
    ),
    _counter(
        "lakefeed_rows_with_left_out_fields_total",
        "Rows whose records have JSON fields that no column takes.",
        one(lambda r: r.counters.totals.left_out),
    ),
    _counter(
        "lakefeed_dead_letters_total",
        "Records that became dead letters.",
        one(lambda r: r.counters.totals.dead_letters),
    ),
    _counter(
        "lakefeed_dead_letters_by_reason_total",
        "Dead letters by reason; of each run the first 20 reasons, and other.",
        by_name(lambda r: r.counters.reasons),
        ("reason",),
    ),
    _counter(
        "lakefeed_late_rows_total",
        "Rows dropped because they came after the watermark.",
        one(lambda r: r.counters.late_rows),
    ),
    Metric(
        name="lakefeed_batch_duration_seconds",
        kind="histogram",
        help="Duration of batches, from trigger to end.",
        read=_durations,
    ),
    _counter(
        "lakefeed_batch_phase_seconds_total",
        f"Time spent in each phase of batches: {page_command('metrics')}, A batch.",
        by_name(lambda r: r.counters.phases),
        ("phase",),
    ),
    _gauge("lakefeed_last_batch_id", "Id of the last finished batch.", _last(lambda b: b.batch_id)),
    _gauge("lakefeed_last_batch_duration_seconds", "Duration of the last finished batch.", _last(lambda b: b.seconds)),
    _gauge("lakefeed_last_batch_records", "Records of the last finished batch.", _last(lambda b: b.records)),
    _gauge("lakefeed_last_batch_rows", "Rows of the last finished batch.", _last(lambda b: b.rows)),
    _gauge(
        "lakefeed_last_batch_input_rate",
        "Records a second that came since the trigger before.",
        _last(lambda b: b.input_rate),
    ),
    _gauge(
        "lakefeed_last_batch_processing_rate",
        "Records a second while the last batch ran.",
        _last(lambda b: b.processing_rate),
    ),
    _gauge(
        "lakefeed_running_batch_seconds",
        "Since when the batch at work runs; none between batches.",
        _running(lambda b: b.seconds),
    ),
    _gauge("lakefeed_running_batch_offsets", "Offsets that the batch at work reads.", _running(lambda b: b.offsets)),
    _gauge(
        "lakefeed_running_batch_records",
        "Records that the batch at work has read so far.",
        _running(lambda b: b.records),
    ),
    _gauge(
        "lakefeed_running_batch_tasks",
        "Tasks of the batch at work that are known now.",
        _running(lambda b: b.tasks),
    ),
    _gauge(
        "lakefeed_running_batch_tasks_done",
        "Tasks of the batch at work that are done.",
        _running(lambda b: b.tasks_done),
    ),
)

_STORE = (
    _counter(
        "lakefeed_s3_requests_total",
        "Requests to S3 of batches, by class of keys.",
        by_name(lambda r: r.counters.requests),
        ("class",),
    ),
    _counter(
        "lakefeed_s3_request_errors_total",
        "Requests to S3 that were answered with status 400 or above, or not.",
        one(lambda r: r.counters.request_errors),
    ),
    _counter("lakefeed_s3_sent_bytes_total", "Bytes sent to S3 by batches.", one(lambda r: r.counters.bytes_out)),
    _counter(
        "lakefeed_s3_received_bytes_total", "Bytes received from S3 by batches.", one(lambda r: r.counters.bytes_in)
    ),
    _counter("lakefeed_data_files_written_total", "Data files written to S3.", one(lambda r: r.counters.data_files)),
    _counter(
        "lakefeed_batches_over_s3_budget_total",
        "Batches that made more S3 requests than their budget.",
        one(lambda r: r.counters.over_budget),
    ),
    _gauge(
        "lakefeed_last_batch_s3_requests",
        "S3 requests of the last finished batch.",
        _last(lambda b: b.requests.total if b.requests else None),
    ),
    _gauge(
        "lakefeed_batch_s3_request_budget",
        "S3 requests that a batch may make; none without a budget.",
        _last(lambda b: b.requests.budget if b.requests else None),
    ),
)

_QUERY = (
    _gauge("lakefeed_state_rows", "Keys in the query's state.", _last(lambda b: b.state.rows)),
    _gauge("lakefeed_state_bytes", "Memory that the query's state uses.", _last(lambda b: b.state.bytes)),
    _gauge(
        "lakefeed_watermark_timestamp_seconds",
        "Event time up to which the query takes no more records.",
        _last(lambda b: timestamp(b.state.watermark)),
    ),
    _gauge("lakefeed_schema_id", "The newest writers' schema that the rows cover.", _last(lambda b: b.schema_id)),
)

METRICS: tuple[Metric, ...] = (*_FEED, *_LAG, *_BATCHES, *_STORE, *_QUERY)
