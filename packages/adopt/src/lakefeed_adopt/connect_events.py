"""Read what the tasks of Iceberg's sink for Kafka Connect have announced on their control topic.

A task that has written data files announces them and the offsets behind their records in one transaction of Kafka: an
event for each table, then one with the offsets. The same transaction commits these offsets to the tasks' consumer
group. The sink's coordinator commits announced files to the tables later.

An event is Avro with its own schema before it: two bytes, the schema's length and text, the record.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
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
    """A file with rows or deletes of the table, and the place of its event on the control topic."""

    location: str
    rows: int
    partition: int
    offset: int


@dataclass
class Announcement:
    """One transaction of a task.

    Attributes:
        files: of the table in question; none if the task had no rows for it.
        ends: the offsets behind the records that the task has read, by partition.
        written_at: in seconds since 1970.
    """

    written_at: float = 0.0
    files: list[AnnouncedFile] = field(default_factory=list)
    ends: dict[Partition, int] = field(default_factory=dict)


def read_announcements(
    source: KafkaSource, topic: str, *, group: str, table: tuple[str, ...], table_id: uuid.UUID
) -> list[Announcement]:
    """Read the transactions of a sink's tasks, as far as the control topic still has them.

    Args:
        topic: the control topic.
        group: the tasks' consumer group; several sinks may share a control topic.
        table: namespace and name of the table, whose files count.
        table_id: its UUID: a table before it may have had the same name.

    Raises:
        CheckpointMismatch: the topic has other records.
    """
    found: dict[tuple[int, bytes, bytes], Announcement] = {}
    for message in scan(source, topic):
        where = f"{topic}-{message.partition()}, offset {message.offset()}"
        event = decode_event(message.value(), where)
        if event["group_id"] != group or event["type"] not in (_DATA_WRITTEN, _DATA_COMPLETE):
            continue
        payload = event["payload"]
        # A task has one transaction for each commit that the coordinator has begun; the key is its producer's.
        key = message.partition(), message.key() or b"", payload["commit_id"]
        announced = found.setdefault(key, Announcement())
        announced.written_at = message.timestamp()[1] / 1000
        if event["type"] == _DATA_COMPLETE:
            announced.ends |= dict(_ends(payload["assignments"] or ()))
        elif _names(payload["table_reference"], table, table_id):
            place = message.partition(), message.offset()
            for each in (*(payload["data_files"] or ()), *(payload["delete_files"] or ())):
                if each["record_count"]:
                    announced.files.append(AnnouncedFile(each["file_path"], each["record_count"], *place))
    return list(found.values())


def _ends(assignments: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Partition, int]]:
    """Yield the offsets of the partitions that the task has read."""
    for each in assignments:
        if each["offset"] is not None:
            yield (each["topic"], each["partition"]), each["offset"]


def _names(reference: Mapping[str, Any], table: tuple[str, ...], table_id: uuid.UUID) -> bool:
    given = reference.get("table_uuid")  # Older sinks leave it out.
    return (*reference["namespace"], reference["name"]) == table and given in (None, table_id.bytes)


def decode_event(value: bytes | None, where: str) -> Any:
    """Decode a record of a control topic; a CheckpointMismatch if it is no event."""
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
    except Exception as error:  # Broken bytes raise anything there.
        raise _unknown(where) from error


@lru_cache(maxsize=256)
def _schema(text: bytes) -> Any:
    from fastavro import parse_schema

    return parse_schema(_plain(json.loads(text)))


def _plain(schema: Any) -> Any:
    """Return a schema without namespaces and logical types.

    Java writes the name of a type without a namespace as it is, inside of others that have one; fastavro looks for it
    in theirs. Values stay as they are stored: a UUID as bytes, a time as a number, whatever its range.
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
        "this record is no event of Iceberg's sink for Kafka Connect",
        where=where,
        hint="the control topic belongs to the sink alone",
    )
