"""Predict the offsets of a run's first batch, and how many batches land what the topics hold now."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from lakefeed.clients.kafka.topics import TopicDescription
from lakefeed.feed.multi_table.table import next_ranges
from lakefeed.feed.recovery import Start, ends
from lakefeed.ledger.checkpoint_state import CheckpointState
from lakefeed.ledger.feed_position import Position
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition

MOST_BATCHES = 1_000
"""So many are gone through one by one; those beyond are counted as full ones."""

Spread = Callable[[tuple[OffsetRange, ...]], tuple[OffsetRange, ...]]
"""From the ranges that are left to the part of them that the next batch takes."""


@dataclass(frozen=True, kw_only=True)
class Begin:
    """The place where a run begins.

    Attributes:
        positions: where each partition resumes after ``again``.
        again: a batch whose offsets were decided before; None if there is none, or they are not known.
        again_is_landed: whether the sink has it already, and it is left out.
    """

    batch_id: int
    positions: Mapping[Partition, int]
    again: OffsetRanges | None = None
    again_is_landed: bool = False


@dataclass(frozen=True, kw_only=True)
class Batches:
    """The batches that land what is there now.

    Attributes:
        first: the offset ranges of the first one that lands something, empty ones included.
        backlog: all that is to be landed.
        reads: partitions with records, added up over all batches: as many tasks read them.
    """

    first: tuple[OffsetRange, ...]
    backlog: tuple[OffsetRange, ...]
    count: int
    reads: int


def begin_of_query(
    start: Start,
    *,
    checkpoint: CheckpointState,
    position: Position | None,
    logged: int | None,
    topics: Mapping[str, TopicDescription],
    from_latest: bool,
) -> Begin:
    """Return where a streaming query begins; ``logged`` is the newest batch in the log of a sink without a ledger."""
    if start.positions is not None:
        return Begin(batch_id=0, positions=_positions(start.positions, topics))
    if start.reset_checkpoint or checkpoint.batch_id is None:
        return Begin(batch_id=0, positions=_positions({}, topics, from_latest=from_latest))
    # A partition that the checkpoint does not know is new, and its ranges begin at 0.
    after = {key: checkpoint.end.get(key, 0) for key in _positions({}, topics)}
    if checkpoint.committed or checkpoint.start is None:
        return Begin(batch_id=checkpoint.batch_id + checkpoint.committed, positions=after)
    again = OffsetRanges(
        tuple(OffsetRange(*key, checkpoint.start.get(key, 0), end) for key, end in checkpoint.end.items())
    )
    landed = logged == checkpoint.batch_id if position is None else ends(position) == dict(checkpoint.end)
    return Begin(batch_id=checkpoint.batch_id, positions=after, again=again, again_is_landed=landed)


def begin_of_topic(position: Position | None, topic: TopicDescription, *, from_latest: bool) -> Begin:
    """Return where one of many topics begins: only the position of its table counts."""
    known = ends(position) if position is not None else {}
    at_end = from_latest and position is None
    return Begin(batch_id=0, positions=_positions(known, {topic.name: topic}, from_latest=at_end))


def spread_by_spark(limit: int) -> Spread:
    """Share the limit as Spark's Kafka source shares ``maxOffsetsPerTrigger``.

    Source: ``KafkaMicroBatchStream.rateLimit`` of Spark 4.1.3.
    """

    def spread(left: tuple[OffsetRange, ...]) -> tuple[OffsetRange, ...]:
        whole = float(sum(each.records for each in left))
        if whole < 1:
            return left
        taken = []
        for span in left:
            share = limit * (span.records / whole)
            # A small partition is not to starve.
            offsets = math.ceil(share) if share < 1 else math.floor(share)
            taken.append(replace(span, end=min(span.end, span.start + offsets)))
        return tuple(taken)

    return spread


def spread_by_round(limit: int, topic: TopicDescription) -> Spread:
    """Share the limit of one table as ``lakefeed.feed.multi_table.table`` does."""

    def spread(left: tuple[OffsetRange, ...]) -> tuple[OffsetRange, ...]:
        return next_ranges({each.partition: each.start for each in left}, topic, limit=limit).ranges

    return spread


def batches(begin: Begin, topics: Mapping[str, TopicDescription], *, limit: int, spread: Spread) -> Batches:
    """Predict the batches of at most ``limit`` offsets that land what the topics hold now."""
    end = {(name, each.id): each.end_offset for name, found in topics.items() for each in found.partitions}
    left = tuple(OffsetRange(*key, at, max(at, end[key])) for key, at in sorted(begin.positions.items()) if key in end)
    again = () if begin.again is None or begin.again_is_landed else begin.again.ranges
    starts = {(each.topic, each.partition): each.start for each in again}
    backlog = tuple(replace(each, start=starts.get((each.topic, each.partition), each.start)) for each in left)
    first = again or spread(left)
    count = int(any(each.records for each in again))
    reads = _read(again)
    while (requested := sum(each.records for each in left)) and count < MOST_BATCHES:
        taken = spread(left)
        count, reads = count + 1, reads + _read(taken)
        left = tuple(replace(each, start=now.end) for each, now in zip(left, taken, strict=True))
    if requested:
        more = -(-requested // limit)
        count, reads = count + more, reads + more * _read(left)
    return Batches(first=first, backlog=backlog, count=count, reads=reads)


def _read(ranges: Iterable[OffsetRange]) -> int:
    return sum(each.records > 0 for each in ranges)


def _positions(
    known: Mapping[Partition, int], topics: Mapping[str, TopicDescription], *, from_latest: bool = False
) -> dict[Partition, int]:
    return {
        (name, each.id): known.get((name, each.id), each.end_offset if from_latest else each.start_offset)
        for name, found in topics.items()
        for each in found.partitions
    }
