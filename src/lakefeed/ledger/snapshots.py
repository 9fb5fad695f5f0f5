"""What a table's snapshots say of a feed, read without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefeed.ledger.outcomes import Counts, counts_by_partition
from lakefeed.ledger.snapshot_summary import (
    BACKFILL_OF,
    COMMIT_ID,
    COUNTS,
    FEED,
    FENCE_TAKEN,
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
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot


def ancestors(table: Table) -> tuple[list[Snapshot], bool]:
    """The snapshots that the table's present state descends from, oldest first, and whether none is missing."""
    by_id: dict[int, Snapshot] = {each.snapshot_id: each for each in table.metadata.snapshots}
    found: list[Snapshot] = []
    snapshot = table.current_snapshot()
    while snapshot is not None:
        found.append(snapshot)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else by_id.get(parent)
    return found[::-1], not found or found[-1].parent_snapshot_id is None


def summaries(table: Table) -> list[tuple[int, dict[str, str]]]:
    """The same snapshots by their ids, with what each says of itself, newest first."""
    return [(each.snapshot_id, dict(_summary(each))) for each in reversed(ancestors(table)[0])]


def commits_of(line: Sequence[Snapshot], feed: str) -> Iterator[Commit]:
    """The feed's commits."""
    for snapshot in line:
        summary = _summary(snapshot)
        if summary.get(FEED) == feed and RANGES in summary:
            yield Commit.of(snapshot.snapshot_id, summary)


def upserts_in(line: Sequence[Snapshot]) -> Iterator[Upserts]:
    """What all MERGEs have done, of batches and of what came late."""
    for snapshot in line:
        if upserts := Upserts.of(_summary(snapshot)):
            yield upserts


def backfills_of(line: Sequence[Snapshot], feed: str) -> Iterator[Backfill]:
    """The feed's backfills, each with how many of its commits came before."""
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
    """The replays of the feed's dead letters."""
    for snapshot in line:
        summary = _summary(snapshot)
        if summary.get(REPLAY_OF) == feed and REPLAY in summary:
            counts = counts_by_partition(summary.get(COUNTS, "{}"))
            rows, grown = rows_of(summary)
            yield ReplayCommit(summary[REPLAY], snapshot.snapshot_id, rows, counts, grown)


def rows_before(line: Sequence[Snapshot]) -> int:
    """How many rows the table had before the oldest snapshot that is left."""
    if not line or line[0].parent_snapshot_id is None:
        return 0
    summary = _summary(line[0])
    after = int(summary.get("total-records", 0)) - int(summary.get("total-position-deletes", 0))
    return max(0, after - net_rows(summary))


def others_in(line: Sequence[Snapshot]) -> Iterator[OtherCommit]:
    """Commits of no feed. Not compactions, which change no rows, nor the empty snapshots that come with a fence."""
    for snapshot in line:
        summary = _summary(snapshot)
        operation = snapshot.summary.operation.value if snapshot.summary is not None else ""
        if COMMIT_ID in summary or FEED in summary or operation == "replace":
            continue
        if any(key.startswith(FENCE_TAKEN) for key in summary):
            continue
        deleted = ("deleted-records", "added-position-deletes", "added-equality-deletes")
        yield OtherCommit(
            snapshot.snapshot_id,
            operation,
            int(summary.get("added-records", 0)),
            sum(int(summary.get(name, 0)) for name in deleted),
        )


def _summary(snapshot: Snapshot) -> dict[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}


@dataclass(frozen=True)
class ReplayCommit:
    """One replay of dead letters, as its snapshot says."""

    replay_id: str
    snapshot_id: int
    rows: int
    counts: Mapping[Partition, Counts]
    grown: int = 0
    """How many rows more the table has since."""
    batch_id: None = None

    @property
    def title(self) -> str:
        """As findings call it."""
        return f"replay {self.replay_id}, snapshot {self.snapshot_id}"


@dataclass(frozen=True)
class OtherCommit:
    """A commit of no feed that changed the table's rows."""

    snapshot_id: int
    operation: str
    added: int
    deleted: int
