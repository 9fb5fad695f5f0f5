"""Finds records that a feed has lost: a topic was recreated, or records were removed unread. Nothing is asked here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from lakefeed.clients.kafka.topics import TopicDescription
from lakefeed.offsets.ranges import Partition

Kind = Literal["recreated", "overtaken", "ahead", "gone", "unread"]


@dataclass(frozen=True, kw_only=True)
class DataLoss:
    """Records of one partition that a feed can never read, or cannot distinguish from others.

    Attributes:
        kind: ``recreated``: another topic has the name now; ``overtaken``: retention has removed records before they
            were read; ``ahead``: the topic ends before the feed's position; ``gone``: the topic or partition
            does not exist any more; ``unread``: the pipeline does not read the topic any more.
        topic: its name.
        partition: the partition.
        position: the feed's.
        resume_at: where it can resume; None if it cannot.
        message: one sentence about it.
    """

    kind: Kind
    topic: str
    partition: int
    position: int
    resume_at: int | None
    message: str


def find_data_loss(
    positions: Mapping[Partition, int], ids: Mapping[str, str], topics: Mapping[str, TopicDescription | None]
) -> Iterator[DataLoss]:
    """Find the records that keep a feed from resuming.

    Args:
        positions: the feed's, by partition.
        ids: of the topics when it read them; empty or absent where unknown.
        topics: those that the pipeline reads, as they are now; None for one that does not exist.
    """
    for (topic, number), position in sorted(positions.items()):
        name = f"{topic}-{number}"
        described = topics.get(topic)
        found = next((each for each in described.partitions if each.id == number), None) if described else None
        first = ids.get(topic, "")
        kind: Kind
        if described is not None and first and first != described.topic_id:
            kind, resume_at = "recreated", found.start_offset if found else None
            there = f"[{found.start_offset}, {found.end_offset})" if found else "nothing"
            message = (
                f"{name}: the topic was recreated (its id was {first}, and is {described.topic_id}); the feed has "
                f"read the old one up to {position}, the new one holds {there}"
            )
        elif topic not in topics:
            kind, resume_at = "unread", None
            message = f"{name}: the pipeline does not read this topic any more; the feed has read it up to {position}"
        elif found is None:
            kind, resume_at = "gone", None
            message = f"{name}: it does not exist any more; the feed has read it up to {position}"
        elif found.lost is not None:
            kind, resume_at, message = "overtaken", position, f"{topic}: {found.lost}"
        elif position < found.start_offset:
            kind, resume_at = "overtaken", found.start_offset
            message = (
                f"{name}: the feed is at {position}, the topic begins at {found.start_offset}: "
                f"{found.start_offset - position:,} offsets were removed before they were read"
            )
        elif position > found.end_offset:
            kind, resume_at = "ahead", found.end_offset
            message = (
                f"{name}: the feed is at {position}, the topic ends at {found.end_offset}: the broker has lost "
                "records, or it is another cluster"
            )
        else:
            continue
        yield DataLoss(
            kind=kind, topic=topic, partition=number, position=position, resume_at=resume_at, message=message
        )
