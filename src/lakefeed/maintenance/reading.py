"""Reads how a table is, with pyiceberg: no Spark, no Java, and never a data file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.config.connections import Connections
from lakefeed.ledger.snapshot_summary import FEED, RANGES, REPLAY, REPLAY_OF
from lakefeed.ledger.snapshots import ancestors
from lakefeed.maintenance.table_stats import SIZES_MB, Ancestor, Health, Partition, PartitionKey

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table

TARGET = "write.target-file-size-bytes"
TARGET_DEFAULT = 512 * 1024 * 1024  # Iceberg's own.
SMALL = 0.75  # Of the target; Iceberg's own (min-file-size-bytes of rewrite_data_files).


def health(table: str, *, connections: Connections, target_bytes: int | None = None) -> Health:
    """How a table is now.

    Args:
        table: catalog.namespace.table
        connections: store and catalogs.
        target_bytes: the size that its files should have. Default: what the table says.

    Raises:
        ResourceMissing: there is no such table.
        MissingExtra: pyiceberg is not installed.
    """
    opened = open_table(table, connections=connections)
    metadata = opened.metadata
    target = target_bytes or int(opened.properties.get(TARGET, TARGET_DEFAULT))
    began = time.monotonic()
    counted = _counted(opened, small_below=int(target * SMALL))
    return Health(
        table=table,
        location=opened.location().rstrip("/"),
        snapshot_id=metadata.current_snapshot_id,
        target_bytes=target,
        partitions=tuple(each.frozen() for each in counted.partitions.values() if each.files),
        sizes=tuple(counted.sizes),
        delete_files=counted.delete_files,
        manifests=counted.manifests,
        manifest_bytes=counted.manifest_bytes,
        planning_seconds=time.monotonic() - began,
        snapshots=len(metadata.snapshots),
        ancestors=tuple(_ancestors(opened)),
        metadata_files=len(metadata.metadata_log) + 1,
        metadata_bytes=len(opened.io.new_input(opened.metadata_location)),
        properties=dict(opened.properties),
    )


@dataclass
class _Sums:
    """A partition while its files are counted."""

    key: PartitionKey
    files: int = 0
    bytes: int = 0
    small_files: int = 0
    small_bytes: int = 0
    records: int = 0
    deleted: int = 0
    newest: int = 0

    def frozen(self) -> Partition:
        return Partition(**vars(self))


class _Counted:
    """All files of a snapshot, added up manifest by manifest: memory is bounded by the number of partitions."""

    def __init__(self) -> None:
        self.partitions: dict[tuple[int, tuple[Any, ...]], _Sums] = {}
        self.sizes = [0] * (len(SIZES_MB) + 1)
        self.delete_files = 0
        self.manifests = 0
        self.manifest_bytes = 0


def _counted(table: Table, *, small_below: int) -> _Counted:
    counted = _Counted()
    snapshot = table.current_snapshot()
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        counted.manifests += 1
        counted.manifest_bytes += manifest.manifest_length
        _count(counted, table, manifest, small_below=small_below)
    return counted


def _count(counted: _Counted, table: Table, manifest: ManifestFile, *, small_below: int) -> None:
    from pyiceberg.manifest import DataFileContent

    spec = table.specs()[manifest.partition_spec_id]
    for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
        file = entry.data_file
        values = tuple(file.partition[position] for position in range(len(spec.fields)))
        sums = counted.partitions.get((spec.spec_id, values))
        if sums is None:
            path = spec.partition_to_path(file.partition, table.schema()) if spec.fields else ""
            sums = _Sums(PartitionKey(spec.spec_id, values, path))
            counted.partitions[spec.spec_id, values] = sums
        sums.newest = max(sums.newest, entry.sequence_number or 0)
        if file.content != DataFileContent.DATA:
            counted.delete_files += 1
            sums.deleted += file.record_count
            continue
        size = file.file_size_in_bytes
        sums.files += 1
        sums.bytes += size
        sums.records += file.record_count
        if size < small_below:
            sums.small_files += 1
            sums.small_bytes += size
        above = next((index for index, bound in enumerate(SIZES_MB) if size < bound * 1024 * 1024), len(SIZES_MB))
        counted.sizes[above] += 1


def _ancestors(table: Table) -> Iterator[Ancestor]:
    for snapshot in reversed(ancestors(table)[0]):
        summary = snapshot.summary
        message = summary.additional_properties if summary is not None else {}
        holds = None
        if RANGES in message and FEED in message:
            holds = message[FEED]
        elif REPLAY in message and REPLAY_OF in message:
            holds = f"{message[REPLAY_OF]}, replays"
        yield Ancestor(
            snapshot_id=snapshot.snapshot_id,
            at=snapshot.timestamp_ms / 1000,
            holds=holds,
            files=int(message.get("added-data-files", 0)),
            bytes=int(message.get("added-files-size", 0)),
            rows=int(message.get("added-records", 0)),
            replaces=summary is not None and summary.operation.value == "replace",
        )
