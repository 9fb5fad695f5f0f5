"""Random schemas and records, valid and broken, stop no feed with dead letters; each record is a row or a letter."""

import io
import json
import random
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest
from fastavro.utils import generate_one
from pyiceberg.types import FixedType, IntegerType, StringType, UUIDType
from pyspark.sql import SparkSession

from lakefeed.errors import LakefeedError
from lakefeed.records.decode.registry import SchemaRegistry
from tests.support.avro_pairs import Draw
from tests.support.feed import Feed
from tests.support.hostile import mutated

FIRST = {
    "type": "record",
    "name": "Root",
    "fields": [
        {"name": "ident", "type": "int"},
        {"name": "u", "type": ["null", "string"], "default": None},
        {"name": "f", "type": ["null", "bytes"], "default": None},
    ],
}
FOREIGN = {"ident": IntegerType(), "u": UUIDType(), "f": FixedType(4)}
"""Columns of a table that another tool has created."""
UUIDS = ["123e4567-e89b-12d3-a456-426614174000", "no uuid", "${foo}", "", None]
VERSIONS, RECORDS = 19, 133
"""Versions and records of each of 16 feeds: 304 and 2,128 in total."""
ODD = ["_pos", "ident.x", "kafka_offset", "lakefeed_deleted", "a.b", "${env:HOME}"]


def versions(seed: int, count: int) -> Iterator[Any]:
    """Yield versions of a schema: after the first, fields are added, changed, removed or get odd names."""
    dice, schemas, newest = random.Random(seed), Draw(seed, wild=True), FIRST
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
            except Exception:  # fastavro's generator does not support some logical types.
                buffer.write(dice.randbytes(9))
            values.append(header + buffer.getvalue())
    return [*values, *mutated(values[:20], count=each * 4, seed=seed)]


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize(
    ("seed", "schemas", "each"), [(7, 12, 5), *(pytest.param(seed, 50, 7, marks=pytest.mark.slow) for seed in range(3))]
)
def test_a_run_continues_after_any_schema_and_record(
    lake: SparkSession, feed: Feed, seed: int, mode: str, schemas: int, each: int
) -> None:
    feed.create_table({**FOREIGN, "note": StringType()})
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
    summary = pipeline.run(spark=lake, once=True)
    letters = [letter["offset"] for letter in feed.rows(f"{feed.table}_dead")]
    assert (summary.records, summary.dead_letters) == (len(values), len(letters))
    rows = feed.rows()
    assert all(row["u"] is None or str(row["u"]) == UUIDS[0] for row in rows)
    if not keyed:
        assert sorted([row["kafka_offset"] for row in rows] + letters) == list(range(len(values)))
    dice = random.Random(seed)
    first = [_first_row(dice) for _ in range(each)]
    faulty = {at for at, row in enumerate(first) if row["u"] not in (UUIDS[0], None) or row["f"] == b"x"}
    assert {offset for offset in letters if offset < each} == faulty


def _first_row(dice: random.Random) -> dict[str, Any]:
    return {"ident": dice.randint(0, 9), "u": dice.choice(UUIDS), "f": dice.choice([b"abcd", b"x", None])}
