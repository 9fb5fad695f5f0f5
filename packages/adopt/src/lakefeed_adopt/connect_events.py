"""Read the events that the tasks of Iceberg's Kafka Connect sink have written to their control topic.

A task writes data files, then announces them and the offsets behind their records in one Kafka transaction: an event
per table, then one event with the offsets. The same transaction commits these offsets to the tasks' consumer group.
The sink's coordinator commits the announced files to the tables later.

An event is an Avro record after its own schema: two bytes, the schema's length and text, the record.
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
    """A file with rows or deletes of the table, and the partition and offset of its event on the control topic."""

    location: str
    rows: int
    partition: int
    offset: int


@dataclass
class Announcement:
    """One transaction of a task.

    Attributes:
        files: files of the requested table; none if the task had no rows for it.
        ends: the offsets behind the records that the task has read, by partition.
        written_at: when the task wrote the events, in seconds since 1970.
    """

    written_at: float = 0.0
    files: list[AnnouncedFile] = field(default_factory=list)
    ends: dict[Partition, int] = field(default_factory=dict)


def read_announcements(
    source: KafkaSource, topic: str, *, group: str, table: tuple[str, ...], table_id: uuid.UUID
) -> list[Announcement]:
    """Read the transactions of a sink's tasks, as far back as the control topic has them.

    Args:
        topic: the control topic.
        group: the tasks' consumer group; several sinks may share a control topic.
        table: namespace and name of the table; files of other tables are left out.
        table_id: the table's UUID, because an earlier table may have had the same name.

    Raises:
        CheckpointMismatch: the topic has records that are no events of the sink.
    """
    found: dict[tuple[int, bytes, bytes], Announcement] = {}
    for message in scan(source, topic):
        where = f"{topic}-{message.partition()}, offset {message.offset()}"
        event = decode_event(message.value(), where)
        if event["group_id"] != group or event["type"] not in (_DATA_WRITTEN, _DATA_COMPLETE):
            continue
        payload = event["payload"]
        # A task has one transaction per commit that the coordinator has begun; the message key is the producer's id.
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
    """Yield the partitions that the task has read, with their end offsets."""
    for each in assignments:
        if each["offset"] is not None:
            yield (each["topic"], each["partition"]), each["offset"]


def _names(reference: Mapping[str, Any], table: tuple[str, ...], table_id: uuid.UUID) -> bool:
    given = reference.get("table_uuid")  # Older sinks omit it.
    return (*reference["namespace"], reference["name"]) == table and given in (None, table_id.bytes)


def decode_event(value: bytes | None, where: str) -> Any:
    """Decode a record of a control topic; raise CheckpointMismatch if the record is no event."""
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

    Java writes a type's name without a namespace unchanged, also inside types with a namespace; fastavro would look for
    it in the outer namespace. Values stay as stored: a UUID as bytes, a time as a number, whatever its range.
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
