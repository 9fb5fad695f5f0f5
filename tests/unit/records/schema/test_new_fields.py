"""New fields of a sample are added to an inferred schema at all depths, and the schema stays usable."""

import json

from lakefeed.records.schema.fit import columns_of
from lakefeed.records.schema.inference import GrownSchema, infer_schema, with_new_fields
from lakefeed.records.schema.parse import require_usable


def grown(before: bytes, *later: bytes, without: tuple[str, ...] = (), only: str | None = None) -> GrownSchema:
    schema = json.dumps(infer_schema([before]).avro)
    found = with_new_fields(schema, infer_schema(later, careful=True).avro, without=without, only=only)
    require_usable(found.schema)
    return found


def ddl(found: GrownSchema) -> str:
    return str(columns_of(found.schema).simpleString())


def test_fields_are_added_inside_records_and_arrays() -> None:
    found = grown(b'{"a": {"b": 1}, "c": [{"d": 1}]}', b'{"a": {"e": "x"}, "c": [{"f": [true]}], "g": {"a": {"b": 1}}}')
    assert ddl(found) == (
        "struct<a:struct<b:bigint,e:string>,c:array<struct<d:bigint,f:array<boolean>>>,g:struct<a:struct<b:bigint>>>"
    )
    assert found.added == ("a.e", "c.f", "g")
    assert [change.path for change in found.changes] == ["a.e", "c.element.f", "g"]


def test_fields_of_the_schema_keep_their_types() -> None:
    found = grown(b'{"a": 1, "b": {"c": 1}, "d": [1]}', b'{"a": "x", "b": [1], "d": [{"e": 1}]}')
    assert (ddl(found), found.changes) == ("struct<a:bigint,b:struct<c:bigint>,d:array<bigint>>", ())


def test_the_type_of_an_added_record_gets_an_unused_name() -> None:
    # Both paths give the name a_b.
    found = grown(b'{"a": {"b": {"c": 1}}}', b'{"a.b": {"d": {"e": 1}}}')
    assert ddl(found) == "struct<a:struct<b:struct<c:bigint>>,a.b:struct<d:struct<e:bigint>>>"


def test_a_field_is_refused_if_its_name_differs_only_in_case_from_a_column_or_another_new_field() -> None:
    found = grown(b'{"id": 1, "in": {"x": 1}}', b'{"ID": 2, "new": 1, "NEW": 2, "in": {"X": 1}}')
    assert found.refused == {
        "ID": "differs from the column id only in case",
        "NEW": "differs from the column new only in case",
        "in.X": "differs from the column x only in case",
    }
    assert found.added == ("new",)


def test_only_the_named_field_is_added_and_refused_fields_are_left_out() -> None:
    assert grown(b'{"a": 1}', b'{"b": {"c": 1}, "d": 1}', only="b").added == ("b",)
    assert grown(b'{"a": 1}', b'{"b": 1, "d": 1}', without=("b",)).added == ("d",)


def test_a_schema_that_would_exceed_the_limit_of_columns_is_not_changed() -> None:
    many = json.dumps({f"x{number}": 1 for number in range(9_990)}).encode()
    more = json.dumps({f"y{number}": 1 for number in range(11)}).encode()
    found = grown(many, more)
    assert found.changes == ()
    assert found.refused.keys() == {f"y{number}" for number in range(11)}
    assert "more than 10,000 columns" in found.refused["y0"]


def test_a_careful_inference_adds_only_fields_with_values_and_types_that_fit_all_values() -> None:
    values = b'{"a": null, "b": [], "c": {}, "d": {"e": null}, "f": [{"g": []}]}', b'{"h": 1}', b'{"h": "x"}'
    assert infer_schema(values, careful=True).ddl == "`h` STRING"
    assert infer_schema([b'{"h": 1}', b'{"h": 1.5}', b'{"h": null}'], careful=True).ddl == "`h` DOUBLE"
