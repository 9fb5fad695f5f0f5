"""The position of a feed in its table: the ranges of the feed's newest commit, and all offsets in the table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakefeed.errors import ConfigError
from lakefeed.offsets.ranges import OffsetRanges, Partition, by_partition

ROLLED_BACK = "rolled-back"


@dataclass(frozen=True)
class CommittedOffsets:
    """The offsets that a table has, by partition.

    Attributes:
        intervals: by topic and partition; sorted, with gaps between them.
        topic_ids: the broker's ids by topic name; a recreated topic starts over.
    """

    intervals: Mapping[Partition, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Position:
    """The position of a feed.

    Attributes:
        ranges: the ranges of the feed's newest commit; the feed resumes at their ends.
        snapshot_id: the snapshot of that commit, which may have expired.
        commit_id: the id of that commit.
        covered: the table's offsets; None if unknown, as after a rollback by an engine without the check.
        is_move: whether that commit moved the feed, instead of adding a batch.
        kept: offsets that rewinds with ``--keep-rows`` read again: the table may have several rows per offset.
    """

    ranges: OffsetRanges
    snapshot_id: int
    commit_id: str | None = None
    covered: CommittedOffsets | None = None
    is_move: bool = False
    kept: CommittedOffsets = field(default_factory=CommittedOffsets)

    @property
    def reset_snapshot_id(self) -> int | None:
        """The snapshot of the feed's newest commit, if that commit moved the feed."""
        return self.snapshot_id if self.is_move else None

    @classmethod
    def from_json(cls, text: str) -> Position | None:
        """Read a table property ``lakefeed.position.<feed>``; None if it marks the position as unknown."""
        if text == ROLLED_BACK:
            return None
        try:
            document = json.loads(text)
            return cls(
                ranges=OffsetRanges.from_json(json.dumps(document["ranges"])),
                snapshot_id=int(document["snapshot-id"]),
                commit_id=document.get("commit-id"),
                covered=_covered(document["covered"]) if "covered" in document else None,
                is_move=bool(document["moved"]),
                kept=_covered(document.get("kept", {})),
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ConfigError("this is not the position of a feed", where=text[:200]) from None


def _covered(topics: Mapping[str, Mapping[str, Mapping[str, list[int]]]]) -> CommittedOffsets:
    bounds = by_partition({topic: entry["offsets"] for topic, entry in topics.items()})
    return CommittedOffsets(
        {key: tuple(zip(found[::2], found[1::2], strict=True)) for key, found in bounds.items()},
        {topic: str(entry["id"]) for topic, entry in topics.items()},
    )
