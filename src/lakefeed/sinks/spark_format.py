"""Memory, console, and any format that Spark can write: sinks without a ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lakefeed.config.sinks import ConsoleSinkConfig, FormatSinkConfig, MemorySinkConfig
from lakefeed.config.transform import OutputMode
from lakefeed.errors import ConfigError
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.base import StatelessSink
from lakefeed.sinks.definition import SinkDefinition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType


class MemoryDefinition(SinkDefinition[MemorySinkConfig]):
    """A view in the running session."""

    def open(self, spark: SparkSession, claim: Claim) -> MemorySink:
        """Make the view's rows."""
        view, mode = f"{self.context.feed}_rows", self.context.output_mode
        return MemorySink(spark, self.settings, claim, view=view, output_mode=mode)


class ConsoleDefinition(SinkDefinition[ConsoleSinkConfig]):
    """The first rows of each batch, printed."""

    def open(self, spark: SparkSession, claim: Claim) -> ConsoleSink:
        """Print to the standard output."""
        return ConsoleSink(self.settings, claim, say=print)


class SparkFormatDefinition(SinkDefinition[FormatSinkConfig]):
    """A format that Spark knows by name."""

    def open(self, spark: SparkSession, claim: Claim) -> SparkFormatSink:
        """Write batches with Spark's writer."""
        return SparkFormatSink(self.settings, claim, output_mode=self.context.output_mode)


class MemorySink(StatelessSink):
    """A view over the rows that have come: all of them, the newest of each key, or those of the newest batch.

    Args:
        spark: the session that the view is in.
        sink: its block in the pipeline file.
        claim: the feed's checkpoint.
        view: its name, if the block has none.
        output_mode: what a batch is.
    """

    def __init__(
        self, spark: SparkSession, sink: MemorySinkConfig, claim: Claim, *, view: str, output_mode: OutputMode
    ) -> None:
        super().__init__(claim)
        self._spark = spark
        self._sink = sink
        self._name = sink.view or view
        self._mode = output_mode
        self._rows: list[Row] = []

    def location(self) -> str:
        """What to call it."""
        return f"memory:{self._name}"

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        """Makes the view.

        Raises:
            ConfigError: the rows lack a key.
        """
        super().apply_schema(rows, stored, entries)
        for key in self._sink.keys:
            if key not in rows.names:
                raise ConfigError(
                    f"keys names the column '{key}', which the rows do not have",
                    where=f"sink.memory, columns {', '.join(rows.names)}",
                )
        # Rows of before may lack columns that have come.
        self._rows = [self._fitted(each, rows) for each in self._rows]
        self._show(rows)

    def write(self, rows: DataFrame, commit: Commit) -> None:
        """Takes the batch into the view.

        Raises:
            ConfigError: there would be more rows than the driver is to keep.
        """
        new = rows.limit(self._sink.max_rows + 1).collect()
        if self._mode == "complete":
            self._rows = new
        elif self._mode == "update" and self._sink.keys:
            newest = {tuple(each[key] for key in self._sink.keys): each for each in (*self._rows, *new)}
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

    @staticmethod
    def _fitted(row: Row, schema: StructType) -> Row:
        from pyspark.sql import Row

        have = row.asDict()
        return Row(**{name: have.get(name) for name in schema.names})


class ConsoleSink(StatelessSink):
    """Prints the first rows of each batch.

    Args:
        sink: its block in the pipeline file.
        claim: the feed's checkpoint.
        say: where a text goes.
    """

    def __init__(self, sink: ConsoleSinkConfig, claim: Claim, *, say: Callable[[str], None]) -> None:
        super().__init__(claim)
        self._sink = sink
        self._say = say

    def location(self) -> str:
        """What to call it."""
        return "console"

    def write(self, rows: DataFrame, commit: Commit) -> None:
        """Prints them."""
        frame = rows._show_string(self._sink.rows, self._sink.width, False)  # type: ignore[operator]
        self._say(f"batch {commit.batch_id}\n{frame}")


class SparkFormatSink(StatelessSink):
    """Writes each batch in a format that Spark knows by name.

    Args:
        sink: its block in the pipeline file.
        claim: the feed's checkpoint.
        output_mode: what a batch is: complete replaces what is there.
    """

    def __init__(self, sink: FormatSinkConfig, claim: Claim, *, output_mode: OutputMode) -> None:
        super().__init__(claim)
        self._sink = sink
        self._save_mode = "overwrite" if output_mode == "complete" else "append"

    def location(self) -> str:
        """What to call it."""
        return self._sink.target

    def write(self, rows: DataFrame, commit: Commit) -> None:
        """Writes them as a batch of Spark's."""
        writer = rows.write.format(self._sink.name).options(**self._sink.options).mode(self._save_mode)
        if self._sink.partition_by:
            writer = writer.partitionBy(*self._sink.partition_by)
        writer.save(self._sink.path)
