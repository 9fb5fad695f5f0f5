"""Keeps rows in memory, prints them, or writes them in any format of Spark: sinks without a ledger."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakefeed.config.sinks import ConsoleSinkConfig, FormatSinkConfig, MemorySinkConfig
from lakefeed.config.transform import OutputMode
from lakefeed.errors import ConfigError, SchemaUnusable
from lakefeed.lazy import StructType
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.base import StatelessSink
from lakefeed.sinks.definition import SinkContext, SinkDefinition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


_KEEPING_NAMES = ("orc", "json", "csv")
"""Spark's formats of files whose columns it does not hand to Hadoop as a setting."""


class MemoryDefinition(SinkDefinition[MemorySinkConfig]):
    """A view in the running session."""

    def open(self, spark: SparkSession, claim: Claim) -> MemorySink:
        return MemorySink(spark, self.settings, claim, self.context)


class MemorySink(StatelessSink):
    """A view over the rows that have come: all of them, the newest of each key, or those of the newest batch."""

    def __init__(self, spark: SparkSession, sink: MemorySinkConfig, claim: Claim, context: SinkContext) -> None:
        super().__init__(claim)
        self._spark = spark
        self._sink = sink
        self._name = sink.view or f"{context.feed}_rows"
        self._mode = context.output_mode
        self._rows: list[Row] = []

    def location(self) -> str:
        return f"memory:{self._name}"

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        """Create the view; a ConfigError if the rows lack a key."""
        from pyspark.sql import Row

        super().apply_schema(rows, stored, entries)
        for key in self._sink.keys:
            if key not in rows.names:
                raise ConfigError(
                    f"keys names the column '{key}', which the rows do not have",
                    where=f"sink.memory, columns {', '.join(rows.names)}",
                )
        # Earlier rows may lack columns that have come.
        earlier = [row.asDict() for row in self._rows]
        self._rows = [Row(**{name: values.get(name) for name in rows.names}) for values in earlier]
        self._show(rows)

    def write(self, rows: DataFrame, commit: Commit) -> None:
        """Take the batch into the view; a ConfigError if these are more rows than the driver may keep."""
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
                hint="group the rows, or land them in a table; sink.memory.max_rows allows more",
            )
        self._show(rows.schema)

    def _show(self, schema: StructType) -> None:
        self._spark.createDataFrame(self._rows, schema).createOrReplaceTempView(self._name)


class ConsoleDefinition(SinkDefinition[ConsoleSinkConfig]):
    """The first rows of each batch, printed."""

    def open(self, spark: SparkSession, claim: Claim) -> ConsoleSink:
        return ConsoleSink(self.settings, claim)


class ConsoleSink(StatelessSink):
    """Prints the first rows of each batch."""

    def __init__(self, sink: ConsoleSinkConfig, claim: Claim) -> None:
        super().__init__(claim)
        self._sink = sink

    def location(self) -> str:
        return "console"

    def write(self, rows: DataFrame, commit: Commit) -> None:
        frame = rows._show_string(self._sink.rows, self._sink.width, False)  # type: ignore[operator]
        print(f"batch {commit.batch_id}\n{frame}")


class SparkFormatDefinition(SinkDefinition[FormatSinkConfig]):
    """A format that Spark knows by name."""

    def open(self, spark: SparkSession, claim: Claim) -> SparkFormatSink:
        return SparkFormatSink(self.settings, claim, output_mode=self.context.output_mode)


class SparkFormatSink(StatelessSink):
    """Writes each batch in a format of Spark; with the output mode complete it replaces the rows before."""

    def __init__(self, sink: FormatSinkConfig, claim: Claim, *, output_mode: OutputMode) -> None:
        super().__init__(claim)
        self._sink = sink
        self._save_mode = "overwrite" if output_mode == "complete" else "append"

    def location(self) -> str:
        return self._sink.target

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        """Refuse names that a format of files would change."""
        if self._sink.path is not None and self._sink.name.lower() not in _KEEPING_NAMES:
            _require_plain_names(rows, where=self._sink.path)
        super().apply_schema(rows, stored, entries)

    def write(self, rows: DataFrame, commit: Commit) -> None:
        writer = rows.write.format(self._sink.name).options(**self._sink.options).mode(self._save_mode)
        if self._sink.partition_by:
            writer = writer.partitionBy(*self._sink.partition_by)
        writer.save(self._sink.path)


def _require_plain_names(rows: StructType, *, where: str) -> None:
    """Refuse a column name with ``${…}``: Spark stores it in a Hadoop setting, and Hadoop replaces it."""
    if found := re.search(r'"name":"([^"]*\$\{[^"]*)"', rows.json()):
        raise SchemaUnusable(
            f"Hadoop would replace ${{…}} in the name of the column '{found[1]}' by one of its settings or variables",
            where=where,
            hint="give it another name in transform.sql; or write Parquet (sink.parquet), or an Iceberg table",
        )
