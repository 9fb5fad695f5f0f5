"""Computes the next offset ranges of a table."""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.clients.kafka.topics import TopicDescription
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges


def backlog(position: Mapping[int, int], topic: TopicDescription, *, until: Mapping[int, int] | None = None) -> int:
    """Count the offsets that the table has not read yet.

    Args:
        position: where the table stands, by partition; one that is missing begins at the topic's first offset.
        topic: as it is now.
        until: not beyond these. Default: up to the topic's end.
    """
    return sum(_lags(position, topic, until).values())


def next_ranges(
    position: Mapping[int, int], topic: TopicDescription, *, limit: int, until: Mapping[int, int] | None = None
) -> OffsetRanges:
    """Return the ranges of the next batch: each partition gets its share of the limit, and at least one offset.

    Args:
        position: where the table stands, by partition; one that is missing begins at the topic's first offset.
        topic: as it is now.
        limit: so many offsets at most, but for one of each partition.
        until: not beyond these. Default: up to the topic's end.
    """
    lags = _lags(position, topic, until)
    total = sum(lags.values())
    ranges = []
    for each in topic.partitions:
        start = position.get(each.id, each.start_offset)
        lag = lags[each.id]
        share = lag if total <= limit else min(lag, max(1, limit * lag // total))
        ranges.append(OffsetRange(topic.name, each.id, start, start + share))
    return OffsetRanges(tuple(ranges), {topic.name: topic.topic_id})


def _lags(position: Mapping[int, int], topic: TopicDescription, until: Mapping[int, int] | None) -> dict[int, int]:
    ends = {each.id: each.end_offset for each in topic.partitions}
    if until is not None:
        ends = {number: min(end, until.get(number, end)) for number, end in ends.items()}
    return {each.id: max(0, ends[each.id] - position.get(each.id, each.start_offset)) for each in topic.partitions}
