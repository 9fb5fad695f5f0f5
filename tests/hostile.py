"""Bytes that a producer could send by mistake or by intent, for any format."""

from __future__ import annotations

import random
from collections.abc import Sequence

_INSERTED = (b"\0", b"\1", b"\2", b"\x7f", b"\x80", b"\xff", b'"', b"[", b"{", b"9", b",")


def mutated(good: Sequence[bytes], *, count: int, seed: int) -> list[bytes]:
    """``count`` payloads: right ones with bits flipped, parts cut out, repeated or put in; and random bytes."""
    chance = random.Random(seed)
    made: list[bytes] = []
    while len(made) < count:
        if chance.random() < 0.2:
            made.append(chance.randbytes(chance.randrange(1, 200)))
            continue
        payload = bytearray(chance.choice(good) * chance.choice([1, 1, 1, 2, 50]))
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(payload) + 1)
            match chance.randrange(5):
                case 0:
                    payload[at : at + 1] = bytes([chance.randrange(256)])
                case 1:
                    del payload[at : at + chance.randrange(1, 12)]
                case 2:
                    payload[at:at] = payload[at : at + chance.randrange(1, 40)] * chance.choice([1, 2, 100])
                case 3:
                    payload[at:at] = chance.choice(_INSERTED) * chance.choice([1, 5, 3_000])
                case _:
                    payload[at : at + 8] = chance.randbytes(8)
        made.append(bytes(payload[:200_000]))
    return made
