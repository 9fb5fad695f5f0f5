"""Finds what the page of one feed shows beyond its progress, when a user looks at it and not before."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lakefeed.clients.environment import default_environment
from lakefeed.config.models import PipelineConfig
from lakefeed.feed.feed import Feed
from lakefeed.json_model import iso
from lakefeed.lazy import SparkSession
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.sinks.dead_letters.store import DeadLetterReader
from lakefeed_dashboard.details.cache import CachedRead
from lakefeed_dashboard.details.costs import costs_of
from lakefeed_dashboard.details.dead_letters import dead_letters_document, no_dead_letters
from lakefeed_dashboard.details.graph import graph_of
from lakefeed_dashboard.details.panels import Panels
from lakefeed_dashboard.details.schemas import schemas_document
from lakefeed_dashboard.details.tables import TableMetadata, table_document
from lakefeed_dashboard.panel_settings import Tariff
from lakefeed_dashboard.settings import Dashboard

if TYPE_CHECKING:
    from lakefeed.config.connections import Connections

SECONDS = 5.0
TABLE_SECONDS = 30.0
LIMIT = 10.0
"""So long a viewer waits for a read, which then continues."""


class FeedDetails:
    """The details of one running feed; each method returns a document for JSON.

    The methods may be called from any thread but the feed's own. They wait for reads for some seconds at most, and keep
    what was found, so that many viewers cost as much as one.

    Args:
        spark: the feed's session. Without it there are no query panels.
        connections: store and catalogs. Default: from the pipeline file and the environment.
    """

    def __init__(
        self,
        config: PipelineConfig,
        monitor: FeedMonitor,
        spark: SparkSession | None = None,
        *,
        connections: Connections | None = None,
    ) -> None:
        self._config = config
        self._monitor = monitor
        known = connections or config.connections(default_environment())
        self._feed = Feed(config=config, connections=known, view=config.name)
        metadata = TableMetadata(spark, known)
        self._graph = CachedRead(
            lambda: graph_of(config, monitor),
            failed=lambda why: {"nodes": [], "edges": [], "error": why},
            seconds=SECONDS,
            limit=LIMIT,
        )
        self._table = CachedRead(
            lambda: table_document(config, monitor, metadata.read, now=time.time()),
            failed=lambda why: {"tables": [], "left_out": 0, "taken_at": iso(time.time()), "error": why},
            seconds=TABLE_SECONDS,
            limit=LIMIT,
        )
        self._schemas = CachedRead(
            lambda: schemas_document(config, monitor, metadata.read),
            failed=lambda why: {"schemas": [], "writers": [], "left_out": 0, "note": None, "error": why},
            seconds=TABLE_SECONDS,
            limit=LIMIT,
        )
        self._dead_letters = CachedRead(
            lambda: dead_letters_document(config, self._readers, now=time.time()),
            failed=lambda why: {**no_dead_letters(config, now=time.time()), "error": why},
            seconds=TABLE_SECONDS,
            limit=LIMIT,
        )
        block = config.block(Dashboard)
        self._tariff = None if block is None else Tariff.of(block.tariff)
        panels = [] if block is None else block.panels
        self._panels = Panels.of(panels, spark) if spark is not None and panels else None

    def graph(self) -> dict[str, Any]:
        """Return the way of the records as nodes and edges, with rates of the last minute."""
        return self._graph.get()

    def table(self) -> dict[str, Any]:
        """Return files, bytes and newest snapshots of the feed's tables."""
        return self._table.get()

    def schemas(self) -> dict[str, Any]:
        """Return the schemas that the table has had, newest last, with their differences."""
        return self._schemas.get()

    def dead_letters(self) -> dict[str, Any]:
        """Return the newest dead letters by reason, with samples."""
        return self._dead_letters.get()

    def costs(self) -> dict[str, Any]:
        """Return the requests to S3 for a batch and an hour, with their price if there is a tariff."""
        return costs_of(self._monitor, self._tariff)

    def panels(self) -> dict[str, Any]:
        """Return the newest results of the query panels; those that are due are queried meanwhile."""
        return self._panels.document() if self._panels is not None else {"panels": []}

    def close(self) -> None:
        """Cancel the panels' queries, and start no more."""
        if self._panels is not None:
            self._panels.close()

    def _readers(self) -> Iterator[tuple[str, DeadLetterReader]]:
        """Yield the feeds that may have dead letters, each with where they are."""
        if not self._config.has_many_tables:
            yield self._config.name, self._feed.dead_letters()
            return
        for topic in sorted({partition.topic for partition in self._monitor.snapshot().partitions}):
            part = self._feed.for_topic(topic)
            yield part.config.name, part.dead_letters()
