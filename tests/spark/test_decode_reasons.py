"""If a record cannot be read, the reason names the field and its path, and has no words of Java."""

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.records.decode import PlainAvro, decoded
from tests.support.records import avro_bytes, records, results

pytestmark = pytest.mark.quick

LINE = {"type": "record", "name": "Line", "fields": [{"name": "price", "type": "boolean"}]}
CUSTOMER = {"type": "record", "name": "Customer", "fields": [{"name": "age", "type": "int"}]}
NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": {"type": "array", "items": "Node"}}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "customer", "type": CUSTOMER},
        {"name": "items", "type": {"type": "array", "items": LINE}},
        {"name": "rates", "type": {"type": "map", "values": {"type": "array", "items": "boolean"}}},
        {"name": "choice", "type": ["null", "string", "Line"]},
        {"name": "tree", "type": NODE},
    ],
}
END = b"\0"


def reasons(spark: SparkSession, schema: Any, values: list[bytes], *, reader: Any = None) -> list[str]:
    spec = PlainAvro(writer_schema=json.dumps(schema), reader_schema=json.dumps(reader or schema))
    found = results(decoded(records(spark, list(values)), spec))
    assert all(each.value is None for each in found)
    return [each.error for each in found]


def test_an_error_names_the_path_of_the_field(spark: SparkSession) -> None:
    long, text = avro_bytes("long", 2**40), avro_bytes("string", "k")
    no_items, no_rates = END, END
    age = avro_bytes("int", 7)
    found = reasons(
        spark,
        ORDER,
        [
            long,
            age + avro_bytes("long", 3) + b"\1\0\2",
            age + no_items + avro_bytes("long", 1) + text + avro_bytes("long", 2) + b"\1\7",
            age + no_items + no_rates + avro_bytes("long", 2) + b"\7",
            age + no_items + no_rates + avro_bytes("long", 0) + avro_bytes("long", 1) * 2 + avro_bytes("long", 2**40),
        ],
    )
    assert found == [
        "customer.age: an int is out of range before byte 6",
        "items[2].price: a boolean is neither 0 nor 1 at byte 4",
        "rates[0][1]: a boolean is neither 0 nor 1 at byte 7",
        "choice.member1.price: a boolean is neither 0 nor 1 at byte 4",
        "tree.next[0].next[0].next: an array or map claims 1099511627776 items before byte 12 of 12",
    ]


def test_an_error_names_the_path_of_a_field_that_the_reader_lacks(spark: SparkSession) -> None:
    reader = {**ORDER, "fields": [{"name": "customer", "type": CUSTOMER}]}
    [found] = reasons(spark, ORDER, [avro_bytes("int", 7) + avro_bytes("long", 1) + b"\2"], reader=reader)
    assert found == "items[0].price: a boolean is neither 0 nor 1 at byte 2"


def test_a_deep_path_is_shortened_in_the_middle(spark: SparkSession) -> None:
    [found] = reasons(spark, NODE, [avro_bytes("long", 1) * 40])
    assert found.startswith("next[0].next[0].next[0].next[0]…")
    assert found.endswith(".next: an array or map claims 1 items before byte 40 of 40")
