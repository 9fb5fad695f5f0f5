"""Counts the work of a run, and estimates records' ages from the end offsets that a driver gets at each batch."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lakefeed.feed.progress import FinishedBatch
from lakefeed.monitor.model import RunTotals

DURATION_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Upper bounds of the histogram of durations, in seconds."""
MOST_REASONS = 20
"""The most dead-letter reasons that are counted separately: the data decide how many different reasons there are."""
OTHER = "other"
UNCLASSED = "unknown"

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, kw_only=True)
class RunCounters:
    """Sums over the batches of a run.

    Attributes:
        totals: the sums that ``FeedProgress.totals`` also has.
        published: the number of publications of the table's branch.
        audits_failed: the number of audits that prevented a publication while the feed continued.
        seconds: the duration of all batches.
        durations: the number of batches for each of ``DURATION_BOUNDS``, and for longer durations.
        requests: S3 requests by class of keys.
        reasons: dead letters by reason; after ``MOST_REASONS`` reasons, further reasons are counted as ``OTHER``.
    """

    totals: RunTotals = field(default_factory=RunTotals)
    replayed: int = 0
    errors: int = 0
    published: int = 0
    audits_failed: int = 0
    over_budget: int = 0
    late_rows: int = 0
    data_files: int = 0
    request_errors: int = 0
    bytes_out: int = 0
    bytes_in: int = 0
    seconds: float = 0.0
    shortest: float = float("inf")
    longest: float = 0.0
    durations: tuple[int, ...] = (0,) * (len(DURATION_BOUNDS) + 1)
    phases: Mapping[str, float] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)

    def plus(self, batch: FinishedBatch) -> RunCounters:
        requests, seconds = batch.requests, max(0.0, batch.seconds)
        at = bisect_left(DURATION_BOUNDS, seconds)
        return replace(
            self,
            totals=self.totals.plus(batch),
            replayed=self.replayed + batch.replayed,
            over_budget=self.over_budget + (requests is not None and requests.over_budget),
            late_rows=self.late_rows + (batch.state.late_rows or 0),
            data_files=self.data_files + (requests.data_files if requests else 0),
            request_errors=self.request_errors + (requests.errors if requests else 0),
            bytes_out=self.bytes_out + (requests.bytes_out if requests else 0),
            bytes_in=self.bytes_in + (requests.bytes_in if requests else 0),
            seconds=self.seconds + seconds,
            shortest=min(self.shortest, seconds),
            longest=max(self.longest, seconds),
            durations=tuple(count + (place == at) for place, count in enumerate(self.durations)),
            phases=_sums(self.phases, batch.phases),
            requests=_sums(self.requests, _by_class(batch)),
            reasons=_sums(self.reasons, self._bounded_reasons(batch)),
        )

    def _bounded_reasons(self, batch: FinishedBatch) -> dict[str, int]:
        """Return the batch's dead letters by reason; letters with reasons beyond the limit are under ``OTHER``."""
        known, counts = set(self.reasons) - {OTHER}, dict[str, int]()
        for reason in batch.reasons:
            if len(known) < MOST_REASONS:
                known.add(reason.reason)
            text = reason.reason if reason.reason in known else OTHER
            counts[text] = counts.get(text, 0) + reason.count
        if (rest := batch.dead_letters - sum(counts.values())) > 0:
            counts[OTHER] = counts.get(OTHER, 0) + rest
        return counts


def _by_class(batch: FinishedBatch) -> dict[str, int]:
    if batch.requests is None:
        return {}
    rest = batch.requests.total - sum(batch.requests.by_class.values())
    return {**batch.requests.by_class, **({UNCLASSED: rest} if rest > 0 else {})}


def _sums(before: Mapping[str, Number], more: Mapping[str, Number]) -> dict[str, Number]:
    return {name: before.get(name, 0) + max(0, more.get(name, 0)) for name in {**before, **more}}


MOST_MARKS = 120
"""The most observations of one partition in memory; they take 2 kB."""


@dataclass
class EndTimes:
    """The times at which a driver first observed end offsets of a partition.

    A driver gets the end offsets without a further request, but no times of unread records. So a record's age is
    counted from the first observation that includes the record. This age is never too high, and it is too low by at
    most the time between two observations. If there are too many observations, every second one is dropped.
    """

    _times: array[float] = field(default_factory=lambda: array("d"))
    _ends: array[int] = field(default_factory=lambda: array("q"))

    def observe(self, end: int, *, at: float) -> None:
        """Add an observation. If the end is lower than before, the topic was recreated: drop all older observations."""
        if self._ends and end < self._ends[-1]:
            del self._times[:], self._ends[:]
        # A batch reports the end offset of the moment when it was planned: drop the observations after that moment.
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
        """Record that the partition has at least the offsets before ``end``."""
        if self._ends and end > self._ends[-1]:
            self.observe(end, at=at)

    def age(self, offset: int, *, now: float) -> float | None:
        """Return the least possible age of the record at ``offset``; 0 if the topic has no such record yet.

        None if the first observation already includes the record, because the record may have any age then.
        """
        if not self._ends or offset < self._ends[0]:
            return None
        first = bisect_left(self._ends, offset + 1)
        return max(0.0, now - self._times[first]) if first < len(self._ends) else 0.0
