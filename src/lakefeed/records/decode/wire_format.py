"""Confluent's wire format: one zero byte, the schema's id as four bytes, big end first, then the data.

Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from lakefeed.errors import DecodeError

MAGIC = 0
HEADER_LENGTH = 5
LARGEST_ID = 2**31 - 1
_HEADER = struct.Struct(">BI")


@dataclass(frozen=True, kw_only=True)
class Framed:
    """A record's value taken apart: the writer's schema by its id, and the encoded data."""

    schema_id: int
    data: bytes


def parse(value: bytes) -> Framed:
    """Takes a framed value apart.

    Raises:
        DecodeError: fewer than 5 bytes, a first byte that is not zero, or an id that no registry gives.
    """
    if not value:
        raise DecodeError("The value is empty: 0 bytes")
    if value[0] != MAGIC:
        raise DecodeError(
            f"The value begins with byte {value[0]} instead of 0: it is not in Confluent wire format",
            hint="for Avro without a header, give the schema instead of the registry",
        )
    if len(value) < HEADER_LENGTH:
        raise DecodeError(f"The value is truncated: {len(value)} bytes, a header alone has {HEADER_LENGTH}")
    schema_id = _HEADER.unpack_from(value)[1]
    if schema_id > LARGEST_ID:
        raise DecodeError(f"The header has the schema id {schema_id}, above the largest one, {LARGEST_ID}")
    return Framed(schema_id=schema_id, data=value[HEADER_LENGTH:])


def build(schema_id: int, data: bytes = b"") -> bytes:
    """The value with the header for ``schema_id`` (0 to 2^31 - 1) before ``data``.

    Raises:
        ValueError: the id does not fit.
    """
    if not 0 <= schema_id <= LARGEST_ID:
        raise ValueError(f"schema id {schema_id} is not in 0..{LARGEST_ID}")
    return _HEADER.pack(MAGIC, schema_id) + data
