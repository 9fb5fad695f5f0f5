"""An Iceberg table that shows the present result of a query with state: groups as they now are.

Guarantee: exactly-once, as for appends: a batch's changes and its ranges become visible in one commit, which is refused
unless it is the next one. ``output_mode: update`` merges the groups that have changed, by key; ``complete`` replaces
all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.errors import ConfigError
from lakefeed.ledger.snapshot_summary import COMMIT_ID, SnapshotProperties
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.fit import align_columns
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.definition import TableChange
from lakefeed.sinks.iceberg.changes import counted_groups
from lakefeed.sinks.iceberg.table import IcebergTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

VIEW = "lakefeed_results"


class OverwriteTable(IcebergTable):
    """A table whose rows each batch replaces, in one commit."""

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Replaces all rows by the batch's, and returns how many these are.

        Raises:
            Py4JJavaError: Spark could not, or the commit was refused.
        """
        from pyspark.sql import functions as sf

        writer = align_columns(rows, self._spark.table(self.name).schema).writeTo(self.name)
        properties = {**commit.properties(), COMMIT_ID: commit_id}
        for key, value in properties.items():
            writer = writer.option(f"snapshot-property.{key}", value)
        writer.overwrite(sf.lit(True))
        if self.ledger.rows_of(commit_id) is None:
            # Nothing was there and nothing has come: the ledger must know of the batch.
            self.ledger.land_empty(properties)
        return self.ledger.rows_of(commit_id)


class MergeTable(IcebergTable):
    """A table with one row for each key, which the newest batch that has the key has written.

    Args:
        spark: the session.
        sink: its block in the pipeline file.
        feed: the feed's name.
        evolves: whether its columns follow the rows'.
    """

    def __init__(self, spark: SparkSession, sink: IcebergSinkConfig, *, feed: str, evolves: bool = True) -> None:
        merging = {f"write.{statement}.mode": sink.write for statement in ("merge", "update", "delete")}
        made_with = sink.model_copy(update={"properties": {**merging, **sink.properties}})
        super().__init__(spark, made_with, feed=feed, evolves=evolves)

    def changes(
        self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()
    ) -> tuple[TableChange, ...]:
        """What ``apply_schema`` does with the same arguments; raises ``ConfigError`` too if the rows lack a key."""
        have = {each.lower() for each in rows.names}
        for key in self._sink.keys:
            if key.lower() not in have:
                raise ConfigError(
                    f"keys names the column '{key}', which the rows do not have",
                    where=f"table {self.name}, columns {', '.join(rows.names)}",
                    hint="keys are the columns that the transform groups by",
                )
        return super().changes(rows, stored, entries)

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Merges the rows in one commit, and returns how many they are.

        Raises:
            ConfigError: two of them have the same key.
            Py4JJavaError: Spark could not, or the commit was refused.
        """
        columns = self._spark.table(self.name).schema
        properties = {**commit.properties(), COMMIT_ID: commit_id}
        changed = align_columns(rows, columns).persist()
        session = changed.sparkSession
        try:
            count = counted_groups(changed, keys=self._sink.keys, where=f"table {self.name}", kind="iceberg")
            changed.createOrReplaceTempView(VIEW)
            self.ledger.run(self._statement(columns.names), properties, session=session)
        finally:
            session.catalog.dropTempView(VIEW)
            changed.unpersist()
        if self.ledger.rows_of(commit_id) is None:
            self.ledger.land_empty(properties)
        return count

    def _statement(self, columns: Sequence[str]) -> str:
        # A window's or a group's key may be null, and is one key then.
        on = " AND ".join(f"t.{quoted((key,))} <=> s.{quoted((key,))}" for key in self._sink.keys)
        updates = ", ".join(f"t.{quoted((each,))} = s.{quoted((each,))}" for each in columns)
        listed = ", ".join(quoted((each,)) for each in columns)
        values = ", ".join(f"s.{quoted((each,))}" for each in columns)
        return "\n".join(
            [
                f"MERGE INTO {quoted(tuple(self.name.split('.')))} t USING {VIEW} s",
                f"ON {on}",
                f"WHEN MATCHED THEN UPDATE SET {updates}",
                f"WHEN NOT MATCHED THEN INSERT ({listed}) VALUES ({values})",  # noqa: S608
            ]
        )
