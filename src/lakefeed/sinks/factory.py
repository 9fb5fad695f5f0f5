"""Which sink a block of the pipeline file is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lakefeed.clients.retry import PATIENCE_SECONDS
from lakefeed.config.blocks import SecondarySinkChoice, SinkChoice
from lakefeed.config.connections import Connections
from lakefeed.config.elasticsearch import ElasticsearchSinkConfig
from lakefeed.config.file_sinks import FilesSinkConfig, ParquetSinkConfig
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.config.jdbc import JdbcSinkConfig
from lakefeed.config.kafka_sink import KafkaSinkConfig
from lakefeed.config.models import PipelineConfig
from lakefeed.config.names import catalog_of
from lakefeed.config.sinks import ConsoleSinkConfig, FormatSinkConfig, MemorySinkConfig, PythonSinkConfig
from lakefeed.ledger.checkpoint import Claim
from lakefeed.sinks.elasticsearch.index import ElasticsearchIndex
from lakefeed.sinks.fan_out import FanOutSink, SecondarySink
from lakefeed.sinks.files import FileStreamSink
from lakefeed.sinks.iceberg.aggregates import MergeTable, OverwriteTable
from lakefeed.sinks.iceberg.table import IcebergTable
from lakefeed.sinks.iceberg.upsert import UpsertTable
from lakefeed.sinks.jdbc.table import JdbcTable
from lakefeed.sinks.kafka import KafkaSink
from lakefeed.sinks.protocol import Sink
from lakefeed.sinks.python import PythonSink
from lakefeed.sinks.spark_format import ConsoleSink, MemorySink, SparkFormatSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Table = IcebergTable | JdbcTable | ElasticsearchIndex


class SinkFactory:
    """Makes a feed's sinks.

    Args:
        spark: the session.
        config: the pipeline; of one topic, where each has a table of its own.
        connections: store and catalogs.
        folder: where the pipeline file is: Python classes are looked for there too.
    """

    def __init__(
        self, spark: SparkSession, config: PipelineConfig, connections: Connections, *, folder: Path | None = None
    ) -> None:
        self._spark = spark
        self._config = config
        self._connections = connections
        self._folder = folder

    def of_feed(self, claim: Claim, *, note: Callable[[str], None]) -> Sink:
        """The feed's own sink, or that and those beside it as one; see ``Feed.sink``."""
        main = self._sink(claim, self._config.sink)
        if not self._config.sinks:
            return main
        begun = tuple(claim.noted.sinks)
        sides = [
            SecondarySink(name, self._sink(claim, each), each.can_lag, is_new=name not in begun)
            for name, each in self._config.sinks.items()
        ]
        if new := [each.name for each in sides if each.is_new]:
            claim.remember(sinks=(*begun, *new))
        return FanOutSink(self._config.name, main, sides, note=note)

    def _sink(self, claim: Claim, sink: SinkChoice) -> Sink:
        if (table := self.table(sink)) is not None:
            return table
        config, mode = self._config, self._config.output_mode
        match sink.chosen:
            case KafkaSinkConfig() as topic:
                return KafkaSink(self._spark, topic, claim, source=config.source.kafka)
            case ParquetSinkConfig() | FilesSinkConfig() as files:
                return FileStreamSink(self._spark, files, claim)
            case MemorySinkConfig() as memory:
                return MemorySink(self._spark, memory, claim, view=f"{config.name}_rows", output_mode=mode)
            case ConsoleSinkConfig() as console:
                return ConsoleSink(console, claim, say=print)
            case FormatSinkConfig() as some:
                return SparkFormatSink(some, claim, output_mode=mode)
            case PythonSinkConfig() as own:
                return PythonSink(own, claim, output_mode=mode, folder=self._folder)
        raise AssertionError(f"no sink is made of sink.{sink.kind}")

    def table(self, sink: SinkChoice) -> Table | None:
        """The sink, where it has a shape of its own and can tell how that would change; else None.

        Raises:
            ConfigError: the table's catalog is not declared.
        """
        feed, groups = self._config.name, self._config.output_mode == "update"
        evolves = self._config.schema_.on_change == "evolve"
        match sink.chosen:
            case IcebergSinkConfig() as iceberg:
                return self._iceberg(iceberg, evolves=evolves)
            case JdbcSinkConfig() as jdbc:
                return JdbcTable(
                    self._spark, jdbc, feed=feed, evolves=evolves, groups=groups, patience=patience_of(sink)
                )
            case ElasticsearchSinkConfig() as search:
                return ElasticsearchIndex(
                    self._spark, search, feed=feed, evolves=evolves, groups=groups, patience=patience_of(sink)
                )
        return None

    def _iceberg(self, sink: IcebergSinkConfig, *, evolves: bool) -> IcebergTable:
        self._connections.catalog(sink.catalog)
        if sink.history is not None:
            self._connections.catalog(catalog_of(sink.history))
        tables = {
            ("upsert", "append"): UpsertTable,
            ("upsert", "update"): MergeTable,
            ("overwrite", "complete"): OverwriteTable,
        }
        table = tables.get((sink.mode, self._config.output_mode), IcebergTable)
        return table(self._spark, sink, feed=self._config.name, evolves=evolves)


def patience_of(sink: SinkChoice) -> float:
    """Seconds to wait for a server that is away: none where the feed may continue without it."""
    return 0 if isinstance(sink, SecondarySinkChoice) and sink.can_lag else PATIENCE_SECONDS
