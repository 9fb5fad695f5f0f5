"""Collects rows in memory, prints them, or writes them in any format of Spark: sinks without a ledger."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakefeed.config.sinks import ConsoleSinkConfig, FormatSinkConfig, MemorySinkConfig
from lakefeed.config.transform import OutputMode
from lakefeed.errors import ConfigError, SchemaUnusable
from lakefeed.lazy import StructType
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.continuity import NoLedger
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.sinks.base import BatchedSink
from lakefeed.sinks.definition import SinkContext, SinkDefinition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


_KEEPING_NAMES = ("orc", "json", "csv")
"""The file formats in which Spark does not pass the columns' names to Hadoop as a setting."""


class MemoryDefinition(SinkDefinition[MemorySinkConfig]):
    def open(self, spark: SparkSession, claim: Claim) -> BatchedSink:
        where = f"memory:{self.settings.view or f'{self.context.feed}_rows'}"
        return BatchedSink(MemoryView(spark, self.settings, self.context), claim, NoLedger(where), where=where)


class PlainWriter:
    """A writer whose ``prepared`` returns the rows unchanged."""

    def begin(self, columns: StructType) -> None: ...

    def prepared(self, rows: DataFrame, commit: Commit) -> DataFrame:
        return rows


class MemoryView(PlainWriter):
    """A view over the rows so far: all rows, the newest row of each key, or the rows of the newest batch."""

    def __init__(self, spark: SparkSession, sink: MemorySinkConfig, context: SinkContext) -> None:
        self._spark = spark
        self._sink = sink
        self._name = sink.view or f"{context.feed}_rows"
        self._mode = context.output_mode
        self._rows: list[Row] = []

    def begin(self, columns: StructType) -> None:
        """Create the view; raise a ConfigError if the rows lack a key."""
        from pyspark.sql import Row

        for key in self._sink.keys:
            if key not in columns.names:
                raise ConfigError(
                    f"keys names the column '{key}', which the rows do not have",
                    where="sink.memory",
                    hint=f"name one of the rows' columns: {', '.join(columns.names)}",
                )
        # In rows of earlier batches, new columns become null.
        earlier = [row.asDict() for row in self._rows]
        self._rows = [Row(**{name: values.get(name) for name in columns.names}) for values in earlier]
        self._show(columns)

    def write(self, rows: DataFrame, commit: Commit, *, commit_id: str) -> None:
        """Add the batch to the view; raise a ConfigError if the view then has more than ``max_rows``."""
        new = rows.limit(self._sink.max_rows + 1).collect()
        if self._mode == "complete":
            self._rows = new
        elif self._mode == "update" and self._sink.keys:
            newest = {tuple(row[key] for key in self._sink.keys): row for row in (*self._rows, *new)}
            self._rows = list(newest.values())
        else:
            self._rows = [*self._rows, *new]
        if len(self._rows) > self._sink.max_rows:
            raise ConfigError(
                f"the view {self._name} would have more than {self._sink.max_rows:,} rows in the driver's memory",
                where="sink.memory",
                hint="group the rows, or write them to a table; or raise sink.memory.max_rows",
            )
        self._show(rows.schema)

    def _show(self, schema: StructType) -> None:
        self._spark.createDataFrame(self._rows, schema).createOrReplaceTempView(self._name)


class ConsoleDefinition(SinkDefinition[ConsoleSinkConfig]):
    def open(self, spark: SparkSession, claim: Claim) -> BatchedSink:
        return BatchedSink(Console(self.settings), claim, NoLedger("console"), where="console")


class Console(PlainWriter):
    """Prints the first rows of each batch."""

    def __init__(self, sink: ConsoleSinkConfig) -> None:
        self._sink = sink

    def write(self, rows: DataFrame, commit: Commit, *, commit_id: str) -> None:
        frame = rows._show_string(self._sink.rows, self._sink.width, False)  # type: ignore[operator]
        print(f"batch {commit.batch_id}\n{frame}")


class SparkFormatDefinition(SinkDefinition[FormatSinkConfig]):
    def open(self, spark: SparkSession, claim: Claim) -> BatchedSink:
        writer, where = FormatWriter(self.settings, output_mode=self.context.output_mode), self.settings.target
        return BatchedSink(writer, claim, NoLedger(where), where=where)


class FormatWriter(PlainWriter):
    """Writes batches in a format of Spark; with output mode complete, a batch replaces all earlier rows."""

    def __init__(self, sink: FormatSinkConfig, *, output_mode: OutputMode) -> None:
        self._sink = sink
        self._save_mode = "overwrite" if output_mode == "complete" else "append"

    def begin(self, columns: StructType) -> None:
        """Refuse column names that a file format would change."""
        if self._sink.path is not None and self._sink.name.lower() not in _KEEPING_NAMES:
            _require_plain_names(columns, where=self._sink.path)

    def write(self, rows: DataFrame, commit: Commit, *, commit_id: str) -> None:
        writer = rows.write.format(self._sink.name).options(**self._sink.options).mode(self._save_mode)
        if self._sink.partition_by:
            writer = writer.partitionBy(*self._sink.partition_by)
        writer.save(self._sink.path)


def _require_plain_names(rows: StructType, *, where: str) -> None:
    """Refuse names with ``${…}``: Spark passes names in a Hadoop setting, in which Hadoop would replace ``${…}``."""
    if match := re.search(r'"name":"([^"]*\$\{[^"]*)"', rows.json()):
        raise SchemaUnusable(
            f"Hadoop would replace ${{…}} in the name of the column '{match[1]}' by one of its settings or variables",
            where=where,
            hint="rename the column in transform.sql; or write Parquet (sink.parquet), or an Iceberg table",
        )
