"""Sets of offsets: unite, subtract, intersect and cut ranges."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise, zip_longest

from lakefeed.offsets.ranges import OffsetRange, Partition


def union(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the same offsets in as few ranges as possible, sorted; ranges may overlap."""
    whole: list[OffsetRange] = []
    for span in sorted(span for span in ranges if span.records):
        if whole and whole[-1].key == span.key and span.start <= whole[-1].end:
            last = whole.pop()
            span = last.cut(last.start, max(last.end, span.end))
        whole.append(span.cut(span.start, span.end))
    return whole


def difference(ranges: Iterable[OffsetRange], taken: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the offsets of ``ranges`` that are in none of ``taken``, in as few ranges as possible, sorted."""
    cuts = _group(union(taken))
    left: list[OffsetRange] = []
    for span in union(ranges):
        at = span.start
        for cut in cuts.get(span.key, ()):
            if at < (end := min(cut.start, span.end)):
                left.append(span.cut(at, end))
            at = max(at, cut.end)
        if at < span.end:
            left.append(span.cut(at, span.end))
    return left


def intersection(ranges: Iterable[OffsetRange], others: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the offsets that are in both, in as few ranges as possible, sorted."""
    ranges = union(ranges)
    return difference(ranges, difference(ranges, others))


class Offsets:
    """Offsets that can be asked for one by one."""

    def __init__(self, ranges: Iterable[OffsetRange]) -> None:
        self._ranges = _group(union(ranges))

    def has(self, topic: str, partition: int, offset: int) -> bool:
        """Check that one of the ranges holds it."""
        here = self._ranges.get((topic, partition), [])
        number = bisect_right(here, offset, key=lambda span: span.start)
        return number > 0 and offset < here[number - 1].end


def overlapping(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, OffsetRange] | None:
    """Return two of the ranges that share an offset; None if there are none."""
    for here in _group(ranges).values():
        for first, second in pairwise(here):
            if second.start < first.end:
                return first, second
    return None


def layers(ranges: Iterable[OffsetRange]) -> list[list[OffsetRange]]:
    """Group the ranges so that each group has a partition at most once, as Spark's Kafka source takes them."""
    return [[span for span in layer if span is not None] for layer in zip_longest(*_group(ranges).values())]


def portions(ranges: Iterable[OffsetRange], size: int) -> Iterator[list[OffsetRange]]:
    """Cut ranges into portions: each of at most ``size`` offsets, and of each partition at most one range."""
    queues = {key: here[::-1] for key, here in _group(union(ranges)).items()}
    while queues:
        room, portion = size, []
        # The partition with the fewest offsets first, so that others get what it leaves of its share.
        shortest_first = sorted(queues, key=lambda key: queues[key][-1].records)
        for left, key in zip(range(len(queues), 0, -1), shortest_first, strict=True):
            first = queues[key][-1]
            count = min(first.records, -(-room // left))
            if not count:
                continue
            room -= count
            middle = first.start + count
            portion.append(first.cut(first.start, middle))
            queues[key].pop()
            if middle < first.end:
                queues[key].append(first.cut(middle, first.end))
        queues = {key: queue for key, queue in queues.items() if queue}
        yield sorted(portion)


def _group(ranges: Iterable[OffsetRange]) -> dict[Partition, list[OffsetRange]]:
    """Group the ranges by partition, without empty ones, in order."""
    found: dict[Partition, list[OffsetRange]] = defaultdict(list)
    for span in sorted(ranges):
        if span.records:
            found[span.key].append(span)
    return dict(found)
