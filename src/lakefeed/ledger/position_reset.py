"""A feed's position that is moved on purpose: a rewind, or records given up. A commit of its own in the ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lakefeed.errors import ConfigError
from lakefeed.offsets.ranges import OffsetRanges

Reason = Literal["rewind", "accepted-loss"]


@dataclass(frozen=True)
class Move:
    """From where to where.

    Attributes:
        reason: why.
        positions: by topic and partition, from where to where; partitions that stay are left out.
        left_ids: the ids of the topics that are left, where the names belong to others now, and of those that the feed
            does not read any more.
        deleted_rows: rows that were deleted in the same commit, by topic and partition; None if they were kept.
        unknown: the table was rolled back and no commit says where the feed stood; ``positions`` is empty.
    """

    reason: Reason
    positions: Mapping[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    left_ids: Mapping[str, str] = field(default_factory=dict)
    deleted_rows: Mapping[tuple[str, int], int] | None = None
    unknown: bool = False

    def to_json(self, ranges: OffsetRanges) -> str:
        """As a snapshot's summary has it, beside the ranges that it moves to."""
        topics: dict[str, dict[str, object]] = {}
        ids = {**ranges.topic_ids, **self.left_ids}
        for topic in sorted({topic for topic, _ in self.positions} | self.left_ids.keys()):
            moved = {str(partition): list(move) for (name, partition), move in self.positions.items() if name == topic}
            topics[topic] = {"id": ids.get(topic, ""), "ranges": moved}
        document: dict[str, object] = {"reason": self.reason, "positions": topics}
        if self.unknown:
            document["unknown"] = True
        if self.deleted_rows is not None:
            deleted: dict[str, dict[str, int]] = {}
            for (topic, partition), rows in sorted(self.deleted_rows.items()):
                deleted.setdefault(topic, {})[str(partition)] = rows
            document["deleted"] = deleted
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Move:
        """Reads what ``to_json`` wrote.

        Raises:
            ConfigError: if it is something else.
        """
        try:
            document = json.loads(text)
            topics = document["positions"]
            deleted = document.get("deleted")
            return cls(
                reason=document["reason"],
                positions={
                    (topic, int(partition)): (int(start), int(end))
                    for topic, entry in topics.items()
                    for partition, (start, end) in entry["ranges"].items()
                },
                left_ids={topic: entry["id"] for topic, entry in topics.items() if entry["id"]},
                deleted_rows=None
                if deleted is None
                else {
                    (topic, int(partition)): int(rows)
                    for topic, partitions in deleted.items()
                    for partition, rows in partitions.items()
                },
                unknown=bool(document.get("unknown", False)),
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ConfigError("this is not a move of a feed's position", where=text[:200]) from None

    def reaches(self, start: OffsetRanges) -> OffsetRanges:
        """The empty ranges of the commit that moves a feed whose newest commit has these; same topics only."""
        moved = {(each.topic, each.partition): each.end for each in start.ranges}
        moved |= {key: to for key, (_, to) in self.positions.items()}
        ends: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in moved.items():
            ends.setdefault(topic, {})[partition] = offset
        return OffsetRanges.between(ends, ends, start.topic_ids)
