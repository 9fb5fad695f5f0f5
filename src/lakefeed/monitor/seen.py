"""A feed as seen from outside: its driver's answer, or what its ledger says, and a trend of rate and lag."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakefeed.monitor.documents import JsonObject, batch_of
from lakefeed.monitor.events import Event
from lakefeed.monitor.lag import PartitionLag, per_second, rounded
from lakefeed.monitor.model import FeedProgress, FinishedBatch, iso

MOST_POINTS = 60
NOT_WELL = ("failed", "killed", "hangs", "no answer", "replaced", "probably stopped", "unknown")
"""States that need a look, the worst first."""


@dataclass(frozen=True)
class TrendPoint:
    """The rate and the lag at one time; None if unknown."""

    at: float
    rate: float | None
    lag: float | None


class Trend:
    """The newest points of a feed: a history at first, then batch by batch."""

    def __init__(self) -> None:
        self._points: deque[TrendPoint] = deque(maxlen=MOST_POINTS)
        self.batches: deque[FinishedBatch] = deque(maxlen=MOST_POINTS)
        self.has_history = False

    def add_history(self, document: Mapping[str, Any]) -> None:
        """Take the answer of ``history``."""
        found = JsonObject(document)
        self.has_history = True
        self._points.clear()
        self.batches.clear()
        for point in found.parts("points"):
            at, records, seconds = point.time("at"), point.whole("records") or 0, point.number("seconds") or 0.0
            if at is not None:
                self._points.append(TrendPoint(at, per_second(records, seconds), point.number("lag")))
        self.batches.extend(batch for part in found.parts("batches") if (batch := batch_of(part)) is not None)

    def add(self, batch: FinishedBatch | None) -> None:
        """Take the newest batch, unless it is known."""
        if batch is None or (self._points and batch.finished_at <= self._points[-1].at + 0.001):
            return
        self._points.append(TrendPoint(batch.finished_at, batch.processing_rate, batch.lag))
        self.batches.append(batch)

    @property
    def points(self) -> tuple[TrendPoint, ...]:
        return tuple(self._points)


@dataclass(frozen=True, kw_only=True)
class SeenFeed:
    """A feed at one look.

    Attributes:
        key: what makes it this one among all that are shown.
        state: the driver's, or what is likely; ``no answer`` of a driver that has not answered within the limit.
        note: why the state is so, if that is not plain.
        since: when its run began.
        progress: the driver's answer; None without one.
        rate: records a second.
    """

    key: str
    name: str
    state: str
    sink: str = ""
    note: str = ""
    driver: str = ""
    since: float | None = None
    progress: FeedProgress | None = None
    rate: float | None = None
    lag: int | None = None
    lag_seconds: float | None = None
    batch: int | None = None
    last_commit_at: float | None = None
    last_error: str = ""
    partitions: tuple[PartitionLag, ...] = ()
    points: tuple[TrendPoint, ...] = ()
    batches: tuple[FinishedBatch, ...] = ()
    events: tuple[Event, ...] = field(default=(), repr=False)

    @property
    def is_well(self) -> bool:
        return self.state not in NOT_WELL

    @property
    def dead_letters(self) -> int | None:
        return None if self.progress is None else self.progress.totals.dead_letters

    @property
    def requests(self) -> int | None:
        """Requests to S3 of the newest batch."""
        batch = self.progress.last_batch if self.progress else None
        return batch.requests.total if batch and batch.requests else None

    def as_dict(self) -> dict[str, Any]:
        """Return the document of ``lakefeed top --output json``: docs/monitor-documents.md lists the keys."""
        return {
            "feed": self.name,
            "sink": self.sink,
            "state": self.state,
            "note": self.note,
            "driver": self.driver or None,
            "since": iso(self.since),
            "rate": rounded(self.rate),
            "lag": self.lag,
            "lag_seconds": rounded(self.lag_seconds),
            "batch": self.batch,
            "last_commit_at": iso(self.last_commit_at),
            "dead_letters": self.dead_letters,
            "requests": self.requests,
            "last_error": self.last_error or None,
            "points": [{"at": iso(point.at), "rate": rounded(point.rate), "lag": point.lag} for point in self.points],
        }


def answered(
    progress: FeedProgress, *, key: str, trend: Trend, note: str = "", events: Iterable[Event] = ()
) -> SeenFeed:
    """Return a feed whose driver has answered."""
    last = progress.last_batch
    trend.add(last)
    return SeenFeed(
        key=key,
        name=progress.feed,
        state="hangs" if progress.hangs else progress.state,
        sink=progress.sink,
        note=note,
        driver=f"process {progress.driver.pid} on {progress.driver.host}",
        since=progress.started_at,
        progress=progress,
        rate=progress.rate,
        lag=progress.lag,
        lag_seconds=progress.lag_seconds,
        batch=last.batch_id if last else None,
        last_commit_at=progress.last_commit_at,
        last_error=progress.last_error.text if progress.last_error else "",
        partitions=progress.partitions,
        points=trend.points,
        batches=tuple(trend.batches),
        events=tuple(events),
    )
