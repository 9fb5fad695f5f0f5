"""Plan and run a feed, and check that planning changes nothing."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from pyarrow import fs
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.topics import Topics
from lakefeed.feed.progress import FinishedBatch
from lakefeed.ledger.snapshots import ancestors, commits_of
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.operations.plan import RunPlan
from lakefeed.pipeline import Pipeline
from tests.support.feed import Feed

RIDE = {
    "type": "record",
    "name": "Ride",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "zone", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "stop", "type": {"type": "record", "name": "Stop", "fields": [{"name": "x", "type": "int"}]}},
    ],
}
WIDER = {
    **RIDE,
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "area", "type": "string", "aliases": ["zone"]},
        *RIDE["fields"][2:],
        {"name": "fare", "type": ["null", "double"], "default": None},
    ],
}


def ride(number: int, zone: str = "zone") -> dict[str, Any]:
    return {"id": number, zone: f"zone {number % 3}", "at": 1_760_000_000_000 + number, "stop": {"x": 1}}


class Planned:
    """A feed of three partitions that a test plans and runs."""

    def __init__(self, lake: SparkSession, feed: Feed) -> None:
        self.lake, self.feed = lake, feed
        feed.create_topic()

    def send(self, *counts: int) -> None:
        """Send `counts[n]` records to partition n."""
        for partition, count in enumerate(counts):
            self.feed.send(self.feed.avro(map(ride, range(count)), RIDE), partition=partition)

    def pipeline(self, *, limit: int = 100_000, sink: dict[str, Any] | None = None, **blocks: Any) -> Pipeline:
        return self.feed.pipeline(
            source=self.feed.source(max_records_per_batch=limit),
            sink={"iceberg": {"table": self.feed.table, **(sink or {})}},
            **blocks,
        )

    def plan(self, pipeline: Pipeline) -> RunPlan:
        """Return the plan; check that planning changed nothing."""
        with self.unchanged():
            [found] = pipeline.plan(spark=self.lake).tables
        json.dumps(found.as_dict())
        return found

    def run(self, pipeline: Pipeline) -> list[FinishedBatch]:
        self.notes: list[str] = []
        batches: list[FinishedBatch] = []
        pipeline.run(spark=self.lake, once=True, on_note=self.notes.append, on_batch=batches.append)
        return batches

    def table(self, name: str | None = None) -> Table:
        return open_table(name or self.feed.table, connections=self.feed.connections)

    def commits(self) -> list[tuple[OffsetRange, ...]]:
        """Return the offset ranges of the batches, oldest first."""
        found = commits_of(ancestors(self.table())[0], self.feed.name)
        return [each.ranges.ranges for each in found if each.ranges.records]

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        before = self.everything()
        yield
        assert self.everything() == before

    def everything(self) -> tuple[Any, ...]:
        """Return all objects of the store, all rows of the catalog, and the topics."""
        objects = self.feed.store().get_file_info(fs.FileSelector(self.feed.stack.bucket, recursive=True))
        file = self.feed.connections.catalog("lake").sqlite_file
        assert file is not None
        with closing(sqlite3.connect(file)) as catalog:
            tables = catalog.execute("SELECT * FROM iceberg_tables ORDER BY 1, 2, 3").fetchall()
            namespaces = catalog.execute("SELECT * FROM iceberg_namespace_properties ORDER BY 1, 2, 3").fetchall()
        return (
            sorted((each.path, each.size, each.mtime_ns) for each in objects if each.is_file),
            tables,
            namespaces,
            Topics(self.feed.stack.bootstrap_servers).list(),
        )

    def assert_made_as_planned(self, found: RunPlan) -> None:
        """Execute the planned statements with other table names; compare the resulting tables with those of the run."""
        for change in found.tables:
            namespace, _, name = change.table.rpartition(".")
            twin = f"{namespace}_twin.{name}"
            for statement in change.statements:
                self.lake.sql(statement.replace(f"`{self.feed.name}`", f"`{self.feed.name}_twin`"))
            made, meant = self.table(change.table), self.table(twin)
            assert made.schema().as_struct() == meant.schema().as_struct()
            assert made.spec().fields == meant.spec().fields
            assert made.sort_order().fields == meant.sort_order().fields
            passing = ("lakefeed.position.", "lakefeed.fence.", "lakefeed.offsets-of.")
            assert {key: each for key, each in made.properties.items() if not key.startswith(passing)} == dict(
                meant.properties
            )
            assert made.location() == meant.location().replace("_twin", "")
