"""Avro payloads that attack the decoder become rows or errors, within time and memory limits set by their size."""

import json
import time
from typing import Any

import pytest

from tests.support.hostile import colliding_keys, mutated
from tests.support.probe import Probe, base64_text
from tests.support.records import avro_bytes

MEGABYTE = 1_000_000
MANY = 200_000


def record(name: str = "R", /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapping(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def long(value: int) -> bytes:
    return avro_bytes("long", value)


def text(value: bytes) -> bytes:
    return long(len(value)) + value


def wide(name: str, fields: int, kind: Any, default: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{at}", "type": kind, "default": default} for at in range(fields)],
    }


EMPTY = record("Empty")
FIXED_0 = {"type": "fixed", "name": "Nothing", "size": 0}
NODE = record("Node", next=array("Node"))
LIST = record("List", next=["null", "List"])
DOUBLED: Any = record("D0")
for level in range(1, 12):
    DOUBLED = record(f"D{level}", left=DOUBLED, right=f"D{level - 1}")
TREE = record("Tree", m=mapping("Tree"))
COLLIDING = colliding_keys(5_000)
BLOCK = long(65_000) + b"\0"
"""The block header of an array or map of 65,000 items."""

AMPLIFIERS: dict[str, tuple[Any, Any, bytes]] = {
    "a decimal of 1 MB": (decimal(10, 2), decimal(10, 2), text(b"\x7f" * MEGABYTE)),
    "a decimal of 1 MB in another scale": (decimal(MEGABYTE * 3, 2), decimal(38, 10), text(b"\x7f" * MEGABYTE)),
    "a decimal of 1 KB in another scale": (decimal(3_000, 1_000), decimal(38, 10), text(b"\x7f" * 1_024)),
    "a decimal with 1 MB of zeros before it": (decimal(10, 2), decimal(10, 2), text(b"\0" * MEGABYTE + b"\x05")),
    "a scale of 20,000,000": (decimal(20_000_000, 20_000_000), decimal(10, 2), text(b"\x05")),
    "a scale of 20,000,000 of zero": (decimal(20_000_000, 20_000_000), decimal(10, 2), text(b"\0")),
    "decimals in another scale": (
        array(decimal(4, 2)),
        array(decimal(38, 30)),
        long(50_000) + text(b"\x05") * 50_000 + b"\0",
    ),
    "nulls": (array("null"), array("null"), BLOCK),
    "nulls in a map": (mapping("null"), mapping("null"), long(MANY) + b"\0" * MANY + b"\0"),
    "empty records": (array(EMPTY), array(EMPTY), BLOCK),
    "fixed of no bytes": (array(FIXED_0), array(FIXED_0), BLOCK),
    "records of nulls": (array(wide("W", 500, "null", None)), array(wide("W", 500, "null", None)), BLOCK),
    "records of nothing, doubled": (array(DOUBLED), array(DOUBLED), BLOCK),
    "defaults of the reader": (array(EMPTY), array(wide("Empty", 500, "long", 1)), BLOCK),
    "defaults of the reader for items of one byte": (
        array(record("W", a="boolean")),
        array({**wide("W", 500, "long", 1), "fields": wide("W", 500, "long", 1)["fields"]}),
        long(60_000) + b"\0" * 60_000 + b"\0",
    ),
    "a large default": (array(EMPTY), array(wide("Empty", 1, "string", "x" * 100_000)), BLOCK),
    "a large default in JSON": (
        record("J", next=array("J")),
        {
            **record("J", next=array("J")),
            "fields": [
                *record("J", next=array("J"))["fields"],
                {"name": "d", "type": "string", "default": "x" * 100_000},
            ],
        },
        long(1) + long(10_000) + b"\0" * 10_001 + b"\0",
    ),
    "names in JSON": (
        record("J", **{"n" * 10_000: array("J")}),
        record("J", **{"n" * 10_000: array("J")}),
        long(1) + long(10_000) + b"\0" * 10_001 + b"\0",
    ),
    "arrays of arrays": (array(array("int")), array(array("int")), long(MANY) + b"\0" * MANY + b"\0"),
    "unions of many": (
        array(["null", "string", array("int"), mapping("int"), *(record(f"B{at}") for at in range(100))]),
        array(["null", "string", array("int"), mapping("int"), *(record(f"B{at}") for at in range(100))]),
        long(100_000) + long(50) * 100_000 + b"\0",
    ),
    "keys that are the same": (mapping("int"), mapping("int"), long(300_000) + b"\0\0" * 300_000 + b"\0"),
    "small keys": (
        mapping("null"),
        mapping("null"),
        long(60_000) + b"".join(text(b"%x" % at) for at in range(60_000)) + b"\0",
    ),
    "small keys in JSON": (
        TREE,
        TREE,
        long(1) + text(b"k") + long(60_000) + b"".join(text(b"%x" % at) + b"\0" for at in range(60_000)) + b"\0\0",
    ),
    "keys of one hash code": (
        mapping("int"),
        mapping("int"),
        long(5_000) + b"".join(text(key) + b"\0" for key in COLLIDING) + b"\0",
    ),
    "a long chain": (LIST, LIST, long(1) * MANY + b"\0"),
    "a deep tree": (NODE, NODE, long(1) * MANY + b"\0"),
    "a wide tree": (NODE, NODE, long(MANY) + b"\0" * MANY + b"\0"),
    "many blocks": (array("int"), array("int"), (long(1) + b"\0") * 300_000 + b"\0"),
    "many blocks with sizes": (array("int"), array("int"), (long(-1) + long(1) + b"\0") * 300_000 + b"\0"),
    "many blocks of nulls": (array("null"), array("null"), long(1) * MANY + b"\0"),
    "empty texts": (array("string"), array("string"), long(MANY) + b"\0" * MANY + b"\0"),
    "empty bytes": (array("bytes"), array("bytes"), long(MANY) + b"\0" * MANY + b"\0"),
    "unknown symbols": (
        array({"type": "enum", "name": "E", "symbols": ["A"]}),
        array({"type": "enum", "name": "E", "symbols": ["B"]}),
        long(1_000) + b"\0" * 1_000 + b"\0",
    ),
    "text that is not UTF-8": ("string", "string", text(b"\xc3" * MEGABYTE)),
}
SKIPPED = [name for name, (writer, _, _) in AMPLIFIERS.items() if not isinstance(writer, str)]
GOOD = {
    "a": 1,
    "b": "text",
    "c": [1, 2, 3],
    "d": {"k": [None, 1.5]},
    "e": {"next": [{"next": []}]},
    "f": ("R2", {"x": b"12345"}),
    "g": [True, False],
}
SCHEMA = record(
    a="long",
    b=["null", "string"],
    c=array("int"),
    d=mapping(array(["null", "double"])),
    e=NODE,
    f=["null", record("R1", x="bytes"), record("R2", x=decimal(20, 2))],
    g=array("boolean"),
)


def options(writer: Any, reader: Any) -> dict[str, str]:
    return {"writer-schema": json.dumps(record(v=writer)), "reader-schema": json.dumps(record(v=reader))}


@pytest.mark.parametrize("name", AMPLIFIERS)
def test_a_record_that_expands_costs_no_more_than_its_size_allows(probe: Probe, name: str) -> None:
    writer, reader, payload = AMPLIFIERS[name]
    probe.hostile(options(writer, reader), [payload])


def test_the_colliding_keys_of_these_tests_have_equal_hash_codes(probe: Probe) -> None:
    found = probe.ask(do="hash", payloads=[*map(base64_text, COLLIDING)])
    assert len({each["hash"] for each in found}) == 1


def test_the_skip_of_a_record_that_expands_costs_no_more_than_its_size_allows(probe: Probe) -> None:
    for name in SKIPPED:
        writer, _, payload = AMPLIFIERS[name]
        schemas = {
            "writer-schema": json.dumps(record(v=writer, last="int")),
            "reader-schema": json.dumps(record(last="int")),
        }
        probe.hostile(schemas, [payload + long(7)])


def test_a_schema_of_nested_unions_is_refused_immediately(probe: Probe) -> None:
    branches: list[Any] = ["int"]
    reader: Any = "int"
    for level in range(9):
        reader = record(f"L{level}", x=reader)
        branches = [
            {**record(f"L{level}", x=branches if at == 0 else _names(branches)), "namespace": f"n{at}"}
            for at in range(8)
        ]
    began = time.monotonic()
    [row] = probe.decode(
        {"writer-schema": json.dumps(record(v=branches)), "reader-schema": json.dumps(record(v=reader))}, [b"\0" * 10]
    )
    assert "the writer's schema does not fit the reader's: " in row["error"]
    assert " more than " in row["error"]
    assert time.monotonic() - began < 30


def _names(branches: list[Any]) -> list[Any]:
    return [each if isinstance(each, str) else f"{each['namespace']}.{each['name']}" for each in branches]


def test_an_error_names_the_found_and_the_expected_type(probe: Probe) -> None:
    inner = {"writer-schema": record("C", age="long"), "reader-schema": record("C", age="int")}
    [row] = probe.decode({key: json.dumps(record(customer=each)) for key, each in inner.items()}, [long(7)])
    assert row["error"] == "customer.age: the writer's schema does not fit the reader's: found long, expecting int"


def test_a_decoder_that_fails_gives_an_error_without_values(probe: Probe) -> None:
    memory, stack, defect, right = probe.ask(do="fail", ways=["memory", "stack", "defect", "right"])
    assert memory["error"] == "not enough memory for this record of 6 bytes"
    assert stack["error"] == "nested too deeply"
    assert defect["error"].startswith("the decoder fails on this value, which is a defect of lakefeed")
    assert "nobody" not in defect["error"]
    assert "Exception" not in defect["error"]
    assert right["error"] is None


@pytest.mark.parametrize(
    ("count", "seed"), [(1_000, 1), *(pytest.param(10_000, seed, marks=pytest.mark.slow) for seed in range(2, 12))]
)
def test_mutated_avro_records_cost_no_more_than_their_size_allows(probe: Probe, count: int, seed: int) -> None:
    schemas = {"writer-schema": json.dumps(SCHEMA), "reader-schema": json.dumps(SCHEMA)}
    good = [avro_bytes(SCHEMA, {**GOOD, "f": None}), avro_bytes(SCHEMA, {**GOOD, "a": -1, "f": ("R1", {"x": b""})})]
    costs = probe.hostile(schemas, [*good, *mutated(good, count=count, seed=seed)])
    assert all(each.row for each in costs[:2])
    assert any(each.row for each in costs[2:])
