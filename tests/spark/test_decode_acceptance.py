"""``schema.accept`` in the decoder: the same answers as ``lakefeed.schema.accept`` gives, and unions of records."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakefeed.config.failures import Accept
from lakefeed.decode import ConfluentAvro, decoded
from lakefeed.schema.accept import refusal
from tests.spark.records import records, results
from tests.spark.registry_in_a_thread import RegistryInAThread
from tests.spark.test_decode_registry import framed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def test_the_decoder_refuses_what_the_table_does_not_follow(spark: SparkSession) -> None:
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


def test_of_a_writers_union_only_the_readers_record_is_read(spark: SparkSession) -> None:
    trip = {"type": "record", "name": "Trip", "fields": [{"name": "id", "type": "int"}]}
    payment = {"type": "record", "name": "Payment", "fields": [{"name": "amount", "type": "int"}]}
    both = [trip, payment]
    with RegistryInAThread() as registry:
        registry.put(1, both)
        registry.put(2, payment)
        data = [
            framed(1, both, ("Trip", {"id": 7})),
            framed(1, both, ("Payment", {"amount": 7})),
            framed(2, payment, {"amount": 7}),
        ]
        spec = ConfluentAvro(registry_url=registry.url, reader_schema=json.dumps(trip))
        first, second, third = results(decoded(records(spark, data), spec))
        assert first.value.id == 7
        assert second.error == third.error == "the record is a Payment, but the table's rows are Trip"
