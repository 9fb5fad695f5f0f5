"""A union has the same columns in Python and in the decoder; each value is in the column of its branch."""

import json
from typing import Any

import pytest

from lakefeed.records.schema.fit import columns_of
from lakefeed.records.schema.merge import merge_schemas
from tests.support.probe import Probe
from tests.support.records import avro_bytes

pytestmark = pytest.mark.quick

A = {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]}
B = {"type": "record", "name": "B", "fields": [{"name": "x", "type": "int"}]}
RED = {"type": "enum", "name": "Red", "symbols": ["ROSE", "RUBY"]}
BLUE = {"type": "enum", "name": "Blue", "symbols": ["NAVY", "SKY"]}
TWO = {"type": "fixed", "name": "Two", "size": 2}
THREE = {"type": "fixed", "name": "Three", "size": 3}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def money(name: str, scale: int) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": 8, "logicalType": "decimal", "precision": 10, "scale": scale}


DATE = logical("int", "date")
MILLIS = logical("long", "timestamp-millis")
DAY, MOMENT = avro_bytes("int", 20_000), avro_bytes("long", 1_700_000_000_000)
UNIONS: dict[str, tuple[list[Any], dict[int, tuple[bytes, str, Any]]]] = {
    "two records": ([A, B], {1: (b"\2", "member1", [["x", "1"]]), 0: (b"\4", "member0", [["x", "2"]])}),
    "null and two records": (["null", A, B], {2: (b"\2", "member1", [["x", "1"]])}),
    "two enums": (["null", RED, BLUE], {1: (b"\2", "member0", "RUBY"), 2: (b"\2", "member1", "SKY")}),
    "two fixed": ([TWO, "null", THREE], {0: (b"ab", "member0", "6162"), 2: (b"abc", "member1", "616263")}),
    "two decimals": (
        [money("M2", 2), money("M4", 4)],
        {0: (b"\0" * 7 + b"\5", "member0", "0.05"), 1: (b"\0" * 7 + b"\5", "member1", "0.0005")},
    ),
    "a date and a moment": (
        ["null", DATE, MILLIS],
        {1: (DAY, "member0", "20000"), 2: (MOMENT, "member1", "1700000000000000")},
    ),
    "a moment and a date": ([MILLIS, DATE], {0: (MOMENT, "member0", "1700000000000000"), 1: (DAY, "member1", "20000")}),
    "an int and a moment": (["int", MILLIS], {0: (b"\2", "member0", "1"), 1: (MOMENT, "member1", "1700000000000000")}),
    "a date and a long": ([DATE, "long"], {0: (DAY, "member0", "20000"), 1: (b"\2", "member1", "1")}),
    "times of two units": (
        [logical("int", "time-millis"), logical("long", "time-micros")],
        {0: (b"\2", "member0", "1"), 1: (b"\2", "member1", "1")},
    ),
    "a logical type of the wrong base": ([logical("int", "timestamp-millis"), "long"], {0: (b"\2", "", "1")}),
    "an int and a long": (["null", "long", "int"], {1: (MOMENT, "", "1700000000000"), 2: (b"\2", "", "1")}),
    "a float and a double": (["float", "double"], {0: (b"\0\0\xc0\x3f", "", "1.5")}),
    "a decimal and bytes": (
        [{"type": "fixed", "name": "F", "size": 2}, logical("bytes", "decimal", precision=4, scale=2), "string"],
        {1: (b"\2\5", "member1", "0.05"), 0: (b"ab", "member0", "6162"), 2: (b"\2a", "member2", "a")},
    ),
    "arrays and maps of unions": (
        [{"type": "array", "items": [A, B]}, {"type": "map", "values": [RED, BLUE, "null"]}],
        {1: (b"\2\2k\2\2\0", "member1", {"k": [["member0", None], ["member1", "SKY"]]})},
    ),
    "records that hold unions of two records": (
        [{"type": "record", "name": "Outer", "fields": [{"name": "u", "type": ["null", A, B]}]}, RED],
        {0: (b"\4\2", "member0", [["u", [["member0", None], ["member1", [["x", "1"]]]]]])},
    ),
}


def record(kind: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "u", "type": kind}]})


@pytest.mark.parametrize("name", UNIONS)
def test_a_union_value_is_in_the_column_of_its_branch(probe: Probe, name: str) -> None:
    union, branches = UNIONS[name]
    schema = record(union)
    options = {"writer-schema": schema, "reader-schema": schema}
    assert probe.type_of(options) == columns_of(schema).jsonValue()
    found = probe.decode(options, [avro_bytes("long", branch) + data for branch, (data, _, _) in branches.items()])
    for (_, member, expected), each in zip(branches.values(), found, strict=True):
        assert each["error"] is None
        [[field, value]] = each["value"]
        assert field == "u"
        assert (dict(value)[member] if member else value) == expected
        assert not member or [key for key, each in value if each is not None] == [member]


def test_branches_of_a_top_level_union_are_columns(probe: Probe) -> None:
    schema = json.dumps(["null", A, B])
    options = {"writer-schema": schema, "reader-schema": schema}
    null, second = probe.decode(options, [b"\0", b"\4\2"])
    assert null["value"] is None
    assert null["error"] is None
    assert second["value"] == [["member0", None], ["member1", [["x", "1"]]]]


def test_branches_with_the_same_short_name_keep_their_columns_in_another_order(probe: Probe) -> None:
    a, b = ({**A, "name": "Ev", "namespace": f"shop.{at}", "fields": [{"name": at, "type": "int"}]} for at in "ab")
    first, second = record(["null", a, b]), record(["null", b, a])
    options = {"writer-schema": second, "reader-schema": merge_schemas(first, second).schema}
    of_b, of_a = probe.decode(options, [b"\2\2", b"\4\4"])
    assert of_b["value"] == [["u", [["member0", None], ["member1", [["b", "1"]]]]]]
    assert of_a["value"] == [["u", [["member0", [["a", "2"]]], ["member1", None]]]]


@pytest.mark.parametrize("name", UNIONS)
def test_a_merged_schema_has_the_columns_of_a_union_that_a_version_adds(probe: Probe, name: str) -> None:
    union, branches = UNIONS[name]
    before = json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]})
    after = json.loads(before)
    after["fields"].append({"name": "u", "type": ["null", *(each for each in union if each != "null")]})
    reader = merge_schemas(before, json.dumps(after)).schema
    options = {"writer-schema": json.dumps(after), "reader-schema": reader}
    assert probe.type_of(options) == columns_of(reader).jsonValue()
    assert probe.type_of({**options, "writer-schema": before}) == columns_of(reader).jsonValue()
    old, new = probe.decode({**options, "writer-schema": before}, [b"\2"]) + probe.decode(options, [b"\2\0"])
    assert old["value"] == new["value"] == [["id", "1"], ["u", None]]
    branch, (data, _, _) = next(iter(branches.items()))
    at = [each for each in union if each != "null"].index(union[branch]) + 1
    [row] = probe.decode(options, [b"\2" + avro_bytes("long", at) + data])
    assert row["error"] is None
    assert row["value"][1][1] is not None
