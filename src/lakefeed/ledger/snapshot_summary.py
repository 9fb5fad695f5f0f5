"""What a commit of a feed says of itself, in its snapshot's summary."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from typing import Protocol

from lakefeed.ledger.outcomes import Counts, counts_by_partition
from lakefeed.ledger.position_reset import Move
from lakefeed.offsets.ranges import OffsetRanges

FEED = "lakefeed.feed"
BATCH_ID = "lakefeed.batch-id"
RANGES = "lakefeed.ranges"
COMMIT_ID = "lakefeed.commit-id"
COUNTS = "lakefeed.counts"
FENCE = "lakefeed.fence"
FENCE_TAKEN = "lakefeed.fence-taken"
ROWS = "lakefeed.rows"
CONTINUITY = "lakefeed.continuity"
REPLAY = "lakefeed.replay"
REPLAY_OF = "lakefeed.replay-of"
MOVED = "lakefeed.moved"
BACKFILL_OF = "lakefeed.backfill-of"
POSITION = "lakefeed.position"
UPSERTED = "lakefeed.upserted"

MERGED = "spark.merge-into.num-target-rows-"
"""Spark's own counts of a MERGE, which Iceberg puts into the snapshot: inserted, updated and deleted rows."""


@dataclass(frozen=True)
class Upserts:
    """What became of the changes of a batch that was merged into a table of keyed rows.

    Attributes:
        changes: as they came out of the transform.
        keys: different keys among them; the other changes were superseded within the batch.
        deletes: of these keys, those whose newest change is a delete.
        inserted: rows for keys that the table did not have.
        updated: rows that were changed.
        deleted: rows that were removed.
    """

    changes: int = 0
    keys: int = 0
    deletes: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def landed(self) -> int:
        """Rows that the table has from this batch."""
        return self.inserted + self.updated

    @property
    def superseded(self) -> int:
        """Changes that a newer one of the same batch made void."""
        return self.changes - self.keys

    @property
    def void(self) -> int:
        """Changes that found a newer row, or nothing to delete."""
        return self.keys - self.inserted - self.updated - self.deleted

    def to_json(self) -> str:
        """What is known before the commit: ``[changes,keys,deletes]``."""
        return json.dumps([self.changes, self.keys, self.deletes], separators=(",", ":"))

    @classmethod
    def sum(cls, each: Iterable[Upserts | None]) -> Upserts:
        """Of several batches."""
        return cls(*(sum(column) for column in zip(*(astuple(found) for found in each if found), strict=True)))

    @classmethod
    def of(cls, summary: Mapping[str, str]) -> Upserts | None:
        """Reads a snapshot's summary; None if the commit is no such batch."""
        if UPSERTED not in summary:
            return None
        merged = (int(summary.get(f"{MERGED}{what}", 0)) for what in ("inserted", "updated", "deleted"))
        return cls(*json.loads(summary[UPSERTED]), *merged)


def net_rows(summary: Mapping[str, str]) -> int:
    """How many rows more a table has after a snapshot than before it."""
    plus, minus = ("added-records", "removed-position-deletes"), ("deleted-records", "added-position-deletes")
    return sum(int(summary.get(key, 0)) for key in plus) - sum(int(summary.get(key, 0)) for key in minus)


def rows_of(summary: Mapping[str, str]) -> tuple[int, int]:
    """How many rows a commit has written, and how many more the table has since."""
    if (upserts := Upserts.of(summary)) is not None:
        return upserts.landed, upserts.inserted - upserts.deleted
    return int(summary.get("added-records", 0)), net_rows(summary)


class SnapshotProperties(Protocol):
    """A value that becomes properties of a commit's snapshot."""

    def properties(self) -> dict[str, str]:
        """For the snapshot's summary."""


@dataclass(frozen=True)
class Commit:
    """One commit of a feed, as its snapshot says."""

    feed: str
    batch_id: int
    ranges: OffsetRanges
    fence: str | None = None
    snapshot_id: int | None = None
    rows: int = 0
    grown: int = 0
    """How many rows more the table has since this commit; fewer, if a move deletes rows."""
    files: int = 0
    counts: Mapping[tuple[str, int], Counts] = field(default_factory=dict)
    committed_at: float = 0.0
    """Seconds since 1970."""
    move: Move | None = None
    """Where the commit is no batch, but moves the feed; its ranges are empty then, where it moves to."""
    upserts: Upserts | None = None
    """Where the batch's changes were merged into the table; ``rows`` are then those that were inserted or changed."""

    @property
    def title(self) -> str:
        """As findings call it."""
        return f"batch {self.batch_id}, snapshot {self.snapshot_id}"

    @property
    def left_ids(self) -> dict[str, str]:
        """Topics that a move leaves, with their ids: dropped by the pipeline, or recreated under the same name."""
        left = self.move.left_ids if self.move else {}
        return {topic: each for topic, each in left.items() if each != self.ranges.topic_ids.get(topic)}

    @property
    def rewound(self) -> dict[tuple[str, int], tuple[int, int]]:
        """The offsets ``[start, end)`` that a move makes the feed read again.

        A recreated topic has none: its offsets are those of other records.
        """
        positions, left = self.move.positions if self.move else {}, self.left_ids
        return {key: (to, start) for key, (start, to) in positions.items() if to < start and key[0] not in left}

    def properties(self) -> dict[str, str]:
        """What is written into the snapshot's summary, in one step with the data."""
        written = {FEED: self.feed, BATCH_ID: str(self.batch_id), RANGES: self.ranges.to_json()}
        if self.move is not None:
            written[MOVED] = self.move.to_json(self.ranges)
        return written if self.fence is None else {**written, FENCE: self.fence}

    @classmethod
    def of(cls, snapshot_id: int, summary: Mapping[str, str], *, committed_at: float = 0.0) -> Commit:
        """Reads a snapshot's summary that has these properties."""
        move = Move.from_json(summary[MOVED]) if MOVED in summary else None
        rows, grown = rows_of(summary)
        if move is not None:
            # A move that deletes rows rewrites the rows that stay in a file; it adds none.
            rows, grown = 0, -sum((move.deleted_rows or {}).values())
        return cls(
            feed=summary[FEED],
            batch_id=int(summary[BATCH_ID]),
            ranges=OffsetRanges.from_json(summary[RANGES]),
            fence=summary.get(FENCE),
            snapshot_id=snapshot_id,
            rows=rows,
            grown=grown,
            files=int(summary.get("added-data-files", 0)),
            counts=counts_by_partition(summary.get(COUNTS, "{}")),
            committed_at=committed_at,
            move=move,
            upserts=Upserts.of(summary),
        )


@dataclass(frozen=True)
class Backfill:
    """Old records that land beside the feed, and move no position: one commit of them.

    Attributes:
        feed: the feed that has not read them and never will.
        ranges: theirs; partitions without any are left out.
        fence: of the feed's backfills, ``<feed>.backfills``.
        number: the snapshot's sequence number, which later ones exceed; its time in ms where the table has none.
        commit_id: known to it alone.
        rows: rows that it has written.
        grown: how many rows more the table has since.
        committed_at: seconds since 1970.
        after: how many commits of the feed came before it; counted by the audit.
    """

    feed: str
    ranges: OffsetRanges
    fence: str | None = None
    snapshot_id: int | None = None
    number: int = 0
    commit_id: str | None = None
    rows: int = 0
    grown: int = 0
    counts: Mapping[tuple[str, int], Counts] = field(default_factory=dict)
    committed_at: float = 0.0
    after: int = 0

    @property
    def batch_id(self) -> None:
        """It is no batch."""
        return None

    @property
    def move(self) -> None:
        """It moves nothing."""
        return None

    @property
    def rewound(self) -> dict[tuple[str, int], tuple[int, int]]:
        """It makes the feed read nothing again."""
        return {}

    @property
    def left_ids(self) -> dict[str, str]:
        """It leaves no topic."""
        return {}

    @property
    def title(self) -> str:
        """As findings call it."""
        return f"backfill, snapshot {self.snapshot_id}"

    def properties(self) -> dict[str, str]:
        """For the snapshot's summary."""
        written = {BACKFILL_OF: self.feed, RANGES: self.ranges.to_json()}
        return written if self.fence is None else {**written, FENCE: self.fence}

    @classmethod
    def of(
        cls, snapshot_id: int, summary: Mapping[str, str], *, number: int | None, milliseconds: int, after: int = 0
    ) -> Backfill:
        """Reads a snapshot's summary that has these properties.

        Args:
            snapshot_id: the snapshot's.
            summary: the snapshot's.
            number: its sequence number, if it has one.
            milliseconds: its time.
            after: how many commits of the feed came before it.
        """
        rows, grown = rows_of(summary)
        return cls(
            feed=summary[BACKFILL_OF],
            ranges=OffsetRanges.from_json(summary[RANGES]),
            fence=summary.get(FENCE),
            snapshot_id=snapshot_id,
            number=number or milliseconds,
            commit_id=summary.get(COMMIT_ID),
            rows=rows,
            grown=grown,
            counts=counts_by_partition(summary.get(COUNTS, "{}")),
            committed_at=milliseconds / 1000,
            after=after,
        )
