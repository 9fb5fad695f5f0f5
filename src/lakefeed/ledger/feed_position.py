"""The position of a feed in its table, and the commit by which its dead letters follow a move back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakefeed.errors import CheckpointMismatch, ConfigError
from lakefeed.ledger.snapshot_summary import Commit, PositionReset
from lakefeed.offsets.ranges import WRITTEN_BY_ANOTHER, OffsetRanges, Partition, by_partition

ROLLED_BACK = "rolled-back"


@dataclass(frozen=True)
class CommittedOffsets:
    """The offsets that a table has.

    Attributes:
        intervals: for every partition ``[start, end)``, sorted, with gaps between the intervals.
        topic_ids: the broker's ids by topic name; a recreated topic has a new id and no intervals of the old topic.
    """

    intervals: Mapping[Partition, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Position:
    """The position of a feed, as its newest commit records it.

    Attributes:
        ranges: the commit's ranges; the feed resumes at their ends.
        snapshot_id: the commit's snapshot, which may have expired.
        covered: the offsets that the table has; None if they are unknown, as after another engine's rollback.
        is_move: whether the commit moved the feed instead of adding a batch.
        kept: offsets that the feed reads again after a rewind with ``--keep-rows``; an offset may have several rows.
    """

    ranges: OffsetRanges
    snapshot_id: int
    commit_id: str | None = None
    covered: CommittedOffsets | None = None
    is_move: bool = False
    kept: CommittedOffsets = field(default_factory=CommittedOffsets)

    @property
    def reset_snapshot_id(self) -> int | None:
        """The id of the newest commit's snapshot, if that commit moved the feed; otherwise None."""
        return self.snapshot_id if self.is_move else None

    @classmethod
    def from_json(cls, text: str) -> Position | None:
        """Read a table property ``lakefeed.position.<feed>``; None if the property marks the position as unknown."""
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
            raise ConfigError(
                "the text in the ledger is not the position of a feed", where=text[:200], hint=WRITTEN_BY_ANOTHER
            ) from None


def _covered(topics: Mapping[str, Mapping[str, Mapping[str, list[int]]]]) -> CommittedOffsets:
    bounds = by_partition({topic: entry["offsets"] for topic, entry in topics.items()})
    return CommittedOffsets(
        {key: tuple(zip(flat[::2], flat[1::2], strict=True)) for key, flat in bounds.items()},
        {topic: str(entry["id"]) for topic, entry in topics.items()},
    )


@dataclass(frozen=True)
class StepBack:
    """A commit that moves the position of the dead letters' ledger back."""

    commit: Commit
    deleted: Mapping[Partition, tuple[int, int]]
    """The offsets ``[start, end)`` whose letters the commit deletes."""


def step_back(feed: str, letters: OffsetRanges, position: OffsetRanges | None) -> StepBack | None:
    """Plan how dead letters follow a feed that has moved back or reads a recreated topic; None if nothing changes.

    ``letters`` are the ranges of the letters' newest commit, ``position`` has the ranges of the rows' newest commit, if
    any.
    """
    row_ends, ids = (position.ends, position.topic_ids) if position is not None else ({}, {})
    moved: dict[Partition, tuple[int, int]] = {}
    ends: dict[Partition, int] = {}
    deleted: dict[Partition, tuple[int, int]] = {}
    left: dict[str, str] = {}
    for span in letters.ranges:
        key, before = span.key, letters.topic_ids.get(span.topic, "")
        now = ids.get(span.topic, before)
        if now != before:
            # Keep these letters: their topic was recreated, so the feed cannot read their records again.
            left[span.topic] = before
            if key not in row_ends:
                continue
            ends[key] = row_ends[key]
        elif position is not None and key not in row_ends:
            ends[key] = span.end
        else:
            ends[key] = min(span.end, row_ends.get(key, 0))
            if ends[key] < span.end:
                deleted[key] = (ends[key], span.end)
        if ends[key] != span.end:
            moved[key] = (span.end, ends[key])
    if not moved and not left:
        return None
    ranges = OffsetRanges.at(ends, {topic: ids.get(topic, letters.topic_ids.get(topic, "")) for topic, _ in ends})
    return StepBack(Commit(feed, 0, ranges, move=PositionReset("rewind", moved, left)), deleted)


def letters_ahead(feed: str, *, where: str) -> CheckpointMismatch:
    """Return the error for dead letters that are ahead of the feed, although no command has moved the feed back."""
    return CheckpointMismatch(
        f"the dead letters of feed '{feed}' are ahead of its rows: the rows' table was rolled back, recreated or "
        "replaced by another one",
        where=where,
        hint="restore the table; or delete these dead letters and resume at the table's position: "
        "lakefeed offsets rewind pipeline.yaml --to table",
    )
