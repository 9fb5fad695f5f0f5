"""Read a table's metadata by pyiceberg: numbers and sizes of files, deletes, manifests and snapshots."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.config.connections import Connections
from lakefeed.ledger.snapshot_summary import BRANCH, FEED, RANGES, REPLAY, REPLAY_OF
from lakefeed.ledger.snapshots import ancestors

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table

TARGET = "write.target-file-size-bytes"
TARGET_DEFAULT = 512 * 1024 * 1024  # Iceberg's default.
SMALL = 0.75  # For rewrite_data_files, a file is small below this share of the target size.
SIZES_MB = (1, 8, 32, 128, 384, 1024)
"""The upper bounds of the size classes of files; larger files are one more class."""
FIGURES = (
    "files", "bytes", "small_files", "delete_files", "partitions", "manifests", "manifest_bytes", "snapshots",
    "metadata_files", "metadata_bytes", "planning_seconds",
)  # fmt: skip


@dataclass(frozen=True)
class PartitionKey:
    """A partition of one partition spec, with the transformed values of the spec's fields.

    ``path`` is the partition's readable name, such as ``pickup_at_day=2018-02-08``; it is empty for a table without
    partitions.
    """

    spec_id: int
    values: tuple[Any, ...]
    path: str


@dataclass
class Partition:
    """The files of one partition.

    Attributes:
        small_files: the number of data files below 3/4 of the target size.
        records: the number of rows, including deleted rows.
        deleted: the number of entries in delete files; a row may have several entries.
        newest: the sequence number of the newest commit that wrote to the partition.
    """

    key: PartitionKey
    files: int = 0
    bytes: int = 0
    small_files: int = 0
    small_bytes: int = 0
    records: int = 0
    deleted: int = 0
    newest: int = 0


@dataclass(frozen=True, kw_only=True)
class Ancestor:
    """The table's present snapshot or one of its ancestors, with the files, bytes and rows that it added.

    Attributes:
        at: the time of the commit, in seconds since 1970.
        holds: the feed whose offsets the snapshot stores; None for a commit of no feed, such as a compaction.
        replaces: True if the commit changed files but no rows, such as a compaction.
        is_published: whether readers see the snapshot; False while only a feed's branch has the snapshot.
    """

    snapshot_id: int
    at: float
    holds: str | None = None
    files: int = 0
    bytes: int = 0
    rows: int = 0
    replaces: bool = False
    is_published: bool = True


@dataclass(frozen=True)
class Growth:
    """The files, bytes, rows and commits that writers add per day, measured over ``days``."""

    days: float
    files: float
    bytes: float
    rows: float
    commits: float


@dataclass(frozen=True, kw_only=True)
class Health:
    """The state of a table at one moment.

    Attributes:
        snapshot_id: the present snapshot; None while the table is empty.
        target_bytes: the target size of the table's files.
        sizes: the number of data files by class of ``SIZES_MB``.
        delete_files: the number of files of position deletes, without deletion vectors.
        snapshots: the number of all snapshots, including those of branches and tags.
        branches: the branches that feeds land in.
        ancestors: the present snapshot and its ancestors, newest first; with branches, the snapshots of the longest
            branch, which include them.
        metadata_files: the number of versions of metadata.json.
        planning_seconds: the time to read the manifests, which every query without a filter needs too.
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
    branches: tuple[str, ...] = ()

    @property
    def files(self) -> int:
        return sum(partition.files for partition in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(partition.bytes for partition in self.partitions)

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)

    @property
    def small_files(self) -> int:
        return sum(partition.small_files for partition in self.partitions)

    @property
    def growth(self) -> Growth | None:
        """The growth over the last 7 days, or since the oldest snapshot; None if the snapshots cover no time."""
        since = max((ancestor.at for ancestor in self.ancestors), default=0) - 7 * 86_400
        recent = [ancestor for ancestor in self.ancestors if ancestor.at >= since]
        # The measured time begins with the oldest snapshot, so the files of this snapshot do not count.
        added = [ancestor for ancestor in recent[:-1] if not ancestor.replaces]
        days = (recent[0].at - recent[-1].at) / 86_400 if recent else 0.0
        if not added or days <= 0:
            return None
        sums = map(sum, zip(*((ancestor.files, ancestor.bytes, ancestor.rows, 1) for ancestor in added), strict=True))
        return Growth(round(days, 3), *(count / days for count in sums))

    def figures(self) -> dict[str, Any]:
        """Return the figures that a report compares before and after the work."""
        figures = {name: getattr(self, name) for name in FIGURES}
        return figures | {"partitions": len(self.partitions), "planning_seconds": round(self.planning_seconds, 3)}


def read_health(table: str, *, connections: Connections, target_bytes: int | None = None) -> Health:
    """Return the present state of a table; the default of ``target_bytes`` is the table's property."""
    opened = open_table(table, connections=connections)
    metadata = opened.metadata
    target = target_bytes or int(opened.properties.get(TARGET, TARGET_DEFAULT))
    began = time.monotonic()
    snapshot = opened.current_snapshot()
    manifests = snapshot.manifests(opened.io) if snapshot else []
    partitions, sizes, delete_files = _count_files(opened, manifests, small_below=int(target * SMALL))
    return Health(
        table=table,
        location=opened.location().rstrip("/"),
        snapshot_id=metadata.current_snapshot_id,
        target_bytes=target,
        partitions=tuple(partition for partition in partitions if partition.files),
        sizes=tuple(sizes),
        delete_files=delete_files,
        manifests=len(manifests),
        manifest_bytes=sum(manifest.manifest_length for manifest in manifests),
        planning_seconds=time.monotonic() - began,
        snapshots=len(metadata.snapshots),
        ancestors=tuple(_ancestors(opened)),
        metadata_files=len(metadata.metadata_log) + 1,
        metadata_bytes=len(opened.io.new_input(opened.metadata_location)),
        properties=dict(opened.properties),
        branches=tuple(sorted(set(_feeds_with_branches(opened).values()))),
    )


def _count_files(
    table: Table, manifests: Iterable[ManifestFile], *, small_below: int
) -> tuple[Iterable[Partition], list[int], int]:
    """Return the partitions, the number of data files by class of ``SIZES_MB``, and the number of delete files.

    Manifests are read one after the other, so that memory grows only with the number of partitions.
    """
    from pyiceberg.manifest import DataFileContent, FileFormat

    partitions: dict[tuple[int, tuple[Any, ...]], Partition] = {}
    sizes, delete_files = [0] * (len(SIZES_MB) + 1), 0
    for manifest in manifests:
        spec = table.specs()[manifest.partition_spec_id]
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            file = entry.data_file
            values = tuple(file.partition[position] for position in range(len(spec.fields)))
            partition = partitions.get((spec.spec_id, values))
            if partition is None:
                path = spec.partition_to_path(file.partition, table.schema()) if spec.fields else ""
                partition = partitions[spec.spec_id, values] = Partition(PartitionKey(spec.spec_id, values, path))
            partition.newest = max(partition.newest, entry.sequence_number or 0)
            if file.content != DataFileContent.DATA:
                # Do not count deletion vectors: a data file has at most one, so there is nothing to merge.
                delete_files += file.file_format != FileFormat.PUFFIN
                partition.deleted += file.record_count
                continue
            size = file.file_size_in_bytes
            partition.files += 1
            partition.bytes += size
            partition.records += file.record_count
            if size < small_below:
                partition.small_files += 1
                partition.small_bytes += size
            sizes[sum(size >= bound * 1024 * 1024 for bound in SIZES_MB)] += 1
    return partitions.values(), sizes, delete_files


def _ancestors(table: Table) -> Iterator[Ancestor]:
    published = {each.snapshot_id for each in ancestors(table)[0]}
    lines = [ancestors(table, feed)[0] for feed in (None, *_feeds_with_branches(table))]
    for snapshot in reversed(max(lines, key=len)):
        summary = snapshot.summary
        properties = summary.additional_properties if summary is not None else {}
        holds = properties.get(FEED) if RANGES in properties else None
        if holds is None and REPLAY in properties and REPLAY_OF in properties:
            holds = f"{properties[REPLAY_OF]}, replays"
        yield Ancestor(
            snapshot_id=snapshot.snapshot_id,
            at=snapshot.timestamp_ms / 1000,
            holds=holds,
            files=int(properties.get("added-data-files", 0)),
            bytes=int(properties.get("added-files-size", 0)),
            rows=int(properties.get("added-records", 0)),
            replaces=summary is not None and summary.operation.value == "replace",
            is_published=snapshot.snapshot_id in published,
        )


def _feeds_with_branches(table: Table) -> dict[str, str]:
    prefix = f"{BRANCH}."
    return {key.removeprefix(prefix): name for key, name in table.properties.items() if key.startswith(prefix)}
