"""Estimates the age of records from the partitions' end offsets, which a driver gets at each batch."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field

MOST_MARKS = 120
"""The largest number of observations of one partition; they take 2 kB."""


@dataclass
class EndTimes:
    """The times at which a driver first observed end offsets of a partition.

    A driver gets the end offsets without a request, but no times of unread records. So the age of a record counts from
    the first observation that includes the record. The age is never too high, and too low by at most the time between
    two observations. If there are too many observations, every second one is dropped.
    """

    _times: array[float] = field(default_factory=lambda: array("d"))
    _ends: array[int] = field(default_factory=lambda: array("q"))

    def observe(self, end: int, *, at: float) -> None:
        """Add an observation; if the end is lower than before, the topic was recreated, so drop all older ones."""
        if self._ends and end < self._ends[-1]:
            del self._times[:], self._ends[:]
        # A batch reports the end offset at the time of its planning: drop the observations after this time.
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
        """Note that the topic has at least the offsets before ``end``."""
        if self._ends and end > self._ends[-1]:
            self.observe(end, at=at)

    def age(self, offset: int, *, now: float) -> float | None:
        """Return the least possible age of the record at ``offset``; 0 if the topic has no such record yet.

        None if the first observation already includes the record, which may have any age then.
        """
        if not self._ends or offset < self._ends[0]:
            return None
        first = bisect_left(self._ends, offset + 1)
        return max(0.0, now - self._times[first]) if first < len(self._ends) else 0.0
