"""Read the details of a feed for its page, only while a user looks at the page."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.feed.feed import Feed
from lakefeed.json_model import iso
from lakefeed.lazy import SparkSession
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.operations.endpoint import Document
from lakefeed.sinks.dead_letters.store import DeadLetterReader
from lakefeed_dashboard.details.dead_letters import dead_letters_document, no_dead_letters
from lakefeed_dashboard.details.graph import graph_of
from lakefeed_dashboard.details.panels import Panels
from lakefeed_dashboard.details.schemas import schemas_document
from lakefeed_dashboard.details.tables import read_metadata, table_document
from lakefeed_dashboard.settings import Dashboard, Tariff
from lakefeed_dashboard.workers import CachedRead

SECONDS = 5.0
TABLE_SECONDS = 30.0
LIMIT = 10.0
"""A viewer waits at most this many seconds for a document; the read continues if it takes longer."""

HOUR = 3600.0
LEAST_SECONDS = 60.0
"""A shorter run is treated as if it had lasted this many seconds, so that a short start does not look expensive."""
DIGITS = 8


class FeedDetails:
    """The details of one feed during a run.

    Separate threads read the documents, so that the feed's thread does not wait. The documents are cached, so that many
    viewers cost as much as one viewer, and a viewer waits some seconds at most.

    Args:
        spark: the feed's session; if None, there are no query panels.

    Attributes:
        documents: functions that return documents for JSON, by the name of the document, such as ``costs``.
    """

    def __init__(
        self,
        config: PipelineConfig,
        monitor: FeedMonitor,
        spark: SparkSession | None = None,
        *,
        connections: Connections,
    ) -> None:
        feed = Feed(config=config, connections=connections, view=config.name)
        read = partial(read_metadata, spark=spark, connections=connections)
        block = config.block(Dashboard)
        tariff = None if block is None else Tariff.of(block.tariff)
        self._panels = Panels.of(block.panels, spark) if spark is not None and block and block.panels else None
        self.documents: dict[str, Callable[[], Document]] = {
            "graph": _cached(lambda: graph_of(config, monitor), lambda: {"nodes": [], "edges": []}, seconds=SECONDS),
            "table": _cached(
                lambda: table_document(config, monitor, read, now=time.time()),
                lambda: {"tables": [], "left_out": 0, "taken_at": iso(time.time())},
            ),
            "schemas": _cached(
                lambda: schemas_document(config, monitor, read),
                lambda: {"schemas": [], "writers": [], "left_out": 0, "note": None},
            ),
            "dead-letters": _cached(
                lambda: dead_letters_document(config, lambda: _readers(feed, monitor), now=time.time()),
                lambda: no_dead_letters(config, now=time.time()),
            ),
            "costs": lambda: costs_of(monitor, tariff),
            "panels": lambda: self._panels.document() if self._panels is not None else {"panels": []},
        }

    def close(self) -> None:
        """Cancel the panels' queries, and start no new queries."""
        if self._panels is not None:
            self._panels.close()


def _cached(
    read: Callable[[], Document], empty: Callable[[], Document], *, seconds: float = TABLE_SECONDS
) -> Callable[[], Document]:
    """Return a function that reads a document through a cache; if a read fails, return ``empty`` with the error."""
    return CachedRead(read, failed=lambda why: {**empty(), "error": why}, seconds=seconds, limit=LIMIT).get


def _readers(feed: Feed, monitor: FeedMonitor) -> Iterator[tuple[str, DeadLetterReader]]:
    """Yield, per table with its own dead letters, the feed's name in the ledger and a reader of the dead letters."""
    if not feed.config.has_many_tables:
        yield feed.config.name, feed.dead_letters()
        return
    for topic in sorted({partition.topic for partition in monitor.snapshot().partitions}):
        part = feed.for_topic(topic)
        yield part.config.name, part.dead_letters()


def costs_of(monitor: FeedMonitor, tariff: Tariff | None) -> dict[str, Any]:
    """Return the S3 requests of the last hour and their price; if no batch counted requests, the figures are None.

    If the feed has run for less than an hour, its requests are extrapolated from ``seconds`` to an hour.
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
    """Return the average requests per batch over the newest batches, by class of S3 keys."""
    sums, counted = Counter[str](), 0
    for batch in monitor.batches():
        if batch.requests is not None:
            counted += 1
            sums.update(batch.requests.by_class)
    return {name: round(count / counted, 2) for name, count in sorted(sums.items())}
