"""The decoder reads Avro 1.12's logical types, ignores them on wrong types, and converts their units."""

import json
from typing import Any

import pytest

from lakefeed.records.schema.fit import columns_of
from tests.support.avro_pairs import long_bytes, text_bytes
from tests.support.probe import Probe

pytestmark = pytest.mark.quick

CASES: dict[str, tuple[Any, bytes, str, str]] = {
    "date": ("int", long_bytes(19_000), "date", "19000"),
    "time-millis": ("int", long_bytes(5), "integer", "5"),
    "time-micros": ("long", long_bytes(5), "long", "5"),
    "timestamp-millis": ("long", long_bytes(-1), "timestamp", "-1000"),
    "timestamp-micros": ("long", long_bytes(-1), "timestamp", "-1"),
    "timestamp-nanos": ("long", long_bytes(-1), "long", "-1"),
    "local-timestamp-millis": ("long", long_bytes(-1), "timestamp_ntz", "-1000"),
    "local-timestamp-micros": ("long", long_bytes(-1), "timestamp_ntz", "-1"),
    "local-timestamp-nanos": ("long", long_bytes(-1), "long", "-1"),
    "uuid": ("string", text_bytes(b"no UUID"), "string", "no UUID"),
    "duration": ({"type": "fixed", "name": "D", "size": 12}, b"\1" * 12, "binary", "01" * 12),
    "big-decimal": ("bytes", text_bytes(b"\2\5\4"), "binary", "020504"),
}
WRONG: list[tuple[Any, str, bytes, str, str]] = [
    ("long", "date", long_bytes(5), "long", "5"),
    ("int", "timestamp-millis", long_bytes(5), "integer", "5"),
    ("int", "time-micros", long_bytes(5), "integer", "5"),
    ("string", "date", text_bytes(b"x"), "string", "x"),
    ("string", "decimal", text_bytes(b"x"), "string", "x"),
    ("bytes", "uuid", text_bytes(b"\1"), "binary", "01"),
    ("double", "big-decimal", b"\0" * 8, "double", "0.0"),
    ("string", "duration", text_bytes(b"x"), "string", "x"),
    ("boolean", "unknown", b"\1", "boolean", "true"),
]


def options(writer: Any, reader: Any = None) -> dict[str, str]:
    def record(kind: Any) -> str:
        return json.dumps({"type": "record", "name": "R", "fields": [{"name": "v", "type": kind}]})

    return {"writer-schema": record(writer), "reader-schema": record(reader or writer)}


def logical(kind: Any, name: str, **more: Any) -> dict[str, Any]:
    return {**(kind if isinstance(kind, dict) else {"type": kind}), "logicalType": name, **more}


def assert_read(probe: Probe, given: dict[str, str], data: bytes, type_: str, value: str) -> None:
    found = probe.type_of(given)
    assert found["fields"][0]["type"] == type_
    assert found == columns_of(given["reader-schema"]).jsonValue()
    [row] = probe.decode(given, [data])
    assert row["error"] is None
    assert row["value"] == [["v", value]]


@pytest.mark.parametrize("name", CASES)
def test_each_logical_type_becomes_the_expected_column_type(probe: Probe, name: str) -> None:
    kind, data, type_, value = CASES[name]
    assert_read(probe, options(logical(kind, name)), data, type_, value)


def test_a_logical_type_on_a_wrong_type_is_ignored(probe: Probe) -> None:
    for kind, name, data, type_, value in WRONG:
        assert_read(probe, options(logical(kind, name)), data, type_, value)


def test_a_uuid_of_16_bytes_is_decoded_as_binary(probe: Probe) -> None:
    for size in (16, 4):
        kind = logical({"type": "fixed", "name": "U", "size": size}, "uuid")
        assert_read(probe, options(kind), b"\1" * size, "binary", "01" * size)


def test_a_decimal_with_invalid_attributes_is_decoded_as_bytes(probe: Probe) -> None:
    for more in ({}, {"precision": 2, "scale": 5}, {"precision": 0}, {"precision": 4, "scale": -1}):
        assert_read(probe, options(logical("bytes", "decimal", **more)), text_bytes(b"\5"), "binary", "05")
    too_small = logical({"type": "fixed", "name": "F", "size": 2}, "decimal", precision=9)
    assert_read(probe, options(too_small), b"\0\5", "binary", "0005")


@pytest.mark.parametrize("family", ["timestamp", "local-timestamp", "time"])
def test_a_time_or_timestamp_in_another_unit_is_converted_or_refused(probe: Probe, family: str) -> None:
    types = {"millis": "int" if family == "time" else "long", "micros": "long", "nanos": "long"}
    units = list(types)[: 2 if family == "time" else 3]
    nanos = {"millis": 10**6, "micros": 10**3, "nanos": 1}
    for writer in units:
        for reader in units:
            given = options(logical(types[writer], f"{family}-{writer}"), logical(types[reader], f"{family}-{reader}"))
            [row] = probe.decode(given, [long_bytes(7)])
            held = "micros" if family != "time" and reader == "millis" else reader
            if types[writer] == "long" and types[reader] == "int":
                assert "does not fit" in row["error"]
            elif nanos[writer] < nanos[held]:
                assert row["error"].startswith("v: the writer's schema does not fit the reader's")
                assert "which is finer than" in row["error"]
            else:
                assert row["value"] == [["v", str(7 * nanos[writer] // nanos[held])]]


def test_a_timestamp_out_of_range_is_an_error(probe: Probe) -> None:
    millis = logical("long", "timestamp-millis")
    largest = (2**63 - 1) // 1000
    found = probe.decode(options(millis), [long_bytes(each) for each in (largest, largest + 1, -(2**63), -largest)])
    assert [each["error"] for each in found] == [
        None,
        "v: a timestamp is out of range before byte 8",
        "v: a timestamp is out of range before byte 10",
        None,
    ]


def test_a_decimal_of_another_scale_keeps_its_value_or_is_an_error(probe: Probe) -> None:
    def read(unscaled: int, scale: int, precision: int, expected: int) -> str:
        size = max(1, (unscaled.bit_length() + 8) // 8)
        writer = logical("bytes", "decimal", precision=60, scale=scale)
        given = options(writer, logical("bytes", "decimal", precision=precision, scale=expected))
        # Encode the number twice: in as few bytes as possible, and with 30 more sign bytes.
        data = [unscaled.to_bytes(size, "big", signed=True), unscaled.to_bytes(size + 30, "big", signed=True)]
        one, padded = probe.decode(given, [text_bytes(each) for each in data])
        assert one == padded
        return str(one["error"] or one["value"][0][1])

    assert read(-125, 2, 10, 4) == "-1.2500"
    assert read(-1250, 3, 10, 2) == "-1.25"
    assert read(0, 50, 10, 2) == "0.00"
    assert read(10**38 - 1, 0, 38, 0) == str(10**38 - 1)
    assert read(-(10**38) + 1, 0, 38, 0) == str(-(10**38) + 1)
    assert read(-(2**63), 0, 38, 0) == str(-(2**63))
    assert read(2**63 - 1, 0, 19, 0) == str(2**63 - 1)
    assert read(10**50, 40, 20, 2) == "10000000000.00"
    assert read(10**17, 0, 38, 20) == f"{10**17}.{'0' * 20}"
    exact = "v: a decimal has more than the {} digits after the point that its type has"
    assert read(1251, 3, 10, 2) == exact.format(2)
    assert read(5, 60, 10, 2) == exact.format(2)
    assert read(10**50 + 1, 40, 20, 2) == exact.format(2)
    larger = "v: a decimal has more digits than decimal({}) holds"
    assert read(10**18, 0, 18, 0) == larger.format("18,0")
    assert read(10**38, 0, 38, 0) == larger.format("38,0")
    assert read(-(10**9), 0, 10, 2) == larger.format("10,2")
