"""Read chosen records once, without a feed, and write them to the terminal, to files or to a table: all or nothing."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from lakefeed import Pipeline
from lakefeed.clients.iceberg.sql import quoted, quoted_table
from lakefeed.clients.kafka.scan import count_records
from lakefeed.clients.kafka.selection import Selection, offset_ranges
from lakefeed.clients.kafka.topics import Topics
from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.errors import translating
from lakefeed.clients.spark.jvm import spark_setting
from lakefeed.clients.spark.statements import run
from lakefeed.config.decoding import Accept, Decode
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.config.sources import KafkaSource
from lakefeed.config.values import Identifier
from lakefeed.errors import ConfigError, JobFailed
from lakefeed.feed.batch_writer import BatchWriter
from lakefeed.feed.row_builder import RowBuilder
from lakefeed.lazy import DataFrame, SparkSession, StructType, sf
from lakefeed.ledger.continuity import NoLedger
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.outcomes import ZERO, BatchOutcomes, Reason
from lakefeed.ledger.snapshot_summary import COMMIT_ID, SnapshotProperties
from lakefeed.offsets.ranges import OffsetRange, Partition
from lakefeed.records.decode import RecordPolicy
from lakefeed.records.decode.resolve import put_credentials, resolve_decoder
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.reader import ChangePolicy as OnChange
from lakefeed.records.schema.reader import ReaderSchema, StoredSchema
from lakefeed.records.sources import newest_per_key, read_batch
from lakefeed.sinks.base import BaseSink
from lakefeed.sinks.files import flat
from lakefeed.sinks.iceberg.table import IcebergTable


@dataclass(frozen=True)
class ReadSummary:
    """The result of one read.

    Attributes:
        whole: True if all ranges were read; False if the console had enough rows earlier, so that the counts are
            unknown.
        records: the number of records that were read; None if it is unknown.
        unreadable: the number of records that a feed would have made dead letters.
        rows: the number of rows written or shown; None if the target does not count them.
        reasons: why records are unreadable, the most frequent reason first.
    """

    target: str
    ranges: tuple[OffsetRange, ...]
    whole: bool
    records: int | None
    unreadable: int | None
    skipped: int | None
    rows: int | None
    reasons: tuple[Reason, ...]
    notes: tuple[str, ...]
    seconds: float

    @property
    def offsets(self) -> int:
        return sum(span.records for span in self.ranges)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "offsets": self.offsets, "ranges": [str(span) for span in self.ranges]}


@dataclass(frozen=True, kw_only=True)
class BatchRead:
    """The settings for reading records, with or without a pipeline; a read counts dead letters and writes none."""

    name: str
    source: KafkaSource
    decode: Decode
    policy: RecordPolicy
    on_change: OnChange = "evolve"
    accept: Accept = "same_record"
    transform: Callable[[DataFrame], DataFrame] = lambda rows: rows

    @classmethod
    def of(cls, pipeline: Pipeline) -> BatchRead:
        """Return a pipeline's settings, for a read into a target other than the pipeline's sink."""
        pipeline.require_one_table()
        feed, config = pipeline.feed, pipeline.config
        return cls(
            name=config.name,
            source=config.kafka,
            decode=config.decode,
            policy=feed.decoder.policy,
            on_change=config.schema_.on_change,
            accept=config.schema_.accept,
            transform=feed.transform,
        )

    def on_error(self, choice: Literal["fail", "skip"]) -> BatchRead:
        """Return a read that stops at an unreadable record (``fail``), or counts it and continues (``skip``)."""
        if choice == "skip":
            return replace(self, policy=replace(self.policy, on_error="dead_letter"))
        expect = tuple(
            replace(rule, on_violation="fail") if rule.on_violation == "dead_letter" else rule
            for rule in self.policy.expect
        )
        on_null = "fail" if self.policy.on_null == "dead_letter" else self.policy.on_null
        return replace(self, policy=replace(self.policy, on_error="fail", on_null=on_null, expect=expect))

    def records(self, spark: SparkSession, ranges: list[OffsetRange], *, latest: bool = False) -> DataFrame:
        """Return the undecoded records of these ranges; with ``latest`` only the newest record of each key."""
        records = read_batch(spark, self.source, ranges=ranges, headers=self.decode.reads_headers)
        return newest_per_key(records) if latest else records

    def to(self, target: Target, selection: Selection, *, spark: SparkSession, latest: bool = False) -> ReadSummary:
        """Read the chosen records into a target, with ``latest`` only the newest record of each key."""
        started = time.monotonic()
        ranges = offset_ranges(self.source, selection)
        with translating():
            records = self.records(spark, ranges, latest=latest)
            writer = self._writer(spark, target).begin(records, fenced=False)
            committed = writer.commit_rows(records, _NoProperties())
        outcomes = committed.outcomes
        whole = not isinstance(target, ConsoleResult) or target.is_whole
        if whole and not latest:
            self._require_all(ranges, outcomes)
        counts = outcomes.counts if whole else None
        return ReadSummary(
            target=target.where,
            ranges=tuple(ranges),
            whole=whole,
            records=counts.records if counts else None,
            unreadable=counts.dead_letters if counts else None,
            skipped=counts.skipped if counts else None,
            rows=committed.rows,
            reasons=tuple(outcomes.reasons),
            notes=writer.rows.notes(),
            seconds=round(time.monotonic() - started, 3),
        )

    def _writer(self, spark: SparkSession, target: Target) -> BatchWriter:
        put_credentials(spark, self.decode)
        decoder = resolve_decoder(spark, self.decode, self.source, accept=self.accept)
        # The read must not stop where the schema changes, because old records may have another schema.
        on_change = "ignore" if self.on_change == "fail" else self.on_change
        rows = RowBuilder(
            schema=ReaderSchema(decoder, policy=on_change, keeper=target),
            policy=self.policy,
            keep=tuple(self.decode.metadata),
            transform=self.transform,
        )
        return BatchWriter.of_rows(spark, rows, target, feed=self.name)

    def _require_all(self, ranges: list[OffsetRange], outcomes: BatchOutcomes) -> None:
        """Raise a JobFailed if the broker has more records in the ranges than were read.

        Transactions and compaction leave offsets without records, so a partition with fewer records than offsets is
        counted again on the broker. A compacted topic is not counted, because it may lose records during the read.
        """
        spans: dict[Partition, list[OffsetRange]] = defaultdict(list)
        for span in ranges:
            spans[span.topic, span.partition].append(span)
        read = {key: outcomes.by_partition.get(key, ZERO).records for key in spans}
        fewer = {key: here for key, here in spans.items() if read[key] < sum(span.records for span in here)}
        cluster = Topics(self.source.bootstrap_servers, options=self.source.client_options)
        topics = {name: cluster.describe(name) for name in sorted({name for name, _ in fewer})}
        compacted = {name for name in topics if "compact" in (cluster.setting(name, "cleanup.policy") or "")}
        fewer = {key: here for key, here in fewer.items() if key[0] not in compacted}
        held = count_records(self.source, [span for here in fewer.values() for span in here], topics=topics)
        for key, here in sorted(fewer.items()):
            there = sum(held[span] or 0 for span in here)
            if there > read[key]:
                raise JobFailed(
                    f"only {read[key]:,} of {there:,} records of partition {key[1]} were read",
                    where=", ".join(str(span) for span in here),
                    hint="read the records again; if the error stays, report it as a defect",
                )


class _NoProperties:
    """The properties of a commit that belongs to no feed: none."""

    def properties(self) -> dict[str, str]:
        return {}


FileFormat = Literal["parquet", "csv", "json"]
PROTOCOL = ("spark.sql.sources.commitProtocolClass", "io.lakefeed.inspect.CheckedExport")
FORMATS = {"parquet": "io.lakefeed.parquet.ColumnarParquet"}
TABLE = re.compile(rf"{Identifier}(\.{Identifier}){{2,}}")
POSITION = "lakefeed.position."
FEED_LOG = "_spark_metadata"


class Target(BaseSink, ABC):
    """A sink for the rows of one read; ``where`` is its location for users."""

    where: str
    ledger = NoLedger("the rows of one read")

    def stored_schema(self) -> StoredSchema | None:
        return None

    def apply_schema(
        self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()
    ) -> None: ...

    @abstractmethod
    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None: ...


class ConsoleResult(Target):
    """Collects rows for the terminal in the driver: at most ``limit`` rows, or all rows if ``limit`` is None.

    With ``as_json``, a row is a JSON object as text, in the column ``row``; otherwise a row has its columns as texts.
    ``is_whole`` is False if there are more rows than ``limit``, so that not all records were read.
    """

    where = "stdout"

    def __init__(self, *, limit: int | None, as_json: bool) -> None:
        self._limit = limit
        self._as_json = as_json
        self.columns: list[str] = []
        self.rows: list[tuple[str | None, ...]] = []
        self.is_whole = True

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        if self._as_json:
            shown = rows.select(sf.to_json(sf.struct("*"), {"ignoreNullFields": "false"}).alias("row"))
        else:
            shown = flat(rows).select(*(sf.col(quoted((name,))).cast("string") for name in rows.columns))
        if self._limit is not None:
            shown = shown.limit(self._limit + 1)
        collected = [tuple(row) for row in shown.collect()]
        jvm.java(rows.sparkSession).commit.Outcomes.of(commit_id).check()
        self.is_whole = self._limit is None or len(collected) <= self._limit
        self.columns, self.rows = shown.columns, collected[: self._limit]
        return len(self.rows)


class Files(Target):
    """Writes files below a path, local or ``s3a://``, in one job; ``append`` allows a path that already has files.

    CSV files have a header; ``flat`` converts columns that CSV cannot represent.
    """

    def __init__(self, spark: SparkSession, path: str, *, file_format: FileFormat, append: bool) -> None:
        self.where = re.sub(r"^s3://", "s3a://", path)
        self._format = file_format
        java: Any = spark._jvm
        root = java.org.apache.hadoop.fs.Path(self.where)
        files = root.getFileSystem(spark._jsc.hadoopConfiguration())
        names = [status.getPath().getName() for status in files.listStatus(root)] if files.exists(root) else []
        if FEED_LOG in names:
            raise ConfigError(
                "the path belongs to a feed: Spark would ignore other files there, but other readers would read them",
                where=self.where,
                hint="name another path",
            )
        if names and not append:
            raise _exists("path", self.where)

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        from pyspark.sql import Observation

        counted = Observation()
        with spark_setting(rows.sparkSession, *PROTOCOL):
            observed = rows.observe(counted, sf.count(sf.lit(1)).alias("rows"))
            name = FORMATS.get(self._format, self._format)
            writer = (flat(observed) if self._format == "csv" else observed).write.mode("append").format(name)
            if self._format == "csv":
                writer = writer.option("header", "true")
            writer.option(COMMIT_ID, commit_id).save(self.where)
        return int(counted.get["rows"])


class PlainTable(Target):
    """Writes an Iceberg table that belongs to no feed, in one commit.

    ``append`` allows a table that already has rows; the table's columns then do not change.
    """

    def __init__(self, spark: SparkSession, name: str, *, append: bool) -> None:
        self._spark = spark
        self.where = name
        self._is_new = not spark.catalog.tableExists(name)
        properties = {} if self._is_new else IcebergLedger(spark, name, "").properties()
        if feeds := [key.removeprefix(POSITION) for key in properties if key.startswith(POSITION)]:
            raise ConfigError(
                f"the table belongs to the feed {feeds[0]}, whose ledger would not have these rows",
                where=name,
                hint="add old records to a feed's table by lakefeed backfill; or name another table",
            )
        has_rows = not self._is_new and not spark.table(name).isEmpty()
        if has_rows and not append:
            raise _exists("table", name)
        self._table = IcebergTable(spark, IcebergSinkConfig(table=name), feed="", evolves=not has_rows)

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        try:
            self._table.apply_schema(rows.schema)
            return self._table.land(rows, commit, commit_id=commit_id)
        except Exception:
            if self._is_new:
                run(self._spark, f"DROP TABLE IF EXISTS {quoted_table(self.where)} PURGE")
            raise


def _exists(kind: str, name: str) -> ConfigError:
    hint = f"add the rows by --append; or name another {kind}"
    return ConfigError(f"the {kind} is not empty", where=name, hint=hint)
