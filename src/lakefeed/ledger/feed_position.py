"""The position of a feed in its table: the ranges of its newest commit, and all offsets that the table has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakefeed.errors import ConfigError
from lakefeed.offsets.ranges import OffsetRanges, Partition, by_partition

ROLLED_BACK = "rolled-back"


@dataclass(frozen=True)
class CommittedOffsets:
    """The offsets of each partition that a table has, as intervals in order that neither touch nor overlap.

    Attributes:
        intervals: by topic and partition.
        topic_ids: topic name to the broker's id; a recreated topic starts over.
    """

    intervals: Mapping[Partition, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Position:
    """The position of a feed.

    Attributes:
        ranges: of its newest commit; their ends are where it resumes.
        snapshot_id: of that commit, whether or not the snapshot has expired.
        commit_id: of that commit.
        covered: what the table has; None if that is not known, as after a rollback by an engine without the check.
        is_move: whether that commit is no batch, but moved the feed.
        kept: offsets that rewinds with ``--keep-rows`` went back behind: the table may have several rows of each.
    """

    ranges: OffsetRanges
    snapshot_id: int
    commit_id: str | None = None
    covered: CommittedOffsets | None = None
    is_move: bool = False
    kept: CommittedOffsets = field(default_factory=CommittedOffsets)

    @property
    def reset_snapshot_id(self) -> int | None:
        """The snapshot that moved the feed, if its newest commit did."""
        return self.snapshot_id if self.is_move else None

    @classmethod
    def from_json(cls, text: str) -> Position | None:
        """Read a table property ``lakefeed.position.<feed>``; None if it says that the position is not known."""
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
