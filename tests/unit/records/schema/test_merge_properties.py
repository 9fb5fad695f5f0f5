"""Compatible versions merge to the same schema in any order, and the merged schema reads all their records."""

import io
import json
from typing import Any

import fastavro
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakefeed.records.schema.merge import merge_schemas
from tests.support.chains import Json, chains, data

QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def joined(versions: list[Json]) -> Json:
    """Merge all versions, one after the other."""
    schema, *others = map(json.dumps, versions)
    for other in others:
        schema = merge_schemas(schema, other).schema
    return json.loads(schema)


def meaning(schema: Json, known: dict[str, Json] | None = None) -> Any:
    """Return a comparable form of a schema, without the order of fields, names of types and values of defaults."""
    known = {} if known is None else known
    if isinstance(schema, list):
        return frozenset(meaning(each, known) for each in schema)
    if isinstance(schema, str):
        return known.get(schema, schema)
    match schema["type"]:
        case "record":
            found = frozenset(
                (field["uid"], field["name"], meaning(field["type"], known), may_be_absent(field))
                for field in schema["fields"]
            )
        case "array":
            return "array", meaning(schema["items"], known)
        case "map":
            return "map", meaning(schema["values"], known)
        case "enum":
            found = frozenset(schema["symbols"])
        case "fixed":
            found = frozenset([schema["size"]])
        case _:
            return tuple(sorted((key, each) for key, each in schema.items()))
    known[schema["name"]] = found
    return found


def may_be_absent(field: Json) -> bool:
    nullable = isinstance(field["type"], list) and "null" in field["type"]
    return nullable or "default" in field


@QUICK
@given(chains(), st.randoms(use_true_random=False))
def test_merges_in_any_order_give_the_same_schema(versions: list[Json], random: Any) -> None:
    shuffled = random.sample(versions, len(versions))
    assert meaning(joined(shuffled)) == meaning(joined(versions))


@QUICK
@given(chains(), st.data())
def test_the_merged_schema_reads_the_records_of_every_version(versions: list[Json], draw: Any) -> None:
    schema = joined(draw.draw(st.permutations(versions)))
    for version in versions:
        value = draw.draw(data(version))
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, fastavro.parse_schema(version), value)
        buffer.seek(0)
        read = fastavro.schemaless_reader(buffer, fastavro.parse_schema(version), fastavro.parse_schema(schema))
        assert read == expected(value, version, schema)


def expected(value: Any, writer: Json, reader: Json) -> Any:
    """Return the value that the reader must read: fields match by uid, and missing fields have their defaults."""
    if value is None:
        return None
    reader, writer = member(value, reader), member(value, writer)
    if isinstance(writer, str):
        return value
    match writer["type"]:
        case "record":
            theirs = {each["uid"]: each for each in writer["fields"]}
            return {
                each["name"]: expected(value[theirs[each["uid"]]["name"]], theirs[each["uid"]]["type"], each["type"])
                if each["uid"] in theirs
                else each["default"]
                for each in reader["fields"]
            }
        case "array":
            return [expected(each, writer["items"], reader["items"]) for each in value]
        case "map":
            return {key: expected(each, writer["values"], reader["values"]) for key, each in value.items()}
    return value


def member(value: Any, schema: Json) -> Json:
    """Return the branch of a union to which the value belongs; return other schemas unchanged."""
    if not isinstance(schema, list):
        return schema
    some = [each for each in schema if each != "null"]
    if len(some) == 1:
        return some[0]
    kinds = {str: ("string",), int: ("int", "long"), dict: ()}[type(value)]
    return next(each for each in some if (each in kinds if isinstance(each, str) else isinstance(value, dict)))
