"""The lag of a feed or of any consumer group, in records and in seconds, from broker and ledger: no job has to run.

A feed's position is its sink's ledger; the log of its checkpoint where the sink keeps none. The seconds are the age of
the record at the position, which a consumer of its own reads: one record of each partition that is behind.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lakefeed.clients.kafka.lag import group_names, group_offsets, record_times
from lakefeed.clients.kafka.topics import TopicDescription, Topics
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ResourceMissing
from lakefeed.feed.recovery import ends
from lakefeed.ledger.checkpoint import StoredCheckpoint, checkpoint_state
from lakefeed.monitor.lag import PartitionLag, longest, rounded, total
from lakefeed.offsets.ranges import Partition
from lakefeed.records.sources.kafka import SourceTopics
from lakefeed.sinks.factory import sink_of

Times = Callable[[KafkaSource, Mapping[Partition, int]], Mapping[Partition, float | None]]


@dataclass(frozen=True, kw_only=True)
class Lag:
    """The lag of a feed or a consumer group.

    Attributes:
        is_known: whether it has a position at all; a feed or a group that has not begun has none.
    """

    name: str
    kind: Literal["feed", "group"]
    partitions: tuple[PartitionLag, ...]
    is_known: bool = True

    @property
    def records(self) -> int | None:
        """Offsets that are not committed; None if a partition's lag is unknown."""
        return total(partition.lag for partition in self.partitions)

    @property
    def seconds(self) -> float | None:
        """The age of the oldest record that is not committed; None if that is unknown."""
        return longest(partition.seconds for partition in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """Return the document of ``--output json``."""
        return {
            "name": self.name,
            "kind": self.kind,
            "lag": self.records,
            "lag_seconds": rounded(self.seconds),
            "partitions": [partition.as_dict() for partition in self.partitions],
        }


def feed_lag(config: PipelineConfig, *, connections: Connections, folder: Path | None = None) -> Lag:
    """Return the lag of a feed behind its topics; of a table for each topic, the feed of one of them.

    Raises:
        ConfigError: the source is not Kafka.
        CheckpointMismatch: the table was rolled back, and the position is unknown.
        Unreachable: broker, catalog, database or store do not answer.
    """
    source = config.kafka
    topics = SourceTopics(source).describe()
    position = committed_offsets(config, connections=connections, folder=folder)
    partitions = lag_of(position or {}, topics, start=source.start, source=source)
    return Lag(name=config.name, kind="feed", partitions=partitions, is_known=position is not None)


def committed_offsets(
    config: PipelineConfig, *, connections: Connections, folder: Path | None = None
) -> Mapping[Partition, int] | None:
    """Return where a feed stands, by its sink's ledger, or else by its checkpoint; None if it has not begun."""
    sink = sink_of(config, connections, folder=folder).state()
    if sink.keeps_ledger:
        position = sink.position()
        return None if position is None else ends(position)
    if not config.checkpoint:
        return None
    return checkpoint_state(StoredCheckpoint(config.checkpoint, s3=connections.s3)).position


def group_lag(source: KafkaSource, group: str, *, topics: Sequence[str] | None = None) -> Lag:
    """Return the lag of a consumer group; without ``topics`` of all in which it has committed offsets.

    Raises:
        ResourceMissing: the group has committed nothing there, or there is no such topic.
        Unreachable: no broker answers.
    """
    cluster = Topics(source.bootstrap_servers, options=dict(source.options))
    descriptions = cluster.describe_all(topics if topics is not None else cluster.list())
    if missing := [name for name in topics or () if name not in descriptions]:
        raise ResourceMissing(f"there is no topic {missing[0]}", where=source.bootstrap_servers)
    everywhere = [(name, part.id) for name, topic in descriptions.items() for part in topic.partitions]
    position = group_offsets(source, group, everywhere)
    if not position:
        near = difflib.get_close_matches(group, group_names(source), n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "lakefeed lag pipeline.yaml shows a feed's"
        where = source.bootstrap_servers
        raise ResourceMissing(f"the consumer group {group} has committed no offsets", where=where, hint=hint)
    read = {name: topic for name, topic in descriptions.items() if any(name == key[0] for key in position)}
    return Lag(name=group, kind="group", partitions=lag_of(position, read, start=None, source=source))


def lag_of(
    position: Mapping[Partition, int],
    topics: Mapping[str, TopicDescription | None],
    *,
    start: Literal["earliest", "latest"] | None,
    source: KafkaSource,
    times: Times = record_times,
    now: float | None = None,
) -> tuple[PartitionLag, ...]:
    """Compare a position with the ends of topics, and ask for the times of the records that come next.

    Args:
        position: the next offset to be committed, by partition.
        topics: as they are now.
        start: where partitions without a position begin; None if they have none.
        source: the cluster, to read from.
        times: see ``record_times``.
        now: in seconds since 1970. Default: after the records were read.
    """
    found = {(name, part.id): part for name, topic in topics.items() if topic for part in topic.partitions}
    reached: dict[Partition, int] = dict(position)
    if start == "earliest":
        reached = {**{key: part.start_offset for key, part in found.items()}, **reached}
    # Retention may have removed records that were not read: the next record is the first that is left.
    behind = {
        key: max(reached[key], part.start_offset)
        for key, part in found.items()
        if key in reached and part.end_offset > reached[key]
    }
    known = times(source, behind) if behind else {}
    now = time.time() if now is None else now
    lags = []
    for key in sorted({*found, *reached}):
        end, committed = (found[key].end_offset if key in found else None), reached.get(key)
        at = known.get(key)
        seconds = None if at is None else max(0.0, now - at)
        if end is not None and committed is not None and end <= committed:
            seconds = 0.0
        lags.append(
            PartitionLag(
                topic=key[0],
                partition=key[1],
                end=end,
                committed=committed,
                unread_seconds=seconds,
                uncommitted_seconds=seconds,
            )
        )
    return tuple(lags)
