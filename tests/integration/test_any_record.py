"""Random schemas and records, right and broken: none ends a feed with dead letters, and each is accounted for."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from fastavro.utils import generate_one
from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, IntegerType, NestedField, StringType, UUIDType

from lakefeed.clients.iceberg.reader import open_catalog
from lakefeed.errors import LakefeedError
from lakefeed.records.decode.registry import SchemaRegistry
from tests.support.any_schemas import Schemas
from tests.support.feed import Feed
from tests.support.hostile import mutated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST = {
    "type": "record",
    "name": "Root",
    "fields": [
        {"name": "ident", "type": "int"},
        {"name": "u", "type": ["null", "string"], "default": None},
        {"name": "f", "type": ["null", "bytes"], "default": None},
    ],
}
UUIDS = ["123e4567-e89b-12d3-a456-426614174000", "no uuid", "${foo}", "", None]
ODD = ["_pos", "ident.x", "kafka_offset", "lakefeed_deleted", "a.b", "${env:HOME}"]


def versions(seed: int, count: int) -> Iterator[Any]:
    """The first version, and ones in which fields are added, changed or taken away, or have odd names."""
    dice, schemas, newest = random.Random(seed), Schemas(seed), FIRST
    yield FIRST
    for number in range(count):
        later = schemas.next(newest)
        if number % 7 == 3:
            later["fields"].append({"name": dice.choice(ODD), "type": ["null", "int"], "default": None})
        yield later
        if number % 3 == 0:
            newest = later


def records(feed: Feed, seed: int, *, schemas: int, each: int) -> list[bytes]:
    registry, dice = SchemaRegistry(feed.stack.schema_registry_url), random.Random(seed)
    values = []
    for number, schema in enumerate(versions(seed, schemas)):
        try:
            header = b"\0" + registry.register(f"{feed.topic}-{number}", json.dumps(schema)).to_bytes(4, "big")
            parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
        except (LakefeedError, ValueError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType):
            continue
        for _ in range(each):
            buffer = io.BytesIO()
            try:
                row = generate_one(parsed)
                if number == 0:
                    row = _first_row(dice)
                fastavro.schemaless_writer(buffer, parsed, row)
            except Exception:  # The generator makes no value of some logical types.
                buffer.write(dice.randbytes(9))
            values.append(header + buffer.getvalue())
    return [*values, *mutated(values[:20], count=each * 4, seed=seed)]


def land(spark: SparkSession, feed: Feed, seed: int, *, mode: str, schemas: int, each: int) -> None:
    open_catalog(feed.catalog, connections=feed.connections).create_namespace_if_not_exists(feed.name)
    columns = [
        NestedField(1, "ident", IntegerType(), required=False),
        NestedField(2, "u", UUIDType(), required=False),
        NestedField(3, "f", FixedType(4), required=False),
        NestedField(4, "note", StringType(), required=False),
    ]
    catalog = open_catalog(feed.catalog, connections=feed.connections)
    catalog.create_table(f"{feed.name}.rows", Schema(*columns), properties={"format-version": "2"})
    feed.create_topic(partitions=1)
    SchemaRegistry(feed.stack.schema_registry_url).register(f"{feed.topic}-value", json.dumps(FIRST))
    values = records(feed, seed, schemas=schemas, each=each)
    feed.send(values, partition=0)
    keyed = {"mode": "upsert", "keys": ["ident"]} if mode == "upsert" else {}
    own = {} if keyed else {"metadata": ["offset"]}
    keys = {"expect": {"has_key": {"rule": "ident IS NOT NULL", "on_violation": "dead_letter"}}} if keyed else {}
    pipeline = feed.pipeline(
        decode={"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}, **own},
        sink={"iceberg": {"table": feed.table, **keyed}},
        dead_letters={"table": f"{feed.table}_dead"},
        **keys,
    )
    summary = pipeline.run(spark=spark, once=True)
    letters = [letter["offset"] for letter in feed.rows(f"{feed.table}_dead")]
    assert (summary.records, summary.dead_letters) == (len(values), len(letters))
    rows = feed.rows()
    assert all(row["u"] is None or str(row["u"]) == UUIDS[0] for row in rows)
    if not keyed:
        assert sorted([row["kafka_offset"] for row in rows] + letters) == list(range(len(values)))
    first = random.Random(seed)
    rights = [_first_row(first) for _ in range(each)]
    faulty = {at for at, row in enumerate(rights) if row["u"] not in (UUIDS[0], None) or row["f"] == b"x"}
    assert {offset for offset in letters if offset < each} == faulty


def _first_row(dice: random.Random) -> dict[str, Any]:
    return {"ident": dice.randint(0, 9), "u": dice.choice(UUIDS), "f": dice.choice([b"abcd", b"x", None])}


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_no_record_or_schema_ends_a_run(lake: SparkSession, feed: Feed, mode: str) -> None:
    land(lake, feed, 7, mode=mode, schemas=12, each=5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("seed", range(3))
def test_no_record_or_schema_of_many_ends_a_run(lake: SparkSession, feed: Feed, seed: int, mode: str) -> None:
    land(lake, feed, seed, mode=mode, schemas=50, each=7)
