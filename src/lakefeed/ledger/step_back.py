"""Plans how the ledger of a feed's dead letters follows when the feed moves back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakefeed.errors import CheckpointMismatch
from lakefeed.ledger.snapshot_summary import Commit, PositionReset
from lakefeed.offsets.ranges import OffsetRanges, Partition


@dataclass(frozen=True)
class StepBack:
    """The commit that moves the ledger of a feed's dead letters back, and the offsets whose letters it deletes."""

    commit: Commit
    deleted: Mapping[Partition, tuple[int, int]]


def step_back(feed: str, letters: OffsetRanges, position: OffsetRanges | None) -> StepBack | None:
    """Plan how dead letters follow a feed that has moved back, or that reads a recreated topic.

    ``letters`` are the ranges of the letters' newest commit, ``position`` those of the rows' newest commit, if any.
    Returns None if the letters are not ahead of the rows.
    """
    stands, ids = (position.ends, position.topic_ids) if position is not None else ({}, {})
    moved: dict[Partition, tuple[int, int]] = {}
    ends: dict[Partition, int] = {}
    deleted: dict[Partition, tuple[int, int]] = {}
    left: dict[str, str] = {}
    for span in letters.ranges:
        key, before = span.key, letters.topic_ids.get(span.topic, "")
        now = ids.get(span.topic, before)
        if now != before:
            # These letters belong to the old topic, and the feed does not read its records again.
            left[span.topic] = before
            if key not in stands:
                continue
            ends[key] = stands[key]
        elif position is not None and key not in stands:
            ends[key] = span.end
        else:
            ends[key] = min(span.end, stands.get(key, 0))
            if ends[key] < span.end:
                deleted[key] = (ends[key], span.end)
        if ends[key] != span.end:
            moved[key] = (span.end, ends[key])
    if not moved and not left:
        return None
    ranges = OffsetRanges.at(ends, {topic: ids.get(topic, letters.topic_ids.get(topic, "")) for topic, _ in ends})
    return StepBack(Commit(feed, 0, ranges, move=PositionReset("rewind", moved, left)), deleted)


def letters_ahead(feed: str, *, where: str) -> CheckpointMismatch:
    """Return the error for dead letters ahead of a feed that was not moved; ``where`` is their table."""
    return CheckpointMismatch(
        f"the dead letters of feed '{feed}' are further than its rows: the rows' table was rolled back, recreated, "
        "or is another one",
        where=where,
        hint="restore the table; or delete these dead letters, and resume where the table is: "
        "lakefeed offsets rewind pipeline.yaml --to table",
    )
