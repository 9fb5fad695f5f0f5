"""Finds what the page of one feed shows beyond its progress, when a user looks at it and not before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakefeed.config.models import PipelineConfig
from lakefeed.monitor.feed_monitor import FeedMonitor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakefeed.config.connections import Connections


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
        self._spark = spark
        self._connections = connections

    def graph(self) -> dict[str, Any]:
        """Return the way of the records as nodes and edges, with rates of the last minute."""
        return {"nodes": [], "edges": []}

    def table(self) -> dict[str, Any]:
        """Return files, bytes and newest snapshots of the feed's tables."""
        return {"tables": [], "taken_at": None}

    def schemas(self) -> dict[str, Any]:
        """Return the schemas that the table has had, newest last, with their differences."""
        return {"schemas": []}

    def dead_letters(self) -> dict[str, Any]:
        """Return the newest dead letters by reason, with samples."""
        return {"reasons": [], "taken_at": None, "replayable": False}

    def costs(self) -> dict[str, Any]:
        """Return the requests to S3 for a batch and an hour, with their price if there is a tariff."""
        return {
            "currency": None,
            "tariff": None,
            "per_batch": None,
            "per_hour": None,
            "requests_per_hour": None,
            "by_class": {},
        }

    def panels(self) -> dict[str, Any]:
        """Return the newest results of the query panels; those that are due are queried meanwhile."""
        return {"panels": []}

    def close(self) -> None:
        """Cancel the panels' queries, and start no more."""
