"""Computes the lag of a feed or a consumer group, in records and seconds; the feed need not run.

A feed's position comes from its sink's ledger, or else from its checkpoint. The lag in seconds is the age of the oldest
uncommitted record; for this, a consumer reads the first uncommitted record of each partition that is behind.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import Field, computed_field

from lakefeed.clients.kafka.groups import group_names, group_offsets
from lakefeed.clients.kafka.scan import record_times
from lakefeed.clients.kafka.topics import TopicDescription, Topics, partitions_of
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.config.sources import KafkaSource, StartingOffsets
from lakefeed.errors import ResourceMissing
from lakefeed.feed.recovery import ends
from lakefeed.json_model import JsonModel, Seconds
from lakefeed.ledger.checkpoint import StoredCheckpoint, checkpoint_state, read_note
from lakefeed.monitor.model import PartitionLag, oldest, total_lag
from lakefeed.offsets.ranges import Partition
from lakefeed.sinks.factory import sink_of

Times = Callable[[KafkaSource, Mapping[Partition, int]], Mapping[Partition, float | None]]


class Lag(JsonModel):
    """The lag of a feed or a consumer group; ``is_known`` is false if the feed or group has committed nothing yet."""

    name: str
    kind: Literal["feed", "group"]
    partitions: tuple[PartitionLag, ...]
    is_known: bool = Field(True, exclude=True)

    @computed_field(alias="lag")  # type: ignore[prop-decorator]
    @property
    def records(self) -> int | None:
        """The number of uncommitted offsets; None if a partition's lag is unknown, or if there are no partitions."""
        return total_lag(self.partitions)

    @computed_field(alias="lag_seconds")  # type: ignore[prop-decorator]
    @property
    def seconds(self) -> Seconds | None:
        """The age of the oldest uncommitted record; None if it is unknown."""
        return oldest(self.partitions)


@dataclass(frozen=True, kw_only=True)
class FeedOffsets:
    """The offsets of a feed, from its ledger or its checkpoint.

    Attributes:
        offsets: the next offset to commit, by partition.
        topic_ids: the ids of the topics that these offsets belong to, if they are known.
        batch_id: the newest batch that is committed in the checkpoint; None if the offsets come from a ledger.
        committed_at: the time when that batch was committed.
    """

    offsets: Mapping[Partition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    batch_id: int | None = None
    committed_at: float | None = None


def require_read(source: KafkaSource, topics: Sequence[str], *, feed: str) -> None:
    """Raise a ResourceMissing if the feed does not read one of the topics."""
    for topic in topics:
        if not source.reads(topic):
            near = difflib.get_close_matches(topic, source.topics or (), n=3)
            reads = ", ".join(source.topics) if source.topics else f"topics that match {source.topics_pattern}"
            hint = f"did you mean {' or '.join(near)}?" if near else f"the feed reads {reads}"
            raise ResourceMissing(f"the feed '{feed}' does not read the topic {topic}", hint=hint)


def feed_offsets(config: PipelineConfig, *, connections: Connections, folder: Path | None = None) -> FeedOffsets | None:
    """Return a feed's offsets, from its sink's ledger or else from its checkpoint; None if the feed has not begun."""
    sink = sink_of(config, connections, folder=folder).state()
    if sink.keeps_ledger:
        position = sink.position()
        return None if position is None else FeedOffsets(offsets=ends(position), topic_ids=position.ranges.topic_ids)
    if not config.checkpoint:
        return None
    files = StoredCheckpoint(config.checkpoint, s3=connections.s3)
    state = checkpoint_state(files)
    if state.position is None or state.batch_id is None:
        return None
    note = read_note(files, where=config.checkpoint)
    done = state.batch_id if state.committed else state.batch_id - 1
    return FeedOffsets(
        offsets=state.position,
        topic_ids=note.topic_ids if note else {},
        batch_id=done if done >= 0 else None,
        committed_at=files.written_at(f"commits/{done}") or None,
    )


def group_lag(source: KafkaSource, group: str, *, topics: Sequence[str] | None = None) -> Lag:
    """Return the lag of a consumer group in ``topics``; by default, in all topics with offsets of the group.

    Raises a ResourceMissing if a topic does not exist, or if the group has committed nothing in these topics.
    """
    # Read the group's offsets before the end offsets of the topics: in the other order, an active group could be
    # ahead of the end offsets.
    position = group_offsets(source, group, topics, stable=False)
    cluster = Topics(source.bootstrap_servers, options=source.client_options)
    descriptions = cluster.describe_all(topics if topics is not None else sorted({name for name, _ in position}))
    if missing := [name for name in topics or () if name not in descriptions]:
        near = difflib.get_close_matches(missing[0], cluster.list(), n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "lakefeed topics list shows all topics"
        raise ResourceMissing(f"there is no topic {missing[0]}", where=source.bootstrap_servers, hint=hint)
    if not position:
        near = difflib.get_close_matches(group, group_names(source), n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "lakefeed status pipeline.yaml shows a feed's lag"
        what = f"the consumer group {group} has committed no offsets"
        raise ResourceMissing(what, where=source.bootstrap_servers, hint=hint)
    read = {name: topic for name, topic in descriptions.items() if any(name == key[0] for key in position)}
    return Lag(name=group, kind="group", partitions=lag_of(position, read, start=None, source=source))


def lag_of(
    position: Mapping[Partition, int],
    topics: Mapping[str, TopicDescription | None],
    *,
    start: StartingOffsets | None,
    source: KafkaSource,
    topic_ids: Mapping[str, str] | None = None,
    times: Times | None = None,
    now: float | None = None,
) -> tuple[PartitionLag, ...]:
    """Return the lag of a position in all partitions of ``topics``.

    A partition's lag is unknown if its topic was recreated after the position was stored, if the topic ends before the
    position, or if the topic does not exist.

    Args:
        position: the next offset to commit, by partition; topics that are not in ``topics`` are left out.
        topics: the topics, described after the position was read; None for a topic that does not exist.
        start: where a feed without any position begins; None for a group, whose start is not known.
        topic_ids: the ids of the topics that the position belongs to, if they are known.
        times: returns the times of records; by default ``record_times``.
        now: in seconds since 1970. Default: the time after the records were read.
    """
    partitions = partitions_of(topics)
    recreated = {
        name for name, topic in topics.items() if topic and (topic_ids or {}).get(name, "") not in ("", topic.topic_id)
    }
    # A feed that has begun reads new partitions from their first record on (docs/offsets.md).
    begins_at_first = start is not None and (start.kind == "earliest" or bool(position))
    reached = {key: at for key, at in position.items() if key[0] in topics and key[0] not in recreated}
    for key, part in partitions.items():
        if reached.get(key, 0) > part.end_offset:
            del reached[key]
        elif key in position or key[0] in recreated:
            continue
        elif begins_at_first or part.start_offset == part.end_offset:
            reached[key] = part.start_offset
    # Retention may have removed unread records: then the next record to read is the topic's first one.
    behind = {
        key: max(reached[key], part.start_offset)
        for key, part in partitions.items()
        if key in reached and part.end_offset > reached[key]
    }
    known = (times or record_times)(source, behind) if behind else {}
    now = time.time() if now is None else now
    lags = []
    for key in sorted({*partitions, *reached}):
        end, committed = (partitions[key].end_offset if key in partitions else None), reached.get(key)
        at = known.get(key)
        seconds = None if at is None else max(0.0, now - at)
        if end is not None and committed is not None and end <= committed:
            seconds = 0.0
        ages = {"unread_seconds": seconds, "uncommitted_seconds": seconds}
        lags.append(PartitionLag(topic=key[0], partition=key[1], end=end, committed=committed, **ages))
    return tuple(lags)
