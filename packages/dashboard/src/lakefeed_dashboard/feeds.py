"""The feeds that a dashboard shows: this driver's own, or those of other drivers (``remote``).

All methods may block, and are called in worker threads.
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
        """The name in URLs: the feed's."""

    def progress(self) -> Document:
        """Return ``FeedProgress.as_dict``."""

    def history(self, *, since: float, most: int) -> Document:
        """Return points of the history, and the newest batches whole."""

    def events(self, *, after: int) -> Document:
        """Return the events after this number."""

    def detail(self, what: str) -> Document:
        """Return what ``FeedDetails`` has; raises Refused where there is none."""

    def act(self, request: Mapping[str, Any], *, by: str) -> Document:
        """Begin an action; returns its event, or raises Refused."""


class Feeds(Protocol):
    """All feeds of a dashboard."""

    def rows(self) -> Sequence[Document]:
        """Return the entries of the list."""

    def find(self, name: str) -> FeedView | None:
        """Return a feed by its name; None if there is none."""

    def metrics(self, *, accept: str) -> MetricsText:
        """Return the metrics of all feeds for Prometheus, in the format that the header Accept asks for."""

    def health(self) -> tuple[bool, Document]:
        """Return whether all is well, and what a probe is shown."""

    def note(self, message: str, **details: Any) -> None:
        """Add an event to the audit log."""
