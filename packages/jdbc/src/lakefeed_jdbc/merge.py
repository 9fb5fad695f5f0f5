"""Move rows from a staging table into the feed's table, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakefeed.config.keyed import DELETED, POSITION_COLUMNS
from lakefeed.sinks.kept_values import KEPT
from lakefeed_jdbc.dialect import Dialect
from lakefeed_jdbc.session import Session
from lakefeed_jdbc.settings import JdbcSinkConfig

TOPIC, PARTITION, OFFSET = POSITION_COLUMNS
Attempts = Sequence[tuple[int, int]]
"""The ids of the successful task attempts, and how many rows each has staged."""


@dataclass(frozen=True, kw_only=True)
class JdbcMerge:
    """Writes staged rows into a table.

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
    """``SinkContext.groups``: each row is the newest state of a group."""
    session: Session
    attempts: Attempts
    kept: Mapping[str, Sequence[int]]
    """The columns, in lower case, that keep the stored value in rows whose ``KEPT`` has one of these numbers."""

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
        """Return the position of a staged row whose key has a stored row from another partition, if one exists."""
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
        # MariaDB assigns columns one after the other, so columns whose new values depend on stored values come first.
        columns = sorted(self.columns, key=lambda column: column.lower() not in self.kept)
        changes = ", ".join(f"{dialect.own}{self._quoted(each)} = {self._changed(each)}" for each in columns)
        updated = session.update(dialect.update.format(**names, changes=changes, where=f"{stays} AND {newer}"))
        inserted = session.update(
            f"INSERT INTO {self.target} ({self._listed()}) SELECT {self._listed('s.')} FROM {self.stage} s "  # noqa: S608
            f"WHERE {stays} AND NOT EXISTS (SELECT 1 FROM {self.target} t WHERE {self._on()})"
        )
        return inserted, updated, gone

    def _changed(self, column: str) -> str:
        """Return SQL for a column's new value: the event's, or the stored value if the event lacks the column."""
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
        # There are no attempts if the batch has no rows, because Spark then runs no task.
        return f"s._lakefeed_task IN ({', '.join(str(attempt) for attempt, _ in self.attempts) or 'NULL'})"

    def _on(self) -> str:
        return " AND ".join(f"t.{self._quoted(key)} = s.{self._quoted(key)}" for key in self.sink.keys)

    def _newer(self) -> str:
        """Return the condition that a change is newer than the stored row; a row without a position is older."""
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
