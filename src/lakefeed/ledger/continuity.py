"""Whether a commit continues exactly where the last one ended, or says rightly from where it moves away.

The same that ``io.lakefeed.commit.Ledger`` asks of an Iceberg table's snapshots, for ledgers that are read in Python.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.offsets.ranges import OffsetRanges


def recreated_topic(known: Mapping[str, str], ranges: OffsetRanges) -> str | None:
    """A topic that is another one than the sink has rows of; None if all are the same, or new.

    Args:
        known: the ids of the topics that the sink has rows of.
        ranges: of a batch.
    """
    return next((topic for topic, each in ranges.topic_ids.items() if known.get(topic, each) != each), None)


def faults(last: OffsetRanges, commit: Commit) -> list[str]:
    """What is wrong with a commit that comes after one with these ranges; empty if nothing is."""
    move = commit.move
    positions: Mapping[tuple[str, int], tuple[int, int]] = move.positions if move else {}
    left: Mapping[str, str] = move.left_ids if move else {}
    found = [
        f"topic {topic} was recreated (id {topic_id}, was {before})"
        for topic, topic_id in commit.ranges.topic_ids.items()
        if (before := last.topic_ids.get(topic, topic_id)) != topic_id and left.get(topic) != before
    ]
    ends = {(each.topic, each.partition): each.end for each in last.ranges}
    marks = {(each.topic, each.partition): each.marks[1] for each in last.ranges if each.marks is not None}
    for each in commit.ranges.ranges:
        key, name = (each.topic, each.partition), f"{each.topic}-{each.partition}"
        ended, moves = ends.get(key), positions.get(key)
        if moves is not None and ended is not None and moves[0] != ended:
            found.append(f"{name} is to be moved from {moves[0]}, the table ends at {ended}")
        elif moves is not None and moves[1] != each.start:
            found.append(f"{name} is to be moved to {moves[1]} and begins at {each.start}")
        elif moves is None and ended is not None and each.start != ended:
            found.append(f"{name} begins at {each.start}, the table ends at {ended}")
        elif moves is None and each.marks is not None and each.marks[0] != marks.get(key, each.marks[0]):
            found.append(f"{name} begins after {each.marks[0]}, the table ends at {marks[key]}")
    for gone in commit.ranges.forgotten_after(last):
        leaves = left.get(gone.topic) is not None and left[gone.topic] == last.topic_ids.get(gone.topic)
        if not leaves or left[gone.topic] == commit.ranges.topic_ids.get(gone.topic):
            found.append(f"{gone.topic}-{gone.partition} is in the table but not in the commit")
    return found
