"""Pushes the metrics of a feed into Spark's metric system, so that Spark's own sinks report them."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lakefeed.clients.spark.jvm import java
from lakefeed.monitor.metrics.table import METRICS, Buckets, FeedReading, MetricSettings, label_value
from lakefeed.operations.followers import FollowedRun

SPARK_SECONDS = 5.0
"""The time between two reports to the JVM: a report takes a millisecond, and Spark's sinks read every ten seconds."""


@contextmanager
def follow(run: FollowedRun) -> Iterator[None]:
    """Push the metrics of a run to Spark; do nothing without a session.

    ``FeedGauges`` in the driver's JVM has the values even after the run, because Spark's sinks report once more when
    the session stops.
    """
    gauges = java(run.spark).metrics.FeedGauges if run.spark is not None else None
    # A session that the user has created may lack lakefeed's Spark plugin.
    if gauges is None or not gauges.isOpen():
        yield
        return
    settings = MetricSettings.of(run.config)

    def push() -> bool:
        lines = (f"{name} {value!r}" for name, value in gauge_values(FeedReading.of(run.monitor, settings)).items())
        gauges.report(gauge_part(run.monitor.feed), "\n".join(lines))
        return True

    with pushing("spark", push, every=SPARK_SECONDS):
        yield


def gauge_values(reading: FeedReading) -> dict[str, int | float]:
    """Return the values of a feed by their names in Spark's sinks, such as ``s3_requests_total.data``.

    Metrics of partitions are left out, because Spark makes a file or series of each name, and never removes it.
    """
    values: dict[str, int | float] = {}
    for metric in METRICS:
        if not metric.is_bounded or metric.name == "lakefeed_feed_info":
            continue
        name = metric.name.removeprefix("lakefeed_")
        for labels, value in metric.values(reading).items():
            full = ".".join((name, *map(gauge_part, labels)))
            if isinstance(value, Buckets):
                values[f"{full}.count"] = sum(value.counts)
                values[f"{full}.sum"] = value.sum
            else:
                values.setdefault(full, int(value) if isinstance(value, bool) else value)
    return values


def gauge_part(text: str) -> str:
    """Return a text as a part of a dotted name, without dots and characters that file names cannot have."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", label_value(text))[:100] or "_"


_log = logging.getLogger(__name__)

LAST_SECONDS = 2.0
"""At a run's end, wait at most this many seconds for the last push."""


@contextmanager
def pushing(
    name: str,
    push: Callable[[], bool],
    *,
    every: float,
    on_change: Callable[[bool], None] = lambda works: None,
    close: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Call ``push`` in a thread every ``every`` seconds within this block, and once at its end.

    Args:
        push: returns True if it succeeded; an error counts as a failure.
        on_change: called with False when pushes begin to fail, and with True when they succeed again.
        close: called after the last push, or when the wait for the last push has timed out.
    """
    stop = threading.Event()

    def attempt() -> bool:
        try:
            return push()
        except Exception:
            _log.debug("%s: a push of metrics has failed", name, exc_info=True)
            return False

    def run() -> None:
        works = True
        while not stop.wait(every):
            if (now := attempt()) != works:
                works = now
                on_change(works)
        attempt()

    thread = threading.Thread(target=run, name=f"lakefeed-metrics-{name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(LAST_SECONDS)
        try:
            close()
        except Exception:
            _log.debug("%s: the receiver of metrics could not be closed", name, exc_info=True)
