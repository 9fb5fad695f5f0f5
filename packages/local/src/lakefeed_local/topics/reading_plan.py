"""Plans how to decode a value or key for display: by a decode block, or with the writer's schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from lakefeed.clients.spark import jvm
from lakefeed.config.decoding import ExpressionFormat
from lakefeed.lazy import SparkSession
from lakefeed.records import spec as specs
from lakefeed.records.decode.avro_schema import avro_schema_of_schema
from lakefeed.records.decode.formats import decoder_options
from lakefeed.records.decode.registry import SchemaText

Format = Literal["avro", "protobuf", "json_schema", "json", "text", "bytes", "null"]

HEADER = 5
"""The number of bytes before a value in Confluent's wire format: a zero byte and the schema id."""
_KINDS: dict[str, Format] = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json_schema"}


class ReadingPlan(NamedTuple):
    """The way to read the bytes of a value or a key."""

    format: Format
    name: str
    """The plan's name, which is unique among the plans of a topic."""
    skip: int = 0
    """The number of bytes before the data."""
    schema_id: int | None = None
    options: Callable[[SparkSession], dict[str, str]] | None = None
    """Returns the decoder's options; None if no decoder is needed."""


def schema_id(data: bytes) -> int:
    """Return the schema id of a value in Confluent's wire format."""
    return int.from_bytes(data[1:HEADER], "big")


def plan_of(spec: specs.DecodeSpec, part: specs.Part) -> ReadingPlan:
    """Return the plan for a feed's encoding of values or keys."""
    name = f"feed's {part}"
    match spec:
        case specs.Raw():
            return ReadingPlan("bytes", name)
        case specs.String() | ExpressionFormat():
            return ReadingPlan("text", name)
        case specs.ConfluentAvro() | specs.PlainAvro():
            kind: Format = "avro"
        case specs.ConfluentProtobuf() | specs.PlainProtobuf():
            kind = "protobuf"
        case specs.ConfluentJson():
            kind = "json_schema"
        case specs.Json():
            kind = "json"
        case _:
            kind = "text"
    return ReadingPlan(kind, name, options=lambda spark: decoder_options(spark, spec, part))


def writers_plan(number: int, schema: SchemaText) -> ReadingPlan:
    """Return the plan to read a value with its writer's schema, except a Protobuf schema: see ``protobuf_plan``."""
    kind = _KINDS[schema.kind]

    def options(spark: SparkSession) -> dict[str, str]:
        text = avro_schema_of_schema(spark, schema)
        if kind == "avro":
            return decoder_options(spark, specs.PlainAvro(writer_schema=text))
        return {"format": "json", "reader-schema": text, "lenient": "true"}

    return ReadingPlan(kind, f"{kind} {number}", HEADER, number, options)


def protobuf_plan(number: int, schema: SchemaText, path: Sequence[int], end: int) -> ReadingPlan:
    """Return the plan to read a message, which ``message_indexes`` has found at ``path`` and ``end``."""

    def options(spark: SparkSession) -> dict[str, str]:
        references = tuple(reference.text for reference in schema.references)
        types = jvm.java(spark).decode.ProtobufSchemas.types(schema.text, list(references))
        message = str(types.message(list(path)).fullName())
        spec = specs.PlainProtobuf(schema=schema.text, message=message, references=references)
        return decoder_options(spark, spec)

    return ReadingPlan("protobuf", f"protobuf {number} {path}", end, number, options)


def message_indexes(data: bytes) -> tuple[list[int], int] | None:
    """Return the message indexes after a Protobuf header, and the position of the message's first byte."""
    at = HEADER

    def zigzag() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7

    try:
        count = zigzag()
        if not 0 <= count <= len(data):
            return None
        path = [zigzag() for _ in range(count)] or [0]
    except IndexError:
        return None
    return path, at
