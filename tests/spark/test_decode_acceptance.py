"""The decoder's ``schema.accept`` accepts the schema changes that ``lakefeed.records.schema.reader`` accepts."""

import json
import random
import time
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from lakefeed.config.decoding import Accept
from lakefeed.records.decode import ConfluentAvro, decoded
from lakefeed.records.decode.registry import SchemaRegistry
from lakefeed.records.schema.reader import refusal
from tests.spark.test_decode_registry import framed
from tests.support.avro_documents import bomb, nested_arrays
from tests.support.records import records, results
from tests.support.registry_in_a_thread import RegistryInAThread

NAMES = ["A", "B", "n.A", "m.A", "m.B", "C"]
READER = {
    "type": "record",
    "name": "n.A",
    "aliases": ["n.B"],
    "fields": [
        {"name": "a", "type": "int"},
        {"name": "b", "type": ["null", "int"]},
        {"name": "c", "type": "int", "aliases": ["d"], "default": 0},
    ],
}
VALUE = dict.fromkeys("abcdef", 1)


def writers(seed: int, count: int) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        names = draw.sample("abcdef", draw.randint(0, 3))
        fields = [
            {"name": name, "type": "int", "aliases": draw.sample("abcdef", draw.choice([0, 0, 1]))} for name in names
        ]
        aliases = draw.sample(NAMES, draw.choice([0, 0, 1]))
        made.append({"type": "record", "name": draw.choice(NAMES), "aliases": aliases, "fields": fields})
    return made


def test_the_decoder_refuses_schema_changes_that_the_table_refuses(spark: SparkSession) -> None:
    rules: list[Accept] = ["same_record", "resolvable", "any"]
    schemas = writers(seed=5, count=120)
    refused = 0
    with RegistryInAThread() as registry:
        for at, each in enumerate(schemas):
            registry.put(at + 1, each)
        data = [
            framed(at + 1, {key: part for key, part in each.items() if key != "aliases"}, VALUE)
            for at, each in enumerate(schemas)
        ]
        spec = ConfluentAvro(registry_url=registry.url, reader_schema=json.dumps(READER))
        for rule in rules:
            for each, result in zip(
                schemas, results(decoded(records(spark, data), replace(spec, accept=rule))), strict=True
            ):
                why = refusal(json.dumps(READER), json.dumps(each), rule)
                refused += why is not None
                if why is not None:
                    assert result.error == why, each
                else:
                    assert not str(result.error).startswith("the record "), each
    assert 100 < refused < 240


def test_writers_schemas_that_are_too_large_are_refused_immediately(spark: SparkSession) -> None:
    """Records of these schemas become dead letters; the other records of the batch become rows."""
    trip: Any = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}
    inner: Any = "int"
    for level in range(60):
        inner = {"type": "record", "name": f"L{level}", "fields": [{"name": "x", "type": inner}]}
    chain: Any = {**trip, "fields": [*trip["fields"], {"name": "y", "type": ["null", inner]}]}
    # Two branches of each level fit the reader's next record, so each level doubles the number of possible resolutions.
    branches = ["null", "W", {"type": "record", "name": "V", "fields": [{"name": "x", "type": "W"}]}]
    forks = {"type": "record", "name": "W", "fields": [{"name": "x", "type": branches}]}
    writers: dict[int, Any] = {
        1: bomb(),
        2: json.loads(nested_arrays(300)),
        3: {**trip, "fields": [*trip["fields"], {"name": "y", "type": ["null", forks]}]},
        4: trip,
    }
    with RegistryInAThread() as registry:
        for schema_id, each in writers.items():
            registry.put(schema_id, each)
        # Each record has x = 7, and y = null if the writer's schema has y, which schema 4 lacks.
        data = [b"\0" + each.to_bytes(4, "big") + (b"\x0e" if each == 4 else b"\x0e\0") for each in (1, 2, 3, 4, 1)]
        spec = ConfluentAvro(registry_url=registry.url, reader_schema=json.dumps(chain))
        began = time.monotonic()
        first, second, third, fourth, again = results(decoded(records(spark, data), spec))
        assert time.monotonic() - began < 20
    assert "more than 10000 columns" in first.error
    assert again.error == first.error
    assert "more than 100 levels" in second.error
    assert "steps" in third.error
    assert fourth.value.x == 7


def test_only_schema_ids_of_the_configured_subjects_are_decoded(spark: SparkSession) -> None:
    trip = {"type": "record", "name": "Trip", "fields": [{"name": "id", "type": "int"}]}
    with RegistryInAThread() as registry:
        for schema_id, subject in [(1, "trips-value"), (2, "other-value"), (3, "trips-value")]:
            registry.put(schema_id, trip)
            registry.versions[subject, schema_id] = {"id": schema_id}
        data = [framed(each, trip, {"id": each}) for each in (1, 2, 3, 2, 2)]
        spec = ConfluentAvro(registry_url=registry.url, reader_schema=json.dumps(trip), subjects=("trips-value", "x"))
        found = results(decoded(records(spark, data), spec))
        assert [each.value and each.value.id for each in found] == [1, None, 3, None, None]
        assert {each.error for each in found} == {None, "the schema is not registered under trips-value or x"}
        # Three records have schema id 2, but its subjects are requested only once.
        assert registry.requests["/schemas/ids/2/versions"] == 1
        assert SchemaRegistry(registry.url).subjects_of(2) == {"other-value"}
