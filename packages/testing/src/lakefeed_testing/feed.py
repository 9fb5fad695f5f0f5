"""The feed of a case: the pipeline's feed that reads the case's records and writes to local tables."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, reduce
from operator import or_
from pathlib import Path
from typing import Any, TypeVar

from lakefeed.config.blocks import PipelineBlocks, SinkChoice
from lakefeed.config.connections import Registry
from lakefeed.config.decoding import DeadLetters, Decode, Encoded
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.config.models import PipelineConfig
from lakefeed.config.transform import StaticTable, Transform
from lakefeed.config.upserts import kept_metadata
from lakefeed.config.values import AVAILABLE_NOW
from lakefeed.errors import ConfigError
from lakefeed.feed.feed import Feed, FeedSource
from lakefeed.lazy import DataFrame, SparkSession, sf
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition
from lakefeed.records.sources import BAD_TIMESTAMP
from lakefeed_testing.settings import CaseRecord, CaseTable

AnyEncoded = TypeVar("AnyEncoded", bound=Encoded)


@dataclass(frozen=True)
class CaseSource(FeedSource):
    """Reads a case's records instead of topics."""

    records: RecordFiles

    def read_stream(
        self,
        spark: SparkSession,
        *,
        starting: Mapping[str, Mapping[int, int]] | None = None,
        marks: Mapping[Partition, str] | None = None,
        gather: bool = True,
        bounded: bool = True,
    ) -> DataFrame:
        return self._marked(self._completed(self.records.read_stream(spark, headers=self.reads_headers)))

    def read_case(self, spark: SparkSession, batch_id: int) -> DataFrame:
        return self._completed(self.records.read_batch(spark, batch_id, headers=self.keeps_headers))

    def reread(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        return self._completed(self.records.reread(spark, ranges, headers=self.keeps_headers))

    def reread_with_headers(self, spark: SparkSession, spans: Sequence[OffsetRange], of: OffsetRanges) -> DataFrame:
        return self._completed(self.records.reread(spark, spans, headers=True))

    def _marked(self, records: DataFrame) -> DataFrame:
        return self._mark_duplicates(records) if self.config.source.kafka is not None else records

    def _completed(self, records: DataFrame) -> DataFrame:
        if self.config.source.installed is None:
            return records
        return records.withColumn("sequence_number", sf.col("offset").cast("string"))


@dataclass(frozen=True, kw_only=True, eq=False)
class CaseFeed(Feed):
    records: RecordFiles = field(repr=False)

    @cached_property
    def source(self) -> CaseSource:
        return CaseSource(self.config, self.connections, self.records)


@dataclass(frozen=True, kw_only=True)
class CasePlaces:
    """Tables, folder and registry that one case uses instead of the pipeline's servers.

    Attributes:
        namespace: the catalog and the namespace of the case's tables.
        folder: the folder of the checkpoint, and of the rows of static tables.
        registry: the URL of the schema registry.
    """

    namespace: str
    folder: Path
    registry: str

    @property
    def table(self) -> str:
        return f"{self.namespace}.rows"

    @property
    def history(self) -> str:
        return f"{self.namespace}.history"

    @property
    def dead_letters(self) -> str:
        return f"{self.namespace}.dead_letters"


def config_of_case(config: PipelineConfig, places: CasePlaces, tables: Mapping[str, CaseTable]) -> PipelineConfig:
    """Return the pipeline with the case's tables and registry; settings that decide a record's rows do not change."""
    budget = config.dead_letters.budget if config.dead_letters is not None else None
    letters = None if config.dead_letters is None else DeadLetters(table=places.dead_letters, budget=budget)
    return config.model_copy(
        update={
            "decode": _decode(config, places.registry),
            "transform": _transform(config.transform, tables, places.folder),
            "sink": table_in_place(config, table=places.table, history=places.history),
            "sinks": {},
            "dead_letters": letters,
            "checkpoint": f"file:{places.folder}/checkpoint",
            "trigger": AVAILABLE_NOW,
            "fast_path": "off",
            "budget": None,
        }
    )


def _decode(config: PipelineConfig, registry: str) -> Decode:
    key = None if config.decode.key is None else _with_registry(config.decode.key, registry)
    # Add the metadata columns of the pipeline's own sink, because a case's table may need fewer.
    own = {"key": key, "metadata": list(kept_metadata(config))}
    return _with_registry(config.decode, registry).model_copy(update=own)


def _with_registry(encoded: AnyEncoded, address: str) -> AnyEncoded:
    registered = encoded.registered
    if registered is None or registered.registry is None:
        return encoded
    return encoded.model_copy(update={encoded.kind: registered.model_copy(update={"registry": Registry(url=address)})})


def _transform(transform: Transform | None, tables: Mapping[str, CaseTable], folder: Path) -> Transform | None:
    given = transform.tables if transform is not None else {}
    if unknown := next((name for name in tables if name not in given), None):
        raise ConfigError(
            f"tests.tables has rows of {unknown}, and transform.tables has no such table",
            where=f"tests.tables.{unknown}",
            hint=f"transform.tables has {', '.join(given) or 'no tables'}",
        )
    if transform is None or not given:
        return transform
    found = {name: _static(name, table, tables.get(name), folder) for name, table in given.items()}
    return transform.model_copy(update={"tables": found})


def _static(name: str, table: StaticTable, rows: CaseTable | None, folder: Path) -> StaticTable:
    if rows is not None:
        file = folder / "tables" / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        lines: list[dict[str, Any]] = rows.rows
        file.write_text("".join(f"{json.dumps(line, default=str)}\n" for line in lines), "utf-8")
        return StaticTable(format="json", path=str(file), schema_ddl=rows.schema_ddl, options={"mode": "FAILFAST"})
    if table.path is not None and "://" not in table.path:
        return table
    raise ConfigError(
        f"the transform joins with {name}, and the tests have no rows for this table",
        where=f"transform.tables.{name}",
        hint=f"write tests: {{tables: {{{name}: {{schema_ddl: …, rows: […]}}}}}}",
    )


SENT_AT = datetime(2026, 1, 1, tzinfo=UTC)
"""The default timestamp of a case's records; it is constant, so that results are repeatable."""
LATEST = (2**63 - 1) // 1000
NO_TIMESTAMP = -1
FILE_COLUMNS = (
    "key STRING, value STRING, topic STRING, partition INT, offset BIGINT, millis BIGINT, bad_timestamp BIGINT, "
    "headers ARRAY<STRUCT<key: STRING, value: STRING>>"
)
FIRST_FILE_TIME = 1_700_000_000


@dataclass(frozen=True, kw_only=True)
class PlacedRecord:
    """A record with its topic, partition and offset. ``millis`` is its timestamp, and ``batch`` counts from 1."""

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
    """Assign topic, partition and offset to a case's records; ``topic`` is the default topic, if there is one.

    Raises:
        ConfigError: a record has no topic, or its offset is not above the earlier offsets of its partition.
    """
    placed, ends, batch = [], dict[Partition, int](), 1
    for number, (record, value, key) in enumerate(zip(given, values, keys, strict=True)):
        batch = record.batch or batch
        name = record.topic or topic
        if name is None:
            what = f"records[{number}] has no topic, and the source names only a pattern"
            raise ConfigError(what, where=where, hint="add topic: NAME to the record")
        end = ends.get((name, record.partition), 0)
        offset = end if record.offset is None else record.offset
        if offset < end:
            what = f"records[{number}] has the offset {offset}, and the next offset of its partition is {end}"
            raise ConfigError(what, where=where, hint=f"leave the offset out, or set {end} or more")
        ends[name, record.partition] = offset + 1
        placed.append(
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
    return placed


def _millis(timestamp: datetime | int | None) -> int:
    if isinstance(timestamp, int):
        return timestamp
    time = SENT_AT if timestamp is None else timestamp
    known = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return round(known.timestamp() * 1000)


class RecordFiles:
    """Writes the records of one feed into files, one file per batch; Spark's file source reads them in order."""

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
            # Spark's file source reads files in the order of their modification times.
            os.utime(file, (FIRST_FILE_TIME + at, FIRST_FILE_TIME + at))

    def ranges(self, batch_id: int) -> OffsetRanges:
        """Return the offset ranges of a batch, whose id counts from 0; after the last batch, the ranges are empty.

        Spark then runs a further batch that only moves the watermark.
        """
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
        """Read all batches as a stream, one file per micro-batch."""
        reader = spark.readStream.schema(FILE_COLUMNS).option("maxFilesPerTrigger", 1)
        return _as_source(reader.json(str(self._folder)), headers=headers)

    def read_batch(self, spark: SparkSession, batch_id: int, *, headers: bool) -> DataFrame:
        return _as_source(spark.read.schema(FILE_COLUMNS).json(str(self._file(batch_id))), headers=headers)

    def reread(self, spark: SparkSession, spans: Sequence[OffsetRange], *, headers: bool) -> DataFrame:
        """Read the records of these offset ranges again."""
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
    """Return the records of files with the columns of the Kafka source (``records.sources.read_stream``)."""
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


KEPT = ("mode", "keys", "order_by", "delete", "on_delete")
"""The settings of a sink that decide which rows are in the table."""


def table_in_place(config: PipelineBlocks, *, table: str, history: str) -> SinkChoice:
    """Return the pipeline with these table names, and with an Iceberg sink in place of any other sink."""
    # Skip validation: the file is valid, and other table names cannot break its rules.
    return SinkChoice.model_construct(iceberg=_iceberg(config, table, history))


def _iceberg(config: PipelineBlocks, table: str, history: str) -> IcebergSinkConfig:
    own = config.sink.iceberg
    if own is not None:
        names: dict[str, Any] = {"table": table, "history": None if own.history is None else history, "properties": {}}
        # Leave out branch and publish: a case tests rows, and not when readers see them.
        names |= {"branch": None, "publish": None}
        return own.model_copy(update=names).with_names_made(())
    chosen = config.sink.chosen
    kept: dict[str, Any] = {name: getattr(chosen, name) for name in KEPT if name in chosen.model_fields_set}
    if config.output_mode == "complete":
        kept = {"mode": "overwrite"}
    elif config.output_mode == "update":
        # Without keys, the table gets a row for each change of a group.
        keys = list(getattr(chosen, "keys", ()))
        kept = {"mode": "upsert", "keys": keys} if keys else {}
    return IcebergSinkConfig(table=table).model_copy(update=kept)
