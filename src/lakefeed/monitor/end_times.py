"""Estimates since when an offset has been in its partition, from the ends that a driver observes."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field

MOST_MARKS = 120
"""The maximum number of observations of one partition: 2 kB."""


@dataclass
class EndTimes:
    """Stores when end offsets of a partition were first observed, to say since when an offset has been there.

    A driver gets its topics' ends at every batch without a request, but no times of records that it has not read. So a
    record counts from the first observation that includes it: its computed age is too low by at most the time between
    two observations, and never too high. To limit memory, every second of many observations is dropped.
    """

    _times: array[float] = field(default_factory=lambda: array("d"))
    _ends: array[int] = field(default_factory=lambda: array("q"))

    def observe(self, end: int, *, at: float) -> None:
        """Add an observation; start over if the end is lower than before, since the topic was then recreated."""
        if self._ends and end < self._ends[-1]:
            del self._times[:], self._ends[:]
        # A batch reports the topic's end of the time when it was planned, which may be before the last observation.
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
        """Return the minimum number of seconds that the record at this offset has been there.

        0 if it is not there yet; None if it was there at the first observation.
        """
        if not self._ends or offset < self._ends[0]:
            return None
        found = bisect_left(self._ends, offset + 1)
        return max(0.0, now - self._times[found]) if found < len(self._ends) else 0.0
