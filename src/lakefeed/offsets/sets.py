"""Sets of offsets: unite, subtract, intersect and cut ranges."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator

from lakefeed.offsets.ranges import OffsetRange, Partition


def by_partition(ranges: Iterable[OffsetRange]) -> dict[Partition, list[OffsetRange]]:
    """Group the ranges by partition, without empty ones, in order."""
    found: dict[Partition, list[OffsetRange]] = defaultdict(list)
    for each in sorted(ranges):
        if each.records:
            found[each.topic, each.partition].append(each)
    return dict(found)


def united(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the same offsets in as few ranges as possible, sorted; ranges may overlap."""
    whole: list[OffsetRange] = []
    for (topic, partition), here in by_partition(ranges).items():
        start, end = here[0].start, here[0].end
        for each in here[1:]:
            if each.start > end:
                whole.append(OffsetRange(topic, partition, start, end))
                start = each.start
            end = max(end, each.end)
        whole.append(OffsetRange(topic, partition, start, end))
    return sorted(whole)


def subtracted(ranges: Iterable[OffsetRange], taken: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the offsets of ``ranges`` that are in none of ``taken``, in as few ranges as possible, sorted."""
    cuts = by_partition(united(taken))
    left: list[OffsetRange] = []
    for each in united(ranges):
        at = each.start
        for cut in cuts.get((each.topic, each.partition), ()):
            if cut.end <= at or cut.start >= each.end:
                continue
            if cut.start > at:
                left.append(OffsetRange(each.topic, each.partition, at, cut.start))
            at = cut.end
        if at < each.end:
            left.append(OffsetRange(each.topic, each.partition, at, each.end))
    return left


def common(ranges: Iterable[OffsetRange], others: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the offsets that are in both, in as few ranges as possible, sorted."""
    ranges = united(ranges)
    return subtracted(ranges, subtracted(ranges, others))


class Offsets:
    """Offsets that can be asked for one by one."""

    def __init__(self, ranges: Iterable[OffsetRange]) -> None:
        self._ranges = by_partition(united(ranges))

    def has(self, topic: str, partition: int, offset: int) -> bool:
        """Check that one of the ranges holds it."""
        here = self._ranges.get((topic, partition), [])
        number = bisect_right(here, offset, key=lambda each: each.start)
        return number > 0 and offset < here[number - 1].end


def overlapping(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, OffsetRange] | None:
    """Return two of the ranges that share an offset; None if there are none."""
    for here in by_partition(ranges).values():
        for number, each in enumerate(here[1:]):
            if each.start < here[number].end:
                return here[number], each
    return None


def layers(ranges: Iterable[OffsetRange]) -> list[list[OffsetRange]]:
    """Group the ranges so that each group has a partition at most once, as Spark's Kafka source takes them."""
    found: list[list[OffsetRange]] = []
    for here in by_partition(ranges).values():
        for number, each in enumerate(here):
            if number == len(found):
                found.append([])
            found[number].append(each)
    return found


def portions(ranges: Iterable[OffsetRange], size: int) -> Iterator[list[OffsetRange]]:
    """Cut ranges into portions: each of at most ``size`` offsets, and of each partition at most one range."""
    queues = {key: here[::-1] for key, here in by_partition(united(ranges)).items()}
    while queues:
        room, portion = size, []
        for left, key in zip(
            range(len(queues), 0, -1), sorted(queues, key=lambda each: queues[each][-1].records), strict=True
        ):
            first = queues[key][-1]
            count = min(first.records, -(-room // left))
            if not count:
                continue
            room -= count
            middle = first.start + count
            portion.append(OffsetRange(first.topic, first.partition, first.start, middle))
            queues[key].pop()
            if middle < first.end:
                queues[key].append(OffsetRange(first.topic, first.partition, middle, first.end))
        queues = {key: queue for key, queue in queues.items() if queue}
        yield sorted(portion)
