"""How a table is, at one moment: files, deletes, manifests, snapshots, metadata. Plain facts, read by ``reading``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Upper bounds of the classes of file sizes, in MB; one more class is above the last.
SIZES_MB = (1, 8, 32, 128, 384, 1024)


@dataclass(frozen=True)
class PartitionKey:
    """One partition of one partition spec.

    Attributes:
        spec_id: of the spec.
        values: one for each field of the spec, as the transforms have made them.
        path: for people, as ``pickup_at_day=2018-02-08``; empty for a table without partitions.
    """

    spec_id: int
    values: tuple[Any, ...]
    path: str


@dataclass(frozen=True, kw_only=True)
class Partition:
    """The files of one partition.

    Attributes:
        key: which.
        files: data files.
        bytes: in them.
        small_files: those below 3/4 of the target size.
        small_bytes: in them.
        records: rows, the deleted ones too.
        deleted: rows that delete files take away, if they name different ones.
        newest: sequence number of the commit that wrote to it last; the coldest partition has the lowest.
    """

    key: PartitionKey
    files: int
    bytes: int
    small_files: int
    small_bytes: int
    records: int
    deleted: int
    newest: int


@dataclass(frozen=True, kw_only=True)
class Ancestor:
    """One snapshot of the line that the table's present state descends from.

    Attributes:
        snapshot_id: its id.
        at: when it was committed, in seconds since 1970.
        holds: the feed whose progress it records; None for commits of no feed, such as compactions.
        files: data files that it added.
        bytes: in them.
        rows: in them.
        replaces: whether it changed no rows, as a compaction does.
    """

    snapshot_id: int
    at: float
    holds: str | None = None
    files: int = 0
    bytes: int = 0
    rows: int = 0
    replaces: bool = False


@dataclass(frozen=True, kw_only=True)
class Growth:
    """What the writers add in a day, as the snapshots of the last days tell.

    Attributes:
        days: the span of time that it was measured over.
        files: data files a day.
        bytes: in them.
        rows: in them.
        commits: commits a day.
    """

    days: float
    files: float
    bytes: float
    rows: float
    commits: float


@dataclass(frozen=True, kw_only=True)
class Health:
    """A table at one moment.

    Attributes:
        table: its name.
        location: where it is.
        snapshot_id: the present one; None while the table is empty.
        target_bytes: the size that its files should have.
        partitions: those with files.
        sizes: how many data files are below 1, 8, 32, 128, 384, 1024 MB, and how many above.
        delete_files: files of position and equality deletes.
        manifests: of the present snapshot.
        manifest_bytes: in them.
        snapshots: all, branches and tags included.
        ancestors: the present one's line, newest first.
        metadata_files: versions of metadata.json that are kept.
        metadata_bytes: of the present one.
        properties: the table's.
        planning_seconds: how long it took to read the manifests, as each query without a filter has to.
    """

    table: str
    location: str
    snapshot_id: int | None
    target_bytes: int
    partitions: tuple[Partition, ...]
    sizes: tuple[int, ...]
    delete_files: int
    manifests: int
    manifest_bytes: int
    snapshots: int
    ancestors: tuple[Ancestor, ...]
    metadata_files: int
    metadata_bytes: int
    properties: Mapping[str, str]
    planning_seconds: float

    @property
    def files(self) -> int:
        """Data files."""
        return sum(each.files for each in self.partitions)

    @property
    def bytes(self) -> int:
        """In data files."""
        return sum(each.bytes for each in self.partitions)

    @property
    def records(self) -> int:
        """Rows, the deleted ones too."""
        return sum(each.records for each in self.partitions)

    @property
    def small_files(self) -> int:
        """Data files below 3/4 of the target size."""
        return sum(each.small_files for each in self.partitions)

    @property
    def growth(self) -> Growth | None:
        """Over the last 7 days, or as far back as the snapshots go; None if they tell nothing."""
        since = max((each.at for each in self.ancestors), default=0) - 7 * 86_400
        failure = [each for each in self.ancestors if each.at >= since]
        # What the oldest one added came before the time that is looked at.
        added = [each for each in failure[:-1] if not each.replaces]
        days = (failure[0].at - failure[-1].at) / 86_400 if failure else 0.0
        if not added or days <= 0:
            return None
        return Growth(
            days=round(days, 3),
            files=sum(each.files for each in added) / days,
            bytes=sum(each.bytes for each in added) / days,
            rows=sum(each.rows for each in added) / days,
            commits=len(added) / days,
        )

    def figures(self) -> dict[str, Any]:
        """What is compared before and after maintenance."""
        return {
            "files": self.files,
            "bytes": self.bytes,
            "small_files": self.small_files,
            "delete_files": self.delete_files,
            "partitions": len(self.partitions),
            "manifests": self.manifests,
            "manifest_bytes": self.manifest_bytes,
            "snapshots": self.snapshots,
            "metadata_files": self.metadata_files,
            "metadata_bytes": self.metadata_bytes,
            "planning_seconds": round(self.planning_seconds, 3),
        }
