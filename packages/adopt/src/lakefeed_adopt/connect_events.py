"""Read the events of Iceberg's Kafka Connect sink from its control topic.

A task of the sink writes data files. Then the task announces the files in one Kafka transaction: an event per table,
and an event with the offsets after the last records. The same transaction commits these offsets to the tasks' consumer
group. The sink's coordinator commits the announced files to the tables later.

An event consists of two bytes, the length and the text of an Avro schema, and a record of this schema.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from lakefeed.clients.kafka.scan import scan
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import CheckpointMismatch, MissingExtra
from lakefeed.offsets.ranges import Partition

_MAGIC = b"\xc2\x01"
_LENGTH = 2
_DATA_WRITTEN, _DATA_COMPLETE = 1, 2


@dataclass(frozen=True)
class AnnouncedFile:
    """A file with rows or deletes of the table; partition and offset are those of its event in the control topic."""

    location: str
    rows: int
    partition: int
    offset: int


@dataclass
class Announcement:
    """One transaction of a task.

    Attributes:
        files: the files of the requested table; none if the task had no rows for it.
        ends: the offset after the last record that the task has read, by partition.
        written_at: when the task wrote the events, in seconds since 1970.
    """

    written_at: float = 0.0
    files: list[AnnouncedFile] = field(default_factory=list)
    ends: dict[Partition, int] = field(default_factory=dict)


def read_announcements(
    source: KafkaSource, topic: str, *, group: str, table: tuple[str, ...], table_id: uuid.UUID
) -> list[Announcement]:
    """Return the transactions of a sink's tasks whose events the control topic still has.

    Args:
        topic: the control topic.
        group: the tasks' consumer group; several sinks may share a control topic.
        table: namespace and name of the table; files of other tables are left out.
        table_id: the table's UUID, because an earlier table may have had the same name.

    Raises:
        CheckpointMismatch: the topic has records that are not events of the sink.
    """
    found: dict[tuple[int, bytes, bytes], Announcement] = {}
    for message in scan(source, topic):
        where = f"{topic}-{message.partition()}, offset {message.offset()}"
        event = decode_event(message.value(), where)
        if event["group_id"] != group or event["type"] not in (_DATA_WRITTEN, _DATA_COMPLETE):
            continue
        payload = event["payload"]
        # Events with the same key belong to one transaction: a task has one transaction per commit of the coordinator,
        # and the message key identifies the task's producer.
        key = message.partition(), message.key() or b"", payload["commit_id"]
        announced = found.setdefault(key, Announcement())
        announced.written_at = message.timestamp()[1] / 1000
        if event["type"] == _DATA_COMPLETE:
            read = (each for each in payload["assignments"] or () if each["offset"] is not None)
            announced.ends |= {(each["topic"], each["partition"]): each["offset"] for each in read}
        elif _names(payload["table_reference"], table, table_id):
            place = message.partition(), message.offset()
            for each in (*(payload["data_files"] or ()), *(payload["delete_files"] or ())):
                if each["record_count"]:
                    announced.files.append(AnnouncedFile(each["file_path"], each["record_count"], *place))
    return list(found.values())


def _names(reference: Mapping[str, Any], table: tuple[str, ...], table_id: uuid.UUID) -> bool:
    given = reference.get("table_uuid")  # Older sinks write no UUID.
    return (*reference["namespace"], reference["name"]) == table and given in (None, table_id.bytes)


def decode_event(value: bytes | None, where: str) -> Any:
    """Decode a record of a control topic; raise CheckpointMismatch if the record is not an event."""
    try:
        from fastavro import schemaless_reader
    except ImportError:
        raise MissingExtra.of("fastavro", "read", "reading the control topic of Kafka Connect") from None
    if value is None or not value.startswith(_MAGIC):
        raise _unknown(where)
    stream = io.BytesIO(value[len(_MAGIC) :])
    length = int.from_bytes(stream.read(_LENGTH), "big")
    try:
        return schemaless_reader(stream, _schema(stream.read(length)), None)
    except Exception as error:  # fastavro raises arbitrary errors for broken bytes.
        raise _unknown(where) from error


@lru_cache(maxsize=256)
def _schema(text: bytes) -> Any:
    from fastavro import parse_schema

    return parse_schema(_plain(json.loads(text)))


def _plain(schema: Any) -> Any:
    """Return a schema without namespaces and logical types.

    Inside a type with a namespace, Java writes some names without one; fastavro would look for these names in that
    namespace. Without logical types, a UUID stays bytes, and a time stays a number that may exceed Python's range.
    """
    match schema:
        case str():
            return schema.rpartition(".")[2]
        case list():
            return [_plain(each) for each in schema]
        case {"type": dict() | list() as inner}:
            return _plain(inner)
    found = {key: schema[key] for key in ("size", "symbols") if key in schema}
    found |= {key: _plain(schema[key]) for key in ("type", "name", "items", "values") if key in schema}
    if "fields" in schema:
        found["fields"] = [{"name": each["name"], "type": _plain(each["type"])} for each in schema["fields"]]
    return found


def _unknown(where: str) -> CheckpointMismatch:
    return CheckpointMismatch(
        "this record is not an event of Iceberg's sink for Kafka Connect",
        where=where,
        hint="only the sink may write to its control topic: remove the record, or name the topic of another sink",
    )
