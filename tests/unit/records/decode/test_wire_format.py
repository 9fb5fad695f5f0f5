from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.errors import DecodeError
from lakefeed.records.decode import wire_format

ids = st.integers(0, wire_format.LARGEST_ID)


@given(schema_id=ids, data=st.binary())
def test_what_is_built_is_parsed(schema_id: int, data: bytes) -> None:
    framed = wire_format.parse(wire_format.build(schema_id, data))
    assert (framed.schema_id, framed.data) == (schema_id, data)


@given(value=st.binary(max_size=12))
def test_any_bytes_are_a_value_or_an_error(value: bytes) -> None:
    try:
        framed = wire_format.parse(value)
    except DecodeError:
        assert len(value) < 5 or value[0] != 0 or value[1] >= 128
    else:
        assert wire_format.build(framed.schema_id, framed.data) == value


def test_the_id_is_big_endian() -> None:
    assert wire_format.build(258) == b"\x00\x00\x00\x01\x02"


@pytest.mark.parametrize("schema_id", [-1, 2**31])
def test_an_id_that_does_not_fit(schema_id: int) -> None:
    with pytest.raises(ValueError, match="schema id"):
        wire_format.build(schema_id)
