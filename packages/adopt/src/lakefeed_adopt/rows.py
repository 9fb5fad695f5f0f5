"""Compare another tool's offsets with the table's commits, and with the rows' own offsets if the rows have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lakefeed.clients.kafka.scan import count_records
from lakefeed.clients.kafka.topics import TopicDescription, partitions_of
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import CheckpointMismatch, ConfigError
from lakefeed.offsets.ranges import OffsetRange, Partition
from lakefeed.operations.verify.row_offsets import OFFSET, PARTITION, TOPIC, database, load, load_positions
from lakefeed_adopt.position import OtherPosition

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

MOST_SHOWN = 5
QUERY, EPOCH = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"
"""Keys in the summaries of snapshots that Iceberg's streaming sink has committed."""

_SPANS = """
SELECT p.topic, p.part, count(*), min(position), max(position),
       count(DISTINCT position) FILTER (position >= r.first AND position < r.last),
       count(*) FILTER (position >= r.first AND position < r.last), count(*) FILTER (position >= r.last)
FROM positions p JOIN reached r ON p.topic = r.topic AND p.part = r.part
GROUP BY p.topic, p.part
"""


@dataclass(frozen=True)
class RowColumns:
    """A table's columns for topic, partition and offset, whose names may differ from lakefeed's."""

    table: Table
    names: Mapping[str, str]
    """The table's column names by lakefeed's names; the topic may be missing if all rows are from one topic."""

    @classmethod
    def of(cls, table: Table, given: str | None) -> RowColumns | None:
        """Find the columns of ``--offset-columns``, or else lakefeed's own; return None if the table has none of them.

        Raises:
            ConfigError: the table lacks a column of ``--offset-columns``.
        """
        have = table.schema().column_names
        if given is None:
            names = {name: name for name in (TOPIC, PARTITION, OFFSET) if name in have}
            return cls(table, names) if PARTITION in names and OFFSET in names else None
        listed = [name.strip() for name in given.split(",")]
        missing = [name for name in listed if name not in have]
        if missing or len(listed) not in (2, 3):
            what = (
                f"the table has no column {missing[0]}" if missing else f"'{given}' does not name two or three columns"
            )
            hint = "name the columns for topic, partition and offset, as in --offset-columns topic,partition,offset"
            raise ConfigError(what, where="--offset-columns", hint=hint)
        return cls(table, dict(zip((TOPIC, PARTITION, OFFSET)[-len(listed) :], listed, strict=True)))

    @property
    def columns(self) -> set[str]:
        return set(self.names)

    @property
    def where(self) -> str:
        return ".".join(self.table.name())

    def read(self, columns: Sequence[str]) -> Any:
        """Return an Arrow record batch reader of these columns, renamed to lakefeed's names."""
        import pyarrow as pa

        selected = [self.names[name] for name in columns]
        reader = self.table.scan(selected_fields=tuple(selected)).to_arrow_batch_reader()
        batches = (batch.select(selected).rename_columns(list(columns)) for batch in reader)
        first = next(batches, None)
        if first is None:
            empty = pa.schema([(name, pa.string() if name == TOPIC else pa.int64()) for name in columns])
            return pa.RecordBatchReader.from_batches(empty, [])

        def all_batches() -> Iterator[Any]:
            yield first
            yield from batches

        return pa.RecordBatchReader.from_batches(first.schema, all_batches())


def is_batch_committed(position: OtherPosition, line: Sequence[Snapshot]) -> bool | None:
    """Return True if the table has the tool's last batch; None if Iceberg's streaming sink did not write the table.

    Raises:
        CheckpointMismatch: the table lacks batches that the checkpoint marks as written, or has later ones.
    """
    if position.query_id is None or position.batch_id is None:
        return None
    summaries = (snapshot.summary.additional_properties for snapshot in reversed(line) if snapshot.summary is not None)
    epochs = (int(summary[EPOCH]) for summary in summaries if summary.get(QUERY) == position.query_id)
    newest = next(epochs, None)
    if newest is None:
        return None
    if position.open_batch is None and newest == position.batch_id:
        return True
    if position.open_batch is not None and newest in (position.batch_id, position.batch_id - 1):
        return newest == position.batch_id
    raise CheckpointMismatch(
        f"the checkpoint is at batch {position.batch_id}, but the table has the job's batches up to {newest}",
        where=position.place,
        hint="restore the checkpoint or the table, whichever was rolled back or lost",
    )


def resolve_open_batch(
    position: OtherPosition,
    committed: bool | None,
    columns: RowColumns | None,
    topics: Mapping[str, TopicDescription | None],
    source: KafkaSource,
) -> OtherPosition:
    """Return the position after the open batch if the table has the batch's rows, else the position before the batch.

    Raises:
        CheckpointMismatch: the table has only some of the rows, or does not show whether it has them.
    """
    if position.open_batch is None:
        return position
    end, batch = position.open_batch, f"batch {position.batch_id}"
    if committed is None and columns is not None:
        firsts = {key: part.start_offset for key, part in partitions_of(topics).items()}
        begins = {**firsts, **position.offsets}
        planned = [OffsetRange(*key, min(begins.get(key, 0), at), at) for key, at in end.items()]
        committed = _has_rows(batch, [span for span in planned if span.records], columns, topics, source)
    if committed is None:
        raise CheckpointMismatch(
            f"the job has planned {batch} but not marked it as done, and it is unknown whether the table has the "
            "rows of this batch",
            where=position.place,
            hint="start the job once more until it has completed a batch, and stop it between two batches; or name the "
            "table's columns for topic, partition and offset: --offset-columns topic,partition,offset",
        )
    note = f"the job has not marked {batch} as done; the table has {'' if committed else 'none of '}its rows"
    offsets = end if committed else position.offsets
    return replace(position, offsets=offsets, open_batch=None, notes=(*position.notes, note))


def _has_rows(
    batch: str,
    planned: Sequence[OffsetRange],
    columns: RowColumns,
    topics: Mapping[str, TopicDescription | None],
    source: KafkaSource,
) -> bool:
    """Return True if the table has the rows of a batch, False if it has none; refuse a table with some of the rows."""
    found = _row_spans(columns, planned)
    there = {span: found[span.key].offsets if span.key in found else 0 for span in planned}
    if not any(there.values()):
        return False
    described = {name: topic for name, topic in topics.items() if topic is not None}
    # Let the broker count the records, because transactions and compaction leave offsets without a record.
    counts = count_records(source, [span for span in planned if there[span] < span.records], topics=described)
    for span, rows in there.items():
        held = span.records if rows == span.records else counts.get(span)
        if rows != held:
            raise CheckpointMismatch(
                f"the table has only a part of the job's {batch}: {rows:,} of "
                f"{span.records if held is None else held:,} records of {span.topic}-{span.partition}, "
                f"[{span.start}, {span.end})",
                where=columns.where,
                hint="start the job once more, so that the job completes the batch; or delete these rows",
            )
    return True


def behind_rows(
    columns: RowColumns, offsets: Mapping[Partition, int], topics: Mapping[str, TopicDescription | None]
) -> dict[Partition, int]:
    """Return the offset after each partition's last row; without a row, the offset of the partition's first record."""
    there = partitions_of(topics)
    found = _row_spans(columns, [OffsetRange(*key, 0, 0) for key in offsets])
    return {key: found[key].last + 1 if key in found else there[key].start_offset for key in offsets}


@dataclass(frozen=True)
class _RowSpan:
    """The rows of one partition: their number, and their lowest and highest offset.

    Attributes:
        offsets: the number of different offsets within the requested range.
        rows_within: the number of rows within the requested range.
        beyond: the number of rows at or after the end of the requested range.
    """

    rows: int
    first: int
    last: int
    offsets: int
    rows_within: int
    beyond: int


def _row_spans(columns: RowColumns, ranges: Sequence[OffsetRange]) -> dict[Partition, _RowSpan]:
    """Summarize the rows' offsets by partition; ``ranges`` has the requested range of each partition.

    Reads three columns, and spills to disk.
    """
    if not ranges:
        return {}
    with database() as connection:
        load_positions(connection, columns, sorted({span.topic for span in ranges}))
        bounds = [(span.topic, span.partition, span.start, span.end) for span in ranges]
        load(connection, "reached", ("first", "last"), bounds)
        return {(topic, part): _RowSpan(*counts) for topic, part, *counts in connection.execute(_SPANS).fetchall()}


@dataclass(frozen=True)
class RowCheck:
    """The result of comparing another tool's offsets with the rows' own offsets.

    Attributes:
        rows: the number of rows per partition; empty if the rows have no offsets.
        faults: the reasons why the feed must not begin at these offsets.
        notes: sentences that the user should read.
    """

    rows: Mapping[Partition, int]
    faults: tuple[str, ...]
    notes: tuple[str, ...]


def check_rows(
    columns: RowColumns,
    offsets: Mapping[Partition, int],
    topics: Mapping[str, TopicDescription | None],
    source: KafkaSource,
) -> RowCheck:
    """Check that the table has every record below the other tool's offsets, and no record at or beyond them.

    Records that retention has removed may be missing, and records before a partition's first row. The broker counts
    records only where the table has fewer rows than offsets.
    """
    there = partitions_of(topics)
    starts = {key: min(there[key].start_offset if key in there else 0, at) for key, at in offsets.items()}
    found = _row_spans(columns, [OffsetRange(*key, starts[key], at) for key, at in offsets.items()])
    faults: list[str] = []
    notes: list[str] = []
    sparse: dict[OffsetRange, int] = {}
    for key, rows in sorted(found.items()):
        name, at = f"{key[0]}-{key[1]}", offsets[key]
        if rows.beyond:
            faults.append(f"{name}: {rows.beyond:,} rows are at or beyond {at}, up to offset {rows.last}")
        if rows.rows_within > rows.offsets:
            notes.append(f"{name}: {rows.rows_within - rows.offsets:,} offsets have more than one row")
        span = OffsetRange(*key, min(max(rows.first, starts[key]), at), at)
        if rows.offsets < span.records:
            sparse[span] = rows.offsets
        if rows.first > starts[key]:
            notes.append(f"{name}: the first row has the offset {rows.first}, the topic begins at {starts[key]}")
    described = {name: topic for name, topic in topics.items() if topic is not None}
    counts = count_records(source, list(sparse), topics=described) if sparse else {}
    for span, count in sorted(sparse.items()):
        name, held = f"{span.topic}-{span.partition}", counts.get(span)
        if held is None:
            notes.append(f"{name}: {span.records - count:,} offsets have no row, and their records cannot be counted")
        elif held > count:
            faults.append(f"{name}: {held - count:,} of {held:,} records in [{span.start}, {span.end}) have no row")
    for key, at in sorted(offsets.items()):
        if key not in found and at > starts[key]:
            notes.append(f"{key[0]}-{key[1]}: the table has no row of this partition")
    return RowCheck({key: rows.rows for key, rows in found.items()}, tuple(faults), tuple(notes))
