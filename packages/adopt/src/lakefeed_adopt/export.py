"""Export a feed's offsets to another tool: as the offsets of a consumer group, or as a checkpoint of Spark."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from lakefeed.clients.kafka.groups import MonitoringGroup, group_offsets
from lakefeed.errors import CheckpointMismatch, ConfigError, Unreachable
from lakefeed.feed.feed import Feed
from lakefeed.feed.recovery import ends
from lakefeed.ledger.checkpoint import INITIAL, METADATA, StoredCheckpoint
from lakefeed.ledger.snapshots import ancestors
from lakefeed.offsets.ranges import OffsetRange, Partition, by_topic, has_state
from lakefeed.operations.status import FeedStatus, feed_status
from lakefeed_adopt.plan import QUIET_SECONDS
from lakefeed_adopt.position import require_no_members

Receiver: TypeAlias = Literal["group", "spark-checkpoint"]
FORMS = "group:NAME or spark-checkpoint:PATH"
SECONDS = 15.0
"""Refused offsets are sent again for this many seconds, because a new group's coordinator first loads."""


@dataclass(frozen=True)
class ExportTarget:
    """The value of ``--to``: a consumer group or a checkpoint, and its name or path."""

    receiver: Receiver
    place: str

    @classmethod
    def parse(cls, text: str) -> ExportTarget:
        """Parse ``group:NAME`` or ``spark-checkpoint:PATH``; raise ConfigError for other texts."""
        receiver, _, place = text.partition(":")
        match receiver:
            case "group" | "spark-checkpoint" if place:
                return cls(receiver, place.rstrip("/"))
        raise ConfigError(f"'{text}' is not a target for an export", where="--to", hint=f"write {FORMS}")

    def __str__(self) -> str:
        return f"{self.receiver}:{self.place}"


@dataclass(frozen=True, kw_only=True)
class ExportPlan:
    """The changes that an export makes.

    Attributes:
        offsets: by partition, the offset at which the other tool will begin.
        before: the offsets that the consumer group has now.
    """

    feed: str
    sink: str
    target: ExportTarget
    offsets: Mapping[Partition, int]
    before: Mapping[Partition, int]

    def as_dict(self) -> dict[str, Any]:
        return {
            "feed": self.feed,
            "sink": self.sink,
            "to": str(self.target),
            "partitions": [
                {"topic": topic, "partition": number, "offset": at, "before": self.before.get((topic, number))}
                for (topic, number), at in sorted(self.offsets.items())
            ],
        }


def plan_export(feed: Feed, target: ExportTarget, *, is_stopped: bool = False) -> ExportPlan:
    """Plan the export of a feed's position, without Spark and without changes.

    Args:
        is_stopped: the user confirms that the feed is stopped, so a recent commit is accepted.

    Raises:
        ConfigError: the feed has no position in Kafka topics, may still run, or the group has members.
        CheckpointMismatch: the checkpoint location of the other job has other files.
    """
    config = feed.config
    if config.source.kafka is None:
        what = f"the feed reads {config.source.kind}, and only offsets of Kafka topics can be exported"
        raise ConfigError(what, where=config.name, hint="name a pipeline with source.kafka")
    status = feed_status(feed)
    if status.refusal is not None:
        raise status.refusal
    offsets = _position_of(status, config.name)
    if not is_stopped:
        _require_quiet(feed, status)
    before: Mapping[Partition, int] = {}
    if target.receiver == "group":
        require_no_members(config.kafka, (target.place,), purpose="export")
        before = group_offsets(config.kafka, target.place, sorted({topic for topic, _ in offsets}))
    else:
        _files_to_write(StoredCheckpoint(target.place, s3=feed.connections.s3), offsets, where=target.place)
    return ExportPlan(feed=config.name, sink=status.sink, target=target, offsets=offsets, before=before)


def execute_export(feed: Feed, agreed: ExportPlan) -> None:
    """Write the position as planned; a repeated call changes nothing.

    Raises:
        Unreachable: the broker has not accepted the offsets.
    """
    place = agreed.target.place
    if agreed.target.receiver == "spark-checkpoint":
        files = StoredCheckpoint(place, s3=feed.connections.s3)
        for name, text in _files_to_write(files, agreed.offsets, where=place).items():
            files.write(name, text)
        return
    source = feed.config.kafka
    require_no_members(source, (place,), purpose="export")
    group, ranges = MonitoringGroup(source, place), [OffsetRange(*key, at, at) for key, at in agreed.offsets.items()]
    until = time.monotonic() + SECONDS
    while (failure := group.set_offsets(ranges)) is not None:
        if time.monotonic() > until:
            what, hint = f"the group {place} has not accepted the offsets: {failure}", "run the command again"
            raise Unreachable(what, where=source.bootstrap_servers, hint=hint)
        time.sleep(0.5)


def _position_of(status: FeedStatus, feed: str) -> dict[Partition, int]:
    if status.position is not None:
        if has_state(status.position.ranges):
            raise ConfigError(
                f"feed '{feed}' keeps state between batches, which an export cannot write for another tool",
                where=status.sink,
                hint="let the other tool read the topics from their first records",
            )
        return ends(status.position)
    if status.checkpoint.committed and status.checkpoint.position:
        return dict(status.checkpoint.position)
    raise ConfigError(
        f"feed '{feed}' has committed nothing yet, or has not finished its last batch",
        where=status.sink,
        hint="run the feed once: lakefeed run PIPELINE --once",
    )


def _require_quiet(feed: Feed, status: FeedStatus) -> None:
    """Refuse a feed that has committed recently: if it still runs, it commits records beyond the exported offsets."""
    from lakefeed import open_table

    name = feed.config.sink.chosen.snapshot_table
    if name is None or status.position is None:
        return
    line, _ = ancestors(open_table(name, connections=feed.connections), feed.config.name)
    newest = next((each for each in line if each.snapshot_id == status.position.snapshot_id), None)
    if newest is not None and time.time() - newest.timestamp_ms / 1000 < QUIET_SECONDS:
        raise ConfigError(
            f"feed '{feed.config.name}' has committed a moment ago: it may still run",
            where=name,
            hint=f"stop the feed and wait {QUIET_SECONDS / 60:.0f} minutes, or confirm the stop: --stopped",
        )


def _files_to_write(files: StoredCheckpoint, offsets: Mapping[Partition, int], *, where: str) -> dict[str, str]:
    """Return the missing files of a checkpoint whose only batch is complete and has no records.

    An interrupted export has written only the first files; with these alone, Spark begins at the same offsets.

    Raises:
        CheckpointMismatch: the location has other files.
    """
    position = json.dumps(by_topic(dict(sorted(offsets.items()))), separators=(",", ":"))
    written = {
        # Spark skips the first byte of this file.
        INITIAL: f"\0v1\n{position}",
        "offsets/0": f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{{}}}}\n{position}',
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
    }
    # Ignore the files .crc that Hadoop writes beside local files.
    there = {name for name in files.names() if not name.endswith(".crc")}
    others = there - written.keys() - {METADATA}
    if others or any(files.read(name) != text for name, text in written.items() if name in there):
        raise CheckpointMismatch(
            "the location has another checkpoint, or other files",
            where=where,
            hint="name an empty location, for a job that reads this feed's topics in one source with subscribe",
        )
    left = {name: text for name, text in written.items() if name not in there}
    return left if METADATA in there else {**left, METADATA: json.dumps({"id": str(uuid.uuid4())})}
