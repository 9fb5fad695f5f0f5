import io
import json
from typing import Any

import fastavro

from lakefeed.records.decode.registry import inline

CITY = {"type": "record", "name": "City", "namespace": "geo", "fields": [{"name": "name", "type": "string"}]}
ADDRESS = {
    "type": "record",
    "name": "geo.Address",
    "fields": [{"name": "city", "type": "City"}, {"name": "old", "type": ["null", "City"], "default": None}],
}
PERSON = {
    "type": "record",
    "name": "Person",
    "namespace": "people",
    "fields": [
        {"name": "home", "type": "geo.Address"},
        {"name": "others", "type": {"type": "array", "items": "geo.Address"}},
        {"name": "born", "type": {"type": "map", "values": ["null", "geo.City"]}},
        {"name": "parent", "type": ["null", "Person"]},
    ],
}


def test_referenced_types_are_inserted_into_a_schema() -> None:
    text = inline(json.dumps(PERSON), [json.dumps(CITY), json.dumps(ADDRESS)])
    schema = fastavro.parse_schema(json.loads(text))
    home = {"city": {"name": "Ulm"}, "old": None}
    datum: dict[str, Any] = {"home": home, "others": [home], "born": {"x": {"name": "Bern"}}, "parent": None}
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, datum)
    assert fastavro.schemaless_reader(io.BytesIO(buffer.getvalue()), schema, None) == datum


def test_a_schema_without_references_stays_unchanged() -> None:
    assert json.loads(inline(json.dumps(CITY), [])) == CITY


def test_an_object_that_only_names_a_type_is_read_as_this_type() -> None:
    cities: dict[str, Any] = {"type": {"type": "array", "items": "City"}}
    wrapped = {"type": "record", "name": "Trip", "fields": [{"name": "at", "type": cities}]}
    city = {**CITY, "namespace": ""}
    text = json.loads(inline(json.dumps(wrapped), [json.dumps(city)]))
    assert text["fields"][0]["type"] == {"type": {"type": "array", "items": city}}
