"""What ``lakefeed bench decode`` reads: records of three schemas, the same ones in every run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakefeed.operations.produce.taxi import taxi_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ID = 100_001
"""Schema id of every record: more than a byte, as in a registry that is in use."""


@dataclass(frozen=True, kw_only=True)
class DecodeCase:
    """A schema, and rows that fit it.

    Attributes:
        name: as on the command line.
        about: what it has of Avro, in a few words.
        schema: Avro record schema (JSON).
        rows: makes that many rows with the schema's columns.
    """

    name: str
    about: str
    schema: str
    rows: Callable[[SparkSession, int], DataFrame]

    @property
    def schema_id(self) -> int:
        """The id that stands in each record's header."""
        return _ID


def values(spark: SparkSession, case: DecodeCase, rows: int) -> DataFrame:
    """The column ``value`` in Confluent's wire format, written by Spark's ``to_avro``."""
    from pyspark.sql import functions as sf
    from pyspark.sql.avro.functions import to_avro

    header = sf.lit(bytearray(b"\0" + case.schema_id.to_bytes(4, "big")))
    encoded = to_avro(sf.struct("*"), case.schema)
    return case.rows(spark, rows).select(sf.concat(header, encoded).alias("value"))


def _taxi(spark: SparkSession, rows: int) -> DataFrame:
    from lakefeed.operations.produce.taxi import KEY, taxi_rows

    return taxi_rows(spark, rows).drop(KEY)


def _optional(kind: Any) -> list[Any]:
    return ["null", kind]


def _record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


_NESTED = _record(
    "Order",
    id="long",
    customer=_record(
        "Customer",
        name="string",
        email=_optional("string"),
        address=_record("Address", street="string", city="string", zip=_optional("string")),
    ),
    items={
        "type": "array",
        "items": _record("Item", sku="string", quantity="int", price="double", note=_optional("string")),
    },
    labels={"type": "map", "values": "string"},
    payment=[
        "null",
        _record("Card", number="string", month="int"),
        _record("Transfer", account="string"),
        "double",
    ],
    status={"type": "enum", "name": "Status", "symbols": ["OPEN", "PAID", "SENT"]},
    discount=_optional("double"),
)
_NESTED_ROWS = (
    "id",
    """named_struct(
        'name', concat('customer ', id), 'email', if(id % 3 = 0, null, concat(id, '@example.org')),
        'address', named_struct('street', concat(id % 500, ' Main Street'), 'city', 'Springfield',
            'zip', if(id % 2 = 0, null, '12345'))) AS customer""",
    """transform(sequence(1, 1 + cast(id % 4 AS INT)), at -> named_struct(
        'sku', concat('sku-', at), 'quantity', at, 'price', at * 1.5D,
        'note', if(at % 2 = 0, null, 'a note'))) AS items""",
    "map('channel', 'web', 'campaign', concat('c', id % 10)) AS labels",
    """if(id % 4 = 0, null, named_struct(
        'member0', if(id % 4 = 1, named_struct('number', '4111111111111111', 'month', 7), null),
        'member1', if(id % 4 = 2, named_struct('account', 'DE00123456780000000000'), null),
        'member2', if(id % 4 = 3, 12.5D, null))) AS payment""",
    "element_at(array('OPEN', 'PAID', 'SENT'), 1 + cast(id % 3 AS INT)) AS status",
    "if(id % 2 = 0, null, 0.25D) AS discount",
)

_LOGICAL = _record(
    "Event",
    id={"type": "string", "logicalType": "uuid"},
    day={"type": "int", "logicalType": "date"},
    created={"type": "long", "logicalType": "timestamp-micros"},
    seen={"type": "long", "logicalType": "timestamp-millis"},
    opens={"type": "long", "logicalType": "local-timestamp-micros"},
    lasted={"type": "int", "logicalType": "time-millis"},
    amount={"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    balance={"type": "fixed", "name": "Balance", "size": 8, "logicalType": "decimal", "precision": 18, "scale": 4},
    rate={"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 6},
    changed=_optional({"type": "long", "logicalType": "timestamp-micros"}),
    due=_optional({"type": "int", "logicalType": "date"}),
)
_LOGICAL_ROWS = (
    "concat('6ba7b810-9dad-11d1-80b4-', lpad(hex(id), 12, '0')) AS id",
    "date_add(DATE'2020-01-01', cast(id % 3000 AS INT)) AS day",
    "timestamp_micros(1700000000000000 + id * 1234567) AS created",
    "timestamp_millis(1700000000000 + id * 1234) AS seen",
    "cast(timestamp_micros(1700000000000000 + id * 7654321) AS TIMESTAMP_NTZ) AS opens",
    "cast(id % 86400000 AS INT) AS lasted",
    "cast(id % 10000000 / 100 AS DECIMAL(10, 2)) AS amount",
    "cast(id * 1.2345 AS DECIMAL(18, 4)) AS balance",
    "cast(id * 123456789.123456 AS DECIMAL(30, 6)) AS rate",
    "if(id % 2 = 0, null, timestamp_micros(1700000000000000 + id)) AS changed",
    "if(id % 3 = 0, null, DATE'2026-01-31') AS due",
)


def _of(*columns: str) -> Callable[[SparkSession, int], DataFrame]:
    return lambda spark, rows: spark.range(rows).selectExpr(*columns)


CASES: Mapping[str, DecodeCase] = {
    case.name: case
    for case in (
        DecodeCase(
            name="taxi",
            about="17 fields, flat",
            schema=taxi_schema(),
            rows=_taxi,
        ),
        DecodeCase(
            name="nested",
            about="records, an array, a map, unions, an enum",
            schema=json.dumps(_NESTED),
            rows=_of(*_NESTED_ROWS),
        ),
        DecodeCase(
            name="logical",
            about="dates, moments, decimals, a UUID",
            schema=json.dumps(_LOGICAL),
            rows=_of(*_LOGICAL_ROWS),
        ),
    )
}
"""By name."""
