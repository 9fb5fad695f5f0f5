"""Confluent's wire format: one zero byte, the schema's id as four bytes, big end first, then the data.

Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

import struct


def build(schema_id: int, data: bytes = b"") -> bytes:
    """Return the value with the header for ``schema_id`` (0 to 2^31 - 1) before ``data``."""
    return struct.pack(">Bi", 0, schema_id) + data
