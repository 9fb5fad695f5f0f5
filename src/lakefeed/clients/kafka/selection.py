"""Find the offsets of records that are selected by offset or by time, and the offsets where a new feed begins."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lakefeed.clients.kafka.groups import group_names, group_offsets
from lakefeed.clients.kafka.librdkafka import isolation_level, missing_topic
from lakefeed.clients.kafka.topics import PartitionDescription, TopicDescription, Topics, partitions_of
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ConfigError, RecordsLost, ResourceMissing
from lakefeed.offsets.ranges import OffsetRange, Partition, overlapping

LONGEST_LIST = 20
_AGO = re.compile(r"\s*(\d{1,9})\s*(s|m|h|d|seconds?|minutes?|hours?|days?)\s*")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def moment(text: str | datetime, *, prefix: str = "") -> datetime:
    """Parse a time in ISO 8601: ``2026-11-20``, ``2026-11-20T06:30`` or ``2026-11-20T06:30+01:00``.

    A time without a UTC offset is in UTC, as in lakefeed's sessions. ``prefix`` is put before the examples in an
    error's hint.
    """
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else text
    except ValueError:
        raise ConfigError(
            f"'{text}' is not a time in ISO 8601",
            hint=f"write {prefix}2026-11-20, or {prefix}2026-11-20T06:30, which are UTC; or …T06:30+01:00",
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def is_ago(text: str) -> bool:
    return _AGO.fullmatch(text) is not None


def ago(text: str, *, now: datetime | None = None) -> datetime:
    """Return the current time minus an age: ``90s``, ``15m``, ``2h``, ``7d`` or ``2 hours``."""
    match = _AGO.fullmatch(text)
    if match is None:
        raise ConfigError(f"'{text}' is not an age", hint="write 90s, 15m, 2h or 7d")
    try:
        return (now or datetime.now(UTC)) - timedelta(seconds=int(match[1]) * _SECONDS[match[2][0]])
    except OverflowError:
        raise ConfigError(f"the age '{text}' is before the year 1", hint="write 90s, 15m, 2h or 7d") from None


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Selects records of a source: all records, the records in offset ranges, or the records of a time span.

    A partition is read from its first record at or after ``since`` up to its first record at or after ``until``.
    """

    ranges: tuple[OffsetRange, ...] | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        if self.ranges is not None and (self.since or self.until):
            raise ConfigError(
                "offset ranges and times exclude each other", hint="give offset ranges, or since and until"
            )
        if self.ranges is not None and not self.ranges:
            raise ConfigError("no offset range is given", hint="write TOPIC:PARTITION:START:END")
        if pair := overlapping(self.ranges or ()):
            hint = "leave out one range, or give one range that covers both"
            raise ConfigError("two of the offset ranges overlap", where=f"{pair[0]} and {pair[1]}", hint=hint)
        if self.since and self.until and self.since >= self.until:
            where, hint = f"{self.since} to {self.until}", "give an end (until) that is later than the start (since)"
            raise ConfigError("the time span ends before it begins", where=where, hint=hint)

    @classmethod
    def of(
        cls,
        ranges: Sequence[OffsetRange] | None = None,
        *,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
    ) -> Selection:
        """Build a selection from a sequence of ranges, or from times, which may be text in ISO 8601."""
        return cls(
            ranges=None if ranges is None else tuple(ranges),
            since=None if since is None else moment(since),
            until=None if until is None else moment(until),
        )


def topics_of(source: KafkaSource) -> dict[str, TopicDescription]:
    """Describe the source's topics as they are now.

    If the source reads only committed records, a partition ends at its first open transaction.
    """
    cluster = Topics(source.bootstrap_servers, options=source.client_options)
    existing = cluster.list()
    names = source.topics if source.topics is not None else [each for each in existing if source.reads(each)]
    if not names:
        what, hint = f"no topic matches {source.topics_pattern}", "lakefeed topics list shows the cluster's topics"
        raise ResourceMissing(what, where=source.bootstrap_servers, hint=hint)
    committed = isolation_level(source) == "read_committed"
    topics = cluster.describe_all(names, committed=committed)
    if missing := next((name for name in names if name not in topics), None):
        raise missing_topic(missing, existing, where=source.bootstrap_servers)
    return topics


def offset_ranges(source: KafkaSource, selection: Selection) -> list[OffsetRange]:
    """Return the selected ranges that are not empty; refuse ranges with an offset that the topics do not have."""
    topics = topics_of(source)
    if selection.ranges is not None:
        require_held(selection.ranges, topics, where=source.bootstrap_servers)
        return [each for each in sorted(selection.ranges) if each.records]
    cluster = Topics(source.bootstrap_servers, options=source.client_options)
    ranges = []
    for name, topic in topics.items():
        starts = {} if selection.since is None else cluster.offsets_at(name, selection.since)
        ends = {} if selection.until is None else cluster.offsets_at(name, selection.until)
        for partition in topic.partitions:
            start = partition.start_offset if selection.since is None else starts.get(partition.id)
            # The broker returns no offset if there is no record at or after ``until``. Its answer is above the
            # partition's end if an open transaction begins before ``until``.
            end = min(ends.get(partition.id, partition.end_offset), partition.end_offset)
            if start is not None and start < end:
                ranges.append(OffsetRange(name, partition.id, start, end))
    return sorted(ranges)


def require_held(ranges: Sequence[OffsetRange], topics: Mapping[str, TopicDescription], *, where: str) -> None:
    """Refuse ranges with offsets that the topics do not have, and ranges of topics that the source does not read."""
    if faults := list(_faults(ranges, topics)):
        more = f"; and {len(faults) - LONGEST_LIST} more" if len(faults) > LONGEST_LIST else ""
        raise ResourceMissing(
            f"the topics do not hold all of these offsets: {'; '.join(faults[:LONGEST_LIST])}{more}",
            where=where,
            hint="lakefeed topics show TOPIC shows the first and the last offset of the partitions",
        )


def _faults(ranges: Sequence[OffsetRange], topics: Mapping[str, TopicDescription]) -> Iterator[str]:
    there = partitions_of(topics)
    for span in ranges:
        if span.topic not in topics:
            what, where = (
                f"the source does not read the topic {span.topic}",
                f"the source reads {', '.join(sorted(topics))}",
            )
            raise ConfigError(what, where=where, hint="correct the topic of the offset range")
        name, held = f"{span.topic}-{span.partition}", there.get(span.key)
        if held is None:
            yield f"{name} does not exist, {span.topic} has {len(topics[span.topic].partitions)} partitions"
        elif span.start < held.start_offset:
            yield f"{name} no longer has offset {span.start}, it begins at {held.start_offset}"
        elif span.end > held.end_offset:
            yield f"{name} has no offset {span.end - 1} yet, it ends at {held.end_offset}"


MOST_SHOWN = 5
SETTING = "source.kafka.start"


def first_offsets(
    source: KafkaSource, topics: Mapping[str, TopicDescription | None], *, now: datetime | None = None
) -> dict[Partition, int]:
    """Return the offsets at which a new feed begins, by ``source.start``.

    With a start time, a partition without a later record begins at its end. With given offsets, or with a consumer
    group's offsets, a partition without an offset begins at its first record.

    Raises:
        ConfigError: an offset is not in its partition, or the feed does not read the partition.
        ResourceMissing: the consumer group has committed nothing in these topics.
        RecordsLost: the topic has lost records that the group has not read, or it ends before the group's offset.
        Unreachable: no broker answers.
    """
    there = partitions_of(topics)
    match source.starting.kind:
        case "latest":
            return {key: part.end_offset for key, part in there.items()}
        case "time" | "last":
            return _offsets_at_time(source, there, now=now or datetime.now(UTC))
        case "group":
            return _offsets_of_group(source, there)
        case "offsets":
            return _offsets_given(source, there)
        case _:
            return {key: part.start_offset for key, part in there.items()}


def _offsets_at_time(
    source: KafkaSource, there: Mapping[Partition, PartitionDescription], *, now: datetime
) -> dict[Partition, int]:
    time = source.starting.begins_at(now)
    assert time is not None
    cluster = Topics(source.bootstrap_servers, options=source.client_options)
    found = {name: cluster.offsets_at(name, time) for name in sorted({name for name, _ in there})}
    return {key: found[key[0]].get(key[1], part.end_offset) for key, part in there.items()}


def _offsets_of_group(source: KafkaSource, there: Mapping[Partition, PartitionDescription]) -> dict[Partition, int]:
    group = source.starting.group
    committed = group_offsets(source, group, sorted({name for name, _ in there}))
    if not committed:
        near = difflib.get_close_matches(group, group_names(source), n=3)
        raise ResourceMissing(
            f"the consumer group {group} has committed no offsets in the topics of the feed",
            where=f"{SETTING}, {source.bootstrap_servers}",
            hint=f"did you mean {' or '.join(near)}?" if near else "lakefeed status --group shows a group's offsets",
        )
    if outside := list(_outside(committed, there)):
        raise RecordsLost(
            f"a new feed cannot begin at the offsets of the consumer group {group}: {'; '.join(outside[:MOST_SHOWN])}",
            where=f"{SETTING}, {source.bootstrap_servers}",
            hint="write the offsets to begin at, or earliest; lakefeed topics show TOPIC shows the partitions' offsets",
        )
    return {key: committed.get(key, part.start_offset) for key, part in there.items()}


def _offsets_given(source: KafkaSource, there: Mapping[Partition, PartitionDescription]) -> dict[Partition, int]:
    given = source.starting.offsets
    if outside := list(_outside(given, there)):
        hint = "correct the offsets; lakefeed topics show TOPIC shows the offsets of the partitions"
        raise ConfigError("; ".join(outside[:MOST_SHOWN]), where=SETTING, hint=hint)
    return {key: given.get(key, part.start_offset) for key, part in there.items()}


def _outside(offsets: Mapping[Partition, int], there: Mapping[Partition, PartitionDescription]) -> Iterator[str]:
    """Yield a message for each offset that is not in its partition, or whose partition the feed does not read."""
    for key, offset in sorted(offsets.items()):
        name, part = f"{key[0]}-{key[1]}", there.get(key)
        if part is None:
            yield f"the feed reads no partition {name}"
        elif offset < part.start_offset:
            yield f"{name} begins at {part.start_offset}: the records from {offset} on were removed"
        elif offset > part.end_offset:
            yield f"{name} ends at {part.end_offset}, before {offset}"
