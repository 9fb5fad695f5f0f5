"""Checks that a commit begins exactly where the last one ended, or moves away from there on purpose.

Every ledger that is read in Python asks here. Two places ask the same for themselves: ``io.lakefeed.commit.Ledger``
inside the commit of an Iceberg table, and ``lakefeed verify``, which must not trust the code that it verifies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lakefeed.errors import CheckpointMismatch
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.protocol import CommitCheck
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.offsets.ranges import OffsetRanges


def check_commit(commit: Commit, last: Position | None, *, where: str) -> CommitCheck:
    """Compare a batch with the last commit of its feed.

    Args:
        commit: the batch's.
        last: the position of the feed in the sink.
        where: the sink, as errors name it.

    Raises:
        CheckpointMismatch: the batch neither is the last commit nor begins where that ended.
    """
    if last is None:
        if commit.batch_id == 0:
            return CommitCheck.NEW
        raise CheckpointMismatch(
            f"the checkpoint of feed '{commit.feed}' is at batch {commit.batch_id}, but the table holds no "
            "commit of it: resuming would lose all earlier records",
            where=where,
            hint="restore the table, or name another checkpoint location to read the topics again",
        )
    if last.ranges == commit.ranges:
        return CommitCheck.ALREADY_COMMITTED
    if not (found := violations(last.ranges, commit)):
        return CommitCheck.NEW
    raise CheckpointMismatch(
        f"batch {commit.batch_id} does not continue where feed '{commit.feed}' ended in the table: {'; '.join(found)}",
        where=f"{where}, snapshot {last.snapshot_id}" if last.snapshot_id else where,
        hint="the checkpoint is not this table's, or one of the two was rolled back or lost: restore it, or "
        "start with a new table and a new checkpoint location",
    )


def violations(last: OffsetRanges, commit: Commit) -> list[str]:
    """Return why a commit cannot come after these ranges; empty if it can."""
    return [*_other_topics(last, commit), *_wrong_starts(last, commit), *_missing_partitions(last, commit)]


def recreated_topic(known: Mapping[str, str], ranges: OffsetRanges) -> str | None:
    """Return a topic whose id differs from the id of the sink's rows; None if there is none.

    Args:
        known: the ids of the topics that the sink has rows of.
        ranges: of a batch.
    """
    return next((topic for topic, found in ranges.topic_ids.items() if known.get(topic, found) != found), None)


def _other_topics(last: OffsetRanges, commit: Commit) -> Iterator[str]:
    left = commit.left_ids
    for topic, topic_id in commit.ranges.topic_ids.items():
        if (before := last.topic_ids.get(topic, topic_id)) != topic_id and left.get(topic) != before:
            yield f"topic {topic} was recreated (id {topic_id}, was {before})"


def _wrong_starts(last: OffsetRanges, commit: Commit) -> Iterator[str]:
    positions: Mapping[tuple[str, int], tuple[int, int]] = commit.move.positions if commit.move else {}
    ends = {(span.topic, span.partition): span.end for span in last.ranges}
    marks = {(span.topic, span.partition): span.marks[1] for span in last.ranges if span.marks is not None}
    for span in commit.ranges.ranges:
        key, name = (span.topic, span.partition), f"{span.topic}-{span.partition}"
        ended, moves = ends.get(key), positions.get(key)
        if moves is not None and ended is not None and moves[0] != ended:
            yield f"{name} is to be moved from {moves[0]}, the table ends at {ended}"
        elif moves is not None and moves[1] != span.start:
            yield f"{name} is to be moved to {moves[1]} and begins at {span.start}"
        elif moves is None and ended is not None and span.start != ended:
            yield f"{name} begins at {span.start}, the table ends at {ended}"
        elif moves is None and span.marks is not None and span.marks[0] != marks.get(key, span.marks[0]):
            yield f"{name} begins after {span.marks[0]}, the table ends at {marks[key]}"


def _missing_partitions(last: OffsetRanges, commit: Commit) -> Iterator[str]:
    left = commit.left_ids
    present = {(span.topic, span.partition) for span in commit.ranges.ranges}
    for span in last.ranges:
        if (span.topic, span.partition) in present:
            continue
        if span.topic not in left or left[span.topic] != last.topic_ids.get(span.topic):
            yield f"{span.topic}-{span.partition} is in the table but not in the batch"
