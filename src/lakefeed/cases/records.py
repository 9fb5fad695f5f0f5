"""The records of one case as the feed's source gives them: placed in partitions and batches, and read with Spark."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from lakefeed.config.cases import CaseRecord
from lakefeed.errors import ConfigError
from lakefeed.lazy import DataFrame, SparkSession, sf
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition
from lakefeed.records.sources.kafka import BAD_TIMESTAMP

SENT_AT = datetime(2026, 1, 1, tzinfo=UTC)
"""The timestamp of records that have none of their own: the same in each run."""
LATEST = (2**63 - 1) // 1000
NO_TIMESTAMP = -1
FILE_COLUMNS = (
    "key STRING, value STRING, topic STRING, partition INT, offset BIGINT, millis BIGINT, bad_timestamp BIGINT, "
    "headers ARRAY<STRUCT<key: STRING, value: STRING>>"
)
FIRST_FILE_TIME = 1_700_000_000


@dataclass(frozen=True, kw_only=True)
class PlacedRecord:
    """A record at its place; ``millis`` is its timestamp, and ``batch`` is counted from 1."""

    topic: str
    partition: int
    offset: int
    millis: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    batch: int

    @property
    def key_of_partition(self) -> Partition:
        return self.topic, self.partition


def place(
    given: Sequence[CaseRecord],
    *,
    topic: str | None,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None],
    where: str,
) -> list[PlacedRecord]:
    """Place the records of a case; ``topic`` is that of records which name none, if there is one.

    Raises:
        ConfigError: a record has no topic, or an offset that is not above those before it.
    """
    found, ends, batch = [], dict[Partition, int](), 1
    for number, (record, value, key) in enumerate(zip(given, values, keys, strict=True)):
        batch = record.batch or batch
        name = record.topic or topic
        if name is None:
            raise ConfigError(
                f"records[{number}] names no topic, and the source is a pattern", where=where, hint="topic: …"
            )
        end = ends.get((name, record.partition), 0)
        offset = end if record.offset is None else record.offset
        if offset < end:
            what = f"records[{number}] has the offset {offset}, and the next of its partition is {end}"
            raise ConfigError(what, where=where)
        ends[name, record.partition] = offset + 1
        found.append(
            PlacedRecord(
                topic=name,
                partition=record.partition,
                offset=offset,
                millis=_millis(record.timestamp),
                key=key,
                value=value,
                headers=tuple((each, None if text is None else text.encode()) for each, text in record.headers.items()),
                batch=batch,
            )
        )
    return found


def _millis(timestamp: datetime | int | None) -> int:
    if isinstance(timestamp, int):
        return timestamp
    time = SENT_AT if timestamp is None else timestamp
    known = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return round(known.timestamp() * 1000)


class RecordFiles:
    """The records of one feed in files that Spark reads, one for each batch.

    Spark's file source then makes a micro-batch of each, in their order.
    """

    def __init__(self, folder: Path, records: Iterable[PlacedRecord]) -> None:
        self._folder = folder
        self.batches: list[list[PlacedRecord]] = []
        by_batch: dict[int, list[PlacedRecord]] = {}
        for record in records:
            by_batch.setdefault(record.batch, []).append(record)
        folder.mkdir(parents=True)
        for at, batch in enumerate(sorted(by_batch)):
            self.batches.append(by_batch[batch])
            file = self._file(at)
            file.write_text("".join(f"{json.dumps(_document(record))}\n" for record in by_batch[batch]), "utf-8")
            # Spark orders files by this time.
            os.utime(file, (FIRST_FILE_TIME + at, FIRST_FILE_TIME + at))

    def ranges(self, batch_id: int) -> OffsetRanges:
        """Return the offset ranges of a batch, from 0; a batch after the last one moves the watermark alone."""
        starts: dict[Partition, int] = {}
        ends: dict[Partition, int] = {}
        for at, batch in enumerate(self.batches):
            for record in batch:
                key = record.key_of_partition
                starts.setdefault(key, record.offset)
                ends.setdefault(key, record.offset)
                if at < batch_id:
                    starts[key] = record.offset + 1
                if at <= batch_id:
                    ends[key] = record.offset + 1
        return OffsetRanges.between(starts, ends)

    def read_stream(self, spark: SparkSession, *, headers: bool) -> DataFrame:
        """Read all batches as a stream, one file at a time."""
        reader = spark.readStream.schema(FILE_COLUMNS).option("maxFilesPerTrigger", 1)
        return _as_source(reader.json(str(self._folder)), headers=headers)

    def read_batch(self, spark: SparkSession, batch_id: int, *, headers: bool) -> DataFrame:
        """Read the records of one batch, from 0."""
        return _as_source(spark.read.schema(FILE_COLUMNS).json(str(self._file(batch_id))), headers=headers)

    def reread(self, spark: SparkSession, spans: Sequence[OffsetRange], *, headers: bool) -> DataFrame:
        """Read the records of these offsets again."""
        chosen = [
            (sf.col("topic") == span.topic)
            & (sf.col("partition") == span.partition)
            & sf.col("offset").between(span.start, span.end - 1)
            for span in spans
        ]
        records = spark.read.schema(FILE_COLUMNS).json(str(self._folder))
        return _as_source(records.filter(reduce(or_, chosen, sf.lit(False))), headers=headers)

    def _file(self, batch_id: int) -> Path:
        return self._folder / f"batch-{batch_id:06}.json"


def _document(record: PlacedRecord) -> dict[str, Any]:
    fits = abs(record.millis) <= LATEST
    return {
        "key": _text(record.key),
        "value": _text(record.value),
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "millis": record.millis if fits and record.millis != NO_TIMESTAMP else None,
        BAD_TIMESTAMP: None if fits else record.millis,
        "headers": [{"key": name, "value": _text(value)} for name, value in record.headers] or None,
    }


def _text(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _as_source(files: DataFrame, *, headers: bool) -> DataFrame:
    """Return the columns of the Kafka source: see ``lakefeed.records.sources.kafka.read_stream``."""
    columns = [
        sf.unbase64("key").alias("key"),
        sf.unbase64("value").alias("value"),
        *(sf.col(name) for name in ("topic", "partition", "offset")),
        sf.timestamp_millis("millis").alias("timestamp"),
        sf.lit(0).alias("timestampType"),
        sf.col(BAD_TIMESTAMP),
    ]
    if headers:
        bytes_of = sf.transform(
            "headers", lambda header: sf.struct(header["key"].alias("key"), sf.unbase64(header["value"]).alias("value"))
        )
        columns.append(bytes_of.alias("headers"))
    return files.select(*columns)
