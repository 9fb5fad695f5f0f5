"""Open database sessions: with the JVM's driver in a feed, or with Python's driver without Spark."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from lakefeed.clients.spark import jvm
from lakefeed.config import trust
from lakefeed.errors import (
    AccessDenied,
    ConfigError,
    LakefeedError,
    MissingExtra,
    ResourceMissing,
    RowsRefused,
    Unreachable,
)
from lakefeed.lazy import DataFrame, SparkSession
from lakefeed.messages.printable import without_values
from lakefeed_jdbc.dialect import Dialect, dialect_of
from lakefeed_jdbc.settings import Address, JdbcSinkConfig, mariadb_context

Row = tuple[Any, ...]
TIMEOUT_SECONDS = 10
READ_SECONDS = 30
ROWS_AT_ONCE = 20_000
NO_KEY = "RSA public key is not available"
"""The error of MariaDB's driver if MySQL's caching_sha2_password requires TLS, or the server's public key."""
FAILURE = re.compile(r"lakefeed database \[(\w+) (-?\d+)\]: (.*)")
"""Matches a database error of the JVM module (io.lakefeed.jdbc.DatabaseFailure): SQL state, error number and text."""


class Session(Protocol):
    """A transaction that begins with the first statement, and is rolled back unless it is committed."""

    def query(self, sql: str, *parameters: Any) -> list[Row]:
        """Return the rows of a SELECT, all in memory; ``?`` in the statement stands for a parameter."""

    def update(self, sql: str, *parameters: Any) -> int:
        """Run a statement that changes something, and return the number of affected rows."""

    def commit(self) -> None: ...


@dataclass(frozen=True)
class StatementRefusal:
    """A database error: the SQL state, the server's own error number, and the text."""

    state: str
    number: int
    text: str

    @classmethod
    def of(cls, error: BaseException) -> StatementRefusal | None:
        """Return the database error in an exception of Spark or of a session; None for any other exception."""
        found = FAILURE.search(str(error))
        return cls(found[1], int(found[2]), without_values(found[3])) if found else None

    @property
    def passes(self) -> bool:
        """Return True if a retry may succeed: after a lost connection, a restart of the server, a deadlock."""
        # SQL states: 08 connection, 57P0x shutdown and start, 53 resources, 40 deadlock. MariaDB and MySQL report some
        # of these errors with general states, so their error numbers count.
        numbers = {1040, 1053, 1205, 1213, 1927, 2006, 2013, 4031}
        if NO_KEY in self.text:
            return False
        return self.state[:2] in ("08", "53", "40") or self.state.startswith("57P0") or self.number in numbers

    @staticmethod
    @contextmanager
    def translated(where: str) -> Iterator[None]:
        """Turn database errors within the block into errors for the user."""
        try:
            yield
        except Exception as error:
            if (refusal := StatementRefusal.of(error)) is None:
                raise
            raise refusal.error(where) from None

    def error(self, where: str) -> LakefeedError:
        if NO_KEY in self.text:
            what = "without TLS, the database needs the password encrypted with the server's key, which is unknown"
            hint = "in sink.jdbc.url: sslMode=verify-full and serverSslCert, or allowPublicKeyRetrieval=true"
            return AccessDenied(what, where=where, hint=hint)
        if self.state.startswith("28") or self.number in (1044, 1045, 1698):
            hint = "check sink.jdbc.user and password, and the user's rights in the database"
            return AccessDenied("the database refuses the user or the password", where=where, hint=hint)
        if self.state == "42501" or self.number == 1142:
            hint = "GRANT the missing right to sink.jdbc.user"
            return AccessDenied(f"the user has no right to run a statement: {self.text}", where=where, hint=hint)
        if self.state == "3D000" or self.number == 1049:
            hint = "create the database, or correct sink.jdbc.url"
            return ResourceMissing("there is no such database", where=where, hint=hint)
        if self.passes:
            hint = "check that the database runs, and sink.jdbc.url"
            return Unreachable(f"the database does not answer: {self.text}", where=where, hint=hint)
        # MySQL reports a wrong value, a missing value or a failed CHECK with a general state and one of these numbers.
        if self.state[:2] in ("22", "23") or self.number in (1265, 1364, 1366, 3819):
            return RowsRefused(
                f"the database refuses the rows: {self.text}",
                where=where,
                hint="change the table's column, or the value in transform.sql",
            )
        hint = "change the table or the block sink.jdbc as the text requires"
        return ConfigError(f"the database refuses a statement: {self.text}", where=where, hint=hint)


def tls_properties(sink: JdbcSinkConfig) -> dict[str, str]:
    """Return the settings that make PostgreSQL's Java driver trust the JVM's certificates."""
    address = Address.of(sink.url)
    return trust.pgjdbc_properties(address.options) if address.kind == "postgresql" else {}


class JvmDatabase:
    """The sink's database in a feed: the JVM's driver opens sessions, and Spark's tasks stage the rows.

    The password is one of the JVM's secrets (``io.lakefeed.jdbc.Database``). The constructor opens no connection.
    """

    def __init__(self, spark: SparkSession, sink: JdbcSinkConfig) -> None:
        self.dialect = dialect_of(sink.url)
        name = f"{sink.user}@{sink.url}"
        jvm.put_secret(spark, name, sink.password)
        self._java = jvm.java(spark).jdbc.Database.of(
            # MariaDB's driver also connects to MySQL, under MariaDB's URL scheme.
            sink.url.replace("jdbc:mysql:", "jdbc:mariadb:", 1),
            self.dialect.driver,
            name,
            {**self.dialect.properties, **tls_properties(sink), "user": sink.user},
            list(self.dialect.first),
        )

    @contextmanager
    def session(self) -> Iterator[Session]:
        with closing(_JvmSession(self._java.session())) as session:
            yield session

    def stage(self, rows: DataFrame, insert: str) -> list[tuple[int, int]]:
        """Stage the rows in Spark's tasks; return each successful task attempt, with its number of rows."""
        frame: Any = rows
        written = self._java.stage(frame._jdf, insert, self.dialect.kind == "postgresql")
        return [(int(attempt), int(count)) for attempt, _, count in (each.partition(":") for each in written)]


class _JvmSession:
    def __init__(self, java: Any) -> None:
        self._java = java
        self.commit, self.close = java.commit, java.close

    def query(self, sql: str, *parameters: Any) -> list[Row]:
        return [tuple(row) for row in json.loads(self._java.query(sql, list(parameters)))]

    def update(self, sql: str, *parameters: Any) -> int:
        return int(self._java.update(sql, list(parameters)))


class PythonDatabase:
    """The sink's database without Spark, for reading only."""

    def __init__(self, sink: JdbcSinkConfig) -> None:
        self._sink = sink
        self.dialect = dialect_of(sink.url)

    @contextmanager
    def session(self) -> Iterator[PythonSession]:
        """Open a connection of Python's driver; raise MissingExtra if the driver is not installed."""
        address = Address.of(self._sink.url)
        login = {
            "host": address.host,
            "port": address.port,
            "user": self._sink.user,
            "password": self._sink.password.get_secret_value(),
            "connect_timeout": TIMEOUT_SECONDS,
        }
        connect = _postgresql if address.kind == "postgresql" else _mariadb
        with closing(connect(address, login)) as connection:
            yield PythonSession(connection, str(address), self.dialect)


def _postgresql(address: Address, login: dict[str, Any]) -> Any:
    try:
        import psycopg
    except ImportError:
        raise MissingExtra.of("psycopg", "postgresql", "reading PostgreSQL without Spark") from None
    keepalives: dict[str, Any] = {"keepalives_idle": READ_SECONDS, "keepalives_interval": 10, "keepalives_count": 3}
    options: dict[str, Any] = trust.libpq_options(address.options, where=str(address))
    try:
        return psycopg.connect(dbname=address.database, **login, **keepalives, **options)
    except psycopg.Error as error:
        refused = trust.explain_libpq(str(error), server="the database", where=str(address))
        if refused is not None:
            raise refused from None
        raise _login_refused(str(error)).error(str(address)) from None


def _mariadb(address: Address, login: dict[str, Any]) -> Any:
    try:
        import pymysql
    except ImportError:
        raise MissingExtra.of("pymysql", "mariadb", "reading MariaDB or MySQL without Spark") from None
    context = mariadb_context(address.options, where=str(address))
    # Without timeouts, a server that accepts the connection and never answers would block forever.
    timeouts: dict[str, Any] = {"read_timeout": READ_SECONDS, "write_timeout": READ_SECONDS}
    try:
        connection = pymysql.connect(database=address.database, charset="utf8mb4", ssl=context, **login, **timeouts)
    except (pymysql.Error, OSError) as error:
        cause = error.__cause__ or error.__context__ or error
        if isinstance(cause, ssl.SSLError):
            raise trust.explain(cause, server="the database", where=str(address)) from None
        number = error.args[0] if error.args and isinstance(error.args[0], int) else 2013
        text = without_values(str(error.args[-1]))
        raise StatementRefusal("", 2013 if number == 2003 else number, text).error(str(address)) from None
    except RuntimeError as error:
        # PyMySQL raises this error if the login must be encrypted with the server's key and the package cryptography is
        # missing.
        if "cryptography" not in str(error):
            raise
        raise MissingExtra.of("cryptography", "mysql", "logging in to MySQL without TLS") from None
    # If the server has no TLS, old versions of PyMySQL connect without encryption.
    if context is not None and not getattr(connection, "_secure", False):
        connection.close()
        hint = "switch TLS on in the database, or set sslMode=disable in sink.jdbc.url"
        raise Unreachable("the database offers no TLS, which sslMode requires", where=str(address), hint=hint)
    return connection


class PythonSession:
    """A session of Python's driver, which can also read many rows."""

    def __init__(self, connection: Any, where: str, dialect: Dialect) -> None:
        self._connection = connection
        self._where = where
        self._dialect = dialect

    def query(self, sql: str, *parameters: Any) -> list[Row]:
        with self._run(self._connection.cursor(), sql, *parameters) as cursor:
            return list(cursor.fetchall())

    def update(self, sql: str, *parameters: Any) -> int:
        with self._run(self._connection.cursor(), sql, *parameters) as cursor:
            return int(cursor.rowcount)

    def commit(self) -> None:
        self._connection.commit()

    def one_moment(self) -> None:
        """Begin a transaction whose statements all read one snapshot of the database."""
        self._connection.rollback()
        # MariaDB's transactions read one snapshot by default.
        if self._dialect.kind == "postgresql":
            self.update("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")

    def scan(self, sql: str) -> Iterator[list[Row]]:
        """Yield the rows of a SELECT in batches."""
        with self._run(self._reader(), sql) as cursor:
            while rows := cursor.fetchmany(ROWS_AT_ONCE):
                yield list(rows)

    def _reader(self) -> Any:
        if self._dialect.kind == "postgresql":
            return self._connection.cursor(name="lakefeed_reading")
        from pymysql.cursors import SSCursor

        return self._connection.cursor(SSCursor)

    def _run(self, cursor: Any, sql: str, *parameters: Any) -> Any:
        try:
            cursor.execute(sql.replace("%", "%%").replace("?", "%s"), parameters)
        except Exception as error:
            state = getattr(error, "sqlstate", None)
            number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
            if state is None and not number:
                raise
            text = without_values(str(error.args[-1]))
            raise StatementRefusal(state or "", number, text).error(self._where) from None
        return cursor


def _login_refused(text: str) -> StatementRefusal:
    # PostgreSQL's client reports a failed login without an SQL state.
    if re.search(r"password authentication failed|no password supplied|role \".*\" does not exist|pg_hba", text):
        return StatementRefusal("28P01", 0, text)
    if re.search(r"database \".*\" does not exist", text):
        return StatementRefusal("3D000", 0, text)
    return StatementRefusal("08001", 0, next(iter(text.strip().splitlines()), "no answer"))
