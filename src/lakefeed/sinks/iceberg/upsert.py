"""Upserts into an Iceberg table, which has the newest state of every key as one row; also writes a history of changes.

Guarantee: exactly-once, as for appends; changes are applied in the order of their positions. A micro-batch is one
commit, by the index of keys or by a MERGE. The commit carries the offset ranges and is refused if they do not start
where the last commit ended. A change that is not newer than its key's row changes nothing, so repeated or late changes
leave the table as it is. Deleted rows are removed without a trace (``remove``) or kept as marked rows (``mark``).

The history has a row for every change of every key. A batch's changes are appended to the history in one commit with
the batch's ranges, just before the MERGE. After a crash between the two commits, Spark repeats the batch with the same
ranges, and the history skips it. After a rewind, or if the repeated batch has other ranges than the history, the
history first deletes its rows from the batch's start on.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from lakefeed.clients.iceberg.sql import quoted, rows_where, set_properties
from lakefeed.clients.iceberg.write_lock import run_in_turn
from lakefeed.clients.spark.jvm import java, spark_setting
from lakefeed.clients.spark.statements import run
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.config.keyed import DELETED, POSITION_COLUMNS, in_rows
from lakefeed.errors import ConfigError
from lakefeed.lazy import sf, t
from lakefeed.ledger.continuity import recreated_topic, violations
from lakefeed.ledger.outcomes import check_outcomes
from lakefeed.ledger.snapshot_summary import (
    COMMIT_ID,
    MERGED_BECAUSE,
    UPSERTED,
    Commit,
    PositionReset,
    Reason,
    SnapshotProperties,
    Upserts,
)
from lakefeed.offsets.ranges import OffsetRanges, by_topic
from lakefeed.records.decode.unavailable import Unavailable
from lakefeed.records.schema.changes import Entry, renames
from lakefeed.records.schema.fit import align_columns, find_field
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.changes import (
    KEY_MOVED,
    OFFSET,
    PARTITION,
    SHUFFLE_PARTITIONS,
    STORED_ROWS_A_TASK,
    TOPIC,
    ChangeSummary,
    counted_groups,
    deleting,
    has_bounds,
    key_moved,
    latest_per_key,
    merge_sql,
    partitions_for,
    same_sql,
    shuffle_by_key,
    shuffle_limit,
    summarize_changes,
    topic_recreated,
    update_sql,
    upsert_sql,
)
from lakefeed.sinks.definition import Changes
from lakefeed.sinks.iceberg.table import ADAPTIVE, IcebergTable, write_modes
from lakefeed.sinks.kept_values import LACKING, KeptValues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

KEYED = "lakefeed.upsert"
"""The table property with ``<keys> <on_delete>``, which define what a row is, and cannot change once there are rows."""

OFFSETS_OF = "lakefeed.offsets-of"
"""The prefix of a table property, followed by a topic's name; its value is the id of the topic whose offsets the rows
have."""

FEW_ROWS, ROWS_A_CHANGE = 2_000_000, 20
"""A run's first batch uses MERGE if the table has over ``FEW_ROWS`` rows, and over ``ROWS_A_CHANGE`` per change."""

LAST = 2**63 - 1
"""An offset that no record has."""

VIEW, HISTORY_VIEW, RESULTS_VIEW = "lakefeed_changes", "lakefeed_history", "lakefeed_results"


class HistoryTable(IcebergTable):
    """The table with the history of changes of one feed's upsert table."""

    _fence: str | None = None

    @classmethod
    def beside(cls, table: IcebergTable) -> Self:
        """Return the history table of the upsert table ``table``, with the same layout."""
        sink = table._sink
        of_table = {name: getattr(sink, name) for name in ("partition_by", "sort_by", "properties", "format_version")}
        own = IcebergSinkConfig.model_validate(
            {"table": sink.history, **{name: each for name, each in of_table.items() if name in sink.model_fields_set}}
        )
        follows = {"evolves": table._evolves, "takes_defaults": table._takes_defaults}
        return cls(table._spark, own.with_names_made(sink.names_made), feed=table._feed, **follows)

    def take_own_fence(self) -> None:
        if self._spark.catalog.tableExists(self.name):
            self._fence = self.take_fence()

    def land_changes(
        self, changes: DataFrame, commit: SnapshotProperties, *, commit_id: str, keys: Sequence[str]
    ) -> None:
        """Append the changes of a batch, a backfill or a replay, unless the history already has them."""
        if not isinstance(commit, Commit):
            columns = self._spark.table(self.name).schema
            changes = align_columns(changes, columns)
            changes.createOrReplaceTempView(HISTORY_VIEW)
            same = same_sql((*POSITION_COLUMNS, *keys))
            statement = merge_sql(self.written, HISTORY_VIEW, on=same, columns=columns.names)
            self._run_in_turn(statement, {COMMIT_ID: commit_id}, session=changes.sparkSession)
            return
        own = replace(commit, fence=self._fence)
        position = self.ledger.position()
        if position is not None:
            if position.ranges == commit.ranges:
                return
            if violations(position.ranges, commit):
                self._go_to(own, position.ranges)
        self.land(changes, own, commit_id=commit_id)

    def _go_to(self, commit: Commit, stands: OffsetRanges) -> None:
        """Move the history's position to a batch's start, and delete the history's rows from that position on."""
        ends, starts = stands.ends, {span.key: span.start for span in commit.ranges.ranges}
        ids = commit.ranges.topic_ids
        left = {topic: old for topic, old in stands.topic_ids.items() if ids.get(topic) != old}
        positions = {key: (ends[key], start) for key, start in starts.items() if ends.get(key, start) != start}
        reason: Reason = "rewind" if any(to < start for start, to in positions.values()) else "accepted-loss"
        move = replace(
            commit,
            ranges=OffsetRanges.at(starts, ids),
            move=PositionReset(reason, positions, left),
        )
        self.ledger.record_move(move, commit_id=uuid.uuid4().hex, delete_where=_from(positions))


def _from(positions: Mapping[tuple[str, int], tuple[int, int]]) -> str | None:
    """Return the SQL condition for rows at or after the new position of partitions that move back; None without any."""
    back = {key: (to, LAST) for key, (start, to) in positions.items() if to < start}
    return rows_where(back, columns=(TOPIC, PARTITION, OFFSET)) if back else None


class UpsertTable(IcebergTable):
    """One feed's table of keyed rows."""

    unavailable: Unavailable | None = None
    """The placeholder for values that an upsert leaves as stored."""
    merges_because: str | None = None
    """Why a MERGE landed the last batch; None if the batch was landed with the index of keys."""
    _index: Any = None
    """The ``KeyIndex`` of the JVM module; ``_indexed_by`` has the columns of its keys and order."""
    _indexed_by: tuple[Sequence[str], Sequence[str]] | None = None
    _has_landed = False

    @cached_property
    def _history(self) -> HistoryTable | None:
        return HistoryTable.beside(self) if self._sink.history else None

    def _own_properties(self) -> dict[str, str]:
        return {**write_modes(self._sink), KEYED: f"{','.join(self._sink.keys)} {self._sink.on_delete}"}

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        super().apply_schema(rows, stored, entries)
        self._columns = self._spark.table(self.name).schema
        self._keys, self._order = self._key_and_order(self._columns)
        table = self.ledger.loaded()
        columns = table.schema().asStruct()
        kinds = {key: str(columns.field(key).type()) for key in self._keys}
        self._bounded = [key for key in self._keys if has_bounds(self._columns[key].dataType, kinds[key])]
        self._offsets_of = self.ledger.properties(table)

    def _key_and_order(self, columns: StructType) -> tuple[list[str], list[str]]:
        """Return the names, as the table spells them, of the key columns and of the columns that order changes."""
        named = self._sink.keys, self._sink.order_by
        keys, order = ([found.name for each in names if (found := find_field(columns, each))] for names in named)
        return keys, order

    def lands_changes(self, rows: Callable[[], StructType | None]) -> str:
        """Say whether the index of keys lands changes, or why a MERGE does; ``rows`` returns a new table's columns."""
        because: Any = self._sink.merges_because
        columns = self._spark.table(self.name).schema if self._spark.catalog.tableExists(self.name) else rows()
        if because is None and columns is not None:
            index = java(self._spark).upsert.KeyIndex(*self._key_and_order(columns), [], self._sink.branch, 0)
            because = index.refusal(columns.json())
        return "the index of keys" if because is None else f"a MERGE, because {because}"

    def changes(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> Changes:
        in_rows(self._sink, rows)
        own = self._take_over(stored) if self._spark.catalog.tableExists(self.name) else ()
        kept = rows
        if self._sink.on_delete == "remove":
            kept = t.StructType([each for each in rows.fields if each.name != DELETED])
        beside = self._history.changes(rows, stored, entries) if self._history is not None else ()
        [change] = super().changes(kept, stored, entries)
        return (*beside, replace(change, statements=(*own, *change.statements)))

    def take_fence(self, suffix: str = "", *, prefix: str = "") -> str:
        """Take the fence; refuse a backfill or a replay (``suffix``) into a table that removes deleted rows.

        Such a table does not store deletes, so an older change could bring a deleted row back.
        """
        if suffix and self._sink.on_delete == "remove":
            raise ConfigError(
                "older changes cannot be landed in a table that forgets deletes: they could bring a deleted key back",
                where=f"table {self.name}",
                hint="move the feed back to these changes (lakefeed offsets rewind): it then reads all later changes "
                "again; or use a new table with on_delete: mark, which accepts older changes",
            )
        if not suffix and self._history is not None:
            self._history.take_own_fence()
        return super().take_fence(suffix, prefix=prefix)

    def try_rows(self, rows: DataFrame, commit: Commit) -> None:
        """Write files of all rows except deletes as an append does, because a MERGE would write the same files."""
        removes = self._sink.on_delete == "remove"
        kept = deleting(rows).filter(~sf.col(DELETED)).drop(DELETED) if removes else deleting(rows)
        super().try_rows(kept, commit)

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Land the newest change of each key in one commit; just before it, land all changes in the history."""
        if isinstance(commit, Commit) and not self._sink.order_by:
            self._check_topics(commit.ranges)
        # Read the columns again, because a backfill beside the feed may have added columns since ``apply_schema``.
        table = self.ledger.take_checked()
        self._columns = self.ledger.columns_of(table)
        fields = [field for field in self._columns.fields if field.name != DELETED]
        aligned = align_columns(rows, t.StructType(fields).add(DELETED, "boolean"))
        changes = self.with_countable_hours(deleting(aligned))
        session = rows.sparkSession
        with spark_setting(session, *ADAPTIVE):
            partitions = partitions_for(changes, commit)
            if self._history is not None:
                # Shuffle now, so that history and table get the same values: a transform may return other values when
                # it runs again.
                changes = shuffle_by_key(changes, keys=self._keys, partitions=partitions)
            if isinstance(commit, Commit) and self._index_serves(table, commit):
                if (
                    landed := self._land_by_index(changes, commit, table, commit_id=commit_id, tasks=partitions)
                ) is not None:
                    return landed
                self._index.abort()
                self.merges_because = self.merges_because or "the index could not land what it had written"
            if self._history is None:
                changes = shuffle_by_key(changes, keys=self._keys, partitions=partitions)
            stored_rows = self.ledger.rows_in(table)
            joined = max(partitions, min(shuffle_limit(session), -(-stored_rows // STORED_ROWS_A_TASK)))
            with spark_setting(session, SHUFFLE_PARTITIONS, str(joined)):
                return self._land_changes(changes, commit, commit_id=commit_id)

    def take_notes(self) -> tuple[str, ...]:
        """Return a message, once, if the table has no index, and a message whenever the index was wrong."""
        note = None if self._index is None else self._index.takeNote()
        return () if note is None else (f"{self.name}: {note}",)

    def _index_serves(self, table: Any, commit: Commit) -> bool:
        """Return whether the index can land a batch without a MERGE; if not, store why in ``merges_because``."""
        if self._index is None or self._indexed_by != (self._keys, self._order):
            most = -1 if self._sink.key_index_mb is None else self._sink.key_index_mb * 1_000_000
            index = java(self._spark).upsert.KeyIndex
            self._index = index(self._keys, self._order, list(POSITION_COLUMNS), self._sink.branch, most)
            self._indexed_by = self._keys, self._order
        # To build the index, all keys are read, which does not pay in a run that ends after one small batch.
        most_rows = max(FEW_ROWS, ROWS_A_CHANGE * commit.ranges.records)
        is_first, self._has_landed = not self._has_landed, True
        because = self._sink.merges_because
        if because is None and is_first and self.ledger.rows_in(table) > most_rows:
            because = "the first batch is small beside the table"
        if because is None and (refusal := self._index.refusal(table)) is not None:
            because = str(refusal)
        self.merges_because = because
        return because is None

    def _land_by_index(
        self, changes: DataFrame, commit: Commit, table: Any, *, commit_id: str, tasks: int
    ) -> int | None:
        """Land a batch with the index of keys; return None if that is impossible, so that a MERGE has to land it."""
        index, removes = self._index, self._sink.on_delete == "remove"
        kept = KeptValues.of(self.unavailable, changes.schema, keys=self._keys)
        names = [*self._columns.names, *([DELETED] if removes else [])]
        ordered: Any = changes
        if kept or changes.schema.names != names:
            lacking = [kept.lacking().alias(LACKING)] if kept else []
            ordered = changes.select(*(sf.col(quoted((each,))) for each in names), *lacking)
        starts = json.dumps(by_topic({span.key: span.start for span in commit.ranges.ranges}))
        if (refusal := index.begin(ordered._jdf, table, starts)) is not None:
            self.merges_because = str(refusal)
            return None
        try:
            written = index.write(ordered._jdf, table, DELETED, LACKING if kept else None, removes, tasks)
            if written is None:
                return None
            found = json.loads(str(written))
            # Check the outcomes first: they may require another schema, and so other rows.
            check_outcomes(self._spark, commit_id)
            upserts = Upserts(found["changes"], found["keys"], found["deletes"])
            ChangeSummary(upserts, None, found["withoutKey"], found["moved"]).check(keys=self._keys, table=self.name)
            self._land_history(changes, commit, commit_id=commit_id)
            properties = {**commit.properties(), COMMIT_ID: commit_id, UPSERTED: upserts.to_json()}
            changed: list[int | None] = []
            run_in_turn(
                self.name,
                lambda: changed.append(index.commit(properties)),
                ask_for_quiet=self.ledger.ask_for_quiet,
            )
        except BaseException:
            index.abort()
            raise
        if changed[-1] is not None:
            # Commit also if no row has changed, because the ledger needs the batch's ranges.
            self.ledger.ensure_commit(properties)
        return changed[-1]

    def _land_changes(self, changes: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int:
        batch = summarize_changes(changes, keys=self._keys, order_by=self._sink.order_by, bounded=self._bounded)
        # Check the outcomes first: they may require another schema, and so other rows.
        check_outcomes(self._spark, commit_id)
        batch.check(keys=self._keys, table=self.name)
        self._land_history(changes, commit, commit_id=commit_id)
        properties = {**commit.properties(), COMMIT_ID: commit_id, UPSERTED: batch.upserts.to_json()}
        if self.merges_because is not None:
            properties[MERGED_BECAUSE] = self.merges_because
        kept = KeptValues.of(self.unavailable, changes.schema, keys=self._keys)
        if kept or batch.upserts.superseded:
            changes = latest_per_key(changes, keys=self._keys, order_by=self._sink.order_by, kept=kept)
        self._merge(changes, batch.bounds, properties, kept)
        # Commit also if no row has changed, because the ledger needs the batch's ranges.
        self.ledger.ensure_commit(properties)
        return self.ledger.changed_by(commit_id)

    def _land_history(self, changes: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> None:
        if self._history is not None:
            without = changes if self.unavailable is None else self.unavailable.without(changes)
            self._history.land_changes(without, commit, commit_id=commit_id, keys=self._keys)

    def _merge(self, latest: DataFrame, bounds: Any, properties: Mapping[str, str], kept: KeptValues | None) -> None:
        """Run the MERGE; repeat it if another writer has meanwhile changed rows that the MERGE has read."""
        session = latest.sparkSession
        statement = upsert_sql(
            self.written,
            VIEW,
            columns=self._columns.names,
            keys=self._keys,
            order_by=self._sink.order_by,
            on_delete=self._sink.on_delete,
            kept=kept,
        )
        latest.createOrReplaceTempView(VIEW)
        try:
            self._run_in_turn(statement, properties, session=session, bounds=bounds)
        except Exception as error:
            if moved := re.search(rf"{KEY_MOVED}: (topic \S+, partition \d+, offset \d+)", str(error)):
                raise key_moved(self.name, moved[1]) from None
            raise
        finally:
            session.catalog.dropTempView(VIEW)

    def _take_over(self, stored: StoredSchema | None) -> tuple[str, ...]:
        """Return the statement by which this feed takes over an existing table; refuse rows of other keys."""
        properties = self.ledger.properties()
        keyed = properties.get(KEYED)
        own = self._own_properties()
        if keyed is None and self.ledger.position() is not None:
            raise ConfigError(
                f"feed '{self._feed}' has appended to this table: it may have many rows of a key",
                where=f"table {self.name}",
                hint="land upserts in a new table",
            )
        if keyed is not None and keyed != own[KEYED] and not self._renames_keys(keyed, stored):
            raise ConfigError(
                f"the rows of this table were written with keys and on_delete '{keyed}', and the pipeline sets "
                f"'{own[KEYED]}'",
                where=f"table {self.name}",
                hint="land the feed in a new table, under another name or checkpoint",
            )
        changed = {key: text for key, text in own.items() if properties.get(key) != text}
        return (set_properties(self.name, changed),) if changed else ()

    def _renames_keys(self, keyed: str, stored: StoredSchema | None) -> bool:
        """Return whether the pipeline's keys are the key columns of the stored rows, perhaps renamed by aliases."""
        before, _, on_delete = keyed.rpartition(" ")
        known = {(each.before, each.after) for each in (renames(stored.schema) if stored else ())}
        pairs = list(zip(before.split(","), self._sink.keys, strict=False))
        same = len(pairs) == len(self._sink.keys) == len(before.split(",")) and on_delete == self._sink.on_delete
        return same and all(old == new or (old, new) in known for old, new in pairs)

    def _check_topics(self, ranges: OffsetRanges) -> None:
        stored = {topic: self._offsets_of.get(f"{OFFSETS_OF}.{topic}") for topic in ranges.topic_ids}
        known = {topic: topic_id for topic, topic_id in stored.items() if topic_id is not None}
        if (topic := recreated_topic(known, ranges)) is not None:
            undo = f"ALTER TABLE {self.name} UNSET TBLPROPERTIES ('{OFFSETS_OF}.{topic}')"
            raise topic_recreated(topic, where=f"table {self.name}", undo=undo)
        if new := {
            f"{OFFSETS_OF}.{topic}": topic_id for topic, topic_id in ranges.topic_ids.items() if topic not in known
        }:
            run(self._spark, set_properties(self.name, new))
            self._offsets_of = {**self._offsets_of, **new}


class MergeTable(IcebergTable):
    """A table with one row for each group of a query with state: the group's row in the newest batch that has one.

    The key of a window or group may be null; null then counts as one key.
    """

    def _own_properties(self) -> dict[str, str]:
        return write_modes(self._sink)

    def _check_rows(self, rows: StructType) -> None:
        have = {name.lower() for name in rows.names}
        for key in self._sink.keys:
            if key.lower() not in have:
                raise ConfigError(
                    f"keys names the column '{key}', which the rows do not have",
                    where=f"table {self.name}, columns {', '.join(rows.names)}",
                    hint="keys are the columns that the transform groups by",
                )
        super()._check_rows(rows)

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Merge the rows in one commit, and return their number; refuse two rows with the same key."""
        columns = self._spark.table(self.name).schema
        properties = {**commit.properties(), COMMIT_ID: commit_id}
        changed = self.with_countable_hours(align_columns(rows, columns)).persist()
        session, keys = changed.sparkSession, self._sink.keys
        try:
            count = counted_groups(changed, keys=keys, where=f"table {self.name}", kind="iceberg")
            changed.createOrReplaceTempView(RESULTS_VIEW)
            updates = f"WHEN MATCHED THEN {update_sql(columns.names)}"
            statement = merge_sql(self.written, RESULTS_VIEW, updates, on=same_sql(keys), columns=columns.names)
            self.ledger.run(statement, properties, session=session)
        finally:
            session.catalog.dropTempView(RESULTS_VIEW)
            changed.unpersist()
        self.ledger.ensure_commit(properties)
        return count
