"""Writes files below a path with Spark's file sink, whose log ``_spark_metadata`` lists a batch's files exactly once.

Guarantee: exactly-once for readers that use ``_spark_metadata``, as Spark does when it reads the root path. Readers
that ignore the log, such as readers of a table over the directories, see the files of failed attempts, too. The log
knows a batch only by its id, so a path belongs to one checkpoint. A table of Spark or Hive over the directories gets
new partitions after a batch; if a crash prevents this, the next start adds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.statements import run
from lakefeed.config.sinks import FilesSinkConfig, PathSinkConfig
from lakefeed.errors import ConfigError
from lakefeed.lazy import DataFrame, SparkSession, sf, t
from lakefeed.ledger.checkpoint import Claim, StoredCheckpoint
from lakefeed.ledger.continuity import BatchLog
from lakefeed.ledger.protocol import SinkState
from lakefeed.ledger.snapshot_summary import Commit, SnapshotProperties
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.ddl import type_sql
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.base import BaseSink, note_schema
from lakefeed.sinks.definition import SinkDefinition, StoredState

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
MOST_AT_ONCE = 100


class FilesDefinition(SinkDefinition[PathSinkConfig]):
    def open(self, spark: SparkSession, claim: Claim) -> FileStreamSink:
        return FileStreamSink(spark, self.settings, claim)

    def state(self) -> SinkState:
        def newest_batch() -> int | None:
            log = StoredCheckpoint(f"{self.settings.path}/_spark_metadata", s3=self.context.connections.s3)
            stems = [name.removesuffix(".compact") for name in log.names()]
            return max((int(stem) for stem in stems if stem.isdigit()), default=None)

        return StoredState(keeps_log=True, logged=newest_batch)

    def require_columns(self, spark: SparkSession, rows: StructType) -> None:
        _require_partition_columns(self.settings, rows)

    def encoder_refusal(self, spark: SparkSession, rows: Callable[[], StructType | None]) -> str | None:
        sink, session, columns = self.settings, cast(Any, spark)._jsparkSession, rows()
        if sink.file_format != "parquet":
            return super().encoder_refusal(spark, rows)
        if columns is None:
            return None
        # The values of partition columns are in the directories' names, not in the files.
        inside = t.StructType([each for each in columns.fields if each.name not in sink.partition_by])
        refusal = jvm.java(spark).parquet.ColumnarParquet.refusal(session, inside.json(), sink.writer_options())
        return None if refusal is None else str(refusal)


class FileStreamSink(BaseSink):
    """One feed's files below a path."""

    def __init__(self, spark: SparkSession, sink: PathSinkConfig, claim: Claim) -> None:
        session: Any = spark
        self._claim = claim
        self._sink = sink
        self._files = jvm.java(spark).sink.LoggedFiles(
            session._jsparkSession, sink.path, sink.file_format, list(sink.partition_by), sink.writer_options()
        )
        hint = "name another path and another checkpoint location, which reads the source again"
        self.ledger = BatchLog(sink.path, self._newest, move_hint=f"{hint}; or land the feed in an Iceberg table")
        self._table = None
        if isinstance(sink, FilesSinkConfig) and sink.table is not None:
            # Name the database, too: the pipeline may have a view of the same name as the table.
            name = sink.table if "." in sink.table else f"default.{sink.table}"
            self._table = PartitionedTable(spark, sink, name)

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        """Store the reader's schema; files need no change, because each has its own columns, which readers merge."""
        _require_partition_columns(self._sink, rows)
        note_schema(self._claim, stored)
        if self._table is not None:
            self._table.ensure(rows)
            self._table.add(self._files.directories(-1))

    def location(self) -> str:
        return self._sink.path

    def stored_schema(self) -> StoredSchema | None:
        return None if self._claim.schema is None else StoredSchema.of_json(self._claim.schema)

    def _newest(self) -> int | None:
        newest = int(self._files.logged())
        return None if newest < 0 else newest

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Write the rows of one micro-batch and log their files; return None if the log already has the batch."""
        if not isinstance(commit, Commit):
            raise ConfigError(
                "a feed into files takes only whole batches, because its log counts batches",
                where=self._sink.path,
                hint="write the feed to an Iceberg table, or read these records with lakefeed.read_topic",
            )
        frame: Any = flat(rows) if self._sink.file_format == "csv" else rows
        written = int(self._files.add(commit.batch_id, commit_id, frame._jdf))
        if self._table is not None:
            self._table.add(self._files.directories(commit.batch_id))
        return written if written >= 0 else None


def _require_partition_columns(sink: PathSinkConfig, rows: StructType) -> None:
    missing = [name for name in sink.partition_by if name not in rows.names]
    if missing:
        raise ConfigError(
            f"partition_by names the column '{missing[0]}', which the rows do not have",
            where=f"path {sink.path}, columns {', '.join(rows.names)}",
            hint="name one of these columns, or make the column in transform.sql",
        )


class PartitionedTable:
    """A table of Spark's session catalog over the directories of a file sink."""

    def __init__(self, spark: SparkSession, sink: FilesSinkConfig, name: str) -> None:
        self._spark = spark
        self._sink = sink
        self._name = quoted(tuple(name.split(".")))
        self._namespace = name.rpartition(".")[0]
        self._known: set[str] = set()

    def ensure(self, rows: StructType) -> None:
        """Create the table for rows of this schema if it is missing, and add columns that the table lacks."""
        run(self._spark, f"CREATE DATABASE IF NOT EXISTS {quoted((self._namespace,))}")
        partitions = ", ".join(quoted((name,)) for name in self._sink.partition_by)
        partitioned_by = f"PARTITIONED BY ({partitions})" if partitions else ""
        # Readers need the writer's options, too: the first line of a CSV file, for example, may be a header.
        values, own = {"path": self._sink.path}, self._sink.writer_options()
        for at, (key, value) in enumerate(own.items()):
            values |= {f"key{at}": key, f"value{at}": value}
        options = ", ".join(f":key{at} = :value{at}" for at in range(len(own)))
        run(
            self._spark,
            f"CREATE TABLE IF NOT EXISTS {self._name} ({_columns(rows.fields)}) USING {self._sink.format} "
            f"{f'OPTIONS ({options})' if options else ''} {partitioned_by} LOCATION :path",
            values,
        )
        have = {name.lower() for name in self._spark.table(self._name).columns}
        if missing := [field for field in rows.fields if field.name.lower() not in have]:
            run(self._spark, f"ALTER TABLE {self._name} ADD COLUMNS ({_columns(missing)})")

    def add(self, directories: Iterable[Any]) -> None:
        """Add partitions to the table, such as ``zip=8001/day=2024-01-01``."""
        new = sorted({str(directory) for directory in directories} - self._known)
        for at in range(0, len(new), MOST_AT_ONCE):
            values: dict[str, str] = {}
            listed = " ".join(f"PARTITION ({_values(directory, values)})" for directory in new[at : at + MOST_AT_ONCE])
            run(self._spark, f"ALTER TABLE {self._name} ADD IF NOT EXISTS {listed}", values)
        self._known.update(new)
        self._spark.catalog.refreshTable(self._name)


def _columns(fields: Iterable[StructField]) -> str:
    return ", ".join(f"{quoted((field.name,))} {type_sql(field.dataType)}" for field in fields)


def _values(directory: str, values: dict[str, str]) -> str:
    """Return the SQL for a partition ``zip=8001/day=…``, without Spark's escapes; add the parameters to ``values``."""
    listed = []
    for name, _, value in (part.partition("=") for part in directory.split("/")):
        mark = f":value{len(values)}" if value != NULL_PARTITION else "NULL"
        if value != NULL_PARTITION:
            values[mark[1:]] = unquote(value)
        listed.append(f"{quoted((unquote(name),))} = {mark}")
    return ", ".join(listed)


def flat(rows: DataFrame) -> DataFrame:
    """Return the rows with columns that CSV can represent: nested values as JSON, bytes as base64."""
    columns = []
    for field in rows.schema.fields:
        column = sf.col(quoted((field.name,)))
        if isinstance(field.dataType, t.StructType | t.ArrayType | t.MapType):
            column = sf.to_json(column)
        elif isinstance(field.dataType, t.BinaryType):
            column = sf.base64(column)
        columns.append(column.alias(field.name))
    return rows.select(*columns)
