"""One local Spark session, with lakefeed's jars, for all tests in this folder."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from lakefeed.local.catalog import make_catalog
from tests.spark.feed_table import CATALOG, Table, declare

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two threads of this machine; it needs no server."""
    from lakefeed.config.connections import Connections
    from lakefeed.session import session

    folder: Path = tmp_path_factory.mktemp("spark")
    running = session(
        "lakefeed-tests",
        connections=Connections(),
        master="local[2]",
        conf={
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
        log_file=folder / "spark.log",
    )
    yield running
    running.stop()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the catalog ``checked`` and its tables are."""
    return tmp_path_factory.mktemp("checked")


@pytest.fixture(scope="session")
def checked(spark: SparkSession, folder: Path) -> SparkSession:
    """The session with that catalog, which checks each commit of a feed."""
    make_catalog(folder / "catalog.db")
    declare(spark, folder)
    spark.sql(f"CREATE NAMESPACE {CATALOG}.ns")
    return spark


@pytest.fixture
def table(checked: SparkSession) -> Table:
    """A new table in it."""
    name = f"{CATALOG}.ns.t{uuid.uuid4().hex[:8]}"
    checked.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg TBLPROPERTIES ('format-version'='2')")
    return Table(checked, name)


@pytest.fixture
def elsewhere(table: Table, checked: SparkSession, folder: Path) -> Table:
    """The same table in an engine that knows nothing of the check."""
    plain = checked.newSession()
    declare(plain, folder, implementation="org.apache.iceberg.spark.SparkCatalog")
    return Table(plain, table.name)
