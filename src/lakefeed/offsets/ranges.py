"""Offset ranges of micro-batches, and sets of offsets."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest
from typing import Any, TypeVar

from lakefeed.errors import ConfigError

Partition = tuple[str, int]
"""A topic's name and a partition's number."""

WRITTEN_BY_ANOTHER = (
    "use the version of lakefeed that wrote the text; or restore the text if another program changed it"
)
"""The hint of errors about a value in the ledger that lakefeed cannot read."""

OLDEST = "oldest"
"""The mark (a source's own name for an offset) of the position before the oldest record that the source still has."""

Value = TypeVar("Value")
_RANGE = re.compile(r"([A-Za-z0-9._-]{1,249}):(\d{1,9}):(\d{1,18}):(\d{1,18})", re.ASCII)


def by_partition(topics: Mapping[str, Mapping[Any, Value]]) -> dict[Partition, Value]:
    """Read the result of ``by_topic``; raise ValueError if a partition occurs twice, such as ``0`` and ``00``."""
    pairs = [((topic, int(number)), value) for topic, values in topics.items() for number, value in values.items()]
    if len(by_key := dict(pairs)) != len(pairs):
        raise ValueError("a partition occurs twice")
    return by_key


def by_topic(values: Mapping[Partition, Value]) -> dict[str, dict[str, Value]]:
    """Group values by topic and partition number for JSON: ``{"topic": {"0": value}}``."""
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
    """The source's own names for start and end, such as Kinesis's sequence numbers; None if there are only offsets."""
    epoch: int | None = field(default=None, compare=False)
    """The epoch of the Kafka leader from which the records were read; other leaders may have the same records."""

    def __post_init__(self) -> None:
        if self.partition < 0 or self.start < 0 or self.end < self.start:
            what = f"[{self.start}, {self.end}) of partition {self.partition} is not an offset range"
            hint = "count offsets and partitions from 0, and write the smaller offset first"
            raise ConfigError(what, where=f"topic {self.topic}", hint=hint)

    @property
    def key(self) -> Partition:
        return self.topic, self.partition

    @property
    def records(self) -> int:
        """The number of offsets. The topic may have fewer records: compaction and transactions leave gaps."""
        return self.end - self.start

    def cut(self, start: int, end: int) -> OffsetRange:
        """Return the range ``[start, end)`` of the same partition, without marks."""
        return OffsetRange(self.topic, self.partition, start, end)

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.start}:{self.end}"

    @classmethod
    def parse(cls, text: str) -> OffsetRange:
        """Parse ``TOPIC:PARTITION:START:END``, as ``str`` writes it."""
        match = _RANGE.fullmatch(text)
        if match is None:
            hint = "write TOPIC:PARTITION:START:END, such as some-topic:0:110:220 for the offsets 110 to 219"
            raise ConfigError(f"'{text}' is not an offset range", hint=hint)
        return cls(match[1], int(match[2]), int(match[3]), int(match[4]))


@dataclass(frozen=True)
class OffsetRanges:
    """The offset ranges of one micro-batch, one per partition.

    A partition without new records has an empty range at its position, so every commit has the positions of all
    partitions.
    """

    ranges: tuple[OffsetRange, ...]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """By topic name, the id that the broker gives to the topic (KIP-516); a recreated topic has another id."""

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.ranges))
        if len({span.key for span in ordered}) != len(ordered):
            what = "a partition has more than one offset range"
            hint = "join the partition's ranges to one, or use one command or batch per range"
            raise ConfigError(what, where=", ".join(map(str, ordered)), hint=hint)
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
        """Return the ranges from ``start`` to ``end``; a partition that is not in ``start`` begins at 0."""
        ranges = (OffsetRange(*key, start.get(key, 0), at, (marks or {}).get(key)) for key, at in end.items())
        return cls(tuple(ranges), dict(topic_ids or {}))

    @classmethod
    def at(cls, position: Mapping[Partition, int], topic_ids: Mapping[str, str] | None = None) -> OffsetRanges:
        """Return empty ranges at a position."""
        return cls.between(position, position, topic_ids)

    def in_epochs(self, epochs: Mapping[Partition, int]) -> OffsetRanges:
        """Return the same ranges with these leader epochs."""
        return replace(self, ranges=tuple(replace(span, epoch=epochs.get(span.key)) for span in self.ranges))

    @property
    def records(self) -> int:
        return sum(span.records for span in self.ranges)

    @property
    def ends(self) -> dict[Partition, int]:
        """The offset after the range of each partition."""
        return {span.key: span.end for span in self.ranges}

    @property
    def end_marks(self) -> dict[Partition, str]:
        """By partition, the source's own name for the range's end; partitions without marks are omitted."""
        return {span.key: span.marks[1] for span in self.ranges if span.marks is not None}

    def to_json(self) -> str:
        """Return ``{"topic": {"id": "…", "ranges": {"0": [start, end]}, "marks": {"0": ["…", "…"]}}}``.

        Topics with leader epochs have ``"epochs": {"0": 5}``. Topics without marks have no ``marks``.
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
            raise ConfigError(
                "the text in the ledger is not the offset ranges of a commit", where=text[:200], hint=WRITTEN_BY_ANOTHER
            ) from None


def offset_number(offset: Any) -> int:
    """Return the offset of one partition from a source's offset JSON: ``12`` or ``{"at": 12, "mark": "…"}``."""
    return int(offset["at"] if isinstance(offset, dict) else offset)


def spark_offsets(text: str) -> dict[Partition, int]:
    """Read the offsets from a source's offset JSON: ``{"topic": {"0": 12}}``; see ``offset_number``."""
    return {key: offset_number(offset) for key, offset in by_partition(json.loads(text)).items()}


def spark_marks(text: str) -> dict[Partition, str]:
    """Read the marks from a source's offset JSON; empty for Kafka, which has no marks."""
    offsets = by_partition(json.loads(text))
    return {key: str(offset["mark"]) for key, offset in offsets.items() if isinstance(offset, dict)}


def union(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Join overlapping and adjacent ranges; return the result sorted, without empty ranges."""
    joined: list[OffsetRange] = []
    for span in sorted(span for span in ranges if span.records):
        if joined and joined[-1].key == span.key and span.start <= joined[-1].end:
            last = joined.pop()
            span = last.cut(last.start, max(last.end, span.end))
        joined.append(span.cut(span.start, span.end))
    return joined


def difference(ranges: Iterable[OffsetRange], taken: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the offsets of ``ranges`` that are not in ``taken``, as a ``union``."""
    cuts = ranges_by_partition(union(taken))
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
    """Return the offsets that both arguments have, as a ``union``."""
    ranges = union(ranges)
    return difference(ranges, difference(ranges, others))


class Offsets:
    """A set of offsets with a fast test of whether it has an offset."""

    def __init__(self, ranges: Iterable[OffsetRange]) -> None:
        self._ranges = ranges_by_partition(union(ranges))

    def has(self, topic: str, partition: int, offset: int) -> bool:
        here = self._ranges.get((topic, partition), [])
        number = bisect_right(here, offset, key=lambda span: span.start)
        return number > 0 and offset < here[number - 1].end


def overlapping(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, OffsetRange] | None:
    """Return two ranges that share an offset; None if no two ranges overlap."""
    for here in ranges_by_partition(ranges).values():
        for first, second in pairwise(here):
            if second.start < first.end:
                return first, second
    return None


def layers(ranges: Iterable[OffsetRange]) -> list[list[OffsetRange]]:
    """Divide ranges into lists that have at most one range per partition, as Spark's Kafka source requires."""
    return [
        [span for span in layer if span is not None] for layer in zip_longest(*ranges_by_partition(ranges).values())
    ]


def ranges_by_partition(ranges: Iterable[OffsetRange]) -> dict[Partition, list[OffsetRange]]:
    """Return, by partition, the sorted ranges that are not empty."""
    groups: dict[Partition, list[OffsetRange]] = defaultdict(list)
    for span in sorted(ranges):
        if span.records:
            groups[span.key].append(span)
    return dict(groups)


# A stateful query can resume only at the batch of its state. Offsets do not identify that batch, because a batch that
# only closes windows reads no records. So the query's commits also have the range ``[batch, batch + 1)`` of partition 0
# of a pseudo-topic, whose id is Spark's id of the query. The commit check then refuses a gap, a repeated batch, and a
# query whose checkpoint was lost or recreated, because then its state was lost, too.
BATCHES = "lakefeed.batches"
"""The name of the pseudo-topic, which the commit check and the audits handle like a Kafka topic."""


def with_batch(ranges: OffsetRanges, *, batch_id: int, query_id: str) -> OffsetRanges:
    """Add the pseudo-topic's range to a batch's ranges."""
    batch = OffsetRange(BATCHES, 0, batch_id, batch_id + 1)
    return OffsetRanges((*ranges.ranges, batch), {**ranges.topic_ids, BATCHES: query_id})


def without_batches(ranges: OffsetRanges) -> OffsetRanges:
    """Return the ranges without the pseudo-topic's range."""
    ids = {topic: topic_id for topic, topic_id in ranges.topic_ids.items() if topic != BATCHES}
    return OffsetRanges(tuple(span for span in ranges.ranges if span.topic != BATCHES), ids)


def has_state(ranges: OffsetRanges) -> bool:
    """Return whether a stateful query has committed these ranges."""
    return (BATCHES, 0) in ranges.ends
