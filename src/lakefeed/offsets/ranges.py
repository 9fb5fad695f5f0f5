"""Offset ranges: the offsets of a micro-batch, the position after them, and sets of offsets."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest
from typing import Any, TypeVar

from lakefeed.errors import ConfigError

Partition = tuple[str, int]
"""A topic's name and a partition's number."""

OLDEST = "oldest"
"""The mark of the position before all existing records."""

Value = TypeVar("Value")
_WRITTEN = re.compile(r"([A-Za-z0-9._-]{1,249}):(\d{1,9}):(\d{1,18}):(\d{1,18})", re.ASCII)


def by_partition(topics: Mapping[str, Mapping[Any, Value]]) -> dict[Partition, Value]:
    """Read JSON values grouped by topic and partition number; raise ValueError if a partition occurs twice."""
    pairs = [((topic, int(number)), value) for topic, values in topics.items() for number, value in values.items()]
    if len(found := dict(pairs)) != len(pairs):
        raise ValueError("a partition is there twice")
    return found


def by_topic(values: Mapping[Partition, Value]) -> dict[str, dict[str, Value]]:
    """Group values by topic and partition number for JSON, in the format that ``by_partition`` reads."""
    topics: dict[str, dict[str, Value]] = {}
    for (topic, number), value in values.items():
        topics.setdefault(topic, {})[str(number)] = value
    return topics


@dataclass(frozen=True, order=True)
class OffsetRange:
    """Records ``[start, end)`` of one partition of a topic.

    Raises:
        ConfigError: if the partition or the start is negative, or the end comes before the start.
    """

    topic: str
    partition: int
    start: int
    end: int
    marks: tuple[str, str] | None = None
    """The source's own names of start and end, such as sequence numbers; None if it uses the offsets themselves."""
    epoch: int | None = field(default=None, compare=False)
    """The epoch of the Kafka leader that the records were read from. Another leader may serve them later."""

    def __post_init__(self) -> None:
        if self.partition < 0 or self.start < 0 or self.end < self.start:
            raise ConfigError(
                f"[{self.start}, {self.end}) of partition {self.partition} is no offset range",
                where=f"topic {self.topic}",
                hint="offsets and partitions count from 0, and the end is not before the start",
            )

    @property
    def key(self) -> Partition:
        return self.topic, self.partition

    @property
    def records(self) -> int:
        """The number of offsets; compaction and transactions can leave fewer records."""
        return self.end - self.start

    def cut(self, start: int, end: int) -> OffsetRange:
        """Return the range ``[start, end)`` of the same partition, without marks."""
        return OffsetRange(self.topic, self.partition, start, end)

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.start}:{self.end}"

    @classmethod
    def parse(cls, text: str) -> OffsetRange:
        """Parse ``TOPIC:PARTITION:START:END``, as ``str`` writes it."""
        match = _WRITTEN.fullmatch(text)
        if match is None:
            raise ConfigError(
                f"'{text}' is no offset range",
                hint="write TOPIC:PARTITION:START:END, such as some-topic:0:110:220; the end is not read any more",
            )
        return cls(match[1], int(match[2]), int(match[3]), int(match[4]))


@dataclass(frozen=True)
class OffsetRanges:
    """The offset ranges of one micro-batch: at most one per partition; ranges may be empty.

    A partition without new records has an empty range at its position. So every commit has the positions of all
    partitions.
    """

    ranges: tuple[OffsetRange, ...]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """The broker's ids of the topics, by topic name (KIP-516): a recreated topic has another id."""

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.ranges))
        if len({span.key for span in ordered}) != len(ordered):
            raise ConfigError("a partition has more than one offset range", where=str(ordered))
        object.__setattr__(self, "ranges", ordered)

    @classmethod
    def between(
        cls,
        start: Mapping[Partition, int],
        end: Mapping[Partition, int],
        topic_ids: Mapping[str, str] | None = None,
        *,
        marks: Mapping[Partition, tuple[str, str]] | None = None,
    ) -> OffsetRanges:
        """Return the ranges from one position to another; a partition that only ``end`` has starts at 0."""
        ranges = (OffsetRange(*key, start.get(key, 0), at, (marks or {}).get(key)) for key, at in end.items())
        return cls(tuple(ranges), dict(topic_ids or {}))

    @classmethod
    def at(cls, position: Mapping[Partition, int], topic_ids: Mapping[str, str] | None = None) -> OffsetRanges:
        """Return empty ranges at a position."""
        return cls.between(position, position, topic_ids)

    def in_epochs(self, epochs: Mapping[Partition, int]) -> OffsetRanges:
        """Return the same ranges with leader epochs, which ``epochs`` has by partition."""
        return replace(self, ranges=tuple(replace(span, epoch=epochs.get(span.key)) for span in self.ranges))

    @property
    def records(self) -> int:
        return sum(span.records for span in self.ranges)

    @property
    def ends(self) -> dict[Partition, int]:
        """The position after these ranges."""
        return {span.key: span.end for span in self.ranges}

    @property
    def end_marks(self) -> dict[Partition, str]:
        """The source's own names of the ends; only of partitions whose range has marks."""
        return {span.key: span.marks[1] for span in self.ranges if span.marks is not None}

    def to_json(self) -> str:
        """Write ``{"topic": {"id": "…", "ranges": {"0": [start, end]}, "marks": {"0": ["…", "…"]}}}``.

        A topic also has its leaders' epochs: ``"epochs": {"0": 5}``. ``marks`` and ``epochs`` are optional.
        """
        topics: dict[str, dict[str, Any]] = {}
        for span in self.ranges:
            entry = topics.setdefault(span.topic, {"id": self.topic_ids.get(span.topic, ""), "ranges": {}})
            entry["ranges"][str(span.partition)] = [span.start, span.end]
            if span.marks is not None:
                entry.setdefault("marks", {})[str(span.partition)] = list(span.marks)
            if span.epoch is not None:
                entry.setdefault("epochs", {})[str(span.partition)] = span.epoch
        return json.dumps(topics, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> OffsetRanges:
        """Read the output of ``to_json``."""
        try:
            topics = json.loads(text)
            pairs = by_partition({topic: entry.get("marks", {}) for topic, entry in topics.items()})
            marks = {key: (first, last) for key, (first, last) in pairs.items()}
            bounds = by_partition({topic: entry["ranges"] for topic, entry in topics.items()})
            ranges = (OffsetRange(*key, int(start), int(end), marks.get(key)) for key, (start, end) in bounds.items())
            epochs = by_partition({topic: entry.get("epochs", {}) for topic, entry in topics.items()})
            ids = {topic: entry["id"] for topic, entry in topics.items() if entry["id"]}
            return cls(tuple(ranges), ids).in_epochs({key: int(epoch) for key, epoch in epochs.items()})
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ConfigError("these are not the offset ranges of a commit", where=text[:200]) from None


def offset_number(offset: Any) -> int:
    """Return the offset from a value of a source's offset JSON: ``12`` or ``{"at": 12, "mark": "…"}``."""
    return int(offset["at"] if isinstance(offset, dict) else offset)


def spark_offsets(text: str) -> dict[Partition, int]:
    """Read offsets from offset JSON: ``{"topic": {"0": 12}}`` or ``{"topic": {"0": {"at": 12, "mark": "…"}}}``."""
    return {key: offset_number(offset) for key, offset in by_partition(json.loads(text)).items()}


def spark_marks(text: str) -> dict[Partition, str]:
    """Read the marks from a source's offset JSON; Kafka's has none."""
    offsets = by_partition(json.loads(text))
    return {key: str(offset["mark"]) for key, offset in offsets.items() if isinstance(offset, dict)}


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
    """Return the offsets of ``ranges`` without those of ``taken``, in as few ranges as possible, sorted."""
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
    """Return the offsets that are in both arguments, in as few ranges as possible, sorted."""
    ranges = union(ranges)
    return difference(ranges, difference(ranges, others))


class Offsets:
    """A set of offsets with a fast test for one offset."""

    def __init__(self, ranges: Iterable[OffsetRange]) -> None:
        self._ranges = _group(union(ranges))

    def has(self, topic: str, partition: int, offset: int) -> bool:
        """Return whether the set has the offset."""
        here = self._ranges.get((topic, partition), [])
        number = bisect_right(here, offset, key=lambda span: span.start)
        return number > 0 and offset < here[number - 1].end


def overlapping(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, OffsetRange] | None:
    """Return two ranges that share an offset; None if no ranges overlap."""
    for here in _group(ranges).values():
        for first, second in pairwise(here):
            if second.start < first.end:
                return first, second
    return None


def layers(ranges: Iterable[OffsetRange]) -> list[list[OffsetRange]]:
    """Group the ranges: a group has at most one range per partition, as Spark's Kafka source requires."""
    return [[span for span in layer if span is not None] for layer in zip_longest(*_group(ranges).values())]


def portions(ranges: Iterable[OffsetRange], size: int) -> Iterator[list[OffsetRange]]:
    """Cut ranges into portions of at most ``size`` offsets, with at most one range per partition."""
    queues = {key: here[::-1] for key, here in _group(union(ranges)).items()}
    while queues:
        room, portion = size, []
        # The shortest ranges come first: the other partitions share the room that they leave.
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
    """Group the ranges by partition, sorted, without empty ranges."""
    found: dict[Partition, list[OffsetRange]] = defaultdict(list)
    for span in sorted(ranges):
        if span.records:
            found[span.key].append(span)
    return dict(found)
