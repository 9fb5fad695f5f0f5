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
        self._name = ledger.name(ledger.table)
        self._keys = [key.lower() for key in sink.keys] if sink.mode == "upsert" else []

    def statements(self, rows: StructType) -> list[str]:
        """Return the statements that create the table, or add missing columns and widen those that are too narrow."""
        dialect, session = self._ledger.dialect, self._session
        if not self._ledger.has_table(session):
            columns = [self._declared(field, field.name) for field in rows.fields]
            if self._keys:
                names = {name.lower(): name for name in rows.names}
                columns.append(f"PRIMARY KEY ({', '.join(dialect.name(names[key]) for key in self._keys)})")
            return [f"CREATE TABLE {self._name} ({', '.join(columns)}){dialect.table_options}"]
        self.check_keys()
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
                statements.append(f"ALTER TABLE {self._name} ADD COLUMN {self._declared(field, field.name)}")
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

    def _declared(self, field: StructField, name: str) -> str:
        is_key = field.name.lower() in self._keys
        declared = type_sql(field.dataType, self._ledger.dialect, key=is_key, path=field.name)
        return f"{self._ledger.dialect.name(name)} {declared}{' NOT NULL' if is_key else ' NULL'}"

    def _widened(self, field: StructField, column: DatabaseColumn) -> str:
        dialect = self._ledger.dialect
        if dialect.kind == "postgresql":
            declared = type_sql(field.dataType, dialect, path=field.name)
            return f"ALTER TABLE {self._name} ALTER COLUMN {dialect.name(column.name)} TYPE {declared}"
        return f"ALTER TABLE {self._name} MODIFY COLUMN {self._declared(field, column.name)}"
