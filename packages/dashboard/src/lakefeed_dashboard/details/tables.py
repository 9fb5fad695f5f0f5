"""Files, bytes and snapshots of a feed's tables, from metadata in the driver's memory.

Every batch loads its table and commits to it, so the JVM has the table's metadata, and showing the metadata costs no
request (``io.lakefeed.dashboard.TableView``). pyiceberg opens a table that this driver has not loaded yet, which takes
one read of a metadata file, or no read with a REST catalog. Manifests are never read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lakefeed import open_table
from lakefeed.clients.spark import jvm
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.config.topic_tables import config_of
from lakefeed.errors import ResourceMissing
from lakefeed.json_model import iso
from lakefeed.lazy import SparkSession
from lakefeed.ledger.snapshot_summary import BATCH_ID, FEED
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed_dashboard.workers import explained

MOST_TABLES = 50
MOST_SNAPSHOTS = 50
MOST_SCHEMAS = 100
_SUMMARY = (
    "added-data-files",
    "added-records",
    "deleted-records",
    "total-data-files",
    "total-delete-files",
    "total-equality-deletes",
    "total-files-size",
    "total-position-deletes",
    "total-records",
    FEED,
    BATCH_ID,
)
"""The keys of a snapshot's summary that the page shows; other values may be long, such as offset ranges."""
_UNKNOWN: Mapping[str, Any] = {
    "files": None,
    "delete_files": None,
    "bytes": None,
    "rows": None,
    "snapshot_count": None,
    "snapshots": [],
    "seen_at": None,
    "note": None,
    "error": None,
}

Metadata = dict[str, Any]
"""The result of ``TableView.describe``, with the names of Iceberg's specification."""
ReadMetadata = Callable[[str], Metadata]


def read_metadata(table: str, *, spark: SparkSession | None, connections: Connections) -> Metadata:
    """Return a table's newest snapshots and schemas, from old to new; raise ResourceMissing if there is no table."""
    if spark is not None:
        known = jvm.java(spark).dashboard.TableView.describe(table, MOST_SNAPSHOTS, MOST_SCHEMAS, list(_SUMMARY))
        if known is not None:
            return dict(json.loads(str(known)))
    return metadata_of(open_table(table, connections=connections).metadata)


def metadata_of(opened: Any) -> Metadata:
    """Convert the metadata of a pyiceberg table into the form of ``TableView.describe``."""
    snapshots = sorted(opened.snapshots, key=lambda each: (each.sequence_number or 0, each.timestamp_ms))
    first: dict[int, int] = {}
    for snapshot in snapshots:
        if snapshot.schema_id is not None:
            first.setdefault(snapshot.schema_id, snapshot.timestamp_ms)
    schemas = sorted(opened.schemas, key=lambda schema: int(schema.schema_id))[-MOST_SCHEMAS:]
    current = next((each for each in snapshots if each.snapshot_id == opened.current_snapshot_id), None)
    found: Metadata = {
        "current-schema-id": opened.current_schema_id,
        "snapshot-count": len(snapshots),
        "snapshots": [_snapshot(each) for each in snapshots[-MOST_SNAPSHOTS:]],
        "schemas": [
            {**json.loads(schema.model_dump_json(by_alias=True)), "first-ms": first.get(schema.schema_id)}
            for schema in schemas
        ],
    }
    return found if current is None else {**found, "current-snapshot": _snapshot(current)}


def _snapshot(snapshot: Any) -> dict[str, Any]:
    summary: dict[str, Any] = {"operation": None}
    if (given := snapshot.summary) is not None:
        summary = {key: given.get(key) for key in _SUMMARY if given.get(key) is not None}
        summary["operation"] = given.operation.value
    return {"snapshot-id": snapshot.snapshot_id, "timestamp-ms": snapshot.timestamp_ms, "summary": summary}


def parts_of(config: PipelineConfig, monitor: FeedMonitor) -> Iterator[PipelineConfig]:
    """Yield the pipeline; if each topic has its own table, yield a pipeline per topic that the feed reads now."""
    if not config.has_many_tables:
        yield config
        return
    for topic in sorted({partition.topic for partition in monitor.snapshot().partitions}):
        yield config_of(config, topic)


def iceberg_tables(config: PipelineConfig, monitor: FeedMonitor) -> dict[str, str]:
    """Return the Iceberg tables that the feed writes to, each with the feed's name in its ledger."""
    found: dict[str, str] = {}
    for part in parts_of(config, monitor):
        for table in part.iceberg_tables(beside=True):
            found.setdefault(table, part.name)
    return found


def table_document(config: PipelineConfig, monitor: FeedMonitor, read: ReadMetadata, *, now: float) -> dict[str, Any]:
    """Return files, bytes and newest snapshots of the feed's tables; for a sink without snapshots, a note."""
    tables = iceberg_tables(config, monitor)
    shown = [_iceberg(name, feed, read) for name, feed in list(tables.items())[:MOST_TABLES]]
    for place, sink in config.sink_blocks:
        if not sink.chosen.snapshot_tables:
            # Without a request to the sink, only this run's own number of rows is known.
            rows = f"{monitor.snapshot().totals.rows:,} rows were written by this run"
            note = f"{place} is {sink.kind}, which has no snapshots; {rows}"
            shown.append({"name": sink.chosen.table_name or place, "kind": sink.kind, **_UNKNOWN, "note": note})
    return {"tables": shown, "left_out": max(0, len(tables) - MOST_TABLES), "taken_at": iso(now)}


def _iceberg(name: str, feed: str, read: ReadMetadata) -> dict[str, Any]:
    document = {"name": name, "kind": "iceberg", **_UNKNOWN}
    try:
        metadata = read(name)
    except ResourceMissing:
        return {**document, "note": "the table does not exist yet"}
    except Exception as error:
        return {**document, "error": explained(error)}
    summary: Mapping[str, str] = metadata.get("current-snapshot", {}).get("summary", {})
    is_empty = "current-snapshot" not in metadata
    seen = metadata.get("seen-ms")
    return {
        **document,
        "files": 0 if is_empty else number(summary, "total-data-files"),
        "delete_files": 0 if is_empty else number(summary, "total-delete-files"),
        "bytes": 0 if is_empty else number(summary, "total-files-size"),
        "rows": 0 if is_empty else _rows(summary),
        "snapshot_count": metadata["snapshot-count"],
        "snapshots": [_shown(snapshot, feed) for snapshot in metadata["snapshots"]],
        "seen_at": None if seen is None else iso(seen / 1000),
    }


def _shown(snapshot: Mapping[str, Any], feed: str) -> dict[str, Any]:
    summary = snapshot["summary"]
    return {
        # JavaScript's integers are exact only up to 2**53, so the id is a text.
        "id": str(snapshot["snapshot-id"]),
        "at": iso(snapshot["timestamp-ms"] / 1000),
        "operation": summary.get("operation"),
        "added_files": number(summary, "added-data-files") or 0,
        "added_rows": number(summary, "added-records") or 0,
        "deleted_rows": number(summary, "deleted-records") or 0,
        "total_rows": _rows(summary),
        "feed_batch": number(summary, BATCH_ID) if summary.get(FEED) == feed else None,
    }


def _rows(summary: Mapping[str, str]) -> int | None:
    """Return the number of rows that a query of the table returns; None if equality deletes hide it."""
    stored, deleted = number(summary, "total-records"), number(summary, "total-position-deletes")
    return None if stored is None or number(summary, "total-equality-deletes") else stored - (deleted or 0)


def number(summary: Mapping[str, str], key: str) -> int | None:
    """Return a figure of a snapshot's summary; None if it is missing or no number."""
    try:
        return int(summary[key])
    except (KeyError, ValueError):
        return None
