"""What the batches of a feed were like until now, as the snapshots of its table say: read with pyiceberg."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.config.connections import Connections
from lakefeed.errors import ResourceMissing
from lakefeed.ledger.outcomes import total
from lakefeed.ledger.snapshot_summary import FEED, RANGES, Commit
from lakefeed.ledger.snapshots import ancestors

if TYPE_CHECKING:
    from pyiceberg.table import Table

BATCHES = 20
"""So many of the newest batches are looked at."""

KEPT = "write.metadata.previous-versions-max"
DELETES = "write.metadata.delete-after-commit.enabled"


@dataclass(frozen=True, kw_only=True)
class PastBatch:
    """One batch that has landed records.

    Attributes:
        at: when it was committed, in seconds since 1970.
        fence: of its driver.
        records: those that it had read.
        files: data files and files of deletes that it added.
        bytes: in them.
        dead_letters: of the records.
    """

    at: float
    fence: str | None
    records: int
    files: int
    bytes: int
    dead_letters: int


@dataclass(frozen=True, kw_only=True)
class Past:
    """The newest batches of a feed, the oldest of them first.

    Attributes:
        batches: those that had records.
        deletes_metadata: whether each commit to the table deletes an old metadata file by now.
    """

    batches: tuple[PastBatch, ...] = ()
    deletes_metadata: bool = False

    @property
    def files(self) -> float | None:
        """Of one batch, in the mean; None without any."""
        return self._mean([each.files for each in self.batches])

    @property
    def bytes_a_record(self) -> float | None:
        """In the table; None without any."""
        records = sum(each.records for each in self.batches)
        return sum(each.bytes for each in self.batches) / records if records else None

    @property
    def dead_letters(self) -> int:
        """Batches that had some."""
        return sum(each.dead_letters > 0 for each in self.batches)

    @property
    def rates(self) -> tuple[float, ...]:
        """Records a second, from one commit to the next of the same driver."""
        return tuple(
            after.records / (after.at - before.at)
            for before, after in pairwise(self.batches)
            if before.fence == after.fence and after.at > before.at
        )

    @property
    def rate(self) -> float | None:
        """The median of the rates; None if no driver has landed two batches."""
        return median(self.rates) if self.rates else None

    @staticmethod
    def _mean(figures: Sequence[int]) -> float | None:
        return sum(figures) / len(figures) if figures else None


def past_of(table: str, feed: str, *, connections: Connections) -> Past:
    """What the batches were like; nothing is known of a table that is not there.

    Raises:
        Unreachable: catalog or store do not answer.
    """
    try:
        opened = open_table(table, connections=connections)
    except ResourceMissing:
        return Past()
    return Past(batches=tuple(_batches(opened, feed)), deletes_metadata=_deletes_metadata(opened))


def _batches(table: Table, feed: str) -> list[PastBatch]:
    found: list[PastBatch] = []
    for snapshot in reversed(ancestors(table)[0]):
        summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
        if summary.get(FEED) != feed or RANGES not in summary:
            continue
        commit = Commit.of(snapshot.snapshot_id, summary, committed_at=snapshot.timestamp_ms / 1000)
        counts = total(commit.counts)
        if not counts.records:
            continue
        found.append(
            PastBatch(
                at=commit.committed_at,
                fence=commit.fence,
                records=counts.records,
                files=commit.files + int(summary.get("added-delete-files", 0)),
                bytes=int(summary.get("added-files-size", 0)),
                dead_letters=counts.dead_letters,
            )
        )
        if len(found) == BATCHES:
            break
    return found[::-1]


def _deletes_metadata(table: Table) -> bool:
    properties = table.properties
    if properties.get(DELETES) != "true":
        return False
    return len(table.metadata.metadata_log) >= int(properties.get(KEPT, 100))
