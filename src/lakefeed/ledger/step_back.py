"""Plans how the ledger of a feed's dead letters follows a feed that moves back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakefeed.errors import CheckpointMismatch
from lakefeed.ledger.snapshot_summary import Commit, PositionReset
from lakefeed.offsets.ranges import OffsetRanges, Partition


@dataclass(frozen=True)
class StepBack:
    """A commit that moves the dead letters' ledger back."""

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
