"""Where a feed is to be moved, and what that means: planned from what is known, nothing is asked or changed here."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from lakefeed.clients.kafka.topics import PartitionDescription, TopicDescription
from lakefeed.errors import ConfigError, RecordsLost, ResourceMissing
from lakefeed.ledger.position_reset import Move, Reason
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition

MOST_SHOWN = 10
_OFFSET = re.compile(r"([A-Za-z0-9._-]{1,249}):(\d{1,9}):(\d{1,18})", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class PartitionMove:
    """What becomes of one partition.

    Attributes:
        topic: its name.
        partition: the partition.
        start: where the feed stands; None if that is not known.
        to: where it resumes.
        rows: rows of the table from the offsets that are read again; None if they were not or could not be counted.
        letters: dead letters of them, which are deleted.
    """

    topic: str
    partition: int
    start: int | None
    to: int
    rows: int | None = None
    letters: int = 0

    @property
    def again(self) -> int:
        """Offsets that are read again."""
        return max(0, (self.to if self.start is None else self.start) - self.to)

    @property
    def given_up(self) -> int:
        """Offsets that are never read."""
        return max(0, self.to - (self.to if self.start is None else self.start))


def written_offsets(text: str) -> dict[Partition, int]:
    """Reads ``topic:partition:offset,…``, or ``{"topic": {"0": 12}}`` as Spark writes it.

    Raises:
        ConfigError: it is written otherwise.
    """
    try:
        if text.lstrip().startswith("{"):
            return {
                (str(topic), int(partition)): int(offset)
                for topic, offsets in json.loads(text).items()
                for partition, offset in offsets.items()
            }
        found = {}
        for each in text.split(","):
            match = _OFFSET.fullmatch(each.strip())
            if match is None:
                raise ValueError(each)
            found[match[1], int(match[2])] = int(match[3])
        return found
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(
            f"'{text}' says no offsets", hint="""write topic:0:12,topic:1:20, or {"topic": {"0": 12, "1": 20}}"""
        ) from None


def planned(
    positions: Mapping[Partition, int],
    targets: Mapping[Partition, int],
    topics: Mapping[str, TopicDescription | None],
    *,
    ids: Mapping[str, str],
    accept_loss: bool,
) -> tuple[PartitionMove, ...]:
    """The moves, checked: each to where the topic has records, and forward only if asked to.

    Args:
        positions: where the feed stands; empty if that is not known.
        targets: where partitions are to go.
        topics: as they are now.
        ids: of the topics that the feed has read.
        accept_loss: give up what is between a position and a target behind it.

    Raises:
        ConfigError: a target that is no partition of the feed, some go back and others forward, or records would be
            given up unasked.
        ResourceMissing: the topic has not got the records at a target, any more or yet.
        RecordsLost: the topic was recreated.
    """
    moves = []
    for (topic, partition), to in sorted(targets.items()):
        name = f"{topic}-{partition}"
        if positions and (topic, partition) not in positions:
            raise ConfigError(f"the feed has not read {name}", hint="it begins there at the first record by itself")
        described = topics.get(topic)
        there = _partition(described, partition)
        if described is None or there is None:
            raise ResourceMissing(f"there is no {name}", hint="lakefeed topics describe shows what a topic has")
        if ids.get(topic, described.topic_id) != described.topic_id:
            raise RecordsLost(
                f"{topic} was recreated: its id was {ids[topic]}, and is {described.topic_id}",
                hint="lakefeed run pipeline.yaml --accept-loss resumes with the new one",
            )
        if not there.start_offset <= to <= there.end_offset:
            raise ResourceMissing(
                f"{name} cannot be read from {to}: the topic has [{there.start_offset}, {there.end_offset})",
                hint="--to earliest begins at its first record",
            )
        moves.append(PartitionMove(topic=topic, partition=partition, start=positions.get((topic, partition)), to=to))
    forward = [each for each in moves if each.given_up]
    if forward and not accept_loss:
        message = ", ".join(
            f"[{each.start}, {each.to}) of {each.topic}-{each.partition}" for each in forward[:MOST_SHOWN]
        )
        raise ConfigError(
            f"the feed would never read {sum(each.given_up for each in forward):,} offsets: {message}",
            hint="--accept-loss gives them up, and records it in the table's ledger",
        )
    if forward and any(each.again for each in moves):
        raise ConfigError(
            "some partitions would go back and others forward", hint="move them apart, with --topic and --partition"
        )
    return tuple(each for each in moves if each.start != each.to)


def _partition(topic: TopicDescription | None, partition: int) -> PartitionDescription | None:
    return next((each for each in topic.partitions if each.id == partition), None) if topic else None


def move_commit(
    feed: str,
    before: OffsetRanges | None,
    moves: tuple[PartitionMove, ...],
    topics: Mapping[str, TopicDescription | None],
    *,
    deletes: bool,
) -> Commit:
    """The commit that moves a feed.

    Args:
        feed: its name.
        before: of its newest commit; None if the table was rolled back and does not tell.
        moves: what moves.
        topics: as they are now.
        deletes: whether the rows of what is read again are deleted in the same commit.
    """
    reason: Reason = "accepted-loss" if any(each.given_up for each in moves) else "rewind"
    again = [each for each in moves if each.again]
    # Where there are no rows to keep, none is kept: a later duplicate of these offsets is a fault then.
    deletes = deletes or (bool(again) and all(each.rows == 0 for each in again))
    deleted = {(each.topic, each.partition): each.rows or 0 for each in again} if deletes else None
    if before is None:
        ids = {name: found.topic_id for name, found in topics.items() if found is not None}
        ranges = OffsetRanges(
            tuple(OffsetRange(each.topic, each.partition, each.to, each.to) for each in moves),
            {each.topic: ids[each.topic] for each in moves},
        )
        return Commit(feed, 0, ranges, move=Move(reason="rewind", unknown=True))
    move = Move(
        reason=reason,
        positions={(each.topic, each.partition): (each.start or 0, each.to) for each in moves},
        deleted_rows=deleted,
    )
    return Commit(feed, 0, move.reaches(before), move=move)
