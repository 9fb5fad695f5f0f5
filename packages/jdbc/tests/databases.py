"""The databases of the JDBC tests, and feeds into these databases without Kafka."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import DataFrame

from lakefeed_jdbc.settings import JdbcSinkConfig
from lakefeed_jdbc.table import JdbcTable
from tests.support.ledger_feed import LedgerFeed
from tests.support.servers.mariadb import MariaDB
from tests.support.servers.postgresql import PostgreSQL

FIXTURES = {"postgresql": "postgres", "mariadb": "maria", "mysql": "mysql"}
DATABASES = tuple(FIXTURES)
EACH_DATABASE = tuple(pytest.param(kind, marks=pytest.mark.slow if kind == "mysql" else ()) for kind in DATABASES)
"""The parameters of tests; MySQL is slow, because its archive is half a gigabyte."""
Server = PostgreSQL | MariaDB


def server_of(kind: str, fixture: Callable[[str], Any]) -> Server:
    """Create an empty database of a kind for one test."""
    server: Server = fixture(FIXTURES[kind]).new_database()
    return server


@dataclass
class JdbcFeed(LedgerFeed):
    """A test's feed into its own table; ``settings`` are further settings of the sink."""

    server: Server
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sink(self) -> JdbcSinkConfig:
        login = {"url": self.server.jdbc_url, "user": self.server.user, "password": self.server.password}
        return JdbcSinkConfig.model_validate({**login, "table": "rows_of_shop", **self.settings})

    def driver(self, *, groups: bool = False, **settings: Any) -> JdbcTable:
        self.settings = {**self.settings, **settings}
        return JdbcTable(self.spark, self.sink, self.context(groups=groups))

    def started(self, rows: DataFrame | None = None, *, groups: bool = False, **settings: Any) -> JdbcTable:
        """Return the table of a driver that has applied the schema and taken the fence."""
        table = self.driver(groups=groups, **settings)
        frame = rows if rows is not None else self.changes([]) if self.sink.mode == "upsert" else self.rows(0)
        table.apply_schema(frame.schema)
        self.fence = table.take_fence()
        return table

    def rows(self, count: int, *, start: int = 0) -> DataFrame:
        return self.spark.range(start, start + count).selectExpr("id", "concat('v', id) AS v")

    def quoted(self, name: str) -> str:
        quote = '"' if isinstance(self.server, PostgreSQL) else "`"
        return f"{quote}{name}{quote}"

    def select(self, columns: str, table: str = "rows_of_shop") -> list[tuple[Any, ...]]:
        return self.server.execute(f"SELECT {columns} FROM {self.quoted(table)} ORDER BY 1")

    def tables(self) -> set[str]:
        schema = "current_schema()" if isinstance(self.server, PostgreSQL) else "DATABASE()"
        found = self.server.execute(f"SELECT table_name FROM information_schema.tables WHERE table_schema = {schema}")
        return {str(name) for (name,) in found}
