"""Pushes a run's metrics: into Spark's metric system, and to a collector where the pipeline file names one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from lakefeed.config.metrics import Otlp
from lakefeed.config.models import PipelineConfig
from lakefeed.lazy import SparkSession
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.metrics.otlp import OtlpMetrics
from lakefeed.monitor.metrics.pushing import pushing
from lakefeed.monitor.metrics.reading import FeedReading, MetricSettings
from lakefeed.monitor.metrics.spark import SparkGauges

SPARK_SECONDS = 5.0
"""Between two reports to the JVM, a call of a millisecond; Spark's sinks read the newest each ten seconds."""


@contextmanager
def pushing_metrics(config: PipelineConfig, monitor: FeedMonitor, spark: SparkSession | None) -> Iterator[None]:
    """Push the metrics of a run within this block.

    Raises:
        MissingExtra: the file names a collector, and OpenTelemetry is not installed.
    """
    settings = MetricSettings.of(config)
    with ExitStack() as stack:
        if config.metrics.otlp is not None:
            stack.enter_context(_to_collector(config.metrics.otlp, monitor, settings))
        if spark is not None:
            stack.enter_context(_to_spark(spark, monitor, settings))
        yield


@contextmanager
def _to_spark(spark: SparkSession, monitor: FeedMonitor, settings: MetricSettings) -> Iterator[None]:
    gauges = SparkGauges(spark, monitor.feed)
    if not gauges.is_open():
        yield
        return

    def push() -> bool:
        gauges.report(FeedReading.of(monitor, settings))
        return True

    with pushing("spark", push, every=SPARK_SECONDS):
        yield


@contextmanager
def _to_collector(otlp: Otlp, monitor: FeedMonitor, settings: MetricSettings) -> Iterator[None]:
    collector = OtlpMetrics(otlp)

    def note(works: bool) -> None:
        what = "takes the metrics again" if works else "does not take the metrics"
        monitor.note(f"the collector {otlp.url} {what}")

    def push() -> bool:
        return collector.send(FeedReading.of(monitor, settings))

    with pushing("otlp", push, every=otlp.every_seconds, on_change=note, close=collector.close):
        yield
