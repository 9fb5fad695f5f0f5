"""Backfills beside a feed's commits: no offset is in the table by two of them. Nothing is read here."""

from __future__ import annotations

from collections.abc import Iterator

from lakefeed.ledger.snapshot_summary import Backfill, Commit
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.offsets.sets import common, subtracted, united
from lakefeed.operations.verify.evidence import Evidence, Finding


def backfill_findings(evidence: Evidence) -> Iterator[Finding]:
    """What a backfill and the feed, or two backfills, have both landed."""
    if not evidence.backfills:
        return
    ids: dict[str, str] = {}
    by_feed: list[OffsetRange] = []
    by_backfills: list[OffsetRange] = []
    for landed in evidence.line:
        for topic, topic_id in landed.ranges.topic_ids.items():
            if ids.setdefault(topic, topic_id) != topic_id:
                # Recreated under the same name: its offsets are different ones.
                ids[topic] = topic_id
                by_feed = [each for each in by_feed if each.topic != topic]
                by_backfills = [each for each in by_backfills if each.topic != topic]
        if landed.move is not None:
            rewound = [OffsetRange(*key, start, end) for key, (start, end) in landed.rewound.items()]
            by_feed, by_backfills = subtracted(by_feed, rewound), subtracted(by_backfills, rewound)
            continue
        here = landed.ranges.ranges
        if isinstance(landed, Backfill):
            yield from _twice(landed, [*by_feed, *by_backfills])
            by_backfills = united([*by_backfills, *here])
        else:
            yield from _twice(landed, by_backfills)
            by_feed = united([*by_feed, *here])


def _twice(landed: Commit | Backfill, before: list[OffsetRange]) -> Iterator[Finding]:
    for each in common(landed.ranges.ranges, before):
        yield Finding(
            kind="overlap",
            what=f"{landed.title}: [{each.start}, {each.end}) of {each.topic}-{each.partition} had landed before, "
            "once by a backfill",
            topic=each.topic,
            partition=each.partition,
            start=each.start,
            end=each.end,
            batch_id=landed.batch_id,
            snapshot_id=landed.snapshot_id,
        )
