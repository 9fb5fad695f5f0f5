"""Reads and writes a feed's commits, moves and backfills in the summaries of snapshots."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from typing import ClassVar, Literal, Protocol

from lakefeed.errors import ConfigError
from lakefeed.ledger.outcomes import Counts, counts_by_partition
from lakefeed.offsets.ranges import WRITTEN_BY_ANOTHER, OffsetRange, OffsetRanges, Partition, by_partition, by_topic

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
BRANCH = "lakefeed.branch"
UPSERTED = "lakefeed.upserted"
MERGED_BECAUSE = "lakefeed.merged-because"
"""Why a MERGE landed a batch of changes; missing if lakefeed's index of keys found the rows to change."""

ADOPTED = "lakefeed.adopted"
ROUTED = "lakefeed.routed"
"""The number of rows that a batch added to each of the feed's tables: ``{"name": rows}``."""

MERGED = "spark.merge-into.num-target-rows-"
"""The prefix of Spark's counts of a MERGE (inserted, updated, deleted), which Iceberg puts into the snapshot."""

Reason = Literal["rewind", "accepted-loss"]


@dataclass(frozen=True)
class PositionReset:
    """A move of a feed's position by a user: a rewind or an accepted data loss. The move has its own commit.

    Attributes:
        positions: the old and the new offset of every partition that moves.
        left_ids: by topic name, the old ids of recreated topics, and the ids of topics that the feed no longer reads.
        deleted_rows: the number of rows that the commit deleted, by partition; None if it kept the rows.
        unknown: whether the old position is unknown, because the table was rolled back; ``positions`` is then empty.
    """

    reason: Reason
    positions: Mapping[Partition, tuple[int, int]] = field(default_factory=dict)
    left_ids: Mapping[str, str] = field(default_factory=dict)
    deleted_rows: Mapping[Partition, int] | None = None
    unknown: bool = False

    def to_json(self, ranges: OffsetRanges) -> str:
        """Return the move's text for a snapshot's summary; ``ranges`` are empty ranges at the new position."""
        ids, moved = {**ranges.topic_ids, **self.left_ids}, by_topic(self.positions)
        topics = {
            topic: {"id": ids.get(topic, ""), "ranges": moved.get(topic, {})}
            for topic in sorted(moved.keys() | self.left_ids.keys())
        }
        document: dict[str, object] = {"reason": self.reason, "positions": topics}
        if self.unknown:
            document["unknown"] = True
        if self.deleted_rows is not None:
            document["deleted"] = by_topic(dict(sorted(self.deleted_rows.items())))
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> PositionReset:
        try:
            document = json.loads(text)
            topics = document["positions"]
            moved = by_partition({topic: entry["ranges"] for topic, entry in topics.items()})
            deleted = document.get("deleted")
            return cls(
                reason=document["reason"],
                positions={key: (int(start), int(end)) for key, (start, end) in moved.items()},
                left_ids={topic: entry["id"] for topic, entry in topics.items() if entry["id"]},
                deleted_rows=None
                if deleted is None
                else {key: int(rows) for key, rows in by_partition(deleted).items()},
                unknown=bool(document.get("unknown", False)),
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            what = "the text in the ledger is not a move of a feed's position"
            raise ConfigError(what, where=text[:200], hint=WRITTEN_BY_ANOTHER) from None

    def reaches(self, start: OffsetRanges) -> OffsetRanges:
        """Return empty ranges at the new position, for a move after a commit with the ranges ``start``."""
        moved = {key: to for key, (_, to) in self.positions.items()}
        return OffsetRanges.at({**start.ends, **moved}, start.topic_ids)


@dataclass(frozen=True)
class Adoption:
    """The takeover of a table from another tool; its commit has empty ranges at the other tool's position.

    Attributes:
        tool: the kind of the other tool's position, such as ``spark-checkpoint``.
        place: the address of that position.
        after: the table's newest snapshot when the position was read, if any; the commit fails if there is a newer one.
    """

    tool: str
    place: str
    after: int | None

    def to_json(self) -> str:
        return json.dumps({"from": self.tool, "place": self.place, "after": self.after}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Adoption:
        try:
            document = json.loads(text)
            return cls(str(document["from"]), str(document["place"]), document["after"])
        except (ValueError, TypeError, KeyError):
            what = "the text in the ledger is not a takeover of a table from another tool"
            raise ConfigError(what, where=text[:200], hint=WRITTEN_BY_ANOTHER) from None


def adopted_property(feed: str, ranges: OffsetRanges) -> dict[str, str]:
    """Return a table property with a takeover's offsets, because the takeover's snapshot may expire."""
    return {f"{ADOPTED}.{feed}": json.dumps(by_topic(ranges.ends), separators=(",", ":"))}


def adopted_offsets(properties: Mapping[str, str], feed: str) -> dict[Partition, int]:
    """Read the offsets of a takeover from a table's properties; empty without a takeover."""
    return {key: int(at) for key, at in by_partition(json.loads(properties.get(f"{ADOPTED}.{feed}", "{}"))).items()}


@dataclass(frozen=True)
class Upserts:
    """Counts of a batch that a MERGE applied to a table with keys.

    Attributes:
        changes: the batch's changes: rows from the transform.
        keys: the distinct keys of the changes; only the newest change of a key counts.
        deletes: the keys whose newest change is a delete.
        inserted, updated, deleted: the rows of the table that the MERGE inserted, updated or deleted.
    """

    changes: int = 0
    keys: int = 0
    deletes: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def landed(self) -> int:
        return self.inserted + self.updated

    @property
    def superseded(self) -> int:
        """The number of changes that a newer change of the same key, in the same batch, replaces."""
        return self.changes - self.keys

    @property
    def void(self) -> int:
        """The number of keys whose newest change has no effect: the table has a newer row, or no row to delete."""
        return self.keys - self.inserted - self.updated - self.deleted

    def to_json(self) -> str:
        """Return the counts that are known before the commit: ``[changes,keys,deletes]``."""
        return json.dumps([self.changes, self.keys, self.deletes], separators=(",", ":"))

    @classmethod
    def sum(cls, batches: Iterable[Upserts | None]) -> Upserts:
        return cls(*(sum(column) for column in zip(*(astuple(batch) for batch in batches if batch), strict=True)))

    @classmethod
    def of(cls, summary: Mapping[str, str]) -> Upserts | None:
        """Read the counts from a snapshot's summary; None if the commit ran no MERGE."""
        if UPSERTED not in summary:
            return None
        merged = (int(summary.get(f"{MERGED}{kind}", 0)) for kind in ("inserted", "updated", "deleted"))
        return cls(*json.loads(summary[UPSERTED]), *merged)


def net_rows(summary: Mapping[str, str]) -> int:
    """Return how many more rows the table has after a snapshot; negative if the snapshot removes rows."""
    plus, minus = ("added-records", "removed-position-deletes"), ("deleted-records", "added-position-deletes")
    return sum(int(summary.get(key, 0)) for key in plus) - sum(int(summary.get(key, 0)) for key in minus)


def rows_of(summary: Mapping[str, str]) -> tuple[int, int]:
    """Return how many rows a commit has written, and how many more rows the table has since."""
    if (upserts := Upserts.of(summary)) is not None:
        return upserts.landed, upserts.inserted - upserts.deleted
    if ROUTED in summary:
        rows = sum(json.loads(summary[ROUTED]).values())
        return rows, rows
    return int(summary.get("added-records", 0)), net_rows(summary)


class SnapshotProperties(Protocol):
    """A commit for a sink to land; ``properties`` returns the entries for its snapshot's summary."""

    def properties(self) -> dict[str, str]: ...


@dataclass(frozen=True)
class Commit:
    """One commit of a feed: read from its snapshot, or still to be written."""

    feed: str
    batch_id: int
    ranges: OffsetRanges
    fence: str | None = None
    snapshot_id: int | None = None
    rows: int = 0
    grown: int = 0
    """How many more rows the table has after the commit; negative if the commit removes rows."""
    files: int = 0
    counts: Mapping[Partition, Counts] = field(default_factory=dict)
    committed_at: float = 0.0
    """Seconds since 1970."""
    move: PositionReset | None = None
    """The move, if the commit is one instead of a batch: its ranges are empty, at the new position."""
    adopted: Adoption | None = None
    """The takeover of the table from another tool, if the commit is one instead of a batch."""
    upserts: Upserts | None = None
    """The counts of a batch that changed rows by key; ``rows`` then counts the inserted and the updated rows."""
    merged_because: str | None = None
    """Why a MERGE landed the changes; None if lakefeed's index of keys found the rows to change."""
    routed: Mapping[str, int] | None = None
    """The number of rows that the commit added to each of the feed's tables; None if the feed has one table."""

    @property
    def title(self) -> str:
        return f"batch {self.batch_id}, snapshot {self.snapshot_id}"

    @property
    def left_ids(self) -> dict[str, str]:
        """By topic name, the ids that a move leaves: the topic was recreated, or the feed no longer reads it."""
        left = self.move.left_ids if self.move else {}
        return {topic: old for topic, old in left.items() if old != self.ranges.topic_ids.get(topic)}

    @property
    def rewound(self) -> dict[Partition, tuple[int, int]]:
        """The offsets ``[start, end)`` that the feed reads again after a move; recreated topics are left out."""
        positions, left = self.move.positions if self.move else {}, self.left_ids
        return {key: (to, start) for key, (start, to) in positions.items() if to < start and key[0] not in left}

    def properties(self) -> dict[str, str]:
        """Return the properties for the summary of the snapshot that adds the rows."""
        written = {FEED: self.feed, BATCH_ID: str(self.batch_id), RANGES: self.ranges.to_json()}
        if self.adopted is not None:
            written[ADOPTED] = self.adopted.to_json()
        if self.move is not None:
            written[MOVED] = self.move.to_json(self.ranges)
        return written if self.fence is None else {**written, FENCE: self.fence}

    def to_json(self) -> str:
        """Return a text with the commit and its counts, for a ledger that stores one text per commit."""
        counts = {key: astuple(each) for key, each in self.counts.items()}
        written = {COUNTS: json.dumps(by_topic(counts), separators=(",", ":")), "added-records": str(self.rows)}
        return json.dumps({**self.properties(), **written})

    @classmethod
    def from_json(cls, text: str, *, number: int, committed_at: float = 0.0) -> Commit:
        """Read the output of ``to_json``; ``number``, the commit's number in the ledger, becomes its snapshot id."""
        return cls.of(number, json.loads(text), committed_at=committed_at)

    @classmethod
    def of(cls, snapshot_id: int, summary: Mapping[str, str], *, committed_at: float = 0.0) -> Commit:
        move = PositionReset.from_json(summary[MOVED]) if MOVED in summary else None
        rows, grown = rows_of(summary)
        if move is not None:
            # When Iceberg deletes rows, it copies the files' other rows and counts the copies as added rows.
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
            adopted=Adoption.from_json(summary[ADOPTED]) if ADOPTED in summary else None,
            upserts=Upserts.of(summary),
            merged_because=summary.get(MERGED_BECAUSE),
            routed=json.loads(summary[ROUTED]) if ROUTED in summary else None,
        )


@dataclass(frozen=True)
class Backfill:
    """A commit that adds old records and leaves the feed's position as it is.

    Attributes:
        fence: the fence of the feed's backfills, ``<feed>.backfills``.
        number: the snapshot's sequence number; in a table of format version 1, which has no sequence numbers, the
            snapshot's time in ms.
        grown: how many more rows the table has after the commit.
        after: the number of the feed's commits before the backfill, for audits.
    """

    feed: str
    ranges: OffsetRanges
    fence: str | None = None
    snapshot_id: int | None = None
    number: int = 0
    commit_id: str | None = None
    rows: int = 0
    grown: int = 0
    counts: Mapping[Partition, Counts] = field(default_factory=dict)
    committed_at: float = 0.0
    after: int = 0

    # Fields that audits read of a Commit and of a Backfill alike. They are empty here, because a backfill is no batch
    # and does not move the feed.
    batch_id: ClassVar[None] = None
    move: ClassVar[None] = None
    adopted: ClassVar[None] = None
    rewound: ClassVar[Mapping[Partition, tuple[int, int]]] = {}
    left_ids: ClassVar[Mapping[str, str]] = {}

    @property
    def title(self) -> str:
        return f"backfill, snapshot {self.snapshot_id}"

    def properties(self) -> dict[str, str]:
        written = {BACKFILL_OF: self.feed, RANGES: self.ranges.to_json()}
        return written if self.fence is None else {**written, FENCE: self.fence}

    @classmethod
    def of(
        cls, snapshot_id: int, summary: Mapping[str, str], *, number: int | None, milliseconds: int, after: int = 0
    ) -> Backfill:
        """Read a snapshot's summary; ``number`` is its sequence number, if any, and ``milliseconds`` its time."""
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


@dataclass(frozen=True)
class Replay:
    """A commit that writes dead letters as rows and leaves the feed's position as it is."""

    feed: str
    replay_id: str
    fence: str
    letters: int = 0
    """The number of dead letters. Letters have no offsets, so ``ranges`` numbers the letters from 0."""

    batch_id: ClassVar[None] = None

    @property
    def ranges(self) -> OffsetRanges:
        return OffsetRanges((OffsetRange("letters", 0, 0, self.letters),))

    def properties(self) -> dict[str, str]:
        return {REPLAY: self.replay_id, REPLAY_OF: self.feed, FENCE: self.fence}
