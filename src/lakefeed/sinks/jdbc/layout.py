"""Creates a feed's table from the rows' columns, changes it with them, and refuses one that cannot serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefeed.config.jdbc import JdbcSinkConfig
from lakefeed.config.keyed import keyed
from lakefeed.errors import ConfigError, SchemaIncompatible
from lakefeed.sinks.jdbc.columns import DatabaseColumn, columns_of, engine_of, misfit, type_sql, unique_keys, widens
from lakefeed.sinks.jdbc.ledger import JdbcLedger
from lakefeed.sinks.jdbc.session import Session

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType


class JdbcLayout:
    """Compares the table of a sink with the rows' columns, in one transaction."""

    def __init__(self, ledger: JdbcLedger, sink: JdbcSinkConfig, session: Session, *, evolves: bool = True) -> None:
        self._ledger = ledger
        self._sink = sink
        self._session = session
        self._evolves = evolves

    def creation(self, rows: StructType) -> str:
        dialect, keys = self._ledger.dialect, self._keys
        columns = [self._declared(each) for each in rows.fields]
        if keys:
            names = {each.name.lower(): each.name for each in rows.fields}
            columns.append(f"PRIMARY KEY ({', '.join(dialect.name(names[key]) for key in self._sink_keys)})")
        return f"CREATE TABLE {self._name} ({', '.join(columns)}){dialect.table_options}"

    def changes(self, rows: StructType) -> list[str]:
        """Return the statements that add missing columns, and widen those that are too narrow."""
        dialect, session = self._ledger.dialect, self._session
        standing = self._ledger.standing(session)
        if standing is not None and standing.keyed not in (None, keyed(self._sink)):
            raise ConfigError(
                f"the rows of this table were made with '{standing.keyed}', the pipeline says '{keyed(self._sink)}'",
                where=self._sink.where,
                hint="land the feed in a new table, under another name or checkpoint",
            )
        have = self.have()
        self._check_required(rows, have)
        statements, misfits = [], []
        for field in rows.fields:
            column = have.get(field.name.lower())
            if column is None:
                statements.append(f"ALTER TABLE {self._name} ADD COLUMN {self._declared(field)}")
            elif message := misfit(field.dataType, column, dialect):
                if widens(field.dataType, column):
                    statements.append(self._widened(field, column))
                else:
                    misfits.append(message)
        if misfits:
            raise SchemaIncompatible(
                "; ".join(misfits), where=self._sink.where, hint="change the table, or cast it in transform.sql"
            )
        if statements and not self._evolves:
            raise ConfigError(
                f"the table would have to change: {'; '.join(statements)}",
                where=self._sink.where,
                hint="run these statements, or schema: {on_change: evolve}",
            )
        return statements

    def check_keys(self) -> None:
        """Refuse a table without transactions, a unique index of just the keys, or with keys that ignore case."""
        dialect, session, ledger = self._ledger.dialect, self._session, self._ledger
        engine = engine_of(session, dialect, ledger.schema, ledger.table)
        if engine is not None and engine.lower() != "innodb":
            raise ConfigError(
                f"the table's engine {engine} has no transactions: readers would see parts of batches",
                where=self._sink.where,
                hint=f"ALTER TABLE {self._name} ENGINE=InnoDB",
            )
        if not self._keys:
            return
        listed = ", ".join(self._sink.keys)
        if frozenset(self._keys) not in unique_keys(session, dialect, ledger.schema, ledger.table):
            raise ConfigError(
                f"no unique index of the table has just the keys: {listed}",
                where=self._sink.where,
                hint=f"ALTER TABLE {self._name} ADD UNIQUE ({listed}); or name other keys",
            )
        for key in self._keys:
            column = self.have()[key]
            if column.collation is not None and "_ci" in column.collation:
                raise ConfigError(
                    f"the key {column.name} is compared without regard to case ({column.collation}): different keys "
                    "would be one row",
                    where=self._sink.where,
                    hint=f"ALTER TABLE {self._name} MODIFY {column.name} {column.declared} COLLATE utf8mb4_nopad_bin",
                )

    def column_names(self, rows: StructType) -> list[str]:
        """Return the rows' columns as the table spells them."""
        have = self.have()
        return [have[each.name.lower()].name for each in rows.fields]

    def have(self) -> dict[str, DatabaseColumn]:
        """Read the table's columns by their names in lower case."""
        found = columns_of(self._session, self._ledger.dialect, self._ledger.schema, self._ledger.table)
        return {name.lower(): column for name, column in found.items()}

    def _check_required(self, rows: StructType, have: dict[str, DatabaseColumn]) -> None:
        filled = {each.name.lower() for each in rows.fields}
        if wanting := [column.name for name, column in have.items() if column.required and name not in filled]:
            raise ConfigError(
                f"the table requires values that the rows do not have: {', '.join(wanting)}",
                where=f"{self._sink.where}, columns of the rows {', '.join(rows.names)}",
                hint="give the column a default, or make it in transform.sql",
            )

    def _declared(self, field: StructField) -> str:
        is_key = field.name.lower() in self._keys
        declared = type_sql(field.dataType, self._ledger.dialect, key=is_key, path=field.name)
        return f"{self._ledger.dialect.name(field.name)} {declared}{' NOT NULL' if is_key else ' NULL'}"

    def _widened(self, field: StructField, column: DatabaseColumn) -> str:
        dialect = self._ledger.dialect
        name, is_key = dialect.name(column.name), field.name.lower() in self._keys
        declared = type_sql(field.dataType, dialect, key=is_key, path=field.name)
        if dialect.kind == "postgresql":
            return f"ALTER TABLE {self._name} ALTER COLUMN {name} TYPE {declared}"
        return f"ALTER TABLE {self._name} MODIFY COLUMN {name} {declared}{' NOT NULL' if is_key else ' NULL'}"

    @property
    def _keys(self) -> set[str]:
        return set(self._sink_keys)

    @property
    def _sink_keys(self) -> list[str]:
        return [key.lower() for key in self._sink.keys] if self._sink.mode == "upsert" else []

    @property
    def _name(self) -> str:
        return self._ledger.name(self._ledger.table)
