"""``lakefeed schema`` with a real registry, catalog and broker."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.sql import set_properties
from lakefeed.errors import ConfigError, ResourceMissing, SchemaIncompatible, Unreachable
from lakefeed.records.decode.registry import SchemaRegistry
from lakefeed.records.schema.changes import Change, Entry, history_properties
from lakefeed.records.schema.reader import StoredSchema
from lakefeed_inspect.schema_command import schema as command
from tests.support.feed import TRIP, Feed

pytestmark = pytest.mark.quick

WIDER = {
    **TRIP,
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "area", "type": "string", "aliases": ["zone"]},
        {"name": "fare", "type": "double", "default": 0.0},
    ],
}


def run(feed: Feed, *arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(each) for each in arguments], env=feed.environment)


def printed(feed: Feed, *arguments: str | Path) -> Any:
    done = run(feed, *arguments, "--output", "json")
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


@pytest.fixture
def versions(feed: Feed) -> list[int]:
    registry = SchemaRegistry(feed.stack.schema_registry_url)
    return [registry.register(f"{feed.topic}-value", json.dumps(each)) for each in (TRIP, WIDER)]


def create(lake: SparkSession, feed: Feed) -> None:
    lake.sql(f"CREATE NAMESPACE {feed.table.rpartition('.')[0]}")
    lake.sql(f"CREATE TABLE {feed.table} (id BIGINT, zone STRING, mine INT) USING iceberg")


def recorded(feed: Feed, schema_id: int) -> dict[str, str]:
    """Return the table properties that a feed has stored after reading the first version of the schema."""
    return {f"lakefeed.reader.{feed.name}": StoredSchema(json.dumps(TRIP), frozenset([schema_id])).to_json()}


def test_schema_show_and_diff_work_without_a_table(feed: Feed, versions: list[int]) -> None:
    shown = printed(feed, "show", feed.write_file())
    assert [(each["version"], each["schema_id"]) for each in shown["versions"]] == [(1, versions[0]), (2, versions[1])]
    assert not shown["exists"]
    assert shown["columns"][1] == {"path": "area", "registry": "string", "table": None}
    diff = printed(feed, "diff", feed.write_file())
    assert (diff["ddl"], diff["note"]) == (None, "the table does not exist yet: lakefeed run creates it")
    text = run(feed, "show", feed.write_file()).output
    assert f"  version 2  id {versions[1]}  area renamed from zone; fare added (double)\n" in text


def test_schema_show_compares_registry_and_table_and_schema_diff_lists_the_changes(
    lake: SparkSession, feed: Feed, versions: list[int]
) -> None:
    create(lake, feed)
    pipeline = feed.write_file()
    columns = {each["path"]: (each["registry"], each["table"]) for each in printed(feed, "show", pipeline)["columns"]}
    assert columns == {
        "id": ("bigint", "bigint"),
        "area": ("string", None),
        "fare": ("double", None),
        "zone": (None, "string"),
        "mine": (None, "int"),
    }
    alter = f"ALTER TABLE `lake`.`{feed.name}`.`rows` "
    ddl = [f"{alter}RENAME COLUMN `zone` TO `area`", f"{alter}ADD COLUMNS (`fare` DOUBLE)"]
    before = printed(feed, "diff", pipeline)
    assert before["ddl"] == ddl
    assert "the feed has not run with this table yet" in before["note"]

    lake.sql(set_properties(feed.table, recorded(feed, versions[0])))
    diff = printed(feed, "diff", pipeline)
    assert diff["ddl"] == ddl
    assert [each["kind"] for each in diff["changes"]] == ["renamed", "added"]
    assert (diff["schema_id"], diff["note"]) == (versions[1], None)
    for statement in diff["ddl"]:
        lake.sql(statement)
    assert printed(feed, "diff", pipeline)["ddl"] == []

    with_transform = feed.write_file(transform={"sql": f"SELECT id FROM {feed.name}"})
    assert "lakefeed plan shows" in printed(feed, "diff", with_transform)["note"]
    failing = feed.write_file(schema={"on_change": "fail"}, decode={**DECODE, "metadata": ["offset"]})
    diff = printed(feed, "diff", failing)
    assert diff["ddl"] == [f"{alter}ADD COLUMNS (`kafka_offset` BIGINT)"]
    assert "the feed would stop" in diff["note"]


DECODE = {"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}}


def test_schema_diff_refuses_a_change_that_a_column_does_not_allow(
    lake: SparkSession, feed: Feed, versions: list[int]
) -> None:
    lake.sql(f"CREATE NAMESPACE {feed.table.rpartition('.')[0]}")
    lake.sql(f"CREATE TABLE {feed.table} (id STRING) USING iceberg")
    refused = run(feed, "diff", feed.write_file())
    assert isinstance(refused.exception, SchemaIncompatible)
    assert "column id is string in the table and bigint in the rows" in refused.exception.what


def test_schema_history_lists_the_versions(lake: SparkSession, feed: Feed) -> None:
    create(lake, feed)
    pipeline = feed.write_file()
    assert run(feed, "history", pipeline).output == f"the columns of {feed.table} have not changed since its creation\n"
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    change = Change("added", "fare", None, "double")
    lake.sql(set_properties(feed.table, history_properties({}, [Entry(at, 7, (change,))])))
    assert run(feed, "history", pipeline).output == "2026-01-02 03:04:05 UTC  schema id 7\n  fare added (double)\n"
    assert printed(feed, "history", "--table", feed.table) == {
        "table": feed.table,
        "dropped": 0,
        "entries": [
            {
                "at": "2026-01-02T03:04:05Z",
                "schema_id": 7,
                "changes": [{"kind": "added", "path": "fare", "before": None, "after": "double"}],
            }
        ],
    }
    assert isinstance(run(feed, "history").exception, ConfigError)


def test_schema_infer_prints_a_schema_of_the_records(lake: SparkSession, feed: Feed) -> None:
    """The command runs in this process, because a separate process would have to start another session."""
    feed.create_topic()
    pipeline = feed.write_file(decode={"json": {"schema_ddl": "id BIGINT"}})
    with_nothing = run(feed, "infer", pipeline)
    assert isinstance(with_nothing.exception, ResourceMissing)
    values = [json.dumps({"id": number, "at": {"zone": "z"}, "share": 1}).encode() for number in range(20)]
    feed.send([*values, None, b'{"id": "x", "share": 0.5}', b"oops"])
    found = printed(feed, "infer", pipeline)
    assert found["ddl"] == "`id` BIGINT, `at` STRUCT<`zone`: STRING>, `share` DOUBLE"
    assert found["records"] == 22
    assert found["avro"]["fields"][2] == {"name": "share", "type": ["null", "double"], "default": None}
    assert {each["path"]: each["what"] for each in found["conflicts"]} == {
        "": "1 of 22 records: no JSON in UTF-8",
        "id": "20 times long, but 1 times string, which this schema cannot decode",
    }


def test_the_error_names_the_missing_subject(feed: Feed, versions: list[int]) -> None:
    near = {"avro": {"registry": "${SCHEMA_REGISTRY_URL}", "subject": f"{feed.topic}-valeu"}}
    misspelt = run(feed, "show", feed.write_file(decode=near)).exception
    assert isinstance(misspelt, ResourceMissing)
    assert f"{feed.topic}-value" in (misspelt.hint or "")

    down = {"avro": {"registry": "http://127.0.0.1:9"}}
    assert isinstance(run(feed, "diff", feed.write_file(decode=down)).exception, Unreachable)
    assert isinstance(run(feed, "history", feed.write_file()).exception, ResourceMissing)
    without = run(feed, "show", feed.write_file(decode={"json": {"schema_ddl": "id BIGINT"}})).exception
    assert isinstance(without, ConfigError)
    assert "without a schema registry" in without.what

    registry = SchemaRegistry(feed.stack.schema_registry_url)
    draft = "http://json-schema.org/draft-07/schema#"
    registry.register(f"{feed.name}-json-value", json.dumps({"$schema": draft, "type": "object"}), kind="JSON")
    other = {"avro": {"registry": "${SCHEMA_REGISTRY_URL}", "subject": f"{feed.name}-json-value"}}
    not_avro = run(feed, "show", feed.write_file(decode=other)).exception
    assert isinstance(not_avro, ConfigError)
    assert "has JSON schemas, but this pipeline decodes AVRO" in not_avro.what


def test_json_schema_and_protobuf_subjects_are_shown(lake: SparkSession, feed: Feed) -> None:
    registry = SchemaRegistry(feed.stack.schema_registry_url)
    document = {
        "title": "Trip",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "zone": {"type": "string"}},
        "required": ["id"],
    }
    proto = 'syntax = "proto3"; message Trip { int64 id = 1; optional string zone = 2; }'
    registry.register(f"{feed.topic}-json", json.dumps(document), kind="JSON")
    registry.register(f"{feed.topic}-proto", proto, kind="PROTOBUF")
    for block, subject in (("json_schema", "json"), ("protobuf", "proto")):
        settings = {"registry": "${SCHEMA_REGISTRY_URL}", "subject": f"{feed.topic}-{subject}"}
        shown = printed(feed, "show", feed.write_file(decode={block: settings}))
        assert [(each["path"], each["registry"]) for each in shown["columns"]] == [("id", "bigint"), ("zone", "string")]
