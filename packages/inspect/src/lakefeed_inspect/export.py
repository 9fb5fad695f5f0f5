"""Writes the records of one ``lakefeed read``: to the terminal, to files below a path, or to a table without a feed.

Guarantee: all or nothing. If a record stops the read, no row, file or table stays behind. Several reads together are
    not exactly-once: a second read writes the same records again.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

from lakefeed.clients.iceberg.sql import quoted, quoted_table
from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.jvm import spark_setting
from lakefeed.clients.spark.statements import run
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.config.values import Identifier
from lakefeed.errors import ConfigError
from lakefeed.lazy import DataFrame, SparkSession, StructType, sf
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.partial import NoLedger
from lakefeed.ledger.snapshot_summary import COMMIT_ID, SnapshotProperties
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.base import BaseSink
from lakefeed.sinks.files import flat
from lakefeed.sinks.iceberg.table import IcebergTable

FileFormat = Literal["parquet", "csv", "json"]
PROTOCOL = ("spark.sql.sources.commitProtocolClass", "io.lakefeed.commit.CheckedExport")
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
    ``is_whole`` is False if there are more rows than ``limit``; then not all records were read.
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
                "the path belongs to a feed: Spark would not read other files there, but other readers would",
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
                f"the table belongs to the feed {feeds[0]}, and its ledger would not know these rows",
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
