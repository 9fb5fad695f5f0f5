"""Upserts into an Iceberg table: one row for each key, as its newest change left it; and a history of all changes.

Guarantee: exactly-once, as for appends, and the table is what its changes make of it in the order of their positions:
each micro-batch is one MERGE, whose commit carries the offset ranges and is refused if they do not continue where the
last one ended. A change that is not newer than the row of its key changes nothing, so that whatever is landed twice,
or late, leaves the table as it is. Deletes are forgotten (``remove``) or kept as marked rows (``mark``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lakefeed.clients.iceberg.sql import set_properties
from lakefeed.clients.iceberg.write_lock import run_in_turn
from lakefeed.clients.spark import jvm
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.config.keyed import DELETED, POSITION_COLUMNS, in_rows
from lakefeed.errors import CheckpointMismatch, ConfigError
from lakefeed.ledger.snapshot_summary import COMMIT_ID, UPSERTED, Commit, SnapshotProperties
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.fit import align_columns, find_field
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.adaptive import adaptive
from lakefeed.sinks.definition import TableChange
from lakefeed.sinks.iceberg.changes import deleting, key_moved, latest_per_key, summarize_changes
from lakefeed.sinks.iceberg.history import HistoryTable
from lakefeed.sinks.iceberg.merge import KEY_MOVED, Bound, MergeStatement
from lakefeed.sinks.iceberg.table import IcebergTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

KEYED = "lakefeed.upsert"
"""Table property: what makes a row of this table, ``<keys> <on_delete>``. It cannot change once there are rows."""

OFFSETS_OF = "lakefeed.offsets-of"
"""Table property, and a topic's name: the id of the topic whose offsets the rows have."""

VIEW = "lakefeed_changes"


class UpsertTable(IcebergTable):
    """One feed's table of keyed rows.

    Args:
        spark: the session.
        sink: its block in the pipeline file.
        feed: the feed's name.
        evolves: whether its columns follow the rows'.
    """

    def __init__(self, spark: SparkSession, sink: IcebergSinkConfig, *, feed: str, evolves: bool = True) -> None:
        self._own_properties = {
            **{f"write.{statement}.mode": sink.write for statement in ("merge", "update", "delete")},
            KEYED: f"{','.join(sink.keys)} {sink.on_delete}",
        }
        made_with = sink.model_copy(update={"properties": {**self._own_properties, **sink.properties}})
        super().__init__(spark, made_with, feed=feed, evolves=evolves)
        self._history = HistoryTable.beside(spark, sink, feed=feed, evolves=evolves) if sink.history else None

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        """Creates the table for rows of this schema, or changes its columns so that it takes them.

        Raises:
            ConfigError: the rows lack a key or their position, a key has no order, or the table has rows of another
                kind: appended, or with other keys.
            SchemaIncompatible: if Iceberg has no such change.
        """
        super().apply_schema(rows, stored, entries)
        self._columns = self._spark.table(self.name).schema
        self._keys = [found.name for key in self._sink.keys if (found := find_field(self._columns, key))]
        self._offsets_of = self.ledger.properties()

    def changes(
        self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()
    ) -> tuple[TableChange, ...]:
        """What ``apply_schema`` does with the same arguments, and raises: to the history first."""
        from pyspark.sql.types import StructType

        in_rows(self._sink, rows)
        own = self._taken_over() if self._spark.catalog.tableExists(self.name) else ()
        kept = rows
        if self._sink.on_delete == "remove":
            kept = StructType([each for each in rows.fields if each.name != DELETED])
        beside = self._history.changes(rows, stored, entries) if self._history is not None else ()
        [change] = super().changes(kept, stored, entries)
        return (*beside, replace(change, statements=(*own, *change.statements)))

    def take_fence(self, suffix: str = "") -> str:
        """As for other tables; what comes late, with a suffix, is refused where deletes are not remembered."""
        if suffix and self._sink.on_delete == "remove":
            raise ConfigError(
                "older changes cannot be landed in a table that forgets deletes: they could bring a deleted key back",
                where=f"table {self.name}",
                hint="rewind the feed to them (lakefeed offsets rewind), which reads all later changes again; a "
                "new table with on_delete: mark takes them",
            )
        if not suffix and self._history is not None:
            self._history.take_own_fence()
        return super().take_fence(suffix)

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Lands the newest change of each key in one commit, and all of them in the history just before it.

        Returns:
            How many rows were inserted, changed or deleted.

        Raises:
            ConfigError: a change without a key, or one that offsets cannot order.
            CheckpointMismatch: the topic was recreated, and its offsets are no order to those in the table.
            Py4JJavaError: Spark could not, or the commit was refused.
        """

        if isinstance(commit, Commit) and not self._sink.order_by:
            self._check_topics(commit.ranges.topic_ids)
        # Not those that ``apply_schema`` saw: a backfill beside the feed may have added some.
        self._columns = self._spark.table(self.name).schema
        changes = deleting(align_columns(rows, self._changes_schema()))
        with adaptive(rows.sparkSession):
            return self._landed(changes, commit, commit_id=commit_id)

    def _landed(self, changes: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int:
        if self._history is not None:
            changes = changes.persist()
        latest = latest_per_key(changes, keys=self._keys, order_by=self._sink.order_by).persist()
        try:
            batch = summarize_changes(latest, keys=self._keys)
            # Before what is wrong with the rows: they may be of a schema that is yet to be met.
            if (outcomes := jvm.java(self._spark).commit.Outcomes.of(commit_id)) is not None:
                outcomes.check()
            batch.check(keys=self._keys, table=self.name)
            if self._history is not None:
                self._history.land_changes(changes, commit, commit_id=commit_id, keys=self._keys)
            properties = {**commit.properties(), COMMIT_ID: commit_id, UPSERTED: batch.upserts.to_json()}
            self._merge(latest, batch.bounds, properties)
        finally:
            latest.unpersist()
            changes.unpersist()
        if self.ledger.rows_of(commit_id) is None:
            # Also where nothing has changed: the ledger must know of the batch.
            self.ledger.land_empty(properties)
        return self.ledger.changed_by(commit_id)

    def _merge(self, latest: DataFrame, bounds: Sequence[Bound], properties: Mapping[str, str]) -> None:
        """Runs the MERGE, again if another writer has changed what it read."""
        session = latest.sparkSession
        merge = MergeStatement(
            table=self.name,
            columns=self._columns.names,
            keys=self._keys,
            order_by=self._sink.order_by,
            on_delete=self._sink.on_delete,
        )
        jvm.kept_rows(latest).createOrReplaceTempView(VIEW)
        try:
            run_in_turn(
                self.name,
                lambda: self.ledger.run(merge.statement(VIEW, bounds=bounds), properties, session=session),
                ask_for_quiet=self.ledger.ask_for_quiet,
            )
        except Exception as error:
            if moved := re.search(rf"{KEY_MOVED}: (topic \S+, partition \d+, offset \d+)", str(error)):
                raise key_moved(self.name, moved[1]) from None
            raise
        finally:
            session.catalog.dropTempView(VIEW)

    def _changes_schema(self) -> StructType:
        from pyspark.sql.types import BooleanType, StructField, StructType

        fields = [each for each in self._columns.fields if each.name != DELETED]
        return StructType([*fields, StructField(DELETED, BooleanType())])

    def _taken_over(self) -> tuple[str, ...]:
        """The properties that let this feed resume with an existing table.

        Raises:
            ConfigError: it has rows of another kind.
        """
        properties = self.ledger.properties()
        keyed = properties.get(KEYED)
        requested = self._own_properties[KEYED]
        if keyed is None and self.ledger.position() is not None:
            raise ConfigError(
                f"feed '{self._feed}' has appended to this table: it may have many rows of a key",
                where=f"table {self.name}",
                hint="land upserts in a new table",
            )
        if keyed is not None and keyed != requested:
            raise ConfigError(
                f"the rows of this table were made with keys and on_delete '{keyed}', the pipeline says '{requested}'",
                where=f"table {self.name}",
                hint="land the feed in a new table, under another name or checkpoint",
            )
        changed = {key: text for key, text in self._own_properties.items() if properties.get(key) != text}
        return (set_properties(self.name, changed),) if changed else ()

    def _check_topics(self, topic_ids: Mapping[str, str]) -> None:
        known = {topic: self._offsets_of.get(f"{OFFSETS_OF}.{topic}") for topic in topic_ids}
        for topic, topic_id in topic_ids.items():
            if known[topic] not in (None, topic_id):
                raise CheckpointMismatch(
                    f"topic {topic} was recreated: its offsets do not show whether a change is newer than a row of "
                    "the topic before",
                    where=f"table {self.name}",
                    hint=f"set {POSITION_COLUMNS[-1]} to NULL in all rows, which makes them older than what comes now; "
                    f"then ALTER TABLE {self.name} UNSET TBLPROPERTIES ('{OFFSETS_OF}.{topic}')",
                )
        if new := {f"{OFFSETS_OF}.{topic}": each for topic, each in topic_ids.items() if known[topic] is None}:
            self._spark.sql(set_properties(self.name, new))
            self._offsets_of = {**self._offsets_of, **new}
