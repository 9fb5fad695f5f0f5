"""Whatever the schema and records, valid or broken, a feed continues; each record becomes a row or a dead letter."""

import io
import json
import random
import zlib
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest
from fastavro.utils import generate_one
from pyiceberg.types import FixedType, IntegerType, StringType, UUIDType
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.errors import LakefeedError
from lakefeed.records.decode.registry import KINDS, SchemaRegistry
from lakefeed_local.part import ask
from lakefeed_local.stack import Endpoints
from tests.support.any_contents import FORMATS, UUID, Json
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


@pytest.fixture
def any_change(stack: Endpoints) -> Iterator[None]:
    """Let the registry accept incompatible versions of a schema during a test."""

    def allow(level: str) -> None:
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        body = json.dumps({"compatibility": level}).encode()
        ask(f"{stack.schema_registry_url}/config", method="PUT", headers=headers, body=body)

    allow("NONE")
    yield
    allow("BACKWARD")


@pytest.mark.slow
@pytest.mark.usefixtures("any_change")
@pytest.mark.parametrize("table", ["new", "foreign"])
@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("kind", FORMATS)
def test_random_schemas_and_records_become_rows_or_dead_letters(
    lake: SparkSession, feed: Feed, kind: str, mode: str, table: str
) -> None:
    """Each feed runs three times, and each run reads a third of the records."""
    feed.create_topic(partitions=1)
    if table == "foreign":
        feed.create_table({**FOREIGN, "zone": StringType()}, partition_by="zone")
    contents = FORMATS[kind](zlib.crc32(f"{kind} {mode} {table}".encode()))
    keyed = {"mode": "upsert", "keys": ["ident"]} if mode == "upsert" else {}
    block = {"schema_ddl": Json.DDL} if kind == "json" else {"registry": "${SCHEMA_REGISTRY_URL}"}
    pipeline = feed.pipeline(
        decode={kind: block, "on_null": "dead_letter", **({} if keyed else {"metadata": ["offset"]})},
        sink={"iceberg": {"table": feed.table, **keyed}},
        dead_letters={"table": f"{feed.table}_dead"},
    )
    registry, sent, letters = SchemaRegistry(feed.stack.schema_registry_url), 0, 0
    for number in range(VERSIONS):
        header = b""
        # The first run creates the columns from the newest version of the schema. If this version were odd, the run
        # would refuse all other versions.
        while number == VERSIONS // 3 - 1 and not contents.fits:
            contents.next()
        if kind != "json":
            try:
                known_as = registry.register(f"{feed.topic}-value", contents.text(), kind=KINDS[kind])
            except LakefeedError:
                known_as = 2**31 - 1 - number
            header = b"\0" + known_as.to_bytes(4, "big")
        values = [header + contents.record() for _ in range(RECORDS // VERSIONS)]
        feed.send([*values, *([b"", None, b"\0"] if number == 0 else [])], partition=0)
        sent += len(values) + (3 if number == 0 else 0)
        contents.next()
        if number % (VERSIONS // 3) == VERSIONS // 3 - 1 or number == VERSIONS - 1:
            summary = pipeline.run(spark=lake, once=True)
            letters += summary.dead_letters
            dead = [letter["offset"] for letter in feed.rows(f"{feed.table}_dead")]
            # Read only these columns, because other columns have dates that Python cannot represent.
            read = ("u",) if keyed else ("u", "kafka_offset")
            table_now = open_table(feed.table, connections=feed.connections)
            rows = table_now.scan(selected_fields=read).to_arrow().to_pylist()
            assert len(dead) == letters
            if not keyed:
                assert sorted([row["kafka_offset"] for row in rows] + dead) == list(range(sent))
            assert all(row["u"] is None or table == "new" or str(row["u"]) == UUID for row in rows)
    print(f"{kind} {mode} {table}: {sent} records, {letters} letters, {len(rows)} rows")
    assert 0 < letters < sent * 7 / 8
    assert not pipeline.verify().faults


def _first_row(dice: random.Random) -> dict[str, Any]:
    return {"ident": dice.randint(0, 9), "u": dice.choice(UUIDS), "f": dice.choice([b"abcd", b"x", None])}
