"""Payloads that a producer could send by mistake or on purpose, for any format."""

import random
from collections.abc import Sequence

_INSERTED = (b"\0", b"\1", b"\2", b"\x7f", b"\x80", b"\xff", b'"', b"[", b"{", b"9", b",")


def mutated(good: Sequence[bytes], *, count: int, seed: int) -> list[bytes]:
    """Return ``count`` payloads: random bytes, or valid payloads with parts changed, removed, repeated or inserted."""
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


def colliding_keys(count: int) -> list[bytes]:
    """Return ASCII texts of 8 characters with the same hash code in Spark's ``UTF8String`` (Murmur 3, fixed seed)."""
    size, seed, target = 2**32, 42, 0
    c1, c2, c5, n = 0xCC9E2D51, 0x1B873593, 5, 0xE6546B64
    inverse1, inverse2, inverse5 = (pow(each, -1, size) for each in (c1, c2, c5))
    # The state of the hash that the last four bytes of a key must give, so that the hash code is the target.
    before = _rotated((target - n) * inverse5 % size, 19)
    keys: list[bytes] = []
    first = 0x20202020
    while len(keys) < count:
        first += 1
        half = first.to_bytes(4, "little")
        if not half.isascii():
            continue
        state = (_rotated(seed ^ _rotated(first * c1 % size, 15) * c2 % size, 13) * c5 + n) % size
        last = _rotated((before ^ state) * inverse2 % size, 17) * inverse1 % size
        key = half + last.to_bytes(4, "little")
        if key.isascii():
            keys.append(key)
    return keys


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & 0xFFFFFFFF
