"""The rules for merging schemas."""

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakefeed.errors import ConfigError, SchemaIncompatible
from lakefeed.records.schema.merge import SchemaMerge, merge_schemas
from tests.support.avro_documents import decimal, field, join, record

Json = Any
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
NANOS = {"type": "long", "logicalType": "timestamp-nanos"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}
TIME_MILLIS = {"type": "int", "logicalType": "time-millis"}
TIME_MICROS = {"type": "long", "logicalType": "time-micros"}
DATE = {"type": "int", "logicalType": "date"}


def joined_type(reader: Json, writer: Json) -> Json:
    """Return the type of a field after a merge."""
    return json.loads(join(record(field("f", reader)), record(field("f", writer))).schema)["fields"][0]["type"]


def said(merge: SchemaMerge) -> list[str]:
    return [str(each) for each in merge.changes]


def test_a_schema_that_already_covers_the_writers_keeps_its_text() -> None:
    text = json.dumps(record(field("a", "long", doc="an id")), indent=3)
    merge = merge_schemas(text, json.dumps(record(field("a", "int"))))
    assert merge.schema is text
    assert merge.changes == ()


def test_a_new_field_becomes_optional_unless_it_has_a_default() -> None:
    merge = join(record(field("a")), record(field("a"), field("b"), field("c", "int", default=7)))
    assert json.loads(merge.schema)["fields"][1:] == [
        {"name": "b", "type": ["null", "string"], "default": None},
        {"name": "c", "type": "int", "default": 7},
    ]
    assert said(merge) == ["b added (string or null)", "c added (int)"]


def test_a_field_that_the_writer_lacks_becomes_optional_unless_it_has_a_default() -> None:
    merge = join(record(field("a"), field("b", "int", default=1), field("c", ["string", "null"])), record(field("a")))
    assert json.loads(merge.schema)["fields"][1:] == [
        {"name": "b", "type": "int", "default": 1},
        {"name": "c", "type": ["null", "string"], "default": None},
    ]
    assert [(each.kind, each.path) for each in merge.changes] == [("dropped", "c")]
    lacking_all = join(record(field("a")), record(field("z")))
    assert said(lacking_all) == ["a made optional, because the writer lacks it", "z added (string or null)"]


def test_the_type_of_the_default_stays_the_first_branch_of_a_union() -> None:
    merge = join(record(field("a", "int", default=5)), record(field("a", ["null", "int"], default=None)))
    assert json.loads(merge.schema)["fields"] == [{"name": "a", "type": ["int", "null"], "default": 5}]
    assert said(merge) == ["a made optional (int or null)"]


@pytest.mark.parametrize(
    ("reader", "writer", "joined"),
    [
        ("int", "long", "long"),
        ("float", "double", "double"),
        (decimal(9), decimal(12), decimal(12)),
        ("long", "int", "long"),
        ("double", "float", "double"),
        ("double", "int", "double"),
        ("double", "long", "double"),
        ("float", "int", "float"),
        (decimal(12), decimal(9), decimal(12)),
        ("bytes", "string", "bytes"),
        ("string", "bytes", "string"),
        (decimal(12, 3), decimal(9, 2), decimal(12, 3)),
        (MICROS, "long", MICROS),
        (MICROS, MILLIS, MICROS),
        (MILLIS, MICROS, MILLIS),
        (NANOS, MILLIS, NANOS),
        (TIME_MICROS, TIME_MILLIS, TIME_MICROS),
        ("long", MICROS, "long"),
        ("long", DATE, "long"),
        (MICROS, "int", MICROS),
        ("int", ["null", "int"], ["null", "int"]),
        (["int", "null"], "long", ["long", "null"]),
        ("null", "int", ["null", "int"]),
        ("int", "null", ["null", "int"]),
        ("int", ["int", "long"], "long"),
        ("double", ["int", "double"], "double"),
        (["string", "int"], ["boolean", "string"], ["string", "int", "boolean"]),
        (["string", "int"], ["long", "string"], ["string", "long"]),
        (["string", "int"], "boolean", ["string", "int", "boolean"]),
        (["null", "string", "int"], "int", ["null", "string", "int"]),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, {"type": "array", "items": "long"}),
        (
            {"type": "map", "values": "int"},
            {"type": "map", "values": ["null", "int"]},
            {"type": "map", "values": ["null", "int"]},
        ),
    ],
)
def test_the_merged_type_reads_both_types(reader: Json, writer: Json, joined: Json) -> None:
    assert joined_type(reader, writer) == joined


@pytest.mark.parametrize(
    ("reader", "writer", "words"),
    [
        ("int", "double", "f is int in the reader's schema and double in the writer's"),
        ("int", "float", "f is int in the reader's schema and float in the writer's"),
        ("long", "double", "f is long in the reader's schema and double in the writer's"),
        ("long", decimal(20, 0), "f is long in the reader's schema and decimal(20,0) in the writer's"),
        ("string", "int", "f is string in the reader's schema and int in the writer's"),
        (MICROS, NANOS, "f is timestamp-micros in the reader's schema and timestamp-nanos in the writer's"),
        (MICROS, LOCAL, "f is timestamp-micros in the reader's schema and local-timestamp-micros in the writer's"),
        (TIME_MILLIS, TIME_MICROS, "f is time-millis in the reader's schema and time-micros in the writer's"),
        (DATE, MICROS, "f is date in the reader's schema and timestamp-micros in the writer's"),
        (MICROS, DATE, "f is timestamp-micros in the reader's schema and date in the writer's"),
        (decimal(9, 2), decimal(12, 3), "f is decimal(9,2) in the reader's schema and decimal(12,3) in the writer's"),
        (decimal(9, 3), decimal(9, 2), "f is decimal(9,3) in the reader's schema and decimal(9,2) in the writer's"),
        (decimal(9), "bytes", "f is decimal(9,2) in the reader's schema and bytes in the writer's"),
        ("string", ["string", "int"], "f is string in the reader's schema and string or int in the writer's"),
        (
            "string",
            {"type": "array", "items": "string"},
            "f is string in the reader's schema and array of string in the writer's",
        ),
        (record(name="A"), "string", "f is record A in the reader's schema and string in the writer's"),
        (
            {"type": "enum", "name": "E", "symbols": ["A"]},
            "string",
            "f is enum(A) in the reader's schema and string in the writer's",
        ),
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            "f is fixed(2) in the reader's schema and fixed(3) in the writer's",
        ),
        (
            {"type": "array", "items": "int"},
            {"type": "array", "items": "string"},
            "f.element is int in the reader's schema and string in the writer's",
        ),
        (
            {"type": "map", "values": record(field("x", "int"), name="A")},
            {"type": "map", "values": record(field("x", "string"), name="A")},
            "f.value.x is int in the reader's schema and string in the writer's",
        ),
        (
            record(name="A"),
            ["null", record(name="A"), record(name="B")],
            "f is record A in the reader's schema and record A or record B",
        ),
    ],
)
def test_types_without_a_common_column_type_are_incompatible(reader: Json, writer: Json, words: str) -> None:
    with pytest.raises(SchemaIncompatible) as refused:
        joined_type(reader, writer)
    assert words in refused.value.what


@pytest.mark.parametrize("time", [MICROS, MILLIS, DATE])
@pytest.mark.parametrize("order", [1, -1])
def test_numbers_and_times_are_incompatible_unless_times_count_as_numbers(time: Json, order: int) -> None:
    reader, writer = [json.dumps(record(field("f", each))) for each in ("long", time)][::order]
    with pytest.raises(SchemaIncompatible, match="no column can hold both"):
        merge_schemas(reader, writer, times_are_numbers=False)
    same = json.dumps(record(field("f", time)))
    assert merge_schemas(same, same, times_are_numbers=False).schema == same


def test_an_enum_gets_the_symbols_of_the_writer() -> None:
    merge = join(
        record(field("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]})),
        record(field("e", {"type": "enum", "name": "E", "symbols": ["C", "A"]})),
    )
    assert json.loads(merge.schema)["fields"][0]["type"]["symbols"] == ["A", "B", "C"]
    assert said(merge) == ["e widened from enum(A, B) to enum(A, B, C)"]


def test_an_alias_of_the_writer_renames_the_field() -> None:
    merge = join(record(field("old", "int")), record(field("new", "long", aliases=["old"])))
    assert json.loads(merge.schema)["fields"] == [{"name": "new", "type": "long", "aliases": ["old"]}]
    assert said(merge) == ["new renamed from old", "new widened from int to long"]
    again = merge_schemas(merge.schema, json.dumps(record(field("old", "int"))))
    assert again.schema is merge.schema


def test_the_schema_of_an_older_writer_does_not_undo_a_rename() -> None:
    newest = record(field("c", aliases=["a", "b"]))
    assert join(newest, record(field("b", aliases=["a"]))).changes == ()
    assert join(newest, record(field("a"))).changes == ()


def test_an_alias_is_ignored_if_the_reader_has_a_field_of_the_new_name() -> None:
    merge = join(record(field("a"), field("b")), record(field("b", aliases=["a"])))
    assert said(merge) == ["a made optional, because the writer lacks it"]
    assert [each.get("aliases") for each in json.loads(merge.schema)["fields"]] == [None, None]


def test_a_new_field_with_the_former_name_of_another_field_is_incompatible() -> None:
    with pytest.raises(SchemaIncompatible, match="the new field a has a name that the field b had before"):
        join(record(field("b", aliases=["a"])), record(field("b", aliases=["a"]), field("a")))


def test_fields_that_differ_only_in_case_are_incompatible() -> None:
    address = record(field("zip"), name="Address")
    with pytest.raises(SchemaIncompatible, match=r"the fields address\.zip and address\.ZIP differ in case only"):
        join(
            record(field("address", address)),
            record(field("address", record(field("zip"), field("ZIP"), name="Address"))),
        )


def test_changes_inside_arrays_and_maps_have_their_paths() -> None:
    def order(*line: Json) -> Json:
        lines = {"type": "array", "items": record(*line, name="Line")}
        return record(field("lines", lines), field("by_day", {"type": "map", "values": ["null", "Line"]}))

    merge = join(order(field("price", "int")), order(field("price", "long"), field("tax", "int", default=0)))
    assert said(merge) == [
        "lines.element.price widened from int to long",
        "lines.element.tax added (int)",
        "by_day.value.price widened from int to long",
        "by_day.value.tax added (int)",
    ]
    assert json.loads(merge.schema)["fields"][1]["type"] == {"type": "map", "values": ["null", "Line"]}


def test_the_writers_schema_may_define_a_type_in_another_field() -> None:
    address, wider = record(field("zip"), name="Address"), record(field("zip"), field("city"), name="Address")
    merge = join(
        record(field("home", address), field("work", "Address")), record(field("work", wider), field("home", "Address"))
    )
    assert said(merge) == ["home.city added (string or null)", "work.city added (string or null)"]


def test_one_type_of_the_reader_gets_the_fields_of_two_types_of_the_writer() -> None:
    point = record(field("x", "int"), name="Point")
    writer = record(field("a", record(field("x", "int"), field("y", "int"), name="P2")), field("b", point))
    merge = join(record(field("a", point), field("b", "Point")), writer)
    assert said(merge) == ["a.y added (int or null)", "b.y added (int or null)"]
    value = {"a": {"x": 1, "y": 2}, "b": {"x": 3}}
    assert read(merge.schema, writer, value) == {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": None}}


def test_types_with_different_namespaces_match() -> None:
    def schema(namespace: str, *fields: Json) -> Json:
        color = {"type": "enum", "name": "Color", "symbols": ["RED"]}
        return record(field("color", ["null", color]), *fields, namespace=namespace)

    writer = schema("com.b", field("n", "int", default=0))
    merge = join(schema("com.a"), writer)
    assert said(merge) == ["n added (int)"]
    assert read(merge.schema, writer, {"color": "RED", "n": 3}) == {"color": "RED", "n": 3}


def test_types_that_contain_themselves_are_merged() -> None:
    def node(*fields: Json) -> Json:
        return record(*fields, field("next", ["null", "Node"], default=None), name="Node")

    writer = node(field("v", "long"), field("w", "int"))
    merge = join(node(field("v", "int")), writer)
    assert said(merge) == ["v widened from int to long", "w added (int or null)"]
    value = {"v": 1, "w": 2, "next": {"v": 3, "w": 4, "next": None}}
    assert read(merge.schema, writer, value) == value


def test_branches_of_unions_match_by_name() -> None:
    def event(*members: Json) -> Json:
        return record(field("event", list(members)))

    made, gone = record(field("id", "int"), name="Made"), record(field("why"), name="Gone")
    merge = join(event(made, gone), event(gone, record(field("id", "long"), name="Made"), record(name="Moved")))
    assert said(merge) == ["event.member0.id widened from int to long", "event.member2 added (record Moved)"]


def events(names: list[str]) -> Json:
    """Return a union of records; each record has one field, named by the record's full name."""

    def event(full: str) -> Json:
        namespace, _, name = full.rpartition(".")
        return record(
            field(full.replace(".", "_"), "int"), name=name, **({"namespace": namespace} if namespace else {})
        )

    return record(field("event", ["null", *map(event, names)], default=None))


FULL_NAMES = [f"{namespace}.{name}" for namespace in ("shop.a", "shop.b", "c") for name in ("Ev", "Other")]


@given(*[st.lists(st.sampled_from(FULL_NAMES), unique=True, min_size=2)] * 2)
@example(["shop.a.Ev", "shop.b.Ev"], ["shop.b.Ev", "shop.a.Ev"])
@settings(max_examples=60, deadline=None)
def test_branches_of_unions_match_by_full_name_first(one: list[str], two: list[str]) -> None:
    for first, second in ((one, two), (two, one)):
        joined = join(events(first), events(second)).schema
        _, *found = json.loads(joined)["fields"][0]["type"]
        names = [f"{each['namespace']}.{each['name']}" for each in found]
        assert names[: len(first)] == first
        assert len({*names}) == len(names)
        for name, each in zip(names, found, strict=True):
            fields = {inner["name"].replace("_", ".") for inner in each["fields"]}
            shared = {*first} & {*second}
            if name in shared:
                assert fields == {name}
            assert {given.rpartition(".")[2] for given in fields} == {name.rpartition(".")[2]}
        assert merge_schemas(joined, json.dumps(events(second))).schema == joined


def test_a_record_named_array_does_not_match_an_array() -> None:
    items = {"type": "array", "items": "int"}
    assert joined_type([record(name="array"), "string"], [items, "string"]) == [record(name="array"), "string", items]
    assert joined_type([record(name="array"), items], items) == [record(name="array"), items]


def test_if_grow_is_off_new_fields_are_left_out_and_renamed_fields_keep_the_readers_names() -> None:
    reader = record(field("a", "int"))
    writer = record(field("b", "long", aliases=["a"]), field("c"))
    merge = join(reader, writer, grow=False)
    assert json.loads(merge.schema)["fields"] == [{"name": "a", "type": "long", "aliases": ["b"]}]
    assert said(merge) == ["a widened from int to long"]
    assert [str(each) for each in merge.left_out] == ["b renamed from a", "c added (string)"]
    assert read(merge.schema, writer, {"b": 3, "c": "x"}) == {"a": 3}


@pytest.mark.parametrize("type_", ["string", {"type": "array", "items": "string"}, ["null", "string"]])
def test_the_change_of_a_string_to_any_json_is_reported(type_: Json) -> None:
    text, mixed = record(field("v", type_)), record(field("v", type_, **{"lakefeed.json": True}))
    merge = join(text, mixed)
    assert said(merge)[0].endswith("to any JSON as text")
    assert json.loads(merge.schema) == mixed
    assert json.loads(join(mixed, text).schema) == mixed


def test_a_merge_keeps_doc_and_other_attributes() -> None:
    merge = join(record(field("a", doc="first"), doc="all"), record(field("a"), field("b", doc="second")))
    schema = json.loads(merge.schema)
    assert (schema["doc"], [each["doc"] for each in schema["fields"]]) == ("all", ["first", "second"])


@pytest.mark.parametrize(
    "text", ["{", '"string"', '{"type": "record"}', '{"type": "array", "items": "int"}', "[]", "7"]
)
def test_a_schema_that_is_no_record_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="Avro schema"):
        merge_schemas(text, json.dumps(record()))


def read(reader: str, writer: Json, value: Json) -> Json:
    """Return the value that the reference library fastavro reads."""
    parsed = fastavro.parse_schema(writer)
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, parsed, value)
    buffer.seek(0)
    return fastavro.schemaless_reader(buffer, parsed, fastavro.parse_schema(json.loads(reader)))
