"""Tables of other tools have types and rules that Spark hides: a record lands, becomes a dead letter, or is refused."""

import json

import pytest
from pyiceberg.types import FixedType, LongType, StringType, TimeType, UUIDType
from pyspark.sql import SparkSession

from lakefeed.errors import ConfigError, SchemaIncompatible
from lakefeed.operations.preflight.connect import preflight
from tests.support.feed import Feed

GOOD = "123e4567-e89b-12d3-a456-426614174000"


def checked(feed: Feed) -> str:
    """Return the problems that ``lakefeed check --connect`` reports for the table."""
    config = feed.pipeline(decode={"json": {"schema_ddl": "id BIGINT"}}).config
    found = preflight(config, connections=feed.connections, tables=True)
    return "; ".join(each.what for each in found if each.key == "sink.iceberg.table")


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_values_that_a_column_refuses_become_dead_letters(lake: SparkSession, feed: Feed, mode: str) -> None:
    feed.create_table({"id": LongType(), "u": UUIDType(), "f": FixedType(4)})
    feed.create_topic(partitions=1)
    values = [(GOOD, "abcd"), ("not a uuid", "abcd"), (None, None), (GOOD, "abc"), (GOOD.upper(), "wxyz")]
    feed.send([json.dumps({"id": at, "u": u, "f": f}).encode() for at, (u, f) in enumerate(values)], partition=0)
    kept = ", kafka_topic, kafka_partition, kafka_offset, lakefeed_deleted" if mode == "upsert" else ""
    blocks = {
        "decode": {"json": {"schema_ddl": "id BIGINT, u STRING, f STRING"}},
        "transform": {"sql": f"SELECT id, u, CAST(f AS BINARY) AS f{kept} FROM {feed.name}"},
        "sink": {"iceberg": {"table": feed.table, **({"mode": "upsert", "keys": ["id"]} if mode == "upsert" else {})}},
        "dead_letters": {"table": f"{feed.table}_dead"},
    }
    summary = feed.pipeline(**blocks).run(spark=lake, once=True)
    assert (summary.records, summary.dead_letters) == (5, 2)
    rows = {row["id"]: (row["u"] and str(row["u"]), row["f"]) for row in feed.rows()}
    assert rows == {0: (GOOD, b"abcd"), 2: (None, None), 4: (GOOD, b"wxyz")}
    assert sorted(each["offset"] for each in feed.rows(f"{feed.table}_dead")) == [1, 3]


@pytest.mark.parametrize(
    ("ddl", "partition", "says"),
    [
        ("id INT, `a.b` INT, a STRUCT<b: INT>", [], "a.b"),
        ("id INT, _file STRING", [], "_file is reserved"),
        ("id INT, _partition STRING", [], "_partition is reserved"),
        ("id BIGINT", ["days(id)"], "day"),
        ("id INT, at TIMESTAMP, at_day INT", ["days(at)"], "at_day"),
        ("id DOUBLE", ["bucket(4, id)"], "bucket"),
        ("id INT, a ARRAY<INT>", ["a"], "partition"),
        ("id INT, s STRING COLLATE UTF8_LCASE", [], "collate"),
    ],
)
def test_a_table_definition_that_iceberg_refuses_is_refused_before_anything_is_created(
    lake: SparkSession, feed: Feed, ddl: str, partition: list[str], says: str
) -> None:
    """If the pipeline file declares the columns, the file is refused (but for collations), otherwise the start."""
    feed.create_topic(partitions=1)
    sink = {"iceberg": {"table": feed.table, "partition_by": partition}}
    blocks = {"decode": {"json": {"schema_ddl": ddl}}, "sink": sink}
    with pytest.raises(SchemaIncompatible if says == "collate" else ConfigError):
        feed.pipeline(**blocks).run(spark=lake, once=True)
    with pytest.raises(SchemaIncompatible) as refused:
        feed.pipeline(**blocks, transform={"sql": f"SELECT * FROM {feed.name}"}).run(spark=lake, once=True)
    assert says in refused.value.what
    assert not lake.catalog.tableExists(feed.table)


def test_columns_that_iceberg_refuses_to_add_or_change_are_refused(lake: SparkSession, feed: Feed) -> None:
    feed.create_table({"id": LongType(), "name": StringType()}, identifier="id")
    feed.create_topic(partitions=1)

    def refusal(ddl: str) -> str:
        pipeline = feed.pipeline(decode={"json": {"schema_ddl": ddl}}, transform={"sql": f"SELECT * FROM {feed.name}"})
        with pytest.raises(SchemaIncompatible) as refused:
            pipeline.run(spark=lake, once=True)
        return refused.value.what

    assert "identifier field" in refusal("id BIGINT, name STRING")
    assert "the identifier fields of the table, id, are required" in checked(feed)
    lake.sql(f"ALTER TABLE {feed.table} DROP IDENTIFIER FIELDS id")
    assert checked(feed) == ""
    assert "_pos is reserved" in refusal("id BIGINT, name STRING, _pos INT")
    lake.sql(f"ALTER TABLE {feed.table} ADD COLUMN a ARRAY<STRUCT<b: INT>>")
    assert "already exists: a.b" in refusal("id BIGINT, a ARRAY<STRUCT<b: INT>>, `a.b` INT")
    assert lake.table(feed.table).columns == ["id", "name", "a"]


def test_the_refusal_of_a_table_with_a_time_column_names_the_column(lake: SparkSession, feed: Feed) -> None:
    feed.create_table({"id": LongType(), "t": TimeType()})
    feed.create_topic(partitions=1)
    with pytest.raises(ConfigError, match="time"):
        feed.pipeline(decode={"json": {"schema_ddl": "id BIGINT"}}).run(spark=lake, once=True)
    assert "the table's column t has the type time" in checked(feed)


def test_a_text_that_a_uuid_column_or_a_partition_refuses_is_a_dead_letter(lake: SparkSession, feed: Feed) -> None:
    """Without a transform, each record is checked by the types of the table; for partitions only the path is tried."""
    feed.create_table({"u": UUIDType(), "zone-name": StringType()})
    feed.create_topic(partitions=1)
    values = [(GOOD, "a"), ("1-1-1-1-1", "a"), (None, "long" * 500), (GOOD, "é" * 20), ("", None), (None, None)]
    feed.send([json.dumps({"u": u, "zone-name": zone}).encode() for u, zone in values], partition=0)
    blocks = {
        "decode": {"json": {"schema_ddl": "u STRING, `zone-name` STRING"}},
        "sink": {"iceberg": {"table": feed.table, "partition_by": ["zone-name"]}},
        "dead_letters": {"table": f"{feed.table}_dead"},
    }
    summary = feed.pipeline(**blocks).run(spark=lake, once=True)
    assert (summary.records, summary.dead_letters) == (6, 3)
    rows = sorted((str(row["u"]), str(row["zone-name"])) for row in feed.rows())
    assert rows == [(GOOD, "a"), (GOOD, "é" * 20), ("None", "None")]
    reasons = {each["offset"]: each["reason"] for each in feed.rows(f"{feed.table}_dead")}
    assert reasons[1] == reasons[4] == "column u of the table accepts only a uuid"
    assert "a text is too long for a partition" in reasons[2]
