"""Decode events of Iceberg's Kafka Connect sink, which have the Avro schemas that Java writes."""

import io
import json
import uuid
from typing import Any

import fastavro
import pytest

from lakefeed.errors import CheckpointMismatch
from lakefeed_adopt.iceberg_connect import decode_event

UUID = {"type": "fixed", "name": "uuid_fixed", "namespace": "", "size": 16, "logicalType": "uuid"}
COMMIT = uuid.UUID(int=7)
# Java writes only the name of a type without a namespace, even inside a record that has a namespace.
SCHEMA = {
    "type": "record",
    "name": "Event",
    "namespace": "org.apache.iceberg.connect.events",
    "fields": [
        {"name": "id", "type": UUID, "field-id": 10_500},
        {"name": "timestamp", "type": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True}},
        {
            "name": "payload",
            "type": {
                "type": "record",
                "name": "StartCommit",
                "fields": [
                    {"name": "commit_id", "type": "uuid_fixed"},
                    {"name": "other", "type": ["null", {"type": "array", "items": "uuid_fixed"}], "default": None},
                ],
            },
        },
    ],
}


def event(schema: Any, body: bytes) -> bytes:
    text = json.dumps(schema).encode()
    return b"\xc2\x01" + len(text).to_bytes(2, "big") + text + body


def test_an_event_is_decoded_with_the_schema_that_it_contains() -> None:
    body = io.BytesIO()
    # The number is a timestamp that is too large for Python's datetime.
    fastavro.schemaless_writer(body, fastavro.parse_schema("long"), 2**62)
    raw = COMMIT.bytes + body.getvalue() + COMMIT.bytes + b"\x00"
    found = decode_event(event(SCHEMA, raw), "here")
    assert found["id"] == found["payload"]["commit_id"] == COMMIT.bytes
    assert (found["timestamp"], found["payload"]["other"]) == (2**62, None)


@pytest.mark.parametrize(
    "value",
    [None, b"", b"\xc2\x01", b'{"a": 1}', event(SCHEMA, b"short"), event({"type": "nothing"}, b""), event([], b"")],
)
def test_records_that_are_not_events_are_refused(value: bytes | None) -> None:
    with pytest.raises(CheckpointMismatch, match="not an event of Iceberg's sink"):
        decode_event(value, "here")
