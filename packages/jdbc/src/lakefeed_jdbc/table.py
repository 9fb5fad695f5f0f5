"""JDBC sink: write a batch's rows and its offset ranges in one transaction.

Guarantee: exactly-once. For each attempt to write a batch, the driver creates a staging table, and Spark's tasks write
the rows into it. One transaction of the driver locks the feed's row, checks fence and continuity, moves the rows into
the table and adds the commit to the ledger. Readers see the batch as a whole when the transaction commits. The next
start drops the staging tables of failed attempts.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.clients.retry import retry_until
from lakefeed.clients.spark.jvm import spark_setting
from lakefeed.config.keyed import DELETED, POSITION_COLUMNS, in_rows, keyed
from lakefeed.errors import CheckpointMismatch, ConfigError, LakefeedError, Unreachable
from lakefeed.lazy import DataFrame, SparkSession, StructType, sf, t
from lakefeed.ledger.continuity import recreated_topic
from lakefeed.ledger.outcomes import check_outcomes
from lakefeed.ledger.snapshot_summary import Upserts
from lakefeed.records.schema.fit import carries_data, refuse_same_but_for_case
from lakefeed.sinks.base import BaseSink
from lakefeed.sinks.changes import (
    deleting,
    key_moved,
    latest_per_key,
    partitions_for,
    shuffle_by_key,
    summarize_changes,
    topic_recreated,
)
from lakefeed.sinks.definition import Changes, Commit, Entry, SinkContext, SnapshotProperties, StoredSchema, TableChange
from lakefeed.sinks.kept_values import KEPT, KeptValues
from lakefeed_jdbc.dialect import Dialect
from lakefeed_jdbc.layout import JdbcLayout, is_nested
from lakefeed_jdbc.ledger import JdbcLedger, rows_changed
from lakefeed_jdbc.session import JvmDatabase, Session, StatementRefusal
from lakefeed_jdbc.settings import JdbcSinkConfig

STAGE = "lakefeed_stage_"
EXACT_TIMES = ("spark.sql.datetime.java8API.enabled", "true")
"""Without this setting, Spark rebases timestamps before 1582 by several days."""


class JdbcTable(BaseSink):
    """One feed's table in a database."""

    ledger: JdbcLedger

    def __init__(self, spark: SparkSession, sink: JdbcSinkConfig, context: SinkContext) -> None:
        self._spark = spark
        self._sink = sink
        self._context = context
        self._followed = False
        self._has_changes = self._sink.mode == "upsert" and not self._context.groups
        self._database = JvmDatabase(self._spark, self._sink)
        self.ledger = JdbcLedger(self._database, self._sink, self._context.feed)
        self._columns: list[str] = []
        self._kept: dict[str, list[int]] = {}

    def location(self) -> str:
        return self.ledger.where

    def stored_schema(self) -> StoredSchema | None:
        with self.ledger.session() as session:
            standing = self.ledger.standing(session) if self.ledger.has_table(session) else None
        return None if standing is None or standing.reader is None else StoredSchema.of_json(standing.reader)

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        kept = self._stored_columns(rows)
        with self.ledger.session() as session:
            self.ledger.ensure(session)
            if not self.ledger.has_table(session):
                if self._followed:
                    what, hint = "the table was dropped while the feed runs", "restore it, or start the feed again"
                    raise CheckpointMismatch(what, where=self._sink.where, hint=hint)
                # The run's start has decided that a feed whose table is missing starts over: delete the old commits.
                self.ledger.forget(session)
                session.commit()
            layout = JdbcLayout(self.ledger, self._sink, session, evolves=self._context.evolves)
            for statement in layout.statements(kept):
                session.update(statement)
            session.commit()
            self.ledger.note(session, keyed=keyed(self._sink), reader=stored.to_json() if stored else None)
            session.commit()
            have = layout.have()
            self._columns = [have[name.lower()].name for name in kept.names]
        self._followed = True

    def changes(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> Changes:
        kept = self._stored_columns(rows)
        with self.ledger.session() as session:
            layout = JdbcLayout(self.ledger, self._sink, session, evolves=self._context.evolves)
            is_new = not self.ledger.has_table(session)
            statements = (*self.ledger.creation(session), *layout.statements(kept))
        return (TableChange(table=self._sink.table, is_new=is_new, statements=statements),)

    def _stored_columns(self, rows: StructType) -> StructType:
        refuse_same_but_for_case(rows, where="the rows")
        if self._has_changes:
            in_rows(self._sink, rows)
        have = {name.lower() for name in rows.names}
        if missing := [key for key in self._sink.keys if key.lower() not in have]:
            raise ConfigError(
                f"the rows do not have the key {missing[0]}",
                where=f"{self._sink.where}, columns {', '.join(rows.names)}",
                hint="name other keys, or select the column in transform.sql",
            )
        return t.StructType(
            [each for each in rows.fields if carries_data(each.dataType) and not self._is_only_staged(each.name)]
        )

    def take_fence(self) -> str:
        """Take the next fence, and drop the staging tables of failed attempts."""
        fence = self.ledger.take_fence()
        select = "SELECT table_name FROM information_schema.tables WHERE table_schema = {schema} AND table_name LIKE ?"
        with self.ledger.session() as session:
            left_behind = self.ledger.look_up(session, select, f"{STAGE}{self._mark}%")
        for (name,) in left_behind:
            self._drop(self.ledger.name(str(name)))
        return fence

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Land the rows of one micro-batch in one transaction; retry while the database is unavailable."""
        if not isinstance(commit, Commit):
            what = "the sink jdbc writes only the batches of a run, no backfills or replays"
            raise ConfigError(what, where=self._sink.where, hint="write with lakefeed run, or Pipeline.run()")
        if not self._has_changes:
            return self._patiently(lambda: self._attempt(rows, commit, commit_id))
        changes = deleting(rows)
        changes = shuffle_by_key(changes, keys=self._keys, partitions=partitions_for(changes, commit))
        batch = summarize_changes(changes, keys=self._keys, order_by=self._sink.order_by)
        # Check the outcomes first: they may request another schema, with which the rows must be computed again.
        check_outcomes(self._spark, commit_id)
        batch.check(keys=self._keys, table=self._sink.table)
        latest, changed = self._latest(changes), replace(commit, upserts=batch.upserts)
        return self._patiently(lambda: self._attempt(latest, changed, commit_id))

    def try_rows(self, rows: DataFrame, commit: Commit) -> None:
        """Write rows in a transaction that is rolled back; raise the error if the database refuses a row."""
        if self._has_changes:
            rows = self._latest(deleting(rows))
        self._patiently(lambda: self._attempt(rows, commit, commit_id=None))

    def _latest(self, changes: DataFrame) -> DataFrame:
        kept = KeptValues.of(self._context.unavailable, changes.schema, keys=self._keys)
        self._kept = {} if kept is None else kept.of_columns()
        return latest_per_key(changes, keys=self._keys, order_by=self._sink.order_by, kept=kept)

    def _attempt(self, rows: DataFrame, commit: Commit, commit_id: str | None) -> int:
        """Write the rows into a staging table, then into the feed's table; if ``commit_id`` is None, roll back."""
        name = f"{STAGE}{self._mark}_{uuid.uuid4().hex[:10]}"
        stage, dialect = self.ledger.name(name), self._database.dialect
        target = self.ledger.name(self.ledger.table)
        stored, only_staged = self._columns, {DELETED: "boolean"} if self._is_only_staged(DELETED) else {}
        only_staged |= {KEPT: "text"} if self._kept else {}
        with self.ledger.session() as session:
            session.update(dialect.staging(stage, target, stored, more=only_staged))
            session.commit()
        try:
            columns = [*map(dialect.name, (*stored, *only_staged)), "_lakefeed_task"]
            insert = f"INSERT INTO {stage} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608
            with spark_setting(rows.sparkSession, *EXACT_TIMES):
                attempts = self._database.stage(_as_staged(rows, [*stored, *only_staged]), insert)
            counts = "" if commit_id is None else check_outcomes(self._spark, commit_id)
            with self.ledger.session() as session:
                if commit_id is not None and not self.ledger.begin(session, commit, commit_id=commit_id):
                    return rows_changed(next(self.ledger.commits(session, most=1)))
                merge = JdbcMerge(
                    dialect=dialect,
                    target=target,
                    stage=stage,
                    sink=self._sink,
                    columns=stored,
                    groups=self._context.groups,
                    session=session,
                    attempts=attempts,
                    kept=self._kept,
                )
                done = self._merge_staged(merge, commit)
                if commit_id is None:
                    return 0
                self.ledger.write(session, done, commit_id=commit_id, counts=counts)
                session.commit()
                return rows_changed(done)
        finally:
            self._drop(stage)

    def _merge_staged(self, merge: JdbcMerge, commit: Commit) -> Commit:
        """Move the staged rows into the table, and return the commit with the numbers of its rows."""
        expected = sum(count for _, count in merge.attempts)
        if expected and merge.staged() != expected:
            # After a crash of PostgreSQL, the staging table is empty, because it is unlogged.
            hint = "check why the database was restarted; the batch is written again"
            raise Unreachable("the database has lost staged rows: it was restarted", where=self._sink.where, hint=hint)
        if self._sink.mode == "append":
            return replace(commit, rows=merge.append())
        if self._sink.mode == "overwrite":
            return replace(commit, rows=merge.replace())
        if merge.groups and (repeated := merge.repeated_key()) is not None:
            raise ConfigError(
                f"the batch has more than one row of the key {repeated}",
                where=self._sink.where,
                hint="set keys to all columns that the query groups by",
            )
        if self._has_changes and not self._sink.order_by:
            self._note_topics(merge.session, commit)
            if (moved := merge.moved_key()) is not None:
                raise key_moved(self._sink.table, moved)
        inserted, updated, deleted = merge.merge() if merge.attempts else (0, 0, 0)
        before = commit.upserts or Upserts(expected, expected)
        upserts = Upserts(before.changes, before.keys, before.deletes, inserted, updated, deleted)
        return replace(commit, rows=upserts.landed, upserts=upserts)

    def _patiently(self, attempt: Callable[[], int]) -> int:
        def passes(error: Exception) -> bool:
            refusal = StatementRefusal.of(error)
            return isinstance(error, Unreachable) or (refusal is not None and refusal.passes)

        with StatementRefusal.translated(self._sink.where):
            return retry_until(attempt, is_transient=passes, seconds=self._context.patience)

    def _note_topics(self, session: Session, commit: Commit) -> None:
        """Store the topics' ids; refuse a recreated topic, whose offsets cannot order the changes of a key."""
        standing = self.ledger.standing(session)
        known = dict(standing.topics) if standing else {}
        if (topic := recreated_topic(known, commit.ranges)) is not None:
            undo = "UPDATE lakefeed_feeds SET topics = NULL for this feed"
            raise topic_recreated(topic, where=self._sink.where, undo=undo)
        known |= commit.ranges.topic_ids
        self.ledger.note(session, topics=json.dumps(known, separators=(",", ":")))

    @property
    def _keys(self) -> list[str]:
        spelt = {column.lower(): column for column in self._columns}
        return [spelt[key.lower()] for key in self._sink.keys]

    def _is_only_staged(self, column: str) -> bool:
        return self._has_changes and self._sink.on_delete == "remove" and column.lower() == DELETED

    @property
    def _mark(self) -> str:
        """Return the common prefix of the names of this feed's and table's staging tables."""
        return hashlib.sha256(f"{self.ledger.feed}/{self._sink.table}".encode()).hexdigest()[:10]

    def _drop(self, stage: str) -> None:
        # While tasks still write to the staging table, DROP TABLE fails, and the next start drops the table.
        with suppress(LakefeedError), self.ledger.session() as session:
            session.update(self._database.dialect.hurry)
            session.update(f"DROP TABLE IF EXISTS {stage}")
            session.commit()


def _as_staged(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the rows with these columns in this order, nested columns as JSON."""
    fields = {field.name.lower(): field for field in rows.schema.fields}
    staged = []
    for name in columns:
        field = fields[name.lower()]
        column = sf.col(quoted((field.name,)))
        as_json = sf.to_json(column, {"ignoreNullFields": "false"}) if is_nested(field.dataType) else column
        staged.append(as_json.alias(name))
    return rows.select(*staged)


TOPIC, PARTITION, OFFSET = POSITION_COLUMNS
Attempts = Sequence[tuple[int, int]]
"""The ids of the successful task attempts, and how many rows each has staged."""


@dataclass(frozen=True, kw_only=True)
class JdbcMerge:
    """Moves staged rows into a table.

    The merge uses UPDATE, DELETE and INSERT, which report the affected rows. MariaDB's ON DUPLICATE KEY could also
    change a row with another key, if the table has a second unique index.
    """

    dialect: Dialect
    target: str
    """The table's quoted name."""
    stage: str
    """The staging table's quoted name."""
    sink: JdbcSinkConfig
    columns: Sequence[str]
    """The rows' columns in the table's spelling."""
    groups: bool
    """``SinkContext.groups``: a row is the newest aggregate of a group."""
    session: Session
    attempts: Attempts
    kept: Mapping[str, Sequence[int]]
    """The columns, in lower case, that keep the stored value if a row's ``KEPT`` has one of these numbers."""

    def staged(self) -> int:
        [[count]] = self.session.query(f"SELECT COUNT(*) FROM {self.stage} s WHERE {self._ours}")  # noqa: S608
        return int(count)

    def append(self) -> int:
        return self.session.update(
            f"INSERT INTO {self.target} ({self._listed()}) "  # noqa: S608
            f"SELECT {self._listed('s.')} FROM {self.stage} s WHERE {self._ours}"
        )

    def replace(self) -> int:
        """Replace all rows, and return the new number of rows."""
        # TRUNCATE would commit the transaction in MariaDB.
        self.session.update(f"DELETE FROM {self.target}")  # noqa: S608
        return self.append()

    def repeated_key(self) -> str | None:
        """Return a key that several staged rows have; None if all staged rows have different keys."""
        listed = ", ".join(f"s.{self._quoted(key)}" for key in self.sink.keys)
        found = self.session.query(
            f"SELECT {listed} FROM {self.stage} s WHERE {self._ours} GROUP BY {listed} "  # noqa: S608
            "HAVING COUNT(*) > 1 LIMIT 1"
        )
        return ", ".join(map(str, found[0])) if found else None

    def moved_key(self) -> str | None:
        """Return the offset of a staged row whose key has a stored row from another partition; otherwise None."""
        topic, partition, offset = map(self._quoted, POSITION_COLUMNS)
        found = self.session.query(
            f"SELECT s.{topic}, s.{partition}, s.{offset} FROM {self.stage} s JOIN {self.target} t ON {self._on()} "  # noqa: S608
            f"WHERE {self._ours} AND t.{offset} IS NOT NULL "
            f"AND (s.{topic} <> t.{topic} OR s.{partition} <> t.{partition}) LIMIT 1"
        )
        return f"topic {found[0][0]}, partition {found[0][1]}, offset {found[0][2]}" if found else None

    def merge(self) -> tuple[int, int, int]:
        """Land the newest change of every key; return the numbers of inserted, updated and deleted rows."""
        dialect, session, deleted = self.dialect, self.session, f"s.{self._quoted(DELETED)}"
        removes = self.sink.on_delete == "remove" and not self.groups
        newer = f"({self._newer()})"
        stays = f"{self._ours} AND NOT {deleted}" if removes else self._ours
        if dialect.kind == "postgresql":
            # Without statistics, PostgreSQL would guess the number of staged rows.
            session.update(f"ANALYZE {self.stage}")
        names = {"target": self.target, "stage": self.stage, "on": self._on()}
        gone = 0
        if removes:
            gone = session.update(dialect.delete.format(**names, where=f"{self._ours} AND {deleted} AND {newer}"))
        # MariaDB assigns columns one after the other: first assign columns whose new values depend on stored values.
        columns = sorted(self.columns, key=lambda column: column.lower() not in self.kept)
        changes = ", ".join(f"{dialect.own}{self._quoted(each)} = {self._changed(each)}" for each in columns)
        updated = session.update(dialect.update.format(**names, changes=changes, where=f"{stays} AND {newer}"))
        inserted = session.update(
            f"INSERT INTO {self.target} ({self._listed()}) SELECT {self._listed('s.')} FROM {self.stage} s "  # noqa: S608
            f"WHERE {stays} AND NOT EXISTS (SELECT 1 FROM {self.target} t WHERE {self._on()})"
        )
        return inserted, updated, gone

    def _changed(self, column: str) -> str:
        """Return the SQL of a column's new value: the event's value, or the stored one if the event has none."""
        quoted = self._quoted(column)
        is_kept = [f"position(',{number},' IN s.{KEPT}) > 0" for number in self.kept.get(column.lower(), ())]
        if not is_kept:
            return f"s.{quoted}"
        stored = f"t.{quoted}"
        if self.sink.on_delete == "mark":
            stored = f"CASE WHEN t.{self._quoted(DELETED)} THEN NULL ELSE {stored} END"
        return f"CASE WHEN {' OR '.join(is_kept)} THEN {stored} ELSE s.{quoted} END"

    @property
    def _ours(self) -> str:
        # For a batch without rows, Spark runs no task, so there are no attempts.
        return f"s._lakefeed_task IN ({', '.join(str(attempt) for attempt, _ in self.attempts) or 'NULL'})"

    def _on(self) -> str:
        return " AND ".join(f"t.{self._quoted(key)} = s.{self._quoted(key)}" for key in self.sink.keys)

    def _newer(self) -> str:
        """Return the condition that a change is newer than the stored row; a row without an offset counts as older."""
        offset = self._quoted(OFFSET)
        if self.groups:
            return "TRUE"
        if not self.sink.order_by:
            return f"t.{offset} IS NULL OR s.{offset} > t.{offset}"
        spelt = {column.lower(): column for column in self.columns}
        return self._after([spelt[each.lower()] for each in (*self.sink.order_by, *POSITION_COLUMNS)])

    def _after(self, order: Sequence[str]) -> str:
        """Return the condition that ``s`` comes after ``t`` in this order, with nulls first."""
        first, *rest = order
        ours, theirs = (f"{row}.{self._quoted(first)}" for row in "st")
        text = self.dialect.binary_text if first.lower() == TOPIC else ""
        after = f"{ours}{text} > {theirs}{text} OR ({theirs} IS NULL AND {ours} IS NOT NULL)"
        if not rest:
            return after
        return f"{after} OR ({ours} {self.dialect.same} {theirs} AND ({self._after(rest)}))"

    def _listed(self, before: str = "") -> str:
        return ", ".join(f"{before}{self._quoted(column)}" for column in self.columns)

    def _quoted(self, column: str) -> str:
        spelt = {each.lower(): each for each in self.columns}
        return self.dialect.name(spelt.get(column.lower(), column))
