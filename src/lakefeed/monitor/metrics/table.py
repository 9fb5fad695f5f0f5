"""The table of metrics: docs/metrics.md, ``/metrics``, Spark's sinks and OTLP are generated from it.

Names follow https://prometheus.io/docs/practices/naming/: base units, ``_total`` for counters. Meanings never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, get_args

from lakefeed.config.blocks import PipelineBlocks
from lakefeed.config.operation import NO_COMMIT_SECONDS
from lakefeed.feed.progress import FinishedBatch, RunningBatch
from lakefeed.messages.pages import page_command
from lakefeed.messages.printable import printable
from lakefeed.messages.redaction import redacted
from lakefeed.monitor.counters import DURATION_BOUNDS, RunCounters
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.model import FeedHealth, FeedProgress, PartitionLag, State

LONGEST_LABEL = 250
"""The most characters of a label's value; names of topics are shorter."""
PARTITIONS = 200


@dataclass(frozen=True, kw_only=True)
class MetricSettings:
    """The settings of metrics and health.

    Attributes:
        partitions: the number of partitions that have their own series.
        no_commit_seconds: the time without a commit after which a feed with lag has stalled; None for never.
    """

    partitions: int = PARTITIONS
    no_commit_seconds: float | None = NO_COMMIT_SECONDS

    @classmethod
    def of(cls, config: PipelineBlocks) -> MetricSettings:
        seconds = config.metrics.no_commit_seconds(config.trigger)
        return cls(partitions=config.metrics.partitions, no_commit_seconds=seconds)


@dataclass(frozen=True, kw_only=True)
class FeedReading:
    """The progress, counts and settings of one feed at one moment."""

    progress: FeedProgress
    counters: RunCounters
    settings: MetricSettings = field(default_factory=MetricSettings)

    @classmethod
    def of(cls, monitor: FeedMonitor, settings: MetricSettings | None = None) -> FeedReading:
        progress, counters = monitor.counted()
        return cls(progress=progress, counters=counters, settings=settings or MetricSettings())

    @property
    def health(self) -> FeedHealth:
        return self.progress.health(no_commit_seconds=self.settings.no_commit_seconds)

    @property
    def shown_partitions(self) -> tuple[PartitionLag, ...]:
        """The partitions with series of their own, always the same ones, so that the number of series is limited."""
        return self.progress.partitions[: self.settings.partitions]


@dataclass(frozen=True)
class Buckets:
    """A histogram: ``counts`` has the number of values per interval between bounds; the last interval has no end."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float
    least: float
    greatest: float

    @property
    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each bound with the number of values up to this bound."""
        total = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            yield bound, total


Labels = tuple[str, ...]
Value = float | Buckets | None
Reader = Callable[["FeedReading"], Value | Mapping[Labels, float | None]]
"""A function that returns a metric's value, or its values by labels; a value of None has no series."""


@dataclass(frozen=True)
class Metric:
    """One metric of a feed.

    Attributes:
        name: the name in Prometheus; a counter's name ends in ``_total``.
        labels: the names of the labels after ``feed``, in the order of the labels that ``read`` returns.
        is_bounded: whether the number of series does not grow with the topics.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    read: Reader
    labels: Labels = ()
    is_bounded: bool = True

    @property
    def unit(self) -> str:
        """The base unit at the end of the name; empty for counts."""
        last = self.name.removesuffix("_total").rsplit("_", 1)[-1]
        return last if last in ("seconds", "bytes") else ""

    def values(self, reading: FeedReading) -> dict[Labels, float | Buckets]:
        """Return a feed's values by safe labels; if two series get the same labels, only the first is returned."""
        value = self.read(reading)
        values: Mapping[Labels, Value] = value if isinstance(value, Mapping) else {(): value}
        safe: dict[Labels, float | Buckets] = {}
        for labels, each in values.items():
            if each is not None:
                safe.setdefault(tuple(map(label_value, labels)), each)
        return safe


def label_value(text: str) -> str:
    """Return a text as a label's value: without secrets and unprintable characters, and not too long."""
    if text.isdecimal():
        return text
    safe = printable(" ".join(redacted(text).split()))
    return safe if len(safe) <= LONGEST_LABEL else f"{safe[: LONGEST_LABEL - 1]}…"


def timestamp(text: str | None) -> float | None:
    """Return an ISO 8601 time in seconds since 1970; None for other texts."""
    try:
        return None if text is None else datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


STATES: tuple[State, ...] = get_args(State)


def _last(read: Callable[[FinishedBatch], float | None]) -> Reader:
    return lambda r: None if r.progress.last_batch is None else read(r.progress.last_batch)


def _running(read: Callable[[RunningBatch], float | None]) -> Reader:
    return lambda r: None if r.progress.running is None else read(r.progress.running)


def _by_name(values: Mapping[str, float]) -> dict[Labels, float]:
    return {(name,): value for name, value in values.items()}


def _info(reading: FeedReading) -> Mapping[Labels, float]:
    progress = reading.progress
    return {(progress.sink, progress.driver.host, progress.driver.version): 1}


def _durations(reading: FeedReading) -> Buckets:
    counters = reading.counters
    return Buckets(DURATION_BOUNDS, counters.durations, counters.seconds, counters.shortest, counters.longest)


def _greatest_lag(reading: FeedReading) -> float | None:
    lags = [partition.lag for partition in reading.progress.partitions]
    return max((lag for lag in lags if lag is not None), default=None)


def _gauge(name: str, meaning: str, read: Reader, labels: Labels = ()) -> Metric:
    return Metric(name, "gauge", meaning, read, labels)


def _counter(name: str, meaning: str, read: Reader, labels: Labels = ()) -> Metric:
    return Metric(name, "counter", meaning, read, labels)


def _of_partition(name: str, meaning: str, read: Callable[[PartitionLag], float | None]) -> Metric:
    def by_partition(reading: FeedReading) -> Mapping[Labels, float | None]:
        return {(part.topic, str(part.partition)): read(part) for part in reading.shown_partitions}

    return Metric(name, "gauge", meaning, by_partition, ("topic", "partition"), is_bounded=False)


_FEED = (
    _gauge("lakefeed_feed_up", "Whether the feed's driver answers.", lambda r: 1),
    _gauge("lakefeed_feed_info", "Always 1; its labels describe the feed.", _info, ("sink", "host", "version")),
    _gauge(
        "lakefeed_feed_state",
        "1 for the state that the feed is in, 0 for the others.",
        lambda r: _by_name({state: int(r.progress.state == state) for state in STATES}),
        ("state",),
    ),
    _gauge("lakefeed_feed_hangs", "Whether the driver's loop has not turned for a minute.", lambda r: r.progress.hangs),
    _gauge(
        "lakefeed_feed_stalled",
        "Whether records wait, and the feed has committed nothing for metrics.no_commit_for.",
        lambda r: r.health.stalled,
    ),
    _gauge("lakefeed_feed_paused", "Whether the feed is paused.", lambda r: r.progress.paused is not None),
    _gauge("lakefeed_start_timestamp_seconds", "When the run began.", lambda r: r.progress.started_at),
    _gauge("lakefeed_loop_timestamp_seconds", "When the driver's loop last turned.", lambda r: r.progress.alive_at),
    _gauge(
        "lakefeed_progress_timestamp_seconds",
        "When a batch last began or ended, or one of its tasks ended.",
        lambda r: r.progress.progress_at,
    ),
    _gauge(
        "lakefeed_last_commit_timestamp_seconds",
        "When the run last committed; missing before its first commit.",
        lambda r: r.progress.last_commit_at,
    ),
    _gauge(
        "lakefeed_last_error_timestamp_seconds",
        "When the last error happened; missing without an error.",
        lambda r: r.progress.last_error.at if r.progress.last_error else None,
    ),
    _counter("lakefeed_errors_total", "Errors of the run.", lambda r: r.counters.errors),
    _counter(
        "lakefeed_query_restarts_total",
        "Restarts of the query within the run, for example for a new schema.",
        lambda r: r.progress.restarts,
    ),
    _counter(
        "lakefeed_publications_total",
        "How many times the branch was published after its audit.",
        lambda r: r.counters.published,
    ),
    _counter(
        "lakefeed_failed_audits_total",
        "Failed audits that prevented a publication while the feed continued.",
        lambda r: r.counters.audits_failed,
    ),
    _gauge(
        "lakefeed_sinks_paused",
        "The number of sinks that wait after a failure.",
        lambda r: len(r.progress.paused_sinks),
    ),
    _gauge(
        "lakefeed_sink_paused",
        "1 for a sink that waits after a failure.",
        lambda r: _by_name(dict.fromkeys(r.progress.paused_sinks, 1)),
        ("sink",),
    ),
)

_LAG = (
    _gauge(
        "lakefeed_lag_offsets",
        "Uncommitted offsets of all partitions.",
        lambda r: r.progress.lag,
    ),
    _gauge(
        "lakefeed_unread_offsets",
        "Unread offsets of all partitions.",
        lambda r: r.progress.unread,
    ),
    _gauge("lakefeed_lag_seconds", "Age of the oldest uncommitted record.", lambda r: r.progress.lag_seconds),
    _gauge(
        "lakefeed_lag_drain_seconds",
        "The time to land the lag at the rate of the last batch.",
        _last(lambda b: b.seconds_left),
    ),
    _gauge(
        "lakefeed_partitions", "The number of partitions that the feed reads.", lambda r: len(r.progress.partitions)
    ),
    _gauge(
        "lakefeed_partitions_omitted",
        "The number of partitions without separate series, because metrics.partitions limits these.",
        lambda r: len(r.progress.partitions) - len(r.shown_partitions),
    ),
    _gauge("lakefeed_partition_lag_max_offsets", "The greatest lag of a partition.", _greatest_lag),
    _of_partition("lakefeed_partition_lag_offsets", "Uncommitted offsets of the partition.", lambda p: p.lag),
    _of_partition(
        "lakefeed_partition_lag_seconds",
        "Age of the partition's oldest uncommitted record.",
        lambda p: p.seconds,
    ),
    _of_partition("lakefeed_partition_end_offset", "The offset after the partition's newest record.", lambda p: p.end),
    _of_partition(
        "lakefeed_partition_committed_offset", "The offset after the last committed record.", lambda p: p.committed
    ),
)

_BATCHES = (
    _counter("lakefeed_batches_total", "Batches that the run has committed.", lambda r: r.counters.totals.batches),
    _counter(
        "lakefeed_batches_replayed_total",
        "Batches that Spark repeated after a restart and the sink had already.",
        lambda r: r.counters.replayed,
    ),
    _counter("lakefeed_records_read_total", "Records read from the source.", lambda r: r.counters.totals.records),
    _counter("lakefeed_rows_written_total", "Rows written to the sink.", lambda r: r.counters.totals.rows),
    _counter(
        "lakefeed_records_skipped_total",
        "Records left out by rules of the pipeline.",
        lambda r: r.counters.totals.skipped,
    ),
    _counter(
        "lakefeed_rows_with_left_out_fields_total",
        "Rows whose records have JSON fields that have no column.",
        lambda r: r.counters.totals.left_out,
    ),
    _counter(
        "lakefeed_dead_letters_total",
        "Records that became dead letters.",
        lambda r: r.counters.totals.dead_letters,
    ),
    _counter(
        "lakefeed_dead_letters_by_reason_total",
        "Dead letters by reason: the first 20 reasons of the run, and other.",
        lambda r: _by_name(r.counters.reasons),
        ("reason",),
    ),
    _counter(
        "lakefeed_late_rows_total",
        "Rows that Spark dropped because they came after the watermark.",
        lambda r: r.counters.late_rows,
    ),
    Metric("lakefeed_batch_duration_seconds", "histogram", "Duration of batches, from trigger to end.", _durations),
    _counter(
        "lakefeed_batch_phase_seconds_total",
        f"Time spent in each phase of batches: {page_command('metrics')}, A batch.",
        lambda r: _by_name(r.counters.phases),
        ("phase",),
    ),
    _gauge("lakefeed_last_batch_id", "Id of the last finished batch.", _last(lambda b: b.batch_id)),
    _gauge("lakefeed_last_batch_duration_seconds", "Duration of the last finished batch.", _last(lambda b: b.seconds)),
    _gauge("lakefeed_last_batch_records", "Records of the last finished batch.", _last(lambda b: b.records)),
    _gauge("lakefeed_last_batch_rows", "Rows of the last finished batch.", _last(lambda b: b.rows)),
    _gauge(
        "lakefeed_last_batch_input_rate",
        "Records a second that arrived since the previous trigger.",
        _last(lambda b: b.input_rate),
    ),
    _gauge(
        "lakefeed_last_batch_processing_rate",
        "Records a second while the last batch ran.",
        _last(lambda b: b.processing_rate),
    ),
    _gauge(
        "lakefeed_running_batch_seconds",
        "How long the current batch has run; missing between batches.",
        _running(lambda b: b.seconds),
    ),
    _gauge("lakefeed_running_batch_offsets", "Offsets of the current batch.", _running(lambda b: b.offsets)),
    _gauge(
        "lakefeed_running_batch_records",
        "Records that the current batch has read.",
        _running(lambda b: b.records),
    ),
    _gauge(
        "lakefeed_running_batch_tasks",
        "Known tasks of the current batch.",
        _running(lambda b: b.tasks),
    ),
    _gauge(
        "lakefeed_running_batch_tasks_done",
        "Finished tasks of the current batch.",
        _running(lambda b: b.tasks_done),
    ),
)

_STORE = (
    _counter(
        "lakefeed_s3_requests_total",
        "S3 requests of batches, by class of keys.",
        lambda r: _by_name(r.counters.requests),
        ("class",),
    ),
    _counter(
        "lakefeed_s3_request_errors_total",
        "S3 requests with status 400 or above, or without an answer.",
        lambda r: r.counters.request_errors,
    ),
    _counter("lakefeed_s3_sent_bytes_total", "Bytes sent to S3 by batches.", lambda r: r.counters.bytes_out),
    _counter("lakefeed_s3_received_bytes_total", "Bytes received from S3 by batches.", lambda r: r.counters.bytes_in),
    _counter("lakefeed_data_files_written_total", "Data files written to S3.", lambda r: r.counters.data_files),
    _counter(
        "lakefeed_batches_over_s3_budget_total",
        "Batches that made more S3 requests than their budget.",
        lambda r: r.counters.over_budget,
    ),
    _gauge(
        "lakefeed_last_batch_s3_requests",
        "S3 requests of the last finished batch.",
        _last(lambda b: b.requests.total if b.requests else None),
    ),
    _gauge(
        "lakefeed_batch_s3_request_budget",
        "S3 requests that a batch may make; missing without a budget.",
        _last(lambda b: b.requests.budget if b.requests else None),
    ),
)

_QUERY = (
    _gauge("lakefeed_state_rows", "Rows of the query's state.", _last(lambda b: b.state.rows)),
    _gauge("lakefeed_state_bytes", "Memory that the query's state uses.", _last(lambda b: b.state.bytes)),
    _gauge(
        "lakefeed_watermark_timestamp_seconds",
        "The watermark: the query drops records with an earlier event time.",
        _last(lambda b: timestamp(b.state.watermark)),
    ),
    _gauge("lakefeed_schema_id", "Id of the newest writer's schema among the rows.", _last(lambda b: b.schema_id)),
)

METRICS: tuple[Metric, ...] = (*_FEED, *_LAG, *_BATCHES, *_STORE, *_QUERY)
