"""After each schema change, a real Iceberg table with data still returns its older and newer rows correctly."""

import json
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.errors import SchemaIncompatible
from lakefeed.records.schema import Change, merge_schemas
from lakefeed.records.schema.ddl import statements
from lakefeed.records.schema.fit import align_columns, columns_of, columns_of_table, same_type
from tests.support.feed import Feed

Json = Any


def record(*fields: Json, name: str = "R") -> Json:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, type_: Json = "string", **attributes: Json) -> Json:
    return {"name": name, "type": type_, **attributes}


def array(items: Json) -> Json:
    return {"type": "array", "items": items}


def mapped(values: Json) -> Json:
    return {"type": "map", "values": values}


def decimal(precision: int) -> Json:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}


class Table:
    """A new Iceberg table, with methods that apply a schema's changes to it and append rows."""

    def __init__(self, lake: SparkSession, columns: str) -> None:
        self.lake = lake
        self.name = f"lake.s{uuid.uuid4().hex[:10]}.rows"
        lake.sql(f"CREATE NAMESPACE {self.name.rpartition('.')[0]}")
        lake.sql(f"CREATE TABLE {self.name} ({columns}) USING iceberg")

    @property
    def schema(self) -> StructType:
        return self.lake.table(self.name).schema

    def follow(self, want: StructType, changes: Sequence[Change] = ()) -> list[str]:
        made = statements(self.name, have=self.schema, want=want, changes=changes)
        for each in made:
            self.lake.sql(each)
        return [each.partition("rows` ")[2] for each in made]

    def append(self, rows: Sequence[Json], schema: StructType) -> None:
        texts = self.lake.createDataFrame([(json.dumps(each),) for each in rows], "text STRING")
        frame = texts.select(sf.from_json("text", schema).alias("row")).select("row.*")
        align_columns(frame, self.schema).writeTo(self.name).append()

    def rows(self) -> list[Json]:
        """Return the rows as JSON objects, without null fields."""
        return [json.loads(each) for each in self.lake.table(self.name).toJSON().collect()]


V1 = record(
    field("id", "int"),
    field("share", "float"),
    field("fare", decimal(9)),
    field("old"),
    field("gone"),
    field("home", record(field("zip"), field("n", "int"), name="Address")),
    field("stops", array(record(field("x", "int"), field("was"), name="Stop"))),
    field("by_day", mapped(record(field("sum", "int"), name="Day"))),
    field("numbers", array("int")),
    field("totals", mapped("float")),
    field("kind", {"type": "enum", "name": "Kind", "symbols": ["A"]}),
    field("any", ["string", "int"]),
)
V2 = record(
    field("extra", record(field("deep", array("string")), name="Extra")),
    field("any", ["boolean", "string", "int"]),
    field("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
    field("totals", mapped(["null", "double"])),
    field("numbers", array(["null", "long"])),
    field("by_day", mapped(record(field("sum", "long"), field("best", "string"), name="Day"))),
    field("stops", array(record(field("is", aliases=["was"]), field("x", "long"), field("y", "int"), name="Stop"))),
    field("address", record(field("zip"), field("city"), field("n", "long"), name="Address"), aliases=["home"]),
    field("new", aliases=["old"]),
    field("fare", decimal(12)),
    field("share", "double"),
    field("id", ["null", "long"]),
)
OLD = {
    "id": 1, "share": 0.5, "fare": 12.34, "old": "o", "gone": "g", "home": {"zip": "z", "n": 1},
    "stops": [{"x": 1, "was": "w"}], "by_day": {"mon": {"sum": 1}}, "numbers": [1, 2], "totals": {"t": 0.5},
    "kind": "A", "any": {"member1": 7},
}  # fmt: skip
NEW = {
    "extra": {"deep": ["d"]}, "any": {"member2": True}, "kind": "B", "totals": {"t": 1e300, "n": None},
    "numbers": [2**40, None], "by_day": {"tue": {"sum": 2**40, "best": "b"}},
    "stops": [{"is": "i", "x": 2**40, "y": 2}, None], "address": {"zip": "z", "city": "c", "n": 2**40},
    "new": "n", "fare": 1234567890.12, "share": 1e300, "id": None,
}  # fmt: skip

OLDER = (
    "numbers ARRAY<INT>, address STRUCT<zip: STRING>, any STRUCT<member0: STRING, member1: INT>, "
    "by_day MAP<STRING, STRUCT<sum: INT>>, stops ARRAY<STRUCT<is: STRING, x: INT>>, id INT"
)


def test_type_changes_that_iceberg_refuses_are_refused(lake: SparkSession) -> None:
    """lakefeed allows exactly the type changes that Iceberg allows."""
    table = Table(lake, "a INT, b DATE, c DECIMAL(9,2), d STRUCT<e: STRING>")
    before = table.schema
    for name, expected in (("a", "double"), ("b", "timestamp"), ("c", "decimal(12,3)"), ("d.e", "binary")):
        with pytest.raises((PySparkException, Py4JJavaError)):
            lake.sql(f"ALTER TABLE {table.name} ALTER COLUMN {name} TYPE {expected}")
    for want in (record(field("a", "double")), record(field("a", "string")), record(field("d", "string"))):
        with pytest.raises(SchemaIncompatible, match="Iceberg cannot change the one type to the other"):
            table.follow(columns_of(json.dumps(want)))
    assert table.schema == before


def test_schema_changes_at_every_depth_keep_the_rows(lake: SparkSession, feed: Feed) -> None:
    before, after = json.dumps(V1), merge_schemas(json.dumps(V1), json.dumps(V2))
    have, want = columns_of(before), columns_of(after.schema)
    table = Table(
        lake,
        "id INT NOT NULL, share FLOAT, fare DECIMAL(9,2), old STRING, gone STRING NOT NULL, "
        "home STRUCT<zip: STRING, n: INT> NOT NULL, stops ARRAY<STRUCT<x: INT, was: STRING>>, "
        "by_day MAP<STRING, STRUCT<sum: INT>>, numbers ARRAY<INT>, totals MAP<STRING, FLOAT>, kind STRING, "
        "any STRUCT<member0: STRING, member1: INT>",
    )
    table.append([OLD], have)

    made = table.follow(want, after.changes)
    assert made == [
        "RENAME COLUMN `old` TO `new`",
        "RENAME COLUMN `home` TO `address`",
        "RENAME COLUMN `stops`.`element`.`was` TO `is`",
        "ALTER COLUMN `id` DROP NOT NULL",
        "ALTER COLUMN `gone` DROP NOT NULL",
        "ALTER COLUMN `id` TYPE BIGINT",
        "ALTER COLUMN `share` TYPE DOUBLE",
        "ALTER COLUMN `fare` TYPE DECIMAL(12,2)",
        "ALTER COLUMN `address`.`n` TYPE BIGINT",
        "ALTER COLUMN `stops`.`element`.`x` TYPE BIGINT",
        "ALTER COLUMN `by_day`.`value`.`sum` TYPE BIGINT",
        "ALTER COLUMN `numbers`.`element` TYPE BIGINT",
        "ALTER COLUMN `totals`.`value` TYPE DOUBLE",
        "ADD COLUMNS (`address`.`city` STRING, `stops`.`element`.`y` INT, `by_day`.`value`.`best` STRING, "
        "`any`.`member2` BOOLEAN, `extra` STRUCT<`deep`: ARRAY<STRING>>)",
    ]
    assert table.follow(want, after.changes) == []

    table.append([NEW], want)
    # Rows of a writer with the old schema still land; fields that these rows lack become null, even inside arrays and
    # maps.
    older_columns = StructType.fromDDL(OLDER)
    assert isinstance(older_columns, StructType)
    older = {"id": 2, "stops": [{"x": 1, "is": "w"}, None], "by_day": {"mon": {"sum": 1}, "tue": None}}
    older |= {"any": {"member1": 7}, "address": {"zip": "z"}, "numbers": [1, None]}
    table.append([older, {"id": 3, "address": {"zip": "y"}}], older_columns)

    first, second, third, fourth = sorted(table.rows(), key=lambda row: row.get("id", 1.5))
    kept = {key: each for key, each in OLD.items() if key not in {"old", "home", "stops"}}
    assert first == {**kept, "new": "o", "address": OLD["home"], "stops": [{"x": 1, "is": "w"}]}
    assert second == {key: each for key, each in NEW.items() if key != "id"}
    assert third == older
    assert fourth == {"id": 3, "address": {"zip": "y"}}
    # pyiceberg, without Spark, sees the same columns.
    there = open_table(table.name, connections=feed.connections).schema()
    assert same_type(columns_of_table(there), table.schema)
    assert columns_of_table(there).json() == table.schema.json()
