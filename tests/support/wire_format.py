"""Confluent's wire format: a zero byte, the schema id as four big-endian bytes, then the data.

Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

import struct


def build(schema_id: int, data: bytes = b"") -> bytes:
    """Return the value for ``schema_id`` (0 to 2^31 - 1): the header, then ``data``."""
    return struct.pack(">Bi", 0, schema_id) + data
