"""Find the offsets at which a new feed begins in its topics, with requests to the brokers."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from lakefeed.clients.kafka.groups import group_names, group_offsets
from lakefeed.clients.kafka.topics import PartitionDescription, TopicDescription, Topics, partitions_of
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ConfigError, RecordsLost, ResourceMissing
from lakefeed.offsets.ranges import Partition

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
        RecordsLost: the topic no longer has records that the group has not read, or it ends before the group's offset.
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
    """Yield a reason for each offset that is outside of its partition, or whose partition the feed does not read."""
    for key, offset in sorted(offsets.items()):
        name, part = f"{key[0]}-{key[1]}", there.get(key)
        if part is None:
            yield f"the feed reads no partition {name}"
        elif offset < part.start_offset:
            yield f"{name} begins at {part.start_offset}: the records from {offset} on were removed"
        elif offset > part.end_offset:
            yield f"{name} ends at {part.end_offset}, before {offset}"
