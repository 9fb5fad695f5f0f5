"""One feed at one moment, as its metrics read it; texts from outside become safe values of labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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
"""A topic's name fits whole."""
PARTITIONS = 200

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, kw_only=True)
class MetricSettings:
    """The settings of metrics and health.

    Attributes:
        partitions: so many partitions have series of their own.
        no_commit_seconds: a feed for which records wait has stalled after so long without a commit; None for never.
    """

    partitions: int = PARTITIONS
    no_commit_seconds: float | None = NO_COMMIT_SECONDS

    @classmethod
    def of(cls, config: PipelineBlocks) -> MetricSettings:
        """Read the pipeline file."""
        seconds = config.metrics.no_commit_seconds(config.trigger)
        return cls(partitions=config.metrics.partitions, no_commit_seconds=seconds)


@dataclass(frozen=True, kw_only=True)
class FeedReading:
    """One feed at one moment."""

    progress: FeedProgress
    counters: RunCounters
    settings: MetricSettings = field(default_factory=MetricSettings)

    @classmethod
    def of(cls, monitor: FeedMonitor, settings: MetricSettings | None = None) -> FeedReading:
        """Read a monitor."""
        progress, counters = monitor.counted()
        return cls(progress=progress, counters=counters, settings=settings or MetricSettings())

    @property
    def health(self) -> FeedHealth:
        """The feed's health."""
        return self.progress.health(no_commit_seconds=self.settings.no_commit_seconds)

    @property
    def shown_partitions(self) -> tuple[PartitionLag, ...]:
        """The partitions that have series: always the same ones, so that the number of series is bounded over time."""
        return self.progress.partitions[: self.settings.partitions]


@dataclass(frozen=True)
class Buckets:
    """A histogram: counts by upper bound, each with those before it; the last bound is infinite."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float
    least: float
    greatest: float

    @property
    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Each bound with the number of values up to it."""
        total = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            yield bound, total


Labels = tuple[str, ...]
Values = Iterable[tuple[Labels, "float | Buckets | None"]]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric.

    Attributes:
        name: as Prometheus stores it; a counter's ends in ``_total``.
        labels: besides ``feed``, in the order of the values that ``read`` yields.
        read: yields the values of a feed by labels; without a value there is no series.
        is_bounded: the number of series does not grow with the topics.
    """

    name: str
    kind: Kind
    help: str
    read: Callable[[FeedReading], Values]
    labels: Labels = ()
    is_bounded: bool = True

    @property
    def unit(self) -> str:
        """The base unit, from the name; empty for counts."""
        last = self.name.removesuffix("_total").rsplit("_", 1)[-1]
        return last if last in ("seconds", "bytes") else ""

    def values(self, reading: FeedReading) -> dict[Labels, float | Buckets]:
        """Return the values of a feed by labels that are safe to show; of two with the same labels the first."""
        found: dict[Labels, float | Buckets] = {}
        for labels, value in self.read(reading):
            if value is not None:
                found.setdefault(tuple(map(label_value, labels)), value)
        return found


def label_value(text: str) -> str:
    """Return a text as the value of a label: no secrets, nothing that does not print, and not longer than a topic."""
    if text.isdecimal():
        return text
    safe = printable(" ".join(redacted(text).split()))
    return safe if len(safe) <= LONGEST_LABEL else f"{safe[: LONGEST_LABEL - 1]}…"


def one(read: Callable[[FeedReading], float | None]) -> Callable[[FeedReading], Values]:
    """Read a metric without further labels."""
    return lambda reading: [((), read(reading))]


def by_name(read: Callable[[FeedReading], Mapping[str, float]]) -> Callable[[FeedReading], Values]:
    """Read a metric with one further label."""
    return lambda reading: [((name,), value) for name, value in read(reading).items()]


def by_partition(read: Callable[[PartitionLag], float | None]) -> Callable[[FeedReading], Values]:
    """Read a metric of each partition that has series."""
    return lambda reading: [
        ((partition.topic, str(partition.partition)), read(partition)) for partition in reading.shown_partitions
    ]


def timestamp(text: str | None) -> float | None:
    """Return a time in ISO 8601 as seconds since 1970; None if it is none."""
    try:
        return None if text is None else datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
