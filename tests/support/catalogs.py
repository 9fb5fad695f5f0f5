"""The catalogs for tests of the commit check; each can hide the results of commits."""

import json
import sqlite3
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr
from pyiceberg.catalog.hive import HiveCatalog
from pyspark.sql import SparkSession

from lakefeed.clients.spark.storage import FEED_CATALOG
from lakefeed.config.connections import Catalog
from tests.support.servers.hive_metastore import HiveMetastore
from tests.support.servers.postgresql import PostgreSQL
from tests.support.servers.rest_catalog import Fault, RestCatalog

PLAIN = "org.apache.iceberg.spark.SparkCatalog"


@dataclass(frozen=True, kw_only=True)
class CatalogCase(ABC):
    """A catalog on a server or a file, with its tables in a local folder.

    Attributes:
        name: the catalog's name in Spark.
        folder: the catalog's warehouse.
    """

    name: str
    folder: Path

    @abstractmethod
    def declared(self) -> Catalog:
        """Return the catalog's block of a pipeline file."""

    @abstractmethod
    def losing_answers(self) -> Iterator[None]:
        """Yield once; until the generator resumes, all commits land but are reported as conflicts."""

    @abstractmethod
    def pointer(self, table: str) -> str:
        """Return the path of the table's current metadata file, read without Iceberg."""

    @contextmanager
    def answers_lost(self) -> Iterator[None]:
        """Let all commits land but be reported as conflicts, until the block ends."""
        yield from self.losing_answers()

    def declare(self, spark: SparkSession, *, implementation: str = FEED_CATALOG) -> None:
        """Configure the catalog in a session."""
        catalog = self.declared()
        secrets = {key: secret.get_secret_value() for key, secret in catalog.secrets().items()}
        settings = {"cache-enabled": "false", **catalog.settings(), **secrets}
        if catalog.type == "rest":
            settings["rest.client.socket-timeout-ms"] = "15000"  # The interval is shorter than SILENCE_SECONDS.
        spark.conf.set(f"spark.sql.catalog.{self.name}", implementation)
        for key, value in settings.items():
            spark.conf.set(f"spark.sql.catalog.{self.name}.{key}", value)


# Iceberg updates a view, whose trigger applies the change. SQLite then reports 0 changed rows, and Iceberg assumes a
# conflict.
_TRIGGERED = """
  UPDATE kept SET metadata_location = new.metadata_location,
    previous_metadata_location = new.previous_metadata_location
  WHERE catalog_name = old.catalog_name AND table_namespace = old.table_namespace AND table_name = old.table_name;
"""


@dataclass(frozen=True, kw_only=True)
class SqliteCase(CatalogCase):
    """A catalog in a SQLite file, as in the local stack."""

    @property
    def file(self) -> Path:
        return self.folder / "catalog.db"

    def declared(self) -> Catalog:
        return Catalog(uri=f"jdbc:sqlite:{self.file}", warehouse=f"file://{self.folder}")

    def losing_answers(self) -> Iterator[None]:
        self._run(
            "BEGIN IMMEDIATE; ALTER TABLE iceberg_tables RENAME TO kept;"
            "CREATE VIEW iceberg_tables AS SELECT * FROM kept;"
            f"CREATE TRIGGER lost INSTEAD OF UPDATE ON iceberg_tables BEGIN {_TRIGGERED} END; COMMIT;"
        )
        try:
            yield
        finally:
            self._run("BEGIN IMMEDIATE; DROP VIEW iceberg_tables; ALTER TABLE kept RENAME TO iceberg_tables; COMMIT;")

    def pointer(self, table: str) -> str:
        with closing(sqlite3.connect(self.file)) as catalog:
            [[found]] = catalog.execute(
                "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?", [table.rpartition(".")[2]]
            ).fetchall()
        return str(found)

    def _run(self, script: str) -> None:
        with closing(sqlite3.connect(self.file)) as catalog:
            catalog.executescript(script)


@dataclass(frozen=True, kw_only=True)
class PostgresCase(CatalogCase):
    """A catalog in a database of a PostgreSQL server."""

    database: PostgreSQL = field(repr=False)

    def declared(self) -> Catalog:
        return Catalog(
            uri=self.database.jdbc_url,
            username=self.database.user,
            password=SecretStr(self.database.password),
            warehouse=f"file://{self.folder}",
        )

    def losing_answers(self) -> Iterator[None]:
        self.database.execute(
            "CREATE OR REPLACE FUNCTION lost() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN {_TRIGGERED} RETURN NULL; END $$",
            "BEGIN",
            "ALTER TABLE iceberg_tables RENAME TO kept",
            "CREATE VIEW iceberg_tables AS SELECT * FROM kept",
            "CREATE TRIGGER lost INSTEAD OF UPDATE ON iceberg_tables FOR EACH ROW EXECUTE FUNCTION lost()",
            "COMMIT",
        )
        try:
            yield
        finally:
            self.database.execute(
                "BEGIN", "DROP VIEW iceberg_tables", "ALTER TABLE kept RENAME TO iceberg_tables", "COMMIT"
            )

    def pointer(self, table: str) -> str:
        name = table.rpartition(".")[2]
        [[found]] = self.database.execute(f"SELECT metadata_location FROM iceberg_tables WHERE table_name = '{name}'")
        return str(found)


@dataclass(frozen=True, kw_only=True)
class RestCase(CatalogCase):
    """Iceberg's REST catalog behind a gate."""

    server: RestCatalog

    def declared(self) -> Catalog:
        # The block names no warehouse, because the server decides where the warehouse is.
        return Catalog(type="rest", uri=self.server.url, credential=SecretStr(self.server.credential))

    def losing_answers(self) -> Iterator[None]:
        faults: list[Fault] = ["applied-409"] * 1000
        self.server.fail_next(*faults)
        try:
            yield
        finally:
            self.server.fail_next()

    def pointer(self, table: str) -> str:
        _, namespace, name = table.split(".")
        url = f"http://127.0.0.1:{self.server.behind}/v1/namespaces/{namespace}/tables/{name}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return str(json.load(answer)["metadata-location"])


@dataclass(frozen=True, kw_only=True)
class HiveCase(CatalogCase):
    """A Hive metastore."""

    server: HiveMetastore

    def declared(self) -> Catalog:
        return Catalog(type="hive", uri=self.server.uri, warehouse=f"file://{self.folder}")

    def losing_answers(self) -> Iterator[None]:
        with self.server.losing_answers():
            yield

    def pointer(self, table: str) -> str:
        return str(self.reader().load_table(table.partition(".")[2]).metadata_location)

    def reader(self) -> HiveCatalog:
        """Return pyiceberg's client of the metastore."""
        from pyiceberg.catalog.hive import HiveCatalog

        return HiveCatalog(self.name, uri=self.server.uri)
