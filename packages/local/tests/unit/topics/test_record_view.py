"""Decode records for people: Protobuf headers, JSON, numbers, and unknown schema ids."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.clients.kafka.records import Record
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ResourceMissing
from lakefeed.records.decode.registry import SchemaRegistry
from lakefeed_local.topics.reading_plan import message_indexes
from lakefeed_local.topics.record_view import TopicView, exact, is_json


def varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    out = bytearray()
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*out, zigzag])


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5), st.binary())
def test_message_indexes_are_parsed_from_a_header(path: list[int], message: bytes) -> None:
    header = b"\0\0\0\0\1" + varint(len(path)) + b"".join(map(varint, path))
    assert message_indexes(header + message) == (path, len(header))


def test_hostile_bytes_have_no_message_indexes() -> None:
    assert message_indexes(b"\0\0\0\0\1\0rest") == ([0], 6)
    assert message_indexes(b"\0\0\0\0\1") is None
    assert message_indexes(b"\0\0\0\0\1" + b"\xff" * 30) is None
    assert message_indexes(b"\0\0\0\0\1" + varint(1_000_000)) is None


@given(st.binary(max_size=60))
def test_any_bytes_can_be_searched_for_message_indexes_without_an_error(rest: bytes) -> None:
    message_indexes(b"\0\0\0\0\1" + rest)


@pytest.mark.parametrize("text", ["NaN", "[1e999]", "{", "[" * 100_000, "1" * 5_000])
def test_json_that_python_cannot_serialize_is_shown_as_text(text: str) -> None:
    assert not is_json(text)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6))
def test_numbers_are_shown_with_all_digits(number: Decimal) -> None:
    read = json.loads(f"{number:f}", parse_float=exact)
    assert Decimal(str(read)) == number


def test_a_note_lists_the_schema_ids_that_the_registry_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def schema(registry: SchemaRegistry, schema_id: int) -> Any:
        raise ResourceMissing(f"there is no schema {schema_id}", where="here")

    monkeypatch.setattr(SchemaRegistry, "schema", schema)
    source = KafkaSource(bootstrap_servers="localhost:9092", topics=["t"])
    values = [b"\0\0\0\0\5\2x", b"\0\0\0\0\5\2y", b"\0\0\0\x07\0\2x", b"\0\0\0\0\0\0\0\1", b"text", b"\0\1", None]
    records = [Record("t", 0, at, None, b"\0\0\0\0\x09k", value) for at, value in enumerate(values)]
    with TopicView(source, registry=SchemaRegistry("http://localhost"), log_file=tmp_path / "log") as view:
        shown = list(view.show(records))
        notes = list(view.notes())
    assert [record.format for record in shown] == ["text", "text", "text", "text", "text", "text", "null"]
    assert notes == ["3 values begin with the header of a schema id that the registry does not have: 5, 1792"]
    with TopicView(source, log_file=tmp_path / "log") as view:
        assert list(view.show(records)) == shown
        assert not list(view.notes())
