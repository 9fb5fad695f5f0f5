"""What a backfill has to land: records that the table has not, the topic still has, and the feed will never read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lakefeed.clients.kafka.selection import require_held
from lakefeed.clients.kafka.topics import TopicDescription
from lakefeed.errors import CheckpointMismatch, ConfigError
from lakefeed.ledger.feed_position import Position
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.offsets.sets import common, subtracted, united


@dataclass(frozen=True, kw_only=True)
class BackfillRequest:
    """Which of the missing records are to be landed; as it stands, all of them.

    Attributes:
        ranges: those of these ranges, each of which the topic must still have if the table has not.
        start: or those from this offset on, in each partition.
        since: or those from the first record with this timestamp or a later one.
    """

    ranges: tuple[OffsetRange, ...] | None = None
    start: int | None = None
    since: datetime | None = None

    def __post_init__(self) -> None:
        if sum(each is not None for each in (self.ranges, self.start, self.since)) > 1:
            raise ConfigError("offset ranges and a start exclude each other", hint="give one of the two")


@dataclass(frozen=True, kw_only=True)
class Missing:
    """What there is to do, and what cannot be done.

    Attributes:
        ranges: to be landed, in as few ranges as possible.
        gone: in neither the table nor the topic any more; no one can read them any more.
        topic_ids: the topics' ids.
    """

    ranges: tuple[OffsetRange, ...] = ()
    gone: tuple[OffsetRange, ...] = ()
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def offsets(self) -> int:
        """How many offsets are to be landed."""
        return sum(each.records for each in self.ranges)

    def commit(self, portion: Sequence[OffsetRange]) -> OffsetRanges:
        """The ranges of one commit, with their topics' ids."""
        return OffsetRanges(tuple(portion), {each.topic: self.topic_ids[each.topic] for each in portion})

    def as_dict(self) -> dict[str, Any]:
        """For ``--output json``."""
        return {
            "offsets": self.offsets,
            "ranges": [str(each) for each in self.ranges],
            "gone": [str(each) for each in self.gone],
        }


def missing(
    position: Position,
    topics: Mapping[str, TopicDescription],
    requested: BackfillRequest,
    *,
    starts: Mapping[tuple[str, int], int | None] | None = None,
    where: str,
) -> Missing:
    """What a feed's table misses of the records before its position. Nothing is read or asked here.

    Args:
        position: where the feed stands in its table.
        topics: the topics as they are now.
        requested: which of the missing ones.
        starts: for ``since``, the offset by topic and partition at that time; None where there is none so late.
        where: the brokers, for errors.

    Raises:
        CheckpointMismatch: it is not known what the table has, or a range is of a topic that was recreated.
        ConfigError: a range is of a partition that the feed does not know, or reaches beyond where it stands.
        ResourceMissing: a range has offsets that neither the table nor the topic has.
    """
    if position.covered is None:
        raise CheckpointMismatch(
            "it is not known which records the table has: it was rolled back by an engine that is not lakefeed, or "
            "its newest commits are of a version that did not note it",
            where=where,
            hint="lakefeed read shows or copies old records without touching the feed's table",
        )
    known = position.ranges.topic_ids
    same = {name: found for name, found in topics.items() if known.get(name, found.topic_id) == found.topic_id}
    has = [
        OffsetRange(topic, partition, start, end)
        for (topic, partition), intervals in position.covered.intervals.items()
        for start, end in intervals
    ]
    below = [OffsetRange(each.topic, each.partition, 0, each.end) for each in position.ranges.ranges]
    held = [
        OffsetRange(each.topic, each.partition, found.start_offset, max(found.start_offset, found.end_offset))
        for each in below
        if each.topic in same
        for found in same[each.topic].partitions
        if found.id == each.partition
    ]
    absent = subtracted(below, has)
    if requested.ranges is not None:
        _require_behind(requested.ranges, position.ranges, where=where)
        absent = subtracted(requested.ranges, has)
        _require_same({each.topic for each in absent}, position.ranges, topics, where=where)
        require_held(absent, same, where=where)
    elif requested.start is not None or requested.since is not None:
        absent = common(absent, _from(below, requested, starts or {}))
    return Missing(
        ranges=tuple(common(absent, held)),
        gone=tuple(subtracted(absent, held)),
        topic_ids={name: found.topic_id for name, found in same.items()},
    )


def _from(
    below: Iterable[OffsetRange], requested: BackfillRequest, starts: Mapping[tuple[str, int], int | None]
) -> list[OffsetRange]:
    found = []
    for each in below:
        start = requested.start if requested.since is None else starts.get((each.topic, each.partition))
        if start is not None and start < each.end:
            found.append(OffsetRange(each.topic, each.partition, start, each.end))
    return found


def _require_same(
    names: Iterable[str], position: OffsetRanges, topics: Mapping[str, TopicDescription], *, where: str
) -> None:
    for name in sorted(names):
        known, found = position.topic_ids.get(name), topics.get(name)
        if found is None or known not in (None, found.topic_id):
            now = "there is none" if found is None else f"it has the id {found.topic_id}"
            raise CheckpointMismatch(
                f"the feed has read a topic {name} with the id {known}, now {now}: what the table lacks of it is gone",
                where=where,
            )


def _require_behind(ranges: Sequence[OffsetRange], position: OffsetRanges, *, where: str) -> None:
    ends = {(each.topic, each.partition): each.end for each in position.ranges}
    for each in united(ranges):
        end = ends.get((each.topic, each.partition))
        if end is None:
            raise ConfigError(f"the feed does not know {each.topic}-{each.partition}", where=f"{where}, range {each}")
        if each.end > end:
            raise ConfigError(
                f"the feed stands at {end} in {each.topic}-{each.partition} and reads what comes after it itself",
                where=f"range {each}",
                hint=f"end the range at {end}",
            )
