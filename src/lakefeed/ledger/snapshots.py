"""A feed's commits and position in an Iceberg table, read from its snapshots without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.config.connections import Connections
from lakefeed.errors import ResourceMissing
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.iceberg import position_unknown
from lakefeed.ledger.outcomes import Counts, counts_by_partition
from lakefeed.ledger.snapshot_summary import (
    BACKFILL_OF,
    BRANCH,
    COMMIT_ID,
    COUNTS,
    FEED,
    FENCE_TAKEN,
    POSITION,
    RANGES,
    REPLAY,
    REPLAY_OF,
    Backfill,
    Commit,
    Upserts,
    net_rows,
    rows_of,
)
from lakefeed.offsets.ranges import Partition

if TYPE_CHECKING:
    from pyiceberg.table import DataScan, Table
    from pyiceberg.table.snapshots import Snapshot


def branch_of(properties: Mapping[str, str], feed: str | None) -> str | None:
    """Return the branch that a feed writes to; None for the main branch."""
    return None if feed is None else properties.get(f"{BRANCH}.{feed}")


def head_of(table: Table, feed: str | None) -> Snapshot | None:
    """Return the newest snapshot of a feed's branch; without a feed, the main branch's newest snapshot."""
    branch = branch_of(table.properties, feed)
    return table.current_snapshot() if branch is None else table.snapshot_by_name(branch)


def scanned(table: Table, feed: str | None, **chosen: Any) -> DataScan:
    """Return a scan of the rows in a feed's branch; ``chosen`` are further arguments for pyiceberg's ``Table.scan``."""
    head = None if branch_of(table.properties, feed) is None else head_of(table, feed)
    return table.scan(snapshot_id=None if head is None else head.snapshot_id, **chosen)


def ancestors(table: Table, feed: str | None = None) -> tuple[list[Snapshot], bool]:
    """Return the snapshots of a feed's branch (or the main one), oldest first, and whether none has expired."""
    by_id: dict[int | None, Snapshot] = {each.snapshot_id: each for each in table.metadata.snapshots}
    line: list[Snapshot] = []
    snapshot = head_of(table, feed)
    while snapshot is not None:
        line.append(snapshot)
        snapshot = by_id.get(snapshot.parent_snapshot_id)
    return line[::-1], not line or not has_parent(line[-1])


def has_parent(snapshot: Snapshot) -> bool:
    """Return whether a snapshot has or had a parent; the parent may have expired.

    When pyiceberg expires the parent, it removes the parent's id from the snapshot. So this also compares counts: a
    snapshot that never had a parent has exactly the files that it added.
    """
    summary = _summary(snapshot)
    has_older_files = summary.get("total-data-files", "0") != summary.get("added-data-files", "0")
    return snapshot.parent_snapshot_id is not None or has_older_files or summary.get("deleted-data-files", "0") != "0"


def commits_of(line: Sequence[Snapshot], feed: str) -> Iterator[Commit]:
    for snapshot in line:
        summary = _summary(snapshot)
        if summary.get(FEED) == feed and RANGES in summary:
            yield Commit.of(snapshot.snapshot_id, summary)


def upserts_in(line: Sequence[Snapshot]) -> Iterator[Upserts]:
    """Yield the counts of all MERGE statements: those of batches, backfills and replays."""
    for snapshot in line:
        if upserts := Upserts.of(_summary(snapshot)):
            yield upserts


def backfills_of(line: Sequence[Snapshot], feed: str) -> Iterator[Backfill]:
    """Yield the feed's backfills, each with the number of the feed's commits before it."""
    after = 0
    for snapshot in line:
        summary = _summary(snapshot)
        if summary.get(FEED) == feed and RANGES in summary:
            after += 1
        if summary.get(BACKFILL_OF) == feed and RANGES in summary:
            yield Backfill.of(
                snapshot.snapshot_id,
                summary,
                number=snapshot.sequence_number,
                milliseconds=snapshot.timestamp_ms,
                after=after,
            )


def replays_of(line: Sequence[Snapshot], feed: str) -> Iterator[ReplayCommit]:
    for snapshot in line:
        summary = _summary(snapshot)
        if summary.get(REPLAY_OF) == feed and REPLAY in summary:
            counts = counts_by_partition(summary.get(COUNTS, "{}"))
            rows, grown = rows_of(summary)
            yield ReplayCommit(summary[REPLAY], snapshot.snapshot_id, rows, counts, grown)


def rows_before(line: Sequence[Snapshot]) -> int:
    """Return the number of rows before the oldest snapshot in ``line``."""
    if not line or not has_parent(line[0]):
        return 0
    summary = _summary(line[0])
    after = int(summary.get("total-records", 0)) - int(summary.get("total-position-deletes", 0))
    return max(0, after - net_rows(summary))


def others_in(line: Sequence[Snapshot]) -> Iterator[OtherCommit]:
    """Yield the commits of other programs that may have changed rows.

    Compactions are left out, and so are the empty snapshots of fences and new branches: they change no rows.
    """
    for snapshot in line:
        summary = _summary(snapshot)
        operation = snapshot.summary.operation.value if snapshot.summary is not None else ""
        if COMMIT_ID in summary or FEED in summary or operation == "replace":
            continue
        if any(key.startswith(FENCE_TAKEN) for key in summary) or summary.get("changed-partition-count") == "0":
            continue
        deleted = ("deleted-records", "added-position-deletes", "added-equality-deletes")
        yield OtherCommit(
            snapshot.snapshot_id,
            operation,
            int(summary.get("added-records", 0)),
            sum(int(summary.get(name, 0)) for name in deleted),
        )


def stored_position(table: str, feed: str, *, connections: Connections) -> Position | None:
    """Return a feed's position in a table of a catalog; None if the table or a commit of the feed is missing."""
    try:
        return position_in(open_table(table, connections=connections), feed, where=table)
    except ResourceMissing:
        return None


def position_in(table: Table, feed: str, *, where: str) -> Position | None:
    """Return a feed's position in a loaded table, as ``IcebergLedger.position`` does; ``where`` names it in errors."""
    text = table.properties.get(f"{POSITION}.{feed}")
    recorded = Position.from_json(text) if text is not None else None
    line, whole = ancestors(table, feed)
    for snapshot in reversed(line):
        summary = _summary(snapshot)
        if summary.get(FEED) != feed or RANGES not in summary:
            continue
        if recorded is not None and recorded.snapshot_id == snapshot.snapshot_id:
            return recorded
        # The property belongs to another snapshot: another engine has since made a different snapshot the current one.
        commit = Commit.of(snapshot.snapshot_id, summary)
        return Position(commit.ranges, snapshot.snapshot_id, is_move=commit.move is not None)
    if text is None or (recorded is not None and not whole):
        return recorded
    raise position_unknown(feed, where=where)


def _summary(snapshot: Snapshot) -> dict[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}


@dataclass(frozen=True)
class ReplayCommit:
    """A replay of dead letters, read from its snapshot."""

    replay_id: str
    snapshot_id: int
    rows: int
    counts: Mapping[Partition, Counts]
    grown: int = 0
    """How many more rows the table has after the commit; negative if the commit removes rows."""
    batch_id: None = None

    @property
    def title(self) -> str:
        return f"replay {self.replay_id}, snapshot {self.snapshot_id}"


@dataclass(frozen=True)
class OtherCommit:
    """A commit of another program than lakefeed that may have changed rows."""

    snapshot_id: int
    operation: str
    added: int
    deleted: int
