"""The state of a feed on the screen: its driver's answer, or the likely state that the ledger shows, and a trend."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from pydantic import Field, computed_field

from lakefeed.feed.events import Event
from lakefeed.feed.progress import FinishedBatch
from lakefeed.json_model import JsonModel, Seconds, Time
from lakefeed.monitor.history import RunHistory
from lakefeed.monitor.model import FeedProgress, PartitionLag

MOST_POINTS = 60
NOT_WELL = ("failed", "killed", "hangs", "no answer", "replaced", "probably stopped", "unknown")
"""States that need attention, the worst first."""


class TrendPoint(JsonModel):
    """The rate and the lag at one time; None if unknown."""

    at: Time
    rate: Seconds | None
    lag: float | None


class Trend:
    """The newest points of a feed: first those of the driver's history, then one point per batch."""

    def __init__(self) -> None:
        self._points: deque[TrendPoint] = deque(maxlen=MOST_POINTS)
        self.batches: deque[FinishedBatch] = deque(maxlen=MOST_POINTS)
        self.has_history = False

    def add_history(self, history: RunHistory) -> None:
        self.has_history = True
        self._points.clear()
        self.batches.clear()
        self._points.extend(TrendPoint(at=point.at, rate=point.rate, lag=point.lag) for point in history.points)
        self.batches.extend(history.batches)

    def add(self, batch: FinishedBatch | None) -> None:
        """Add a batch, unless the trend contains the batch already."""
        if batch is None or (self._points and batch.finished_at <= self._points[-1].at + 0.001):
            return
        self._points.append(TrendPoint(at=batch.finished_at, rate=batch.processing_rate, lag=batch.lag))
        self.batches.append(batch)

    @property
    def points(self) -> tuple[TrendPoint, ...]:
        return tuple(self._points)


class SeenFeed(JsonModel):
    """The state of a feed at one time, which ``lakefeed top --output json`` prints; docs/metrics.md lists the keys.

    Attributes:
        key: unique among all feeds on the screen.
        state: the driver's state, or the likely state by the ledger; ``no answer`` if the driver does not answer.
        note: the reason for the state, if it is not obvious.
        since: when the run began.
        progress: the driver's answer; None if the driver has not answered.
        rate: records per second.
    """

    key: str = Field(exclude=True)
    name: str = Field(alias="feed")
    state: str
    sink: str = ""
    note: str = ""
    driver: str | None = None
    since: Time | None = None
    rate: Seconds | None = None
    lag: int | None = None
    lag_seconds: Seconds | None = None
    batch: int | None = None
    last_commit_at: Time | None = None
    last_error: str | None = None
    points: tuple[TrendPoint, ...] = ()
    progress: FeedProgress | None = Field(None, exclude=True)
    partitions: tuple[PartitionLag, ...] = Field((), exclude=True)
    batches: tuple[FinishedBatch, ...] = Field((), exclude=True)
    events: tuple[Event, ...] = Field((), exclude=True, repr=False)

    @property
    def is_well(self) -> bool:
        return self.state not in NOT_WELL

    @computed_field  # type: ignore[prop-decorator]
    @property
    def dead_letters(self) -> int | None:
        return None if self.progress is None else self.progress.totals.dead_letters

    @computed_field  # type: ignore[prop-decorator]
    @property
    def requests(self) -> int | None:
        """S3 requests of the newest batch."""
        batch = self.progress.last_batch if self.progress else None
        return batch.requests.total if batch and batch.requests else None


def answered(progress: FeedProgress, *, key: str, trend: Trend, events: Iterable[Event]) -> SeenFeed:
    """Return the state of a feed by its driver's answer; add the newest batch to the trend."""
    last = progress.last_batch
    trend.add(last)
    return SeenFeed(
        key=key,
        name=progress.feed,
        state="hangs" if progress.hangs else progress.state,
        sink=progress.sink,
        driver=f"process {progress.driver.pid} on {progress.driver.host}",
        since=progress.started_at,
        progress=progress,
        rate=progress.rate,
        lag=progress.lag,
        lag_seconds=progress.lag_seconds,
        batch=last.batch_id if last else None,
        last_commit_at=progress.last_commit_at,
        last_error=progress.last_error.text if progress.last_error else None,
        partitions=progress.partitions,
        points=trend.points,
        batches=tuple(trend.batches),
        events=tuple(events),
    )
