"""The requests to S3 of a feed for a batch and an hour, and their price at a tariff."""

from __future__ import annotations

from collections import Counter
from typing import Any

from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed_dashboard.panel_settings import Tariff

HOUR = 3600.0
LEAST_SECONDS = 60.0
"""The figures of a feed that has just begun are extrapolated from a minute at least."""
DIGITS = 8


def costs_of(monitor: FeedMonitor, tariff: Tariff | None) -> dict[str, Any]:
    """Return requests and prices of the last hour, from the model's history; None without a batch in it.

    Of a feed that has run for less than an hour, the figures for an hour are extrapolated from ``seconds``.
    """
    progress = monitor.snapshot()
    seconds = min(HOUR, max(LEAST_SECONDS, progress.taken_at - progress.started_at))
    points = monitor.points(since=progress.taken_at - seconds, most=1)
    document: dict[str, Any] = {
        "currency": tariff.currency if tariff else None,
        "tariff": tariff.model_dump() if tariff else None,
        "seconds": round(seconds, 1),
        "per_batch": None,
        "per_hour": None,
        "requests_per_batch": None,
        "requests_per_hour": None,
        "writes_per_hour": None,
        "reads_per_hour": None,
        "by_class": _by_class(monitor),
    }
    if not points or points[0].requests is None:
        return document
    last, requests, hours = points[0], points[0].requests, seconds / HOUR
    writes, reads = last.writes or 0, last.reads or 0
    document |= {
        "requests_per_batch": round(requests / last.batches, 2) if last.batches else None,
        "requests_per_hour": round(requests / hours),
        "writes_per_hour": round(writes / hours),
        "reads_per_hour": round(reads / hours),
    }
    if tariff is not None:
        price = tariff.price(writes=writes, reads=reads)
        document["per_batch"] = round(price / last.batches, DIGITS) if last.batches else None
        document["per_hour"] = round(price / hours, DIGITS)
    return document


def _by_class(monitor: FeedMonitor) -> dict[str, float]:
    """Return the requests of a batch by class of keys, as the mean of the newest batches."""
    sums, counted = Counter[str](), 0
    for batch in monitor.batches():
        if batch.requests is not None:
            counted += 1
            sums.update(batch.requests.by_class)
    return {name: round(count / counted, 2) for name, count in sorted(sums.items())}
