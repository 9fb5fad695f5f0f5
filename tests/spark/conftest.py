"""Catalogs for the tests of the commit check, and fixtures of the pytest plug-in."""

import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.catalogs import make_catalog
from lakefeed.config.connections import Connections
from tests.support.catalogs import PLAIN, CatalogCase, HiveCase, PostgresCase, RestCase, SqliteCase
from tests.support.feed_table import Table
from tests.support.servers.hive_metastore import hive_metastore
from tests.support.servers.postgresql import PostgreSQL
from tests.support.servers.rest_catalog import rest_catalog
from tests.support.upserts import plain as plain
from tests.support.upserts import upsert_catalog as upsert_catalog
from tests.support.upserts import upserting as upserting

# make test-full runs these tests on SQLite, PostgreSQL and REST, and all other tests of a catalog on SQLite only.
TELLING = {
    "test_a_batch_lands_only_if_it_begins_where_the_last_batch_ended",
    "test_a_commit_whose_answer_is_lost_lands_once",
    "test_only_the_driver_that_took_the_fence_last_can_commit",
    "test_two_drivers_that_take_the_fence_together_get_different_fences",
    "test_a_commit_that_was_sent_before_the_fence_was_taken_does_not_land",
    "test_a_commit_that_was_refused_leaves_no_file",
    "test_each_answer_to_a_commit_lands_it_once_or_is_a_clear_error",
    "test_if_several_jobs_take_the_lease_together_one_job_gets_it",
    "test_an_upkeep_lease_that_was_requested_before_another_was_taken_is_refused",
}


@pytest.fixture(scope="session", params=["sqlite", "postgresql", "rest", pytest.param("hive", marks=pytest.mark.slow)])
def catalog(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogCase]:
    """Yield each catalog on which the commit check must work, with its tables in a local folder."""
    folder = tmp_path_factory.mktemp(request.param)
    # Each catalog gets a new name, because Spark reuses a catalog that it has opened under the same name.
    name = f"checked_{request.param}_{uuid.uuid4().hex[:6]}"
    if request.param == "sqlite":
        make_catalog(folder / "catalog.db")
        yield SqliteCase(name=name, folder=folder)
    elif request.param == "postgresql":
        postgres: PostgreSQL = request.getfixturevalue("postgres")
        yield PostgresCase(name=name, folder=folder, database=postgres.new_database())
    elif request.param == "hive":
        with hive_metastore() as metastore:
            yield HiveCase(name=name, folder=folder, server=metastore)
    else:
        with rest_catalog(warehouse=f"file://{folder}") as server:
            yield RestCase(name=name, folder=folder, server=server)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests on other catalogs than SQLite: none is quick, and only the tests in ``TELLING`` are not slow."""
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            known = item.callspec.params.get("catalog", "sqlite")
            if known != "sqlite":
                item.own_markers = [mark for mark in item.own_markers if mark.name != "quick"]
                if item.originalname not in TELLING:
                    item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def checked(spark: SparkSession, catalog: CatalogCase) -> SparkSession:
    """Return a session with this catalog, which checks the commits of all feeds."""
    catalog.declare(spark)
    spark.sql(f"CREATE NAMESPACE {catalog.name}.ns")
    return spark


@pytest.fixture(scope="session")
def connections(checked: SparkSession, catalog: CatalogCase) -> Connections:
    """Return the settings with which pyiceberg opens the test's catalog."""
    return Connections(catalogs={catalog.name: catalog.declared()})


@pytest.fixture
def table(checked: SparkSession, catalog: CatalogCase) -> Table:
    """Return a new table in the catalog of the test."""
    name = f"{catalog.name}.ns.t{uuid.uuid4().hex[:8]}"
    checked.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg TBLPROPERTIES ('format-version'='2')")
    return Table(checked, name)


@pytest.fixture
def elsewhere(table: Table, checked: SparkSession, catalog: CatalogCase) -> Table:
    """Return the fixture ``table`` as a second session without the commit check sees it."""
    plain = checked.newSession()
    catalog.declare(plain, implementation=PLAIN)
    return Table(plain, table.name)
