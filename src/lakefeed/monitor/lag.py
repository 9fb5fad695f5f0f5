"""Lag of one partition, in records and in seconds: not read yet, and read but not committed."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

MOST_MARKS = 120
"""Observations that are remembered of one partition: 2 kB."""


@dataclass(frozen=True, kw_only=True)
class PartitionLag:
    """The position of a reader in one partition; None for what is not known.

    Attributes:
        end: one more than the newest offset in the topic.
        read: one more than the last offset that was read.
        committed: one more than the last offset that the sink, or the group, has committed.
        unread_seconds: the age of the oldest record that was not read; 0 if there is none.
        uncommitted_seconds: the age of the oldest record that was not committed; 0 if there is none.
    """

    topic: str
    partition: int
    end: int | None = None
    read: int | None = None
    committed: int | None = None
    unread_seconds: float | None = None
    uncommitted_seconds: float | None = None

    @property
    def unread(self) -> int | None:
        """Offsets that were not read yet; compaction and transactions leave some without a record."""
        return difference(self.end, self.committed if self.read is None else self.read)

    @property
    def uncommitted(self) -> int | None:
        """Offsets that were read and are not committed."""
        return None if self.read is None else difference(self.read, self.committed)

    @property
    def lag(self) -> int | None:
        """Offsets that are not committed, read or not."""
        return difference(self.end, self.read if self.committed is None else self.committed)

    @property
    def seconds(self) -> float | None:
        """The age of the oldest record that is not committed."""
        return 0.0 if self.lag == 0 else self.uncommitted_seconds

    def as_dict(self) -> dict[str, Any]:
        """Return the partition for JSON: docs/monitor-documents.md lists the keys."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "end": self.end,
            "read": self.read,
            "committed": self.committed,
            "unread": self.unread,
            "uncommitted": self.uncommitted,
            "lag": self.lag,
            "unread_seconds": rounded(self.unread_seconds),
            "uncommitted_seconds": rounded(self.uncommitted_seconds),
        }


def difference(end: int | None, start: int | None) -> int | None:
    """Count the offsets from one position to a later one; 0 if the later one is behind, None if one is unknown."""
    return None if end is None or start is None else max(0, end - start)


def total(lags: Iterable[int | None]) -> int | None:
    """Add up lags; None if one of them is unknown."""
    found = list(lags)
    return None if None in found else sum(lag for lag in found if lag is not None)


def longest(ages: Iterable[float | None]) -> float | None:
    """Return the greatest age; None if one of them is unknown, which may be greater, or if there are none."""
    found = list(ages)
    return None if None in found else max((age for age in found if age is not None), default=None)


def per_second(count: int, seconds: float) -> float:
    """Return a rate; 0 for what took no time."""
    return count / seconds if seconds > 0 else 0.0


def seconds_left(lag: int | None, done: int, seconds: float) -> float | None:
    """Return how long a lag takes at the rate of ``done`` offsets in ``seconds``; None if that is unknown."""
    if not lag:
        return None if lag is None else 0.0
    return lag * seconds / done if done > 0 and seconds > 0 else None


def rounded(seconds: float | None) -> float | None:
    """Round seconds for JSON to milliseconds."""
    return None if seconds is None else round(seconds, 3)


@dataclass
class EndTimes:
    """Remembers when a partition was first seen to reach which end offset, to say since when an offset is there.

    A driver knows the ends of its topics at each batch without a request, but no time of a record that it has not read.
    So a record counts from the first look that has found it: its age is never above the true one, and below it by at
    most the time between two looks. The memory is bounded: of many observations every second one is forgotten.
    """

    _times: array[float] = field(default_factory=lambda: array("d"))
    _ends: array[int] = field(default_factory=lambda: array("q"))

    def observe(self, end: int, *, at: float) -> None:
        """Add an observation; a topic that ends earlier than before was recreated: it starts over."""
        if self._ends and end < self._ends[-1]:
            del self._times[:], self._ends[:]
        # A batch reports late how far the topic reached when it was planned.
        while self._times and self._times[-1] >= at:
            del self._times[-1], self._ends[-1]
        if self._ends and self._ends[-1] == end:
            return
        self._times.append(at)
        self._ends.append(end)
        if len(self._ends) > MOST_MARKS:
            self._times = self._times[:1] + self._times[1:-1:2] + self._times[-1:]
            self._ends = self._ends[:1] + self._ends[1:-1:2] + self._ends[-1:]

    def reaches(self, end: int, *, at: float) -> None:
        """Note that the topic has at least the offsets before this end."""
        if self._ends and end > self._ends[-1]:
            self.observe(end, at=at)

    def age(self, offset: int, *, now: float) -> float | None:
        """Return for how many seconds at least the record at this offset has been there.

        0 if it is not there yet; None if it was there before the first observation.
        """
        if not self._ends or offset < self._ends[0]:
            return None
        found = bisect_left(self._ends, offset + 1)
        return max(0.0, now - self._times[found]) if found < len(self._ends) else 0.0
