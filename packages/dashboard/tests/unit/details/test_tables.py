"""The documents of tables and schemas, from the metadata of real tables."""

import json

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakefeed.errors import ResourceMissing, Unreachable
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed_dashboard.details.schemas import history, schemas_document
from lakefeed_dashboard.details.tables import MOST_SNAPSHOTS, MOST_TABLES, Metadata, metadata_of, table_document
from tests.support.pipeline_text import feed_config


def rows(count: int) -> pa.Table:
    return pa.table({"zip": pa.array([str(number) for number in range(count)], pa.string())})


def test_the_table_document_has_the_figures_of_snapshot_summaries(catalog: SqlCatalog) -> None:
    table = catalog.create_table("web.hits", rows(0).schema)
    table.append(rows(3), snapshot_properties={"lakefeed.feed": "hits", "lakefeed.batch-id": "41"})
    table.append(rows(2), snapshot_properties={"lakefeed.feed": "other", "lakefeed.batch-id": "7"})

    document = table_document(feed_config(), FeedMonitor("hits"), lambda name: metadata_of(table.metadata), now=0.0)

    [shown] = document["tables"]
    assert (shown["name"], shown["files"], shown["rows"], shown["error"]) == ("lake.web.hits", 2, 5, None)
    assert shown["bytes"] > 500
    assert [(each["operation"], each["added_rows"], each["feed_batch"]) for each in shown["snapshots"]] == [
        ("append", 3, 41),
        ("append", 2, None),
    ]
    assert [each["total_rows"] for each in shown["snapshots"]] == [3, 5]
    assert all(each["id"].isdigit() and each["at"].endswith("Z") for each in shown["snapshots"])
    json.dumps(document)


def test_an_empty_table_has_no_files(catalog: SqlCatalog) -> None:
    table = catalog.create_table("web.hits", rows(0).schema)
    document = table_document(feed_config(), FeedMonitor("hits"), lambda name: metadata_of(table.metadata), now=0.0)
    assert (document["tables"][0]["files"], document["tables"][0]["bytes"]) == (0, 0)


def test_snapshot_summaries_of_other_writers_may_lack_figures() -> None:
    snapshots = [
        {"snapshot-id": 2**63 - 1, "timestamp-ms": number, "summary": {"operation": "append", "added-records": "many"}}
        for number in range(MOST_SNAPSHOTS)
    ]
    metadata: Metadata = {
        "current-schema-id": 0,
        "current-snapshot": snapshots[-1],
        "snapshot-count": 9_000,
        "snapshots": snapshots,
        "schemas": [],
    }
    [shown] = table_document(feed_config(), FeedMonitor("hits"), lambda name: metadata, now=0.0)["tables"]
    assert (shown["files"], shown["bytes"], shown["snapshot_count"]) == (None, None, 9_000)
    assert shown["snapshots"][0]["id"] == "9223372036854775807"
    assert shown["snapshots"][0]["added_rows"] == 0


@pytest.mark.parametrize(("equality_deletes", "left"), [("0", 4_000), ("3", None)])
def test_deleted_rows_are_not_counted(equality_deletes: str, left: int | None) -> None:
    summary = {"total-records": "11511", "total-position-deletes": "7511", "total-equality-deletes": equality_deletes}
    snapshot = {"snapshot-id": 1, "timestamp-ms": 0, "summary": summary}
    metadata: Metadata = {"current-snapshot": snapshot, "snapshot-count": 1, "snapshots": [snapshot]}
    [shown] = table_document(feed_config(), FeedMonitor("hits"), lambda name: metadata, now=0.0)["tables"]
    assert (shown["rows"], shown["snapshots"][0]["total_rows"], shown["error"]) == (left, left, None)


def test_a_table_that_cannot_be_read_does_not_hide_the_other_tables(catalog: SqlCatalog) -> None:
    table = catalog.create_table("web.hits", rows(0).schema)

    def read(name: str) -> Metadata:
        if name == "lake.web.letters":
            raise Unreachable("the catalog does not answer", where="http://catalog")
        if name == "lake.web.more":
            raise ResourceMissing("there is no table")
        return metadata_of(table.metadata)

    feed = feed_config(
        dead_letters={"table": "lake.web.letters"}, sinks={"more": {"iceberg": {"table": "lake.web.more"}}}
    )
    shown = table_document(feed, FeedMonitor("hits"), read, now=0.0)["tables"]
    assert [(each["name"], each["files"], each["note"], each["error"]) for each in shown] == [
        ("lake.web.hits", 0, None, None),
        ("lake.web.more", None, "the table does not exist yet", None),
        ("lake.web.letters", None, None, "the catalog does not answer (http://catalog)"),
    ]


def test_a_sink_without_snapshots_has_a_note() -> None:
    feed = feed_config(sink={"memory": {"view": "now"}})
    document = table_document(feed, FeedMonitor("hits"), lambda name: {}, now=0.0)
    assert document["tables"][0]["note"] == "sink is memory, which has no snapshots; 0 rows were written by this run"


def test_the_first_50_tables_are_shown() -> None:
    feed = feed_config(
        source={"kafka": {"bootstrap_servers": "localhost:9092", "topics_pattern": "hits.*"}},
        decode="string",
        sink={"iceberg": {"table": "lake.web.{topic}"}},
        checkpoint="",
    )
    monitor = FeedMonitor("hits")
    monitor.observe_ends({(f"hits-{number:03}", 0): 1 for number in range(MOST_TABLES + 7)})

    def read(name: str) -> Metadata:
        raise ResourceMissing(name)

    document = table_document(feed, monitor, read, now=0.0)
    assert (len(document["tables"]), document["left_out"]) == (MOST_TABLES, 7)
    assert document["tables"][0]["name"] == "lake.web.hits_000"


def test_the_schema_history_also_shows_changes_of_nested_fields(catalog: SqlCatalog) -> None:
    from pyiceberg.schema import Schema
    from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType

    inner = StructType(NestedField(4, "zip", IntegerType(), required=True))
    table = catalog.create_table(
        "web.hits",
        Schema(
            NestedField(1, "id", LongType(), required=True),
            NestedField(2, "address", inner, required=False),
            NestedField(3, "tags", ListType(5, StringType(), element_required=False), required=False),
        ),
    )
    with table.update_schema() as update:
        update.add_column("agent<script>", StringType())
        update.add_column(("address", "street"), StringType())
    with table.update_schema() as update:
        update.update_column(("address", "zip"), LongType())
        update.rename_column("tags", "labels")
        update.make_column_optional("id")
        update.delete_column("agent<script>")
    table.append(pa.Table.from_pylist([], schema=table.schema().as_arrow()))

    first, second, third = history("lake.web.hits", metadata_of(table.metadata))

    assert [field["name"] for field in first["fields"]] == ["id", "address", "address.zip", "tags", "tags.element"]
    assert first["added"] == first["removed"] == first["changed"] == []
    assert [field["name"] for field in second["added"]] == ["address.street", "agent<script>"]
    assert [field["name"] for field in third["removed"]] == ["agent<script>"]
    assert {change["name"]: (change["before"], change["after"]) for change in third["changed"]} == {
        "id": ({"name": "id", "type": "long", "nullable": False}, {"name": "id", "type": "long", "nullable": True}),
        "address.zip": (
            {"name": "address.zip", "type": "int", "nullable": False},
            {"name": "address.zip", "type": "long", "nullable": False},
        ),
        "labels": (
            {"name": "tags", "type": "list", "nullable": True},
            {"name": "labels", "type": "list", "nullable": True},
        ),
        "labels.element": (
            {"name": "tags.element", "type": "string", "nullable": True},
            {"name": "labels.element", "type": "string", "nullable": True},
        ),
    }
    assert (first["current"], third["current"]) == (False, True)
    assert (first["at"] is None, third["at"] is None) == (True, False)


def test_the_schemas_document_lists_the_schemas_of_landed_batches() -> None:
    monitor = FeedMonitor("hits")
    monitor.events.add("schema", "batch 3 has rows of schema 7", batch=3, schema_id=7)

    def read(name: str) -> Metadata:
        raise ResourceMissing(name)

    document = schemas_document(feed_config(), monitor, read)
    assert document["schemas"] == []
    assert [(writer["id"], writer["batch"]) for writer in document["writers"]] == [(7, 3)]
    other = schemas_document(feed_config(sink={"memory": {}}), monitor, read)
    assert other["note"] == "the sink is memory, which keeps no history of its schema"
