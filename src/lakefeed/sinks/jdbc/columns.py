"""Columns of a database: what a row's column becomes, whether it fits into one that is there, and what widens it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefeed.errors import SchemaIncompatible
from lakefeed.records.schema.fit import casts_to
from lakefeed.sinks.jdbc.dialect import Dialect
from lakefeed.sinks.jdbc.session import Session

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

LONGEST_KEY = 255
"""Letters of a text that is a key: MariaDB's indexes take 3,072 bytes."""


@dataclass(frozen=True, kw_only=True)
class DatabaseColumn:
    """A column that is there.

    Attributes:
        name: as the database has it.
        type: its base type, in lower case: ``int4``, ``bigint``.
        declared: its type in full.
        precision: digits of a number; None if unbounded.
        scale: digits behind the point.
        fraction: digits of a second.
        required: whether it must have a value and has no default.
        collation: how its texts are compared; None for other types, or the database's own.
    """

    name: str
    type: str
    declared: str
    precision: int | None
    scale: int | None
    fraction: int | None
    required: bool
    collation: str | None


def columns_of(session: Session, dialect: Dialect, schema: str, table: str) -> dict[str, DatabaseColumn]:
    """A table's columns by their names, in its order; empty if there is no such table."""
    postgresql = dialect.kind == "postgresql"
    base, declared = ("udt_name", "udt_name") if postgresql else ("data_type", "column_type")
    made = "is_identity = 'YES' OR is_generated <> 'NEVER'" if postgresql else "extra <> ''"
    found = session.query(
        f"SELECT column_name, {base}, {declared}, numeric_precision, numeric_scale, datetime_precision, "  # noqa: S608
        f"CASE WHEN is_nullable = 'NO' AND column_default IS NULL AND NOT ({made}) THEN 1 ELSE 0 END, collation_name "
        f"FROM information_schema.columns WHERE table_schema = {_schema(dialect, schema)} AND table_name = ? "
        "ORDER BY ordinal_position",
        *([schema] if schema else []),
        table,
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


def unique_keys(session: Session, dialect: Dialect, schema: str, table: str) -> list[frozenset[str]]:
    """The columns of each unique index of whole columns, in lower case."""
    if dialect.kind == "postgresql":
        found = session.query(
            "SELECT i.indexrelid, a.attname FROM pg_catalog.pg_index i "  # noqa: S608
            "JOIN pg_catalog.pg_class c ON c.oid = i.indrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey) "
            "WHERE i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL "
            f"AND n.nspname = {_schema(dialect, schema)} AND c.relname = ?",
            *([schema] if schema else []),
            table,
        )
    else:
        found = session.query(
            "SELECT index_name, CASE WHEN sub_part IS NULL THEN column_name ELSE '' END "  # noqa: S608
            f"FROM information_schema.statistics WHERE table_schema = {_schema(dialect, schema)} AND table_name = ? "
            "AND non_unique = 0",
            *([schema] if schema else []),
            table,
        )
    indexes: dict[object, set[str]] = {}
    for index, column in found:
        indexes.setdefault(index, set()).add(str(column).lower())
    return [frozenset(columns) for columns in indexes.values()]


def engine_of(session: Session, dialect: Dialect, schema: str, table: str) -> str | None:
    """MariaDB's storage engine of a table; None for PostgreSQL, whose tables all have transactions."""
    if dialect.kind == "postgresql":
        return None
    [[engine]] = session.query(
        f"SELECT engine FROM information_schema.tables WHERE table_schema = {_schema(dialect, schema)} "  # noqa: S608
        "AND table_name = ?",
        *([schema] if schema else []),
        table,
    )
    return str(engine)


def type_sql(type_: DataType, dialect: Dialect, *, key: bool = False, path: str = "") -> str:
    """The type of a new column.

    Args:
        type_: the row's.
        dialect: of the database.
        key: whether it is a key: MariaDB indexes texts of a bounded length only.
        path: the column, for the error.

    Raises:
        SchemaIncompatible: the databases have no such type.
    """
    from pyspark.sql import types as t

    postgresql = dialect.kind == "postgresql"
    if isinstance(type_, t.DecimalType):
        return f"{'numeric' if postgresql else 'DECIMAL'}({type_.precision},{type_.scale})"
    if key and not postgresql and isinstance(type_, t.StringType | t.BinaryType):
        return f"{'VARCHAR' if isinstance(type_, t.StringType) else 'VARBINARY'}({LONGEST_KEY})"
    names: tuple[tuple[type[DataType], str, str], ...] = (
        (t.BooleanType, "boolean", "BOOLEAN"),
        (t.ByteType, "smallint", "TINYINT"),
        (t.ShortType, "smallint", "SMALLINT"),
        (t.IntegerType, "integer", "INT"),
        (t.LongType, "bigint", "BIGINT"),
        (t.FloatType, "real", "FLOAT"),
        (t.DoubleType, "double precision", "DOUBLE"),
        (t.StringType, "text", "LONGTEXT"),
        (t.BinaryType, "bytea", "LONGBLOB"),
        (t.DateType, "date", "DATE"),
        (t.TimestampType, "timestamptz", "DATETIME(6)"),
        (t.TimestampNTZType, "timestamp", "DATETIME(6)"),
        (t.StructType, "jsonb", "JSON"),
        (t.ArrayType, "jsonb", "JSON"),
        (t.MapType, "jsonb", "JSON"),
    )
    for kind, in_postgresql, in_mariadb in names:
        if isinstance(type_, kind):
            return in_postgresql if postgresql else in_mariadb
    raise SchemaIncompatible(
        f"column {path} is {type_.simpleString()}, which the database has no type for",
        hint="cast it in transform.sql",
    )


def is_nested(type_: DataType) -> bool:
    """Whether it becomes JSON."""
    from pyspark.sql import types as t

    return isinstance(type_, t.StructType | t.ArrayType | t.MapType)


def misfit(type_: DataType, column: DatabaseColumn, dialect: Dialect) -> str | None:
    """Why values of a type may not fit into a column; None if each does, or the database itself reports one."""
    from pyspark.sql import types as t

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
        return f"{difference}: only DATETIME(6) holds it without a loss, in UTC"
    fitting: tuple[tuple[type[DataType], tuple[str, ...], tuple[str, ...]], ...] = (
        (t.BooleanType, ("bool",), ("tinyint",)),
        (
            t.StringType,
            ("text", "varchar", "bpchar", "uuid", "json", "jsonb", "xml", "citext"),
            ("varchar", "char", "tinytext", "text", "mediumtext", "longtext", "json", "uuid", "enum"),
        ),
        (t.BinaryType, ("bytea",), ("varbinary", "tinyblob", "blob", "mediumblob", "longblob")),
        (t.DateType, ("date",), ("date",)),
        (t.TimestampType, ("timestamptz",), ()),
        (t.TimestampNTZType, ("timestamp",), ()),
        (t.StructType, ("jsonb", "json", "text"), ("json", "longtext")),
        (t.ArrayType, ("jsonb", "json", "text"), ("json", "longtext")),
        (t.MapType, ("jsonb", "json", "text"), ("json", "longtext")),
    )
    for kind, in_postgresql, in_mariadb in fitting:
        if isinstance(type_, kind):
            return (
                None if column.type in (in_postgresql if dialect.kind == "postgresql" else in_mariadb) else difference
            )
    return difference


def widens(type_: DataType, column: DatabaseColumn) -> bool:
    """Whether a column's values all fit into the type that the rows now have."""
    known = _type_of(column)
    return known is not None and casts_to(known, type_)


def _type_of(column: DatabaseColumn) -> DataType | None:
    """A number's type as Spark has it; None for all else."""
    from pyspark.sql import types as t

    if column.type in ("numeric", "decimal"):
        if column.precision is None or column.precision > t.DecimalType(38, 0).precision:
            return None
        return t.DecimalType(column.precision, column.scale or 0)
    if "unsigned" in column.declared:
        return None
    numbers: dict[str, DataType] = {
        **dict.fromkeys(("tinyint",), t.ByteType()),
        **dict.fromkeys(("smallint", "int2"), t.ShortType()),
        **dict.fromkeys(("int", "int4"), t.IntegerType()),
        **dict.fromkeys(("bigint", "int8"), t.LongType()),
        **dict.fromkeys(("float", "float4"), t.FloatType()),
        **dict.fromkeys(("double", "float8"), t.DoubleType()),
    }
    return numbers.get(column.type)


def _schema(dialect: Dialect, schema: str) -> str:
    return "?" if schema else dialect.here
