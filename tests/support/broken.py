"""Break a record in one of twelve ways, all of which occur in real Kafka topics."""

import random
import struct

NULL = "null"
KINDS = (
    "truncated",
    "wrong magic",
    "unknown id",
    "id of a deleted schema",
    "wrong type",
    "invalid UTF-8",
    "empty",
    NULL,
    "10 MB",
    "JSON with duplicate keys",
    "nesting bomb",
    "random bytes",
)
LARGE = 10 * 1024 * 1024
UNKNOWN_ID = 2_000_000_000


def broken(kind: str, good: bytes, *, deleted_id: int, other_id: int, seed: int) -> bytes | None:
    """Return a record that is broken in the way ``kind``; None for a tombstone.

    Args:
        kind: one of ``KINDS``.
        good: a valid record in Confluent wire format: a long, then a string.
        deleted_id: the id of a schema that was deleted from the registry.
        other_id: the id of a schema whose first field has another type.
        seed: the seed of the random bytes.
    """
    header, body = good[:5], good[5:]
    numbers = random.Random(seed)
    return {
        "truncated": good[:-1],
        "wrong magic": b"\x07" + good[1:],
        "unknown id": b"\x00" + struct.pack(">I", UNKNOWN_ID) + body,
        "id of a deleted schema": b"\x00" + struct.pack(">I", deleted_id) + body,
        "wrong type": b"\x00" + struct.pack(">I", other_id) + b"\x06abc\x02z",
        "invalid UTF-8": header + b"\x02" + b"\x04\xc3\x28",
        "empty": b"",
        NULL: None,
        "10 MB": header + b"\x02" + b"\xff" * LARGE if kind == "10 MB" else b"",
        "JSON with duplicate keys": b'{"id": 1, "id": 2, "zone": "a"}',
        "nesting bomb": b"[" * 50_000,
        # The first byte is never 0, the magic byte, so the header is never valid.
        "random bytes": bytes([numbers.randrange(1, 256)]) + numbers.randbytes(numbers.randrange(1, 60)),
    }[kind]
