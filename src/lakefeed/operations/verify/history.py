"""What became of a feed's older commits since: parts of them were rewound, or their topic's name is another's now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakefeed.ledger.outcomes import ZERO, Counts
from lakefeed.ledger.snapshot_summary import Backfill, Commit
from lakefeed.offsets.ranges import OffsetRange, Partition


@dataclass(frozen=True, kw_only=True)
class Fate:
    """What is left of one commit.

    Attributes:
        commit: the commit.
        limits: partitions that were rewound later, and the offset from which on their records were read again.
        left: topics whose name is another topic's now, or that the feed has left.
    """

    commit: Commit | Backfill
    limits: Mapping[Partition, int] = field(default_factory=dict)
    left: frozenset[str] = frozenset()

    def counts(self) -> dict[Partition, tuple[Counts, Counts]]:
        """What must still be there at least, and can be at most; not the same if a range was rewound in part."""
        found = {}
        for each in self.commit.ranges.ranges:
            key = (each.topic, each.partition)
            if each.topic in self.left or key not in self.commit.counts:
                continue
            counts, gone = self.commit.counts[key], self.rewound(each)
            if gone >= each.records and each.records:
                found[key] = (ZERO, ZERO)
            elif gone:
                most = Counts(counts.records, counts.dead_letters, counts.skipped)
                least = Counts(
                    max(0, counts.rows - gone) + max(0, counts.dead_letters - gone), max(0, counts.dead_letters - gone)
                )
                found[key] = (least, most)
            else:
                found[key] = (counts, counts)
        return found

    @property
    def is_rewound(self) -> bool:
        """Whether all of it was."""
        return all(self.rewound(each) == each.records for each in self.commit.ranges.ranges)

    def rewound(self, span: OffsetRange) -> int:
        """How many offsets of a range were read again."""
        limit = self.limits.get((span.topic, span.partition))
        return 0 if limit is None else max(0, span.end - max(span.start, limit))


def fates(commits: Sequence[Commit | Backfill]) -> list[Fate]:
    """What is left of each commit, in the same order."""
    found = []
    limits: dict[Partition, int] = {}
    left: frozenset[str] = frozenset()
    for commit in reversed(commits):
        found.append(Fate(commit=commit, limits=dict(limits), left=left))
        for key, (start, _) in commit.rewound.items():
            limits[key] = min(start, limits.get(key, start))
        left |= commit.left_ids.keys()
    return found[::-1]


def doubled(commits: tuple[Commit, ...]) -> set[Partition]:
    """Partitions that were rewound with their rows kept, so that offsets with several rows are intended."""
    return {
        key
        for commit in commits
        if commit.move is not None and commit.move.deleted_rows is None
        for key in commit.rewound
    }


def renamed(commits: tuple[Commit, ...]) -> set[str]:
    """Names that the commits know several topics by: rows of the one have the offsets of the other's."""
    ids: dict[str, set[str]] = {}
    for commit in commits:
        for topic, topic_id in commit.ranges.topic_ids.items():
            ids.setdefault(topic, set()).add(topic_id)
        # The commits of the topic that was left may have expired.
        for topic, topic_id in commit.left_ids.items():
            ids.setdefault(topic, set()).add(topic_id)
    return {topic for topic, known in ids.items() if len(known) > 1}
