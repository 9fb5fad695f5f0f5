"""The feeds that a dashboard shows: this driver's own, or those of other drivers (``remote``).

All methods may block, and are called in worker threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from lakefeed.json_model import iso, rounded
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.metrics.exposition import MetricsText

Detail = Literal["graph", "table", "schemas", "dead-letters", "costs", "panels"]
DETAILS: tuple[Detail, ...] = get_args(Detail)
Document = dict[str, Any]


class Refused(Exception):
    """A request that gets an error as its answer.

    Args:
        status: of HTTP.
        error: one sentence.
        hint: what to do next.
        retry_after: the seconds after which the same request may be answered; None if it is not to be repeated.
    """

    def __init__(self, status: int, error: str, hint: str | None = None, *, retry_after: int | None = None) -> None:
        super().__init__(error)
        self.retry_after = retry_after
        self.status = status
        self.error = error
        self.hint = hint

    def as_dict(self) -> Document:
        return {"error": self.error, "hint": self.hint}


@dataclass(frozen=True, kw_only=True)
class Actor:
    """The user that acts, and the address that the request came from."""

    user: str
    address: str


class FeedView(Protocol):
    """One feed, as the dashboard reads it."""

    @property
    def name(self) -> str:
        """The name in URLs: the feed's."""

    def row(self) -> Document:
        """Return the feed's entry in the list of all."""

    def progress(self) -> Document:
        """Return ``FeedProgress.as_dict``."""

    def history(self, *, since: float, most: int) -> Document:
        """Return points of the history, and the newest batches whole."""

    def events(self, *, after: int) -> Document:
        """Return the events after this number."""

    def detail(self, what: Detail) -> Document:
        """Return what ``FeedDetails`` has; raises Refused where there is none."""

    def act(self, request: Mapping[str, Any], *, actor: Actor) -> Document:
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


def row_of(monitor: FeedMonitor) -> Document:
    """Return a monitor's entry in the list of feeds."""
    progress = monitor.snapshot()
    batch = progress.last_batch
    return {
        "feed": progress.feed,
        "sink": progress.sink,
        "state": progress.state,
        "hangs": progress.hangs,
        "reachable": True,
        "lag": progress.lag,
        "lag_seconds": rounded(progress.lag_seconds),
        "rate": rounded(progress.rate),
        "processing_rate": rounded(batch.processing_rate) if batch else None,
        "last_commit_at": iso(progress.last_commit_at),
        "last_error": progress.last_error.as_dict() if progress.last_error else None,
        "paused": progress.paused.as_dict() if progress.paused else None,
        "driver": progress.driver.as_dict(),
    }
