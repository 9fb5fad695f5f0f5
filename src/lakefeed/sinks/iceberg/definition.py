"""The definition of the Iceberg sink, which chooses the class of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from lakefeed.config.base import validated
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.config.values import catalog_of
from lakefeed.lazy import SparkSession, StructType
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.protocol import SinkState
from lakefeed.ledger.snapshots import stored_position
from lakefeed.plugins import load_route
from lakefeed.sinks.definition import LedgerTable, SinkDefinition, StoredState
from lakefeed.sinks.iceberg.publish import Publisher
from lakefeed.sinks.iceberg.table import IcebergTable, OverwriteTable
from lakefeed.sinks.iceberg.upsert import MergeTable, UpsertTable

TABLES: dict[tuple[str, str], type[IcebergTable]] = {
    ("upsert", "append"): UpsertTable,
    ("upsert", "update"): MergeTable,
    ("overwrite", "complete"): OverwriteTable,
}
"""The table's class by the sink's mode and the query's output mode; other pairs of modes append."""


class IcebergDefinition(SinkDefinition[IcebergSinkConfig]):
    def open(self, spark: SparkSession, claim: Claim) -> IcebergTable:
        return self.open_table(spark)

    def open_table(self, spark: SparkSession) -> IcebergTable:
        settings, context = self.settings, self.context
        for name in (settings.table, settings.history):
            if name is not None:
                context.connections.catalog(catalog_of(name))
        kind = TABLES.get((settings.mode, context.output_mode), IcebergTable)
        if settings.routed_by is not None:
            kind = load_route("sink", where=context.place)
        kind = reduce(lambda known, block: block.table(known), context.blocks, kind)
        plain = not context.is_transformed
        table = kind(spark, settings, feed=context.feed, evolves=context.evolves, takes_defaults=plain)
        if isinstance(table, UpsertTable):
            table.unavailable = context.unavailable
        return table

    def publisher(self, spark: SparkSession) -> Publisher | None:
        return None if self.settings.branch is None else Publisher(spark, self.settings, feed=self.context.feed)

    def schema_planner(self, spark: SparkSession, noted: str | None) -> IcebergTable:
        return self.open_table(spark)

    def encoder_refusal(self, spark: SparkSession, rows: Callable[[], StructType | None]) -> str | None:
        return self.open_table(spark).encoder_refusal(rows)

    def lands_changes(self, spark: SparkSession, rows: Callable[[], StructType | None]) -> str | None:
        table = self.open_table(spark)
        return table.lands_changes(rows) if isinstance(table, UpsertTable) else None

    def state(self) -> SinkState:
        table, feed, connections = self.settings.snapshot_table, self.context.feed, self.context.connections
        return StoredState(keeps_ledger=True, position=lambda: stored_position(table, feed, connections=connections))


def append_table(
    spark: SparkSession, table: str, *, feed: str, partition_by: Sequence[str], properties: Mapping[str, str]
) -> LedgerTable:
    """Open a table to append to, for a feed without a pipeline file; a new table gets the partitions and properties."""
    settings = validated(
        IcebergSinkConfig, "write_table", table=table, partition_by=list(partition_by), properties=dict(properties)
    )
    return IcebergTable(spark, settings, feed=feed)
