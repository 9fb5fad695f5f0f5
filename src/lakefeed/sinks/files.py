"""Files below a path: Spark's own file sink, whose log ``_spark_metadata`` lists each batch's files exactly once.

Guarantee: exactly-once for readers that honour ``_spark_metadata``, that is Spark reading the root path. Others
see the files of failed attempts too. The log is keyed by batch id alone, so a path belongs to one checkpoint. A table
of Spark's or Hive's over the directories gets new partitions after each batch, and at each start those that a crash
has kept from it; its readers see what lies in the directories.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.clients.spark import jvm
from lakefeed.config.connections import Connections
from lakefeed.config.file_sinks import FilesSinkConfig, PathSinkConfig
from lakefeed.errors import ConfigError
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.checkpoint_store import StoredCheckpoint
from lakefeed.ledger.protocol import SinkState
from lakefeed.ledger.snapshot_summary import Commit, SnapshotProperties
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.ddl import type_sql
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.base import BaseSink
from lakefeed.sinks.definition import SinkDefinition, StoredState
from lakefeed.sinks.export import flat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
MOST_AT_ONCE = 100


class FilesDefinition(SinkDefinition[PathSinkConfig]):
    """Files below a path, listed by batch id in ``_spark_metadata``."""

    def open(self, spark: SparkSession, claim: Claim) -> FileStreamSink:
        """Open the log of the files."""
        return FileStreamSink(spark, self.settings, claim)

    def state(self) -> SinkState:
        """Read the newest batch in the log."""
        path, connections = self.settings.path, self.context.connections
        return StoredState(keeps_log=True, read_log=lambda: newest_batch(path, connections))

    def require_columns(self, spark: SparkSession, rows: StructType) -> None:
        """Refuse rows without a column that becomes directories."""
        check_partition_columns(self.settings, rows)


def newest_batch(path: str, connections: Connections) -> int | None:
    """Return the newest batch in the log of a path, read without Spark; None if it is empty.

    Args:
        path: of the sink.
        connections: store and catalogs.
    """
    names = StoredCheckpoint(f"{path}/_spark_metadata", s3=connections.s3).names()
    batches = [int(stem) for name in names if (stem := name.removesuffix(".compact")).isdigit()]
    return max(batches, default=None)


class FileStreamSink(BaseSink):
    """One feed's files below a path.

    Args:
        spark: the session.
        sink: its block in the pipeline file.
        claim: the feed's checkpoint, where the schema is noted.
    """

    keeps_ledger = False
    keeps_log = True

    def __init__(self, spark: SparkSession, sink: PathSinkConfig, claim: Claim) -> None:
        session: Any = spark
        self._sink = sink
        self._claim = claim
        self._spark = spark
        self._format = sink.file_format
        self._files = jvm.java(spark).sink.LoggedFiles(
            session._jsparkSession, sink.path, self._format, list(sink.partition_by), sink.writer_options()
        )
        self._table = None
        if isinstance(sink, FilesSinkConfig) and sink.table is not None:
            # With its database: the pipeline may have a view of the same name.
            name = sink.table if "." in sink.table else f"default.{sink.table}"
            self._table = PartitionedTable(spark, sink, name)

    def stored_schema(self) -> StoredSchema | None:
        """The reader's schema that the feed had last."""
        return None if self._claim.schema is None else StoredSchema.of_json(self._claim.schema)

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        """Remembers the reader's schema. The files need nothing: each has its own columns, which readers merge.

        Raises:
            ConfigError: if a partition column is not among the rows' columns.
        """
        check_partition_columns(self._sink, rows)
        if stored is not None and stored.to_json() != self._claim.schema:
            self._claim.note_schema(stored.to_json())
        if self._table is not None:
            self._table.ensure(rows)
            self._table.add(self._directories(-1))

    def location(self) -> str:
        """Where the files are."""
        return self._sink.path

    def take_fence(self) -> None:
        """There is none: two drivers meet at the checkpoint and at the log, whose entries are written once."""

    def commits(self) -> Iterator[Commit]:
        """None: the log has files, not offsets."""
        return iter(())

    def position(self) -> None:
        """Not known: the log has files, not offsets."""

    def logged(self) -> int | None:
        """The newest batch in the log; None if it is empty."""
        newest = int(self._files.logged())
        return None if newest < 0 else newest

    def land_move(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        """Refused: there is no ledger to move in.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            "a feed of files cannot be moved: its log is numbered by batches and knows no offsets",
            where=self._sink.path,
            hint="name another path and another checkpoint location, which reads the topics again; or land the feed in "
            "an Iceberg table",
        )

    def has(self, commit: Commit) -> bool:
        """Never known beforehand: Spark's sink itself leaves a batch out that its log has, without one more request."""
        return False

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Writes the rows of one micro-batch and lists them.

        Returns:
            How many they were; None if the log has the batch already.

        Raises:
            Py4JJavaError: Spark could not, or the commit was refused.
        """
        if not isinstance(commit, Commit):
            raise ConfigError(
                "a feed of files takes batches only: its log is numbered by them",
                where=self._sink.path,
                hint="land the feed in an Iceberg table, or read these records with lakefeed.read_topic",
            )
        frame: Any = flat(rows) if self._format == "csv" else rows
        written = int(self._files.add(commit.batch_id, commit_id, frame._jdf))
        if self._table is not None:
            self._table.add(self._directories(commit.batch_id))
        return written if written >= 0 else None

    def _directories(self, batch_id: int) -> list[str]:
        return [str(each) for each in self._files.directories(batch_id)]


def check_partition_columns(sink: PathSinkConfig, rows: StructType) -> None:
    """Refuses rows without a column that becomes directories.

    Raises:
        ConfigError: naming the first that is missing.
    """
    missing = [name for name in sink.partition_by if name not in rows.names]
    if missing:
        raise ConfigError(
            f"partition_by names the column '{missing[0]}', which the rows do not have",
            where=f"path {sink.path}, columns {', '.join(rows.names)}",
            hint="name one of these columns, or make the column in transform.sql",
        )


class PartitionedTable:
    """A table of Spark's session catalog over the directories of a file sink.

    Args:
        spark: the session.
        sink: the file sink's block.
        name: of the table.
    """

    def __init__(self, spark: SparkSession, sink: FilesSinkConfig, name: str) -> None:
        self._spark = spark
        self._sink = sink
        self._name = ".".join(quoted((part,)) for part in name.split("."))
        self._namespace = name.rpartition(".")[0]
        self._known: set[str] = set()

    def ensure(self, rows: StructType) -> None:
        """Creates the table for rows of this schema, if it is missing, and adds the columns that it lacks."""
        if self._namespace:
            self._spark.sql(f"CREATE DATABASE IF NOT EXISTS {quoted((self._namespace,))}")
        columns = ", ".join(f"{quoted((each.name,))} {type_sql(each.dataType)}" for each in rows.fields)
        parts = ", ".join(quoted((each,)) for each in self._sink.partition_by)
        by = f" PARTITIONED BY ({parts})" if parts else ""
        # As they were written: of CSV the first line is none of the rows.
        options = ", ".join(
            f"{_literal(name)} {_literal(value)}" for name, value in self._sink.writer_options().items()
        )
        self._spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self._name} ({columns}) USING {self._sink.format}"
            f"{f' OPTIONS ({options})' if options else ''}{by} LOCATION {_literal(self._sink.path)}"
        )
        have = {each.lower() for each in self._spark.table(self._name).columns}
        if missing := [each for each in rows.fields if each.name.lower() not in have]:
            added = ", ".join(f"{quoted((each.name,))} {type_sql(each.dataType)}" for each in missing)
            self._spark.sql(f"ALTER TABLE {self._name} ADD COLUMNS ({added})")

    def add(self, directories: Sequence[str]) -> None:
        """Makes partitions known.

        Args:
            directories: such as ``zip=8001/day=2024-01-01``.
        """
        new = sorted(set(directories) - self._known)
        for at in range(0, len(new), MOST_AT_ONCE):
            listed = " ".join(f"PARTITION ({_values(each)})" for each in new[at : at + MOST_AT_ONCE])
            self._spark.sql(f"ALTER TABLE {self._name} ADD IF NOT EXISTS {listed}")
        self._known.update(new)
        self._spark.catalog.refreshTable(self._name)


def _values(directory: str) -> str:
    """``zip=8001/day=…`` as SQL; a name that Spark has escaped is as it was."""
    pairs = (part.partition("=") for part in directory.split("/"))
    return ", ".join(f"{quoted((unquote(name),))} = {_literal(unquote(value))}" for name, _, value in pairs)


def _literal(value: str) -> str:
    if value == NULL_PARTITION:
        return "NULL"
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
