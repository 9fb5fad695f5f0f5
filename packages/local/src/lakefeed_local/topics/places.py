"""Choose the records of a topic to show: the newest records, or the first records from a time or an offset on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from lakefeed.clients.kafka.records import Record, read_ranges
from lakefeed.clients.kafka.selection import ago, is_ago, moment, topics_of
from lakefeed.clients.kafka.topics import PartitionDescription, Topics, partitions_of
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.offsets.ranges import OffsetRange, Partition

_WIDER = 4
"""If a window of offsets before a partition's end has too few records, the next window is this many times as wide."""

Spans = Mapping[Partition, tuple[int, int]]
"""The first offset and the end offset of each partition."""


@dataclass(frozen=True, kw_only=True)
class TopicPlace:
    """The offset or time at which reading a topic begins, and the partitions to read.

    Attributes:
        start: ``earliest``, ``latest``, a time in ISO 8601, or an age: ``15m``. None for the newest records.
        partition: the only partition to read. Default: all.
        offset: instead of ``start``, an offset of a single partition; a negative one counts from its end.
    """

    start: str | None = None
    partition: int | None = None
    offset: int | None = None

    def __post_init__(self) -> None:
        if self.start is not None and self.offset is not None:
            raise ConfigError("--from and --offset both set where to begin", hint="give one of them")


def chosen_records(source: KafkaSource, place: TopicPlace, *, most: int, each: int | None = None) -> Iterator[Record]:
    """Yield the first records from the chosen offsets on, or the newest records; records of a partition are in order.

    There are at most ``most`` records, and at most ``each`` of a partition. Partitions get equal shares if they have
    enough records. Offsets without a record, which compaction and transactions leave behind, do not count.
    """
    parts = _partitions(source, place)
    spans = {key: (part.start_offset, part.end_offset) for key, part in parts.items()}
    if place.start is None and place.offset is None:
        starts = _newest_starts(source, spans, most=most, each=each or most)
        return read_ranges(source, [OffsetRange(*key, start, spans[key][1]) for key, start in starts.items()])
    starts = _starts(source, place, parts)
    spans = {key: (starts[key], end) for key, (_, end) in spans.items()}
    return _first_records(source, spans, most=most, each=each or most)


def following_starts(source: KafkaSource, place: TopicPlace, *, last: int) -> dict[Partition, int]:
    """Return, by partition, the first offset to read: the chosen one, or the offset of the ``last``-newest record."""
    parts = _partitions(source, place)
    if place.start is not None or place.offset is not None:
        return _starts(source, place, parts)
    if not last:
        return {key: part.end_offset for key, part in parts.items()}
    spans = {key: (part.start_offset, part.end_offset) for key, part in parts.items()}
    newest = _last_offsets(source, spans, dict.fromkeys(spans, last))
    # Without a visible record, begin at the partition's first offset: an open transaction may still commit records.
    return {key: offsets[0] if offsets else spans[key][0] for key, offsets in newest.items()}


def _newest_starts(source: KafkaSource, spans: Spans, *, most: int, each: int) -> dict[Partition, int]:
    """Return, by partition, the offset at which its newest records begin."""
    held = {key: min(end - start, each) for key, (start, end) in spans.items()}
    found: dict[Partition, list[int]] = {key: [] for key in spans}
    while True:
        shares = fair_shares(held, most)
        requested = {key: share for key, share in shares.items() if share > len(found[key])}
        if not requested:
            return {key: found[key][-share] if share else spans[key][1] for key, share in shares.items()}
        for key, offsets in _last_offsets(source, spans, requested).items():
            found[key] = offsets
            if len(offsets) < requested[key]:
                held[key] = len(offsets)


def _first_records(source: KafkaSource, spans: Spans, *, most: int, each: int) -> Iterator[Record]:
    """Yield the first records of the partitions; if a partition has fewer than its share, other shares grow."""
    positions = {key: start for key, (start, _) in spans.items()}
    read: Counter[Partition] = Counter()
    while True:
        held = {key: min(end - positions[key], each - read[key]) for key, (_, end) in spans.items()}
        shares = {key: share for key, share in fair_shares(held, most - read.total()).items() if share}
        if not shares:
            return
        expected = {key: read[key] + share for key, share in shares.items()}
        ranges = [OffsetRange(*key, positions[key], spans[key][1]) for key in shares]
        for record in read_ranges(source, ranges, most=shares):
            key = (record.topic, record.partition)
            positions[key] = record.offset + 1
            read[key] += 1
            yield record
        for key, count in expected.items():
            if read[key] < count:
                positions[key] = spans[key][1]


def _partitions(source: KafkaSource, place: TopicPlace) -> dict[Partition, PartitionDescription]:
    parts = partitions_of(topics_of(source))
    if place.partition is not None:
        chosen = {key: part for key, part in parts.items() if key[1] == place.partition}
        if not chosen:
            names = sorted({topic for topic, _ in parts})
            count = len(parts) if len(names) == 1 else None
            raise ResourceMissing(
                f"there is no partition {place.partition} in {', '.join(names)}",
                where=source.bootstrap_servers,
                hint=f"the topic's partitions are 0 to {count - 1}" if count else None,
            )
        parts = chosen
    if place.offset is not None and len(parts) > 1:
        what = "an offset belongs to a single partition, and there are several"
        raise ConfigError(what, where="--offset", hint="name the partition with --partition")
    return parts


def _starts(
    source: KafkaSource, place: TopicPlace, parts: Mapping[Partition, PartitionDescription]
) -> dict[Partition, int]:
    if place.offset is not None:
        return {key: _offset(key, part, place.offset) for key, part in parts.items()}
    if place.start in ("earliest", "beginning"):
        return {key: part.start_offset for key, part in parts.items()}
    if place.start in ("latest", "end"):
        return {key: part.end_offset for key, part in parts.items()}
    time = _time(place.start or "")
    cluster = Topics(source.bootstrap_servers, options=source.client_options)
    found = {name: cluster.offsets_at(name, time) for name in sorted({topic for topic, _ in parts})}
    return {key: found[key[0]].get(key[1], part.end_offset) for key, part in parts.items()}


def _time(text: str) -> datetime:
    if is_ago(text):
        return ago(text)
    try:
        return moment(text)
    except ConfigError:
        raise ConfigError(
            f"'{text}' is not a time or offset to begin at",
            where="--from",
            hint="write earliest, latest, a time (2026-11-20T06:30, in UTC) or an age (15m, 2h, 7d)",
        ) from None


def _offset(key: Partition, part: PartitionDescription, offset: int) -> int:
    if offset < 0:
        return max(part.start_offset, part.end_offset + offset)
    if not part.start_offset <= offset <= part.end_offset:
        raise ResourceMissing(
            f"partition {key[1]} of {key[0]} has the offsets {part.start_offset} to {part.end_offset}, not {offset}",
            where="--offset",
            hint="choose an offset in this range, or -10 for the ten last ones",
        )
    return offset


def fair_shares(held: Mapping[Partition, int], most: int) -> dict[Partition, int]:
    """Divide ``most`` records evenly among partitions; if a partition has fewer than its share, other shares grow."""
    shares: dict[Partition, int] = {}
    left = most
    ascending = sorted(held, key=lambda key: (held[key], key))
    for at, key in enumerate(ascending):
        # Small partitions come first in this order; what they lack is added to the shares of larger partitions.
        shares[key] = min(held[key], -(-left // (len(ascending) - at)))
        left -= shares[key]
    return shares


def _last_offsets(source: KafkaSource, spans: Spans, most: Mapping[Partition, int]) -> dict[Partition, list[int]]:
    """Return the offsets of the partitions' last records in order, at most ``most`` per partition.

    First, this reads a window of offsets before each partition's end. If compaction or transactions have left too few
    records in a window, this reads the wider window before it, and so on.
    """
    found: dict[Partition, list[int]] = {key: [] for key in most}
    before = {key: spans[key][1] for key in most}
    widths = dict(most)
    while True:
        windows = [
            OffsetRange(*key, max(spans[key][0], before[key] - widths[key]), before[key])
            for key, count in most.items()
            if len(found[key]) < count and before[key] > spans[key][0]
        ]
        if not windows:
            return found
        read: dict[Partition, list[int]] = {window.key: [] for window in windows}
        for record in read_ranges(source, windows):
            read[record.topic, record.partition].append(record.offset)
        for window in windows:
            key = window.key
            found[key] = (read[key] + found[key])[-most[key] :]
            before[key] = window.start
            widths[key] *= _WIDER
