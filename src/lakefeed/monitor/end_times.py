"""Since when an offset has been in its partition, as a driver can know it."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field

MOST_MARKS = 120
"""Observations that are remembered of one partition: 2 kB."""


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
