"""Create a feed's table from the rows' columns, change it when the columns change, and refuse an unsuitable table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefeed.config.keyed import keyed
from lakefeed.errors import ConfigError, SchemaIncompatible
from lakefeed.lazy import t
from lakefeed.records.schema.fit import casts_to
from lakefeed_jdbc.dialect import Dialect
from lakefeed_jdbc.ledger import JdbcLedger
from lakefeed_jdbc.session import Session
from lakefeed_jdbc.settings import JdbcSinkConfig

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

LONGEST_KEY = 255
"""The most characters of a text key: an index of MariaDB has at most 3,072 bytes."""


class JdbcLayout:
    """Compares a sink's table with the rows' columns, within one transaction."""

    def __init__(self, ledger: JdbcLedger, sink: JdbcSinkConfig, session: Session, *, evolves: bool = True) -> None:
        self._ledger = ledger
        self._sink = sink
        self._session = session
        self._evolves = evolves
        self._name = ledger.name(ledger.table)
        self._keys = [key.lower() for key in sink.keys] if sink.mode == "upsert" else []

    def statements(self, rows: StructType) -> list[str]:
        """Return the statements that create the table, or that add missing columns and widen narrow ones."""
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
                f"the feed wrote this table with the keys '{standing.keyed}', and the pipeline now has "
                f"'{keyed(self._sink)}'",
                where=self._sink.where,
                hint="name a new table and another checkpoint location",
            )
        have = self.have()
        filled = {name.lower() for name in rows.names}
        if wanting := [column.name for name, column in have.items() if column.required and name not in filled]:
            raise ConfigError(
                f"the table requires values that the rows do not have: {', '.join(wanting)}",
                where=f"{self._sink.where}, columns of the rows {', '.join(rows.names)}",
                hint="give the table's column a default, or compute the value in transform.sql",
            )
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
                "; ".join(misfits), where=self._sink.where, hint="change the table, or cast the column in transform.sql"
            )
        if statements and not self._evolves:
            raise ConfigError(
                f"the table would have to change: {'; '.join(statements)}",
                where=self._sink.where,
                hint="run these statements, or write schema: {on_change: evolve}",
            )
        return statements

    def check_keys(self) -> None:
        """Refuse a table without transactions, without a unique index on the keys, or with keys that ignore case."""
        session, ledger = self._session, self._ledger
        if ledger.dialect.kind == "mariadb":
            [[engine]] = ledger.look_up(session, "SELECT engine FROM information_schema.tables WHERE {table}")
            if str(engine).lower() != "innodb":
                raise ConfigError(
                    f"the table's engine {engine} has no transactions, so readers would see parts of batches",
                    where=self._sink.where,
                    hint=f"run ALTER TABLE {self._name} ENGINE=InnoDB",
                )
        if not self._keys:
            return
        listed = ", ".join(self._sink.keys)
        if frozenset(self._keys) not in unique_keys(session, ledger):
            raise ConfigError(
                f"no unique index of the table has exactly the keys: {listed}",
                where=self._sink.where,
                hint=f"run ALTER TABLE {self._name} ADD UNIQUE ({listed}); or name other keys",
            )
        have = self.have()
        for key in self._keys:
            column = have[key]
            if column.collation is not None and "_ci" in column.collation:
                raise ConfigError(
                    f"the database ignores the case of the key {column.name} ({column.collation}), so different keys "
                    "would share a row",
                    where=self._sink.where,
                    hint=f"run ALTER TABLE {self._name} MODIFY {column.name} {column.declared} "
                    "COLLATE utf8mb4_nopad_bin",
                )

    def have(self) -> dict[str, DatabaseColumn]:
        """Return the table's columns, by lower-case name."""
        return {name.lower(): column for name, column in columns_of(self._session, self._ledger).items()}

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


@dataclass(frozen=True, kw_only=True)
class DatabaseColumn:
    """A column of an existing table."""

    name: str
    type: str
    """The base type in lower case: ``int4``, ``bigint``."""
    declared: str
    """The type as in the CREATE statement."""
    precision: int | None
    """Digits of a number; None if unlimited."""
    scale: int | None
    fraction: int | None
    """Digits of a fraction of a second."""
    required: bool
    """The column is NOT NULL and has no default."""
    collation: str | None


def columns_of(session: Session, ledger: JdbcLedger) -> dict[str, DatabaseColumn]:
    """Return the table's columns by name, in their order; an empty dictionary if the table does not exist."""
    postgresql = ledger.dialect.kind == "postgresql"
    types = "udt_name, udt_name" if postgresql else "data_type, column_type"
    made = "is_identity = 'YES' OR is_generated <> 'NEVER'" if postgresql else "extra <> ''"
    found = ledger.look_up(
        session,
        f"SELECT column_name, {types}, numeric_precision, numeric_scale, datetime_precision, "  # noqa: S608
        f"CASE WHEN is_nullable = 'NO' AND column_default IS NULL AND NOT ({made}) THEN 1 ELSE 0 END, collation_name "
        f"FROM information_schema.columns WHERE {{table}} ORDER BY ordinal_position",
    )
    return {
        str(name): DatabaseColumn(
            name=str(name),
            type=str(base).lower(),
            declared=str(full).lower(),
            precision=None if precision is None else int(precision),
            scale=None if scale is None else int(scale),
            fraction=None if fraction is None else int(fraction),
            required=bool(required),
            collation=collation,
        )
        for name, base, full, precision, scale, fraction, required, collation in found
    }


def unique_keys(session: Session, ledger: JdbcLedger) -> list[frozenset[str]]:
    """Return the lower-case column names of every unique index on whole columns."""
    indexes: dict[object, set[str]] = {}
    for index, column in ledger.look_up(session, ledger.dialect.unique_columns):
        indexes.setdefault(index, set()).add(str(column).lower())
    return [frozenset(columns) for columns in indexes.values()]


def type_sql(type_: DataType, dialect: Dialect, *, key: bool = False, path: str) -> str:
    """Return the type of a new column; raise SchemaIncompatible if the database has no matching type.

    A ``key`` has a type of limited length in MariaDB, which indexes no other texts.
    """
    if isinstance(type_, t.DecimalType):
        return f"{'numeric' if dialect.kind == 'postgresql' else 'DECIMAL'}({type_.precision},{type_.scale})"
    if key and dialect.kind == "mariadb" and isinstance(type_, t.StringType | t.BinaryType):
        return f"{'VARCHAR' if isinstance(type_, t.StringType) else 'VARBINARY'}({LONGEST_KEY})"
    if types := dialect.types.get(type_.typeName()):
        return types[0]
    raise SchemaIncompatible(
        f"the database has no type for the column {path}, which is {type_.simpleString()}",
        hint="cast the column in transform.sql",
    )


def is_nested(type_: DataType) -> bool:
    """Return whether the table stores a column of this type as JSON."""
    return isinstance(type_, t.StructType | t.ArrayType | t.MapType)


def misfit(type_: DataType, column: DatabaseColumn, dialect: Dialect) -> str | None:
    """Return why values of a type may not fit a column; None if they fit, or if the database itself refuses them."""
    difference = f"column {column.name} is {type_.simpleString()} in the rows and {column.declared} in the table"
    known = _type_of(column)
    if known is not None and casts_to(type_, known):
        return None
    digits: dict[type[DataType], int] = {t.ByteType: 3, t.ShortType: 5, t.IntegerType: 10, t.LongType: 19}
    if type(type_) in digits and column.type in ("numeric", "decimal"):
        free = column.precision is None or column.precision - (column.scale or 0) >= digits[type(type_)]
        return None if free else difference
    if isinstance(type_, t.DecimalType) and column.type == "numeric" and column.precision is None:
        return None
    if isinstance(type_, t.TimestampType | t.TimestampNTZType) and dialect.kind == "mariadb":
        if column.type == "datetime" and column.fraction == 6:
            return None
        return f"{difference}: only DATETIME(6), in UTC, has room for microseconds"
    return None if column.type in dialect.types.get(type_.typeName(), ())[1:] else difference


def widens(type_: DataType, column: DatabaseColumn) -> bool:
    """Return True if all values of an existing column fit the rows' new type."""
    known = _type_of(column)
    return known is not None and casts_to(known, type_)


def _type_of(column: DatabaseColumn) -> DataType | None:
    """Return the Spark type of a column of numbers; None for other columns."""
    if column.type in ("numeric", "decimal"):
        if column.precision is None or column.precision > t.DecimalType(38, 0).precision:
            return None
        return t.DecimalType(column.precision, column.scale or 0)
    if "unsigned" in column.declared:
        return None
    numbers: dict[str, DataType] = {
        "tinyint": t.ByteType(),
        **dict.fromkeys(("smallint", "int2"), t.ShortType()),
        **dict.fromkeys(("int", "int4"), t.IntegerType()),
        **dict.fromkeys(("bigint", "int8"), t.LongType()),
        **dict.fromkeys(("float", "float4"), t.FloatType()),
        **dict.fromkeys(("double", "float8"), t.DoubleType()),
    }
    return numbers.get(column.type)
