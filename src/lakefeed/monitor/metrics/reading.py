"""The progress and counts of a feed from which its metrics are read, and safe values of labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from lakefeed.config.blocks import PipelineBlocks
from lakefeed.config.operation import NO_COMMIT_SECONDS
from lakefeed.messages.printable import printable
from lakefeed.messages.redaction import redacted
from lakefeed.monitor.counters import RunCounters
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.model import FeedHealth, FeedProgress, PartitionLag

LONGEST_LABEL = 250
"""The longest value of a label; the longest name of a topic is shorter."""
PARTITIONS = 200


@dataclass(frozen=True, kw_only=True)
class MetricSettings:
    """The settings of metrics and health.

    Attributes:
        partitions: the number of partitions that have their own series.
        no_commit_seconds: the time without a commit after which a feed with lag has stalled; None for never.
    """

    partitions: int = PARTITIONS
    no_commit_seconds: float | None = NO_COMMIT_SECONDS

    @classmethod
    def of(cls, config: PipelineBlocks) -> MetricSettings:
        seconds = config.metrics.no_commit_seconds(config.trigger)
        return cls(partitions=config.metrics.partitions, no_commit_seconds=seconds)


@dataclass(frozen=True, kw_only=True)
class FeedReading:
    """The progress, counts and settings of one feed at one moment."""

    progress: FeedProgress
    counters: RunCounters
    settings: MetricSettings = field(default_factory=MetricSettings)

    @classmethod
    def of(cls, monitor: FeedMonitor, settings: MetricSettings | None = None) -> FeedReading:
        progress, counters = monitor.counted()
        return cls(progress=progress, counters=counters, settings=settings or MetricSettings())

    @property
    def health(self) -> FeedHealth:
        return self.progress.health(no_commit_seconds=self.settings.no_commit_seconds)

    @property
    def shown_partitions(self) -> tuple[PartitionLag, ...]:
        """The partitions that have their own series: always the same ones, so that the number of series is limited."""
        return self.progress.partitions[: self.settings.partitions]


@dataclass(frozen=True)
class Buckets:
    """A histogram: ``counts`` has the number of values per interval between bounds; the last one has no end."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float
    least: float
    greatest: float

    @property
    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield the bounds with the number of values up to them."""
        total = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            yield bound, total


Labels = tuple[str, ...]
Value = float | Buckets | None
Reader = Callable[["FeedReading"], Value | Mapping[Labels, float | None]]
"""Returns a metric's value, or its values by their labels; a value of None makes no series."""


@dataclass(frozen=True)
class Metric:
    """One metric of a feed.

    Attributes:
        name: the name in Prometheus; a counter's name ends in ``_total``.
        labels: the names of the labels after ``feed``, in the order of the labels that ``read`` returns.
        is_bounded: whether the number of series does not grow with the topics.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    read: Reader
    labels: Labels = ()
    is_bounded: bool = True

    @property
    def unit(self) -> str:
        """The base unit at the end of the name; empty for counts."""
        last = self.name.removesuffix("_total").rsplit("_", 1)[-1]
        return last if last in ("seconds", "bytes") else ""

    def values(self, reading: FeedReading) -> dict[Labels, float | Buckets]:
        """Return the values of a feed by safe labels; of two series that get the same labels, keep only the first."""
        value = self.read(reading)
        values: Mapping[Labels, Value] = value if isinstance(value, Mapping) else {(): value}
        safe: dict[Labels, float | Buckets] = {}
        for labels, each in values.items():
            if each is not None:
                safe.setdefault(tuple(map(label_value, labels)), each)
        return safe


def label_value(text: str) -> str:
    """Return a text as a label's value: without secrets and unprintable characters, and not too long."""
    if text.isdecimal():
        return text
    safe = printable(" ".join(redacted(text).split()))
    return safe if len(safe) <= LONGEST_LABEL else f"{safe[: LONGEST_LABEL - 1]}…"


def timestamp(text: str | None) -> float | None:
    """Return an ISO 8601 time in seconds since 1970; None for other texts."""
    try:
        return None if text is None else datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
