"""Pushes the numbers of a feed into Spark's metric system, so that Spark's own sinks report them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from lakefeed.clients.spark.jvm import java
from lakefeed.config.models import PipelineConfig
from lakefeed.lazy import SparkSession
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.metrics.pushing import pushing
from lakefeed.monitor.metrics.reading import Buckets, FeedReading, MetricSettings, label_value
from lakefeed.monitor.metrics.table import METRICS

_PREFIX = "lakefeed_"


class SparkGauges:
    """The gauges of one feed: ``io.lakefeed.metrics.FeedGauges`` in the driver's JVM.

    They stay after the run has ended: Spark's sinks report once more when the session stops.
    """

    def __init__(self, spark: SparkSession, feed: str) -> None:
        self._gauges = java(spark).metrics.FeedGauges
        self._feed = gauge_part(feed)

    def is_open(self) -> bool:
        """Check that Spark was started with lakefeed's plugin: a user's own session may lack it."""
        return bool(self._gauges.isOpen())

    def report(self, reading: FeedReading) -> None:
        """Replace the feed's numbers in a single call to the JVM."""
        lines = (f"{name} {value!r}" for name, value in gauge_values(reading).items())
        self._gauges.report(self._feed, "\n".join(lines))


def gauge_values(reading: FeedReading) -> dict[str, int | float]:
    """Return the values of a feed by the names in Spark's sinks, such as ``s3_requests_total.data``.

    Metrics of partitions are left out: every name is a separate file or series, which Spark never removes.
    """
    found: dict[str, int | float] = {}
    for metric in METRICS:
        if not metric.is_bounded or metric.name == "lakefeed_feed_info":
            continue
        name = metric.name.removeprefix(_PREFIX)
        for labels, value in metric.values(reading).items():
            full = ".".join((name, *map(gauge_part, labels)))
            if isinstance(value, Buckets):
                found[f"{full}.count"] = sum(value.counts)
                found[f"{full}.sum"] = value.sum
            else:
                found.setdefault(full, int(value) if isinstance(value, bool) else value)
    return found


def gauge_part(text: str) -> str:
    """Return a text as one part of a name: sinks separate parts by dots, and name files after metrics."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", label_value(text))[:100] or "_"


SPARK_SECONDS = 5.0
"""The time between two reports to the JVM. A report takes a millisecond; Spark's sinks read every ten seconds."""


@contextmanager
def pushing_to_spark(config: PipelineConfig, monitor: FeedMonitor, spark: SparkSession | None) -> Iterator[None]:
    """Push the metrics of a run to Spark within this block; do nothing without a session."""
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
