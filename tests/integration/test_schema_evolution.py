"""Writers change their schema while a pipeline exists; each policy of ``schema.on_change`` handles real records."""

import json
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from lakefeed.errors import SchemaChanged
from lakefeed_inspect.schema_command import schema as command
from tests.support.feed import Feed


def trip(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Trip", "fields": list(fields)}


def stop(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"name": "stop", "type": {"type": "record", "name": "Stop", "fields": list(fields)}}


X = {"name": "x", "type": "int"}
V1 = trip({"name": "id", "type": "int"}, {"name": "zone", "type": "string", "default": ""}, stop(X))
V2 = trip(
    {"name": "id", "type": "long"},
    {"name": "area", "type": "string", "default": "", "aliases": ["zone"]},
    stop(X, {"name": "y", "type": "int", "default": 0}),
    {"name": "fare", "type": ["null", "double"], "default": None},
)


def history(feed: Feed) -> list[dict[str, Any]]:
    done = CliRunner().invoke(command, ["history", "--table", feed.table, "--output", "json"], env=feed.environment)
    assert done.exit_code == 0, done.output
    return list(json.loads(done.stdout)["entries"])


@pytest.mark.quick
def test_the_table_follows_the_changes_of_the_schema(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send(feed.avro([{"id": 1, "zone": "a", "stop": {"x": 1}}], V1))
    pipeline = feed.pipeline()
    pipeline.run(spark=lake, once=True)
    assert history(feed) == []

    new = feed.avro([{"id": 2**40, "area": "b", "stop": {"x": 2, "y": 3}, "fare": 1.5}], V2)
    old = feed.avro([{"id": 3, "zone": "c", "stop": {"x": 4}}], V1)
    feed.send([*new, *old])
    pipeline.run(spark=lake, once=True)
    assert sorted(feed.rows(), key=lambda row: str(row["area"])) == [
        {"id": 1, "area": "a", "stop": {"x": 1, "y": None}, "fare": None},
        {"id": 2**40, "area": "b", "stop": {"x": 2, "y": 3}, "fare": 1.5},
        {"id": 3, "area": "c", "stop": {"x": 4, "y": 0}, "fare": None},
    ]
    (entry,) = history(feed)
    assert [(each["kind"], each["path"]) for each in entry["changes"]] == [
        ("promoted", "id"),
        ("renamed", "area"),
        ("added", "stop.y"),
        ("added", "fare"),
    ]


def test_the_feed_stops_at_a_schema_change_if_so_configured(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send(feed.avro([{"id": 1, "zone": "a", "stop": {"x": 1}}], V1))
    pipeline = feed.pipeline(schema={"on_change": "fail"})
    pipeline.run(spark=lake, once=True)
    feed.send(feed.avro([{"id": 2, "area": "b", "stop": {"x": 2, "y": 3}, "fare": 1.5}], V2))
    with pytest.raises(SchemaChanged, match=r"id widened from int to long; area renamed from zone; stop\.y added"):
        feed.pipeline(schema={"on_change": "fail"}).run(spark=lake, once=True)
    assert [row["id"] for row in feed.rows()] == [1]
    # After the policy is changed to evolve, the refused batch lands.
    feed.pipeline(schema={"on_change": "evolve"}).run(spark=lake, once=True)
    assert sorted(row["id"] for row in feed.rows()) == [1, 2]


def test_the_feed_ignores_new_fields_if_so_configured(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send(feed.avro([{"id": 1, "zone": "a", "stop": {"x": 1}}], V1))
    pipeline = feed.pipeline(schema={"on_change": "ignore"})
    pipeline.run(spark=lake, once=True)
    feed.send(feed.avro([{"id": 2**40, "area": "b", "stop": {"x": 2, "y": 3}, "fare": 1.5}], V2))
    pipeline.run(spark=lake, once=True)
    assert sorted(feed.rows(), key=lambda row: str(row["zone"])) == [
        {"id": 1, "zone": "a", "stop": {"x": 1}},
        {"id": 2**40, "zone": "b", "stop": {"x": 2}},
    ]
