"""Reading records for people: headers of Protobuf, JSON that stays JSON, frames for the JVM."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.records.decode.record_view import exact, is_json, message_indexes


def varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    out = bytearray()
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*out, zigzag])


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5), st.binary())
def test_message_indexes(path: list[int], message: bytes) -> None:
    header = b"\0\0\0\0\1" + varint(len(path)) + b"".join(map(varint, path))
    assert message_indexes(header + message) == (path, len(header))


def test_message_indexes_of_hostile_bytes() -> None:
    assert message_indexes(b"\0\0\0\0\1\0rest") == ([0], 6)
    assert message_indexes(b"\0\0\0\0\1") is None
    assert message_indexes(b"\0\0\0\0\1" + b"\xff" * 30) is None
    assert message_indexes(b"\0\0\0\0\1" + varint(1_000_000)) is None


@given(st.binary(max_size=60))
def test_message_indexes_never_fail(rest: bytes) -> None:
    message_indexes(b"\0\0\0\0\1" + rest)


@pytest.mark.parametrize("text", ["NaN", "[1e999]", "{", "[" * 100_000, "1" * 5_000])
def test_what_could_not_be_written_again_is_text(text: str) -> None:
    assert not is_json(text)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6))
def test_numbers_keep_their_value(number: Decimal) -> None:
    read = json.loads(f"{number:f}", parse_float=exact)
    assert Decimal(str(read)) == number
