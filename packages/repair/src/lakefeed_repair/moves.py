"""Plan the offsets to which a rewind moves a feed's partitions, from the user's input and the state of the topics."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from lakefeed.clients.kafka.selection import moment
from lakefeed.clients.kafka.topics import TopicDescription, Topics, partitions_of
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import ConfigError, RecordsLost, ResourceMissing
from lakefeed.ledger.snapshot_summary import Commit, PositionReset
from lakefeed.ledger.snapshots import ancestors, commits_of
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition
from lakefeed.operations.status import FeedStatus

if TYPE_CHECKING:
    from pyiceberg.table import Table

PAGE = "offsets"

MOST_SHOWN = 10
_OFFSET = re.compile(r"([A-Za-z0-9._-]{1,249}):(\d{1,9}):(\d{1,18})", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class PartitionMove:
    """The move of one partition from the offset ``start`` (None if it is unknown) to the offset ``to``.

    Attributes:
        rows: the table's rows of records that the feed will read again; None if they were not counted.
        letters: the number of dead letters to delete.
    """

    topic: str
    partition: int
    start: int | None
    to: int
    rows: int | None = None
    letters: int = 0

    @property
    def again(self) -> int:
        """The number of offsets that the feed will read again."""
        return 0 if self.start is None else max(0, self.start - self.to)

    @property
    def given_up(self) -> int:
        """The number of offsets that the feed will skip."""
        return 0 if self.start is None else max(0, self.to - self.start)


def find_targets(
    to: str,
    config: PipelineConfig,
    status: FeedStatus,
    table: Table,
    chosen: Mapping[Partition, int],
    *,
    accept_loss: bool,
) -> dict[Partition, int]:
    """Return the target offsets of the partitions in ``chosen``, which has their present offsets."""
    kind, _, value = to.partition(":")
    if to in ("earliest", "latest"):
        there = partitions_of(status.topics)
        offsets = {key: part.start_offset if to == "earliest" else part.end_offset for key, part in there.items()}
        return {key: offsets[key] for key in chosen if key in offsets}
    if kind == "timestamp":
        return _targets_at(moment(value, prefix="timestamp:"), config, status, chosen, accept_loss=accept_loss)
    if kind == "snapshot" and value.isdigit():
        position = _position_at(table, int(value), config.name)
        return {key: position.get(key, 0) for key in chosen}
    targets = parse_offsets(to)
    if outside := sorted(targets.keys() - chosen.keys()):
        [(topic, partition), *_] = outside
        what = f"--to names {topic}-{partition}, which the feed does not read, or which --topic or --partition excludes"
        raise ConfigError(what, hint="lakefeed offsets show lists the feed's partitions")
    return targets


def _targets_at(
    time: datetime, config: PipelineConfig, status: FeedStatus, chosen: Mapping[Partition, int], *, accept_loss: bool
) -> dict[Partition, int]:
    """Return the offsets of the first records since a time; refuse to skip records without ``accept_loss``."""
    cluster = Topics(config.kafka.bootstrap_servers, options=config.kafka.client_options)
    times = {name: cluster.offsets_at(name, time) for name, topic in status.topics.items() if topic is not None}
    targets: dict[Partition, int] = {}
    for (name, number), partition in partitions_of(status.topics).items():
        if (key := (name, number)) in chosen:
            target = times[name].get(number, partition.end_offset)
            targets[key] = min(target, chosen[key]) if status.position and not accept_loss else target
    return targets


def _position_at(table: Table, snapshot_id: int, feed: str) -> dict[Partition, int]:
    """Return the feed's offsets in a snapshot that is an ancestor of the table's present snapshot."""
    line, _ = ancestors(table, feed)
    until = [number for number, snapshot in enumerate(line, 1) if snapshot.snapshot_id == snapshot_id]
    commits = list(commits_of(line[: until[0]], feed)) if until else []
    if not commits:
        none = "no snapshot up to this one is a commit of the feed"
        what = none if until else "it is not an ancestor of the present snapshot"
        raise ResourceMissing(
            f"snapshot {snapshot_id} has no position of the feed: {what}, or it has expired",
            where=".".join(table.name()),
            hint="give a time instead: --to timestamp:2026-11-20T06:30",
        )
    return commits[-1].ranges.ends


def parse_offsets(text: str) -> dict[Partition, int]:
    """Read ``topic:partition:offset,…``, or Spark's ``{"topic": {"0": 12}}``; raise a ConfigError for other texts."""
    try:
        if text.lstrip().startswith("{"):
            return {
                (str(topic), int(partition)): int(offset)
                for topic, offsets in json.loads(text).items()
                for partition, offset in offsets.items()
            }
        offsets = {}
        for part in text.split(","):
            match = _OFFSET.fullmatch(part.strip())
            if match is None:
                raise ValueError(part)
            offsets[match[1], int(match[2])] = int(match[3])
        return offsets
    except (ValueError, AttributeError, TypeError):
        hint = """write topic:0:12,topic:1:20, or {"topic": {"0": 12, "1": 20}}"""
        raise ConfigError(f"'{text}' is not a valid value of --to", hint=hint) from None


def plan_moves(
    positions: Mapping[Partition, int],
    targets: Mapping[Partition, int],
    topics: Mapping[str, TopicDescription | None],
    *,
    ids: Mapping[str, str],
    accept_loss: bool,
) -> tuple[PartitionMove, ...]:
    """Return the moves; refuse offsets that the topic does not have, and moves forward without ``accept_loss``.

    ``positions`` is empty if the feed's offsets are unknown; ``ids`` are the ids of the topics that the feed has read.
    """
    moves, partitions = [], partitions_of(topics)
    for (topic, partition), to in sorted(targets.items()):
        name = f"{topic}-{partition}"
        if positions and (topic, partition) not in positions:
            raise ConfigError(
                f"the feed has not read {name} yet",
                hint=f"leave out {name}: the feed begins at the first record of a new partition",
            )
        described, there = topics.get(topic), partitions.get((topic, partition))
        if described is None or there is None:
            raise ResourceMissing(f"there is no partition {name}", hint="lakefeed topics show lists the partitions")
        if ids.get(topic, described.topic_id) != described.topic_id:
            raise RecordsLost(
                f"the topic {topic} was recreated: its id was {ids[topic]}, and is now {described.topic_id}",
                hint="lakefeed run pipeline.yaml --accept-loss resumes with the new topic",
            )
        if not there.start_offset <= to <= there.end_offset:
            raise ResourceMissing(
                f"{name} has no offset {to}: the topic has [{there.start_offset}, {there.end_offset})",
                hint="--to earliest begins at the topic's first record",
            )
        moves.append(PartitionMove(topic=topic, partition=partition, start=positions.get((topic, partition)), to=to))
    forward = [move for move in moves if move.given_up]
    if forward and not accept_loss:
        first = (f"[{move.start}, {move.to}) of {move.topic}-{move.partition}" for move in forward[:MOST_SHOWN])
        raise ConfigError(
            f"the feed would never read {sum(move.given_up for move in forward):,} offsets: {', '.join(first)}",
            hint="--accept-loss leaves these records unread, and notes this in the table's ledger",
        )
    if forward and any(move.again for move in moves):
        hint = "use two commands: --topic and --partition choose the partitions to move"
        raise ConfigError("some partitions would move back and others forward", hint=hint)
    return tuple(move for move in moves if move.start != move.to)


def require_own_records(moves: Sequence[PartitionMove], adopted: Mapping[Partition, int], *, where: str) -> None:
    """Refuse a move to offsets from before the feed took the table over from another tool."""
    for move in moves:
        at = adopted.get((move.topic, move.partition), 0)
        if move.to < at:
            raise ConfigError(
                f"the feed took the table over at offset {at} of {move.topic}-{move.partition}: from {move.to} on, it "
                "would land records that another tool has already landed",
                where=where,
                hint=f"rewind to {at} or later; a new feed into a new table reads the topics from the beginning",
            )


def move_commit(
    feed: str,
    before: OffsetRanges | None,
    moves: tuple[PartitionMove, ...],
    topics: Mapping[str, TopicDescription | None],
    *,
    deletes: bool,
) -> Commit:
    """Return the commit that moves a feed.

    ``before`` has the ranges of the feed's newest commit; None if the table was rolled back, so that its offsets are
    unknown.
    """
    if before is None:
        ids = {name: topic.topic_id for name, topic in topics.items() if topic is not None}
        ranges = tuple(OffsetRange(move.topic, move.partition, move.to, move.to) for move in moves)
        reached = OffsetRanges(ranges, {move.topic: ids[move.topic] for move in moves})
        return Commit(feed, 0, reached, move=PositionReset(reason="rewind", unknown=True))
    again = [move for move in moves if move.again]
    # Store a move without rows to delete as one that deletes rows: verify then reports later duplicates.
    deletes = deletes or (bool(again) and all(move.rows == 0 for move in again))
    reset = PositionReset(
        reason="accepted-loss" if any(move.given_up for move in moves) else "rewind",
        positions={(move.topic, move.partition): (move.start or 0, move.to) for move in moves},
        deleted_rows={(move.topic, move.partition): move.rows or 0 for move in again} if deletes else None,
    )
    return Commit(feed, 0, reset.reaches(before), move=reset)
