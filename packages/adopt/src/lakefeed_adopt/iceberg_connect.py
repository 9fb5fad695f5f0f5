"""Find the offsets up to which Iceberg's Kafka Connect sink has filled a table.

Three sources together show these offsets:

- The tasks' consumer group has the offsets after all records whose data files the control topic announces. The group
  is ahead of the table if the sink has not committed all announced files.
- The table's snapshots have the offsets of the *control* topic up to which the sink has committed announced files.
- The control topic has the files that are announced after those offsets, and the offsets after their records.

The feed reads the records of announced files again if the sink has never committed the files.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from lakefeed.clients.kafka.groups import group_offsets
from lakefeed.clients.kafka.scan import scan
from lakefeed.clients.kafka.topics import TopicDescription, Topics
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import CheckpointMismatch, ConfigError, MissingExtra, ResourceMissing
from lakefeed.messages.printable import counted
from lakefeed.offsets.ranges import Partition
from lakefeed_adopt.position import OtherPosition, require_no_members

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_PREFIX = "kafka.connect.offsets."
"""Prefix of the sink's keys in snapshot summaries; the control topic, a dot and the consumer group follow."""

_AGAIN = "start the sink once more until it has committed, and stop it"
Fate = Literal["nothing", "in the table", "pending", "lost"]
"""nothing: no files were announced. in the table: the sink has committed the files. pending: the sink will commit the
files when it runs again. lost: the sink has read past the files' events without committing the files.
"""

_ABSENT = ("pending", "lost")


@dataclass(frozen=True)
class SinkOffsets:
    """A sink that has written to the table, and the control topic's offsets up to which the sink has committed."""

    control_topic: str
    group: str
    committed: Mapping[int, int]


def sink_groups(line: Sequence[Snapshot]) -> list[str]:
    """Return the names of the sinks that have committed to a table: control topic, a dot, and group."""
    found = (key.removeprefix(_PREFIX) for each in line for key in _summary(each) if key.startswith(_PREFIX))
    return sorted(set(found))


def is_group_of_sink(line: Sequence[Snapshot], group: str) -> bool:
    return any(name.endswith(f".{group}") for name in sink_groups(line))


def read_connect_position(source: KafkaSource, group: str, table: Table, line: Sequence[Snapshot]) -> OtherPosition:
    """Read the offsets at which the table ends.

    Args:
        group: the tasks' consumer group, or the connector's name; may be empty if one sink has written the table.
        line: the table's snapshots, oldest first.

    Raises:
        ResourceMissing: the sink has committed nothing to the table, or the control topic does not exist.
        ConfigError: the sink still runs, or several sinks have written to the table.
        CheckpointMismatch: group, snapshots and control topic do not determine the position.
    """
    topics = Topics(source.bootstrap_servers, options=source.client_options)
    sink = _sink(table, line, group, topics.list())
    groups = (sink.group, f"{sink.group}-coord")
    require_no_members(source, groups, purpose="adopt")
    control = topics.describe(sink.control_topic)
    _require_settled(control, topics.describe(sink.control_topic, committed=True), sink)
    reached = group_offsets(source, sink.group)
    announced = read_announcements(
        source, sink.control_topic, group=sink.group, table=table.name()[-2:], table_id=table.metadata.table_uuid
    )
    reads_from = {key[1]: at for key, at in group_offsets(source, groups[1], [sink.control_topic]).items()}
    history = _History(table, line)
    fates = [(each, history.fate(each, sink.committed, reads_from)) for each in announced]
    is_whole = not any(part.start_offset for part in control.partitions)
    where = f"{sink.control_topic}, group {sink.group}"
    offsets = find_positions(fates, reached, where=where, is_whole=is_whole)
    if not offsets and not announced:
        raise ResourceMissing(
            f"the consumer group {sink.group} has no offsets, and the control topic has no events of it",
            where=source.bootstrap_servers,
            hint="correct source.kafka: name the cluster whose topics the sink has read",
        )
    return OtherPosition(
        offsets=offsets,
        place=f"control topic {where}",
        groups=groups,
        written_at=max((each.written_at for each in announced), default=None),
        notes=tuple(describe_fates(fates)),
    )


def _sink(table: Table, line: Sequence[Snapshot], group: str, topics: Iterable[str]) -> SinkOffsets:
    """Return the sink whose commits the table's snapshots show; refuse an unknown sink, or several without a choice."""
    name, names = ".".join(table.name()), sink_groups(line)
    ends = (f".{group}", f".connect-{group}")
    chosen = [each for each in names if not group or each == group or each.endswith(ends)]
    if not chosen:
        what = "no snapshot of the table was committed by Iceberg's sink for Kafka Connect"
        hint = "the table has no rows of this sink: run the feed from the topics' first records, without adopt"
        if names:
            what = f"no snapshot was committed by a sink of the group {group}"
            hint = f"the table has commits of {', '.join(names)}"
        raise ResourceMissing(what, where=name, hint=hint)
    if len(chosen) > 1:
        raise ConfigError(
            f"several sinks for Kafka Connect have written the table: {', '.join(chosen)}",
            where=name,
            hint="choose one: --from iceberg-connect:CONNECTOR",
        )
    # Try each dot as the end of the topic's name, because both the topic and the group may contain dots.
    parts = chosen[0].split(".")
    control = [".".join(parts[:at]) for at in range(1, len(parts))]
    there = [each for each in control if each in topics]
    if len(there) != 1:
        what = f"the control topic of the sink {chosen[0]}"
        raise ResourceMissing(
            f"there is no topic that may be {what}" if not there else f"both {' and '.join(there)} may be {what}",
            where=name,
            hint="name the sink's cluster in source.kafka.bootstrap_servers; if the topic is gone and the rows have "
            "their offsets: --from group:NAME --by-rows",
        )
    written = (_summary(each).get(f"{_PREFIX}{chosen[0]}") for each in reversed(line))
    newest = next(text for text in written if text is not None)
    committed = {int(partition): int(at) for partition, at in json.loads(newest).items()}
    return SinkOffsets(there[0], chosen[0].removeprefix(f"{there[0]}."), committed)


def _require_settled(control: TopicDescription, readable: TopicDescription, sink: SinkOffsets) -> None:
    """Raise an error if a transaction is open, or if the snapshots refer to another control topic."""
    if control.ends != readable.ends:
        raise ConfigError(
            "a task of the sink was stopped within a transaction, which the broker has not ended yet",
            where=sink.control_topic,
            hint="wait for the sink's transaction.timeout.ms (default: a minute), and run the command again",
        )
    if any(control.ends.get(partition, -1) < at for partition, at in sink.committed.items()):
        raise CheckpointMismatch(
            "the table's snapshots are ahead of the control topic, which was recreated or is of another cluster",
            where=sink.control_topic,
            hint="name the sink's cluster in source.kafka.bootstrap_servers",
        )


class _History:
    """The data files of a table, in the newest snapshot and in all snapshots."""

    def __init__(self, table: Table, line: Sequence[Snapshot]) -> None:
        self._table, self._line = table, line
        self._is_whole = not line or line[0].parent_snapshot_id is None

    def fate(self, announced: Announcement, committed: Mapping[int, int], reads_from: Mapping[int, int]) -> Fate:
        """Return the fate of announced files: whether the sink has committed them, will commit them, or never will.

        Args:
            committed: by partition of the control topic, the offset up to which the sink has committed files.
            reads_from: by partition of the control topic, the offset at which the coordinator would resume. It would
                read a partition that is missing here from the partition's end.
        """
        if not announced.files:
            return "nothing"
        found = [self._has(each.location) for each in announced.files]
        if all(found):
            return "in the table"
        counted_in = [each.offset < committed.get(each.partition, 0) for each in announced.files]
        # A missing file may have been compacted away before its snapshot expired, so count it as committed.
        if all(counted_in) and not self._is_whole:
            return "in the table"
        if any(found) or (any(counted_in) and not self._is_whole):
            raise CheckpointMismatch(
                f"only {sum(found)} of {counted(len(found), 'file')} that a task announced together are in the table",
                where=".".join(self._table.name()),
                hint=_AGAIN,
            )
        will_be_read = all(each.offset >= reads_from.get(each.partition, each.offset + 1) for each in announced.files)
        return "pending" if will_be_read and not any(counted_in) else "lost"

    def _has(self, location: str) -> bool:
        return location in self._present or location in self._past

    @cached_property
    def _present(self) -> set[str]:
        return self._files(self._line[-1:])

    @cached_property
    def _past(self) -> set[str]:
        """The files of all snapshots; they are read only if the newest snapshot lacks a file."""
        return self._files(self._line)

    def _files(self, line: Sequence[Snapshot]) -> set[str]:
        manifests = {each.manifest_path: each for snapshot in line for each in snapshot.manifests(self._table.io)}
        return {
            str(entry.data_file.file_path)
            for manifest in manifests.values()
            for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=False)
        }


def find_positions(
    fates: Sequence[tuple[Announcement, Fate]], reached: Mapping[Partition, int], *, where: str, is_whole: bool
) -> dict[Partition, int]:
    """Return by partition the offset after the table's records: of the first uncommitted file, else of the group.

    Partitions without records in the table are left out. ``is_whole`` means that the control topic has lost no event to
    retention.
    """
    ends = _by_partition(fates)
    offsets = {key: announced[-1][0] for key, announced in ends.items()} | dict(reached)
    for key, announced in ends.items():
        last = _last_in_table(announced)
        if any(fate == "pending" for _, fate in announced[: last + 1]):
            raise CheckpointMismatch(
                f"files with records of {key[0]}-{key[1]} wait to be committed, but later files are in the table",
                where=where,
                hint=_AGAIN,
            )
        absent = next((at for at in range(last + 1, len(announced)) if announced[at][1] in _ABSENT), None)
        if absent is None:
            continue
        if absent:
            offsets[key] = announced[absent - 1][0]
        elif is_whole:
            offsets.pop(key)
        else:
            raise CheckpointMismatch(
                f"files with records of {key[0]}-{key[1]} wait to be committed, but retention has removed the events "
                "with the offset at which they begin",
                where=where,
                hint=_AGAIN,
            )
    return offsets


def _by_partition(fates: Sequence[tuple[Announcement, Fate]]) -> dict[Partition, list[tuple[int, Fate]]]:
    """Return, by partition, the end offset and the fate of each transaction, sorted by end offset."""
    found: dict[Partition, list[tuple[int, Fate]]] = {}
    for announced, fate in fates:
        for key, end in announced.ends.items():
            found.setdefault(key, []).append((end, fate))
    return {key: sorted(ends, key=lambda each: each[0]) for key, ends in found.items()}


def _last_in_table(announced: Sequence[tuple[int, Fate]]) -> int:
    return max((at for at, (_, fate) in enumerate(announced) if fate == "in the table"), default=-1)


def describe_fates(fates: Sequence[tuple[Announcement, Fate]]) -> Iterator[str]:
    left = [file for announced, fate in fates if fate in _ABSENT for file in announced.files]
    if left:
        rows = counted(sum(each.rows for each in left), "row")
        yield f"the sink has written {counted(len(left), 'file')} with {rows} that it never committed to the table"
    for key, announced in sorted(_by_partition(fates).items()):
        for at, (end, fate) in enumerate(announced[: _last_in_table(announced)]):
            if fate == "lost":
                begin = announced[at - 1][0] if at else "its first record"
                yield (
                    f"{key[0]}-{key[1]}: the sink has lost the records from {begin} to {end}: it has committed later "
                    "files, but not those of these records; after the takeover, lakefeed backfill --range lands them"
                )


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}


# A task of the sink writes data files. Then the task announces the files in one Kafka transaction: an event per
# table, and an event with the offsets after the last records. The same transaction commits these offsets to the
# tasks' consumer group. The sink's coordinator commits the announced files to the tables later. An event consists of
# two bytes, the length and the text of an Avro schema, and a record of this schema.
_MAGIC = b"\xc2\x01"
_LENGTH = 2
_DATA_WRITTEN, _DATA_COMPLETE = 1, 2


@dataclass(frozen=True)
class AnnouncedFile:
    """A data or delete file of the table; ``partition`` and ``offset`` locate its event in the control topic."""

    location: str
    rows: int
    partition: int
    offset: int


@dataclass
class Announcement:
    """One transaction of a task.

    Attributes:
        files: the files of the requested table; none if the task had no rows for it.
        ends: by partition, the offset after the last record that the task has read.
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
