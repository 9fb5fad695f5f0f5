"""Records of all sorts of schemas, and the rows that they have to become."""

import datetime as dt
import io
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

import fastavro
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from tests.support.protos import message_class

Row = dict[str, Any]
REGISTRY = {"registry": "${SCHEMA_REGISTRY_URL}"}
PROTO = """syntax = "proto3";
package shapes;
message Trip { int64 id = 1; string zone = 2; optional double fare = 3; repeated int32 stops = 4; Rider rider = 5; }
message Rider { string name = 1; bool known = 2; }
"""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One sort of records.

    Attributes:
        decode: the block of the pipeline file, but for what is the same for all.
        row: the row that a number becomes.
        encode: from the number to the bytes, which begin with the schema's id where there is one.
        schema: what is registered for the topic; None if the values carry no id.
        kind: of the schema, as the registry calls it.
    """

    decode: Any
    row: Callable[[int], Row]
    encode: Callable[[int], bytes]
    schema: str | None = None
    kind: str = "AVRO"

    def values(self, numbers: range, *, topic: str, registry: str) -> list[bytes]:
        """The values of a topic's records, their schema registered."""
        if self.schema is None:
            return [self.encode(number) for number in numbers]
        client = SchemaRegistryClient({"url": registry})
        schema_id = client.register_schema(f"{topic}-value", Schema(self.schema, self.kind))
        return [b"\0" + schema_id.to_bytes(4, "big") + self.encode(number) for number in numbers]


def _avro(row: Callable[[int], Row], **fields: Any) -> Shape:
    columns = [{"name": name, "type": kind} for name, kind in fields.items()]
    schema = {"type": "record", "name": "Row", "fields": columns}
    parsed = fastavro.parse_schema(schema)

    def encode(number: int) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row(number))
        return out.getvalue()

    return Shape(decode={"avro": REGISTRY}, row=row, encode=encode, schema=json.dumps(schema))


def _at(number: int) -> dt.datetime:
    return dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=number, milliseconds=number)


def _nested(number: int) -> Row:
    return {
        "id": number,
        "who": {"name": f"n{number}", "tags": [f"t{each}" for each in range(number % 3)]},
        "counts": {f"k{number % 5}": number},
    }


def _logical(number: int) -> Row:
    return {
        "id": number,
        "price": Decimal(number).scaleb(-2),
        "day": dt.date(2026, 1, 1) + dt.timedelta(days=number % 700),
        "at": _at(number),
        "token": uuid.UUID(int=number),
    }


def _optional(number: int) -> Row:
    mood = ("glad", "sad")[number % 2]
    return {"id": number, "note": None if number % 3 else f"ä{number}", "mood": mood, "ratio": number / 8}


def _json(number: int) -> Row:
    inner = {"a": number % 7, "b": [str(number), ""]}
    return {"id": number, "city": None if number % 4 == 0 else f"c{number}", "inner": inner}


def _described(number: int) -> Row:
    return {"id": number, "name": f"n{number}", "share": number / 4}


@cache
def _trip() -> Any:
    return message_class({"trip.proto": PROTO}, "shapes.Trip")


def _protobuf(number: int) -> Row:
    rider = {"name": f"r{number}", "known": number % 2 == 0}
    fare = None if number % 3 == 0 else number / 2
    return {"id": number, "zone": f"z{number % 9}", "fare": fare, "stops": [number, -number], "rider": rider}


def _protobuf_bytes(number: int) -> bytes:
    # A byte that says that it is the schema's first message.
    message = _trip()(**{name: value for name, value in _protobuf(number).items() if value is not None})
    return b"\0" + bytes(message.SerializeToString())


def _csv(number: int) -> Row:
    return {"id": number, "word": f'w,"{number}"', "amount": Decimal(number).scaleb(-1)}


def _csv_line(number: int) -> bytes:
    return f'{number},"w,""{number}""",{number / 10}'.encode()


SHAPES: dict[str, Shape] = {
    "flat": _avro(lambda number: {"id": number, "zone": f"z{number % 9}"}, id="long", zone="string"),
    "nested": _avro(
        _nested,
        id="long",
        who={
            "type": "record",
            "name": "Who",
            "fields": [
                {"name": "name", "type": "string"},
                {"name": "tags", "type": {"type": "array", "items": "string"}},
            ],
        },
        counts={"type": "map", "values": "long"},
    ),
    "logical": _avro(
        _logical,
        id="long",
        price={"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
        day={"type": "int", "logicalType": "date"},
        at={"type": "long", "logicalType": "timestamp-millis"},
        token={"type": "string", "logicalType": "uuid"},
    ),
    "optional": _avro(
        _optional,
        id="long",
        note=["null", "string"],
        mood={"type": "enum", "name": "Mood", "symbols": ["glad", "sad"]},
        ratio="double",
    ),
    "json": Shape(
        decode={"json": {"schema_ddl": "id BIGINT, city STRING, inner STRUCT<a: INT, b: ARRAY<STRING>>"}},
        row=_json,
        encode=lambda number: json.dumps(_json(number)).encode(),
    ),
    "described": Shape(
        decode={"json_schema": REGISTRY},
        row=_described,
        encode=lambda number: json.dumps(_described(number)).encode(),
        schema=json.dumps(
            {
                "type": "object",
                "properties": {"id": {"type": "integer"}, "name": {"type": "string"}, "share": {"type": "number"}},
                "required": ["id"],
                "additionalProperties": False,
            }
        ),
        kind="JSON",
    ),
    "protobuf": Shape(
        decode={"protobuf": REGISTRY}, row=_protobuf, encode=_protobuf_bytes, schema=PROTO, kind="PROTOBUF"
    ),
    "csv": Shape(
        decode={"csv": {"schema_ddl": "id BIGINT, word STRING, amount DECIMAL(12, 1)"}}, row=_csv, encode=_csv_line
    ),
}


def plain(row: Row) -> Row:
    """A row as it is read from a table, for comparing: maps as dicts, whatever has text as text."""
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        pairs = bool(value) and all(isinstance(each, tuple) for each in value)
        return {name: _plain(each) for name, each in value} if pairs else [_plain(each) for each in value]
    return str(value) if isinstance(value, uuid.UUID) else value
