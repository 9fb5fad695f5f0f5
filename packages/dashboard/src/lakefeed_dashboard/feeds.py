"""The interface of a dashboard to the feeds that it shows: this driver's own, or those of other drivers (``remote``).

All methods may block, so worker threads call them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from lakefeed.monitor.metrics.exposition import MetricsText
from lakefeed.operations.endpoint import Document

DETAILS = ("graph", "table", "schemas", "dead-letters", "costs", "panels")


class FeedView(Protocol):
    """One feed, as the dashboard reads it."""

    @property
    def name(self) -> str:
        """The feed's name, as used in URLs."""

    def progress(self) -> Document:
        """Return the feed's progress in the form of ``FeedProgress.as_dict``."""

    def history(self, *, since: float, most: int) -> Document:
        """Return points of the history, and at most ``most`` of the newest batches in full."""

    def events(self, *, after: int) -> Document:
        """Return the events with larger numbers than ``after``."""

    def detail(self, what: str) -> Document:
        """Return the document of ``FeedDetails`` with this name; raise Refused if the document does not exist."""

    def act(self, request: Mapping[str, Any], *, by: str) -> Document:
        """Begin an action; return the event that logs the action, or raise Refused."""


class Feeds(Protocol):
    """All feeds of a dashboard."""

    def rows(self) -> Sequence[Document]:
        """Return the list of all feeds, one row for each feed."""

    def find(self, name: str) -> FeedView | None:
        """Return the feed of this name; None if there is none."""

    def metrics(self, *, accept: str) -> MetricsText:
        """Return the metrics of all feeds for Prometheus, in the format that the Accept header requests."""

    def health(self) -> tuple[bool, Document]:
        """Return whether all feeds are healthy, and the document for probes."""

    def note(self, message: str, **details: Any) -> None:
        """Add an event to the audit log."""
