"""Pushes a run's metrics into Spark's metric system, which hands them to Spark's own sinks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakefeed.config.models import PipelineConfig
from lakefeed.lazy import SparkSession
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.metrics.pushing import pushing
from lakefeed.monitor.metrics.reading import FeedReading, MetricSettings
from lakefeed.monitor.metrics.spark import SparkGauges

SPARK_SECONDS = 5.0
"""Between two reports to the JVM, a call of a millisecond; Spark's sinks read the newest each ten seconds."""


@contextmanager
def pushing_to_spark(config: PipelineConfig, monitor: FeedMonitor, spark: SparkSession | None) -> Iterator[None]:
    """Push the metrics of a run within this block; without a session there is nothing to push to."""
    gauges = SparkGauges(spark, monitor.feed) if spark is not None else None
    if gauges is None or not gauges.is_open():
        yield
        return
    settings = MetricSettings.of(config)

    def push() -> bool:
        gauges.report(FeedReading.of(monitor, settings))
        return True

    with pushing("spark", push, every=SPARK_SECONDS):
        yield
