"""The differences between PostgreSQL and MariaDB: quoting, JDBC drivers, comparisons, and the statements of a merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

LOCK_SECONDS = 300
"""The server disconnects a driver that is idle for this many seconds in a transaction, which may lock the feed's
row."""
STATEMENT_SECONDS = 3600
"""A server that needs longer for one statement is treated as unavailable."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The SQL of a database: of PostgreSQL, or of MariaDB and MySQL."""

    kind: Literal["postgresql", "mariadb"]
    driver: str
    properties: Mapping[str, str]
    """Settings of the JDBC driver."""
    first: Sequence[str]
    """Statements to run on every new connection."""
    hurry: str
    """Statement that limits to 5 seconds how long the session waits for locks."""
    quote: str
    same: str
    """Operator that compares two values, and treats nulls as equal."""
    table_options: str
    binary_text: str
    """Suffix that makes a text expression compare by code points."""
    here: str
    """Expression for the schema of names without a schema."""
    types: Mapping[str, tuple[str, ...]]
    """By Spark's type: the column type of a new column, then the base types of existing columns that can store the
    values. Numbers, and types that ``misfit`` handles, are not listed."""
    unique_columns: str
    """Statement that returns index and column of all unique indexes; the column is empty for an expression or a
    prefix."""
    update: str
    """Statement that updates rows of a table ``t`` from rows of ``s``."""
    own: str
    """Prefix of the updated columns in ``update``."""
    delete: str
    """Statement that deletes the rows of ``t`` that match rows of ``s``."""
    epoch: str
    """Expression for ``committed_at`` in seconds since 1970."""

    def name(self, *parts: str) -> str:
        """Quote the parts of a name; omit empty parts."""
        quote = self.quote
        return ".".join(f"{quote}{part.replace(quote, quote * 2)}{quote}" for part in parts if part)

    def staging(self, stage: str, target: str, columns: Sequence[str], *, more: Mapping[str, str]) -> str:
        """Return the statement that creates an empty table with the target's columns and the task attempt's id.

        Args:
            stage, target: quoted names of tables.
            more: further columns, with their types.
        """
        listed = ", ".join(map(self.name, columns))
        if self.kind == "postgresql":
            beside = "".join(f", CAST(NULL AS {kind}) AS {name}" for name, kind in more.items())
            return (
                f"CREATE UNLOGGED TABLE {stage} AS SELECT {listed}{beside}, CAST(0 AS bigint) AS _lakefeed_task "  # noqa: S608
                f"FROM {target} LIMIT 0"
            )
        beside = "".join(f", {name} {kind}" for name, kind in more.items())
        return (
            f"CREATE TABLE {stage} (_lakefeed_task BIGINT{beside}) ENGINE=InnoDB "  # noqa: S608
            f"AS SELECT {listed} FROM {target} LIMIT 0"
        )


POSTGRESQL = Dialect(
    kind="postgresql",
    driver="org.postgresql.Driver",
    properties={
        "reWriteBatchedInserts": "true",
        # The server converts a text to any type that has a text form, such as json, uuid or an enum.
        "stringtype": "unspecified",
        "connectTimeout": "10",
        "loginTimeout": "30",
        "socketTimeout": str(STATEMENT_SECONDS),
        "tcpKeepAlive": "true",
        "ApplicationName": "lakefeed",
        # The details of a server's error contain values: "Failing row contains (…)".
        "logServerErrorDetail": "false",
    },
    first=(
        f"SET lock_timeout = '{2 * LOCK_SECONDS}s'",
        f"SET idle_in_transaction_session_timeout = '{LOCK_SECONDS}s'",
        "SET TIME ZONE 'UTC'",
    ),
    hurry="SET lock_timeout = '5s'",
    quote='"',
    same="IS NOT DISTINCT FROM",
    table_options="",
    binary_text=' COLLATE "C"',
    here="current_schema()",
    types={
        "boolean": ("boolean", "bool"),
        **dict.fromkeys(("byte", "short"), ("smallint",)),
        "integer": ("integer",),
        "long": ("bigint",),
        "float": ("real",),
        "double": ("double precision",),
        "string": ("text", "text", "varchar", "bpchar", "uuid", "json", "jsonb", "xml", "citext"),
        "binary": ("bytea", "bytea"),
        "date": ("date", "date"),
        "timestamp": ("timestamptz", "timestamptz"),
        "timestamp_ntz": ("timestamp", "timestamp"),
        **dict.fromkeys(("struct", "array", "map"), ("jsonb", "jsonb", "json", "text")),
    },
    unique_columns="SELECT i.indexrelid, a.attname FROM pg_catalog.pg_index i "
    "JOIN pg_catalog.pg_class c ON c.oid = i.indrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey) "
    "WHERE i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL "
    "AND n.nspname = {schema} AND c.relname = ?",
    update="UPDATE {target} t SET {changes} FROM {stage} s WHERE {on} AND {where}",
    own="",
    delete="DELETE FROM {target} t USING {stage} s WHERE {on} AND {where}",
    epoch="CAST(extract(epoch FROM committed_at) AS double precision)",
)

MARIADB = Dialect(
    kind="mariadb",
    driver="org.mariadb.jdbc.Driver",
    properties={
        "useBulkStmts": "true",
        "connectTimeout": "10000",
        "socketTimeout": str(STATEMENT_SECONDS * 1000),
        "tcpKeepAlive": "true",
        # Otherwise errors would contain statements with values, after a deadlock even statements of other sessions.
        "dumpQueriesOnException": "false",
        "includeInnodbStatusInDeadlockExceptions": "false",
    },
    first=(
        # Without strict mode, the server truncates long texts, and replaces large numbers by the type's largest one.
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO'",
        f"SET SESSION innodb_lock_wait_timeout = {2 * LOCK_SECONDS}, SESSION lock_wait_timeout = {2 * LOCK_SECONDS}",
        # MySQL has no idle_transaction_timeout, and ignores this statement, which it reads as a comment.
        f"SET SESSION time_zone = '+00:00' /*M!100300 , SESSION idle_transaction_timeout = {LOCK_SECONDS} */",
    ),
    hurry="SET SESSION lock_wait_timeout = 5",
    quote="`",
    same="<=>",
    # These collations of MariaDB and of MySQL compare by code points, including trailing blanks.
    table_options=" ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 "
    "COLLATE=/*M!100300 utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */",
    binary_text="",
    here="DATABASE()",
    types={
        "boolean": ("BOOLEAN", "tinyint"),
        "byte": ("TINYINT",),
        "short": ("SMALLINT",),
        "integer": ("INT",),
        "long": ("BIGINT",),
        "float": ("FLOAT",),
        "double": ("DOUBLE",),
        "string": ("LONGTEXT", "varchar", "char", "tinytext", "text", "mediumtext", "longtext", "json", "uuid", "enum"),
        "binary": ("LONGBLOB", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
        "date": ("DATE", "date"),
        **dict.fromkeys(("timestamp", "timestamp_ntz"), ("DATETIME(6)",)),
        **dict.fromkeys(("struct", "array", "map"), ("JSON", "json", "longtext")),
    },
    unique_columns="SELECT index_name, CASE WHEN sub_part IS NULL THEN column_name ELSE '' END "
    "FROM information_schema.statistics WHERE table_schema = {schema} AND table_name = ? AND non_unique = 0",
    update="UPDATE {stage} s STRAIGHT_JOIN {target} t ON {on} SET {changes} WHERE {where}",
    own="t.",
    delete="DELETE t FROM {stage} s STRAIGHT_JOIN {target} t ON {on} WHERE {where}",
    epoch="TIMESTAMPDIFF(MICROSECOND, '1970-01-01', committed_at) / 1000000e0",
)


def dialect_of(url: str) -> Dialect:
    return POSTGRESQL if url.startswith("jdbc:postgresql:") else MARIADB
