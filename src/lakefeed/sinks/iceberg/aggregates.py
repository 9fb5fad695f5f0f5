"""Iceberg tables with the present result of a query with state: ``update`` merges groups, ``complete`` replaces all.

Guarantee: exactly-once, as for appends: a batch's changes and its ranges become visible in one commit, which is refused
unless it is the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.errors import ConfigError
from lakefeed.ledger.snapshot_summary import COMMIT_ID, SnapshotProperties
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.fit import align_columns
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.definition import TableChange
from lakefeed.sinks.iceberg.changes import counted_groups
from lakefeed.sinks.iceberg.layout import quoted_table
from lakefeed.sinks.iceberg.table import IcebergTable, write_modes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

VIEW = "lakefeed_results"


class OverwriteTable(IcebergTable):
    """A table whose rows each batch replaces, in one commit."""

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Replace all rows by the batch's, and return how many these are."""
        from pyspark.sql import functions as sf

        properties = {**commit.properties(), COMMIT_ID: commit_id}
        self._writer(rows, properties).overwrite(sf.lit(True))
        # Also where an empty batch replaces no rows.
        self.ledger.ensure_commit(properties)
        return self.ledger.rows_of(commit_id)


class MergeTable(IcebergTable):
    """A table with one row for each key, which the newest batch that has the key has written."""

    def _own_properties(self) -> dict[str, str]:
        return write_modes(self._sink)

    def changes(
        self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()
    ) -> tuple[TableChange, ...]:
        """Return what ``apply_schema`` does; refuses rows that lack a key."""
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
        """Merge the rows in one commit, and return how many they are; refuses two of the same key."""
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
        self.ledger.ensure_commit(properties)
        return count

    def _statement(self, columns: Sequence[str]) -> str:
        # A window's or a group's key may be null, and is one key then.
        on = " AND ".join(f"t.{quoted((key,))} <=> s.{quoted((key,))}" for key in self._sink.keys)
        updates = ", ".join(f"t.{quoted((each,))} = s.{quoted((each,))}" for each in columns)
        listed = ", ".join(quoted((each,)) for each in columns)
        values = ", ".join(f"s.{quoted((each,))}" for each in columns)
        return "\n".join(
            [
                f"MERGE INTO {quoted_table(self.name)} t USING {VIEW} s",
                f"ON {on}",
                f"WHEN MATCHED THEN UPDATE SET {updates}",
                f"WHEN NOT MATCHED THEN INSERT ({listed}) VALUES ({values})",  # noqa: S608
            ]
        )
