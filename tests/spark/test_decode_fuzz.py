"""Random and mutated payloads: each becomes a value or an error; nothing crashes, hangs or fills the memory."""

import json
import random
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from lakefeed.records.decode import PlainAvro, decoded
from tests.support.records import avro_bytes, records

FLAT = {
    "type": "record",
    "name": "Flat",
    "fields": [
        {"name": "a", "type": "long"},
        {"name": "b", "type": "string"},
        {"name": "c", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "d", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 4}},
    ],
}
NESTED = {
    "type": "record",
    "name": "Nested",
    "fields": [
        {"name": "one", "type": ["null", FLAT]},
        {"name": "several", "type": ["null", "long", "string", "Flat", {"type": "array", "items": "double"}]},
        {"name": "all", "type": {"type": "array", "items": {"type": "map", "values": ["null", "Flat"]}}},
        {"name": "nothing", "type": {"type": "array", "items": "null"}},
    ],
}
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "value", "type": ["int", "string", "null"]},
        {"name": "next", "type": ["null", "Tree"]},
        {"name": "children", "type": {"type": "array", "items": "Tree"}},
    ],
}
FLAT_DATUM = {"a": -1, "b": "ä", "c": Decimal("1.25"), "d": 10**12, "e": "Y", "f": b"1234"}


def seeds() -> dict[str, tuple[dict[str, Any], dict[str, Any], bytes]]:
    """For each kind: the writer's schema, the reader's, and a right record."""
    flat = FLAT_DATUM
    nested = {"one": flat, "several": "text", "all": [{"k": flat, "n": None}], "nothing": [None] * 3}
    leaf: dict[str, Any] = {"value": None, "next": None, "children": []}
    tree = {"value": "x", "next": {**leaf, "children": [leaf, leaf]}, "children": [leaf]}
    skipping = {**TREE, "fields": [{"name": "value", "type": ["int", "string", "null"]}]}
    return {
        "flat": (FLAT, FLAT, avro_bytes(FLAT, flat)),
        "nested": (NESTED, NESTED, avro_bytes(NESTED, nested)),
        "recursive": (TREE, TREE, avro_bytes(TREE, tree)),
        "skipped": (TREE, skipping, avro_bytes(TREE, tree)),
    }


def payloads(seed: bytes, *, count: int) -> list[bytes | None]:
    chance = random.Random(count)
    made: list[bytes | None] = [seed]
    while len(made) < count:
        if chance.random() < 0.3:
            made.append(chance.randbytes(chance.randrange(1, 60)))
            continue
        mutated = bytearray(seed * chance.choice([1, 1, 1, 2, 20]))
        for _ in range(chance.randrange(1, 5)):
            at = chance.randrange(len(mutated))
            match chance.randrange(4):
                case 0:
                    mutated[at] ^= 1 << chance.randrange(8)
                case 1:
                    mutated[at : at + 1] = avro_bytes("long", chance.choice([-1, 2**31, 2**62, -(2**63), 70_000]))
                case 2:
                    del mutated[at : at + chance.randrange(1, 8)]
                case _:
                    mutated[at:at] = bytes([chance.choice([0, 1, 2, 0xFF])]) * chance.randrange(1, 2_500)
            if not mutated:
                mutated = bytearray(b"\0")
        made.append(bytes(mutated))
    return made


def fuzz(spark: SparkSession, kind: str, *, count: int) -> None:
    writer, reader, seed = seeds()[kind]
    spec = PlainAvro(writer_schema=json.dumps(writer), reader_schema=json.dumps(reader))
    found = (
        decoded(records(spark, payloads(seed, count=count)), spec)
        .select(
            "offset",
            sf.col("decoded.error").isNull().alias("right"),
            sf.col("decoded.value").isNull().alias("none"),
            sf.length(sf.to_json("decoded.value")).alias("size"),
        )
        .agg(
            sf.count("*").alias("all"),
            sf.count_if("right").alias("right"),
            sf.count_if(sf.col("right") != sf.col("none")).alias("either"),
            sf.max_by("right", -sf.col("offset")).alias("seed_is_right"),
        )
        .first()
    )
    assert found is not None
    assert (found["all"], found["either"], found["seed_is_right"]) == (count, count, True)
    assert 0 < found["right"] < count


@pytest.mark.parametrize("kind", seeds())
def test_ten_thousand_payloads(spark: SparkSession, kind: str) -> None:
    fuzz(spark, kind, count=2_500)


@pytest.mark.slow
@pytest.mark.parametrize("kind", seeds())
def test_a_hundred_thousand_payloads(spark: SparkSession, kind: str) -> None:
    fuzz(spark, kind, count=25_000)
