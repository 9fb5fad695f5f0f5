"""Fixtures of all tests, including those of plug-ins: servers and sessions that start when a test first needs them."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from lakefeed.config import trust
from lakefeed.config.loading.load import read
from lakefeed.config.models import PipelineConfig
from lakefeed.config.problem import Problem
from lakefeed_local.stack import Endpoints, Stack
from tests.support.feed import Feed
from tests.support.lake import spark_in, spark_on
from tests.support.own_process import pytest_configure as pytest_configure
from tests.support.pipeline_text import ENVIRONMENT, GOOD, Reader
from tests.support.probe import Probe
from tests.support.remembered import forget_afterwards
from tests.support.servers.mariadb import MariaDB, mariadb
from tests.support.servers.mysql import MySQL
from tests.support.servers.mysql import mysql as running_mysql
from tests.support.servers.postgresql import PostgreSQL, postgresql
from tests.support.servers.search import EACH_SEARCH_SERVER, SearchServer, search_server

# The tests' JVMs live for minutes: the second compiler takes a third of all CPU time, and saves less than that.
# Without that compiler the code cache is a fifth of the default, and a session of hundreds of tables fills it.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")

# On a busy machine one example may take ten times as long as the next; that is no fault of the code.
settings.register_profile("lakefeed", deadline=None)
settings.load_profile("lakefeed")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark unit tests as quick unless they wait; the bench's unit tests take seconds to draw and fit curves."""
    for item in items:
        if _is_unit_test(item) and not item.nodeid.startswith("bench/") and item.get_closest_marker("waits") is None:
            item.add_marker(pytest.mark.quick)


def _is_unit_test(item: pytest.Item) -> bool:
    return ("tests", "unit") in pairwise(item.path.parts)


@pytest.fixture(autouse=True)
def _authorities_of_one_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Reset the certificates that a unit test's pipeline declares, so that later tests do not use them."""
    yield
    if _is_unit_test(request.node):
        trust.forget()


@pytest.fixture(autouse=True)
def _secrets_of_one_test() -> Iterator[None]:
    """Forget a test's passwords, so that they are not redacted in the next test's messages."""
    with forget_afterwards():
        yield


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    """Yield a stack for the whole session. Tests share it, with their own topics, subjects and tables."""
    embedded = Stack(tmp_path_factory.mktemp("stack"))
    try:
        yield embedded.up()
    finally:
        embedded.down(erase=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgreSQL]:
    """Yield a PostgreSQL server. Tests share it, with their own databases (``new_database``)."""
    with postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def maria() -> Iterator[MariaDB]:
    """Yield a MariaDB server. Tests share it, with their own databases (``new_database``)."""
    with mariadb() as server:
        yield server


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySQL]:
    """Yield a MySQL server. Tests share it, with their own databases (``new_database``)."""
    with running_mysql() as server:
        yield server


@pytest.fixture(scope="session")
def search_servers() -> Iterator[Callable[[str], SearchServer]]:
    """Yield a function that returns the search server of a kind, and starts it if no test has needed it yet."""
    with ExitStack() as running:
        yield cache(lambda kind: running.enter_context(search_server(kind)))


@pytest.fixture(scope="session")
def search(search_servers: Callable[[str], SearchServer], request: pytest.FixtureRequest) -> SearchServer:
    """Return a search server. Tests share it, with their own indexes."""
    return search_servers(getattr(request, "param", "opensearch-2"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of the search sink on all search servers, other tests on one."""
    if "search" in metafunc.fixturenames and metafunc.module.__name__.endswith("test_elasticsearch"):
        # The parameter has no session scope: pytest would reorder these files, and run them ahead of their folders.
        metafunc.parametrize("search", EACH_SEARCH_SERVER, indirect=True, scope="module")


@pytest.fixture
def feed(stack: Endpoints, tmp_path: Path) -> Feed:
    """Return a new feed on the shared stack, for one test."""
    return Feed(stack, tmp_path)


@pytest.fixture(scope="session")
def lake(stack: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a Spark session on two threads that reaches the stack's store and catalog."""
    with spark_on(stack, name="lakefeed-tests", folder=tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a Spark session on two threads that needs no server."""
    folder: Path = tmp_path_factory.mktemp("spark")
    with spark_in(folder, conf={"spark.sql.warehouse.dir": str(folder / "warehouse")}) as running:
        yield running


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probe]:
    """Yield a JVM that runs decoders without Spark."""
    running = Probe(tmp_path_factory.mktemp("probe"))
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def reading(tmp_path: Path) -> Reader:
    """Return a function that reads a text as ``p.yaml``; problems name that file without its folder."""

    def of(
        text: str = GOOD,
        *,
        overrides: Sequence[str] = (),
        environment: Mapping[str, str] = ENVIRONMENT,
        replace: tuple[str, str] | None = None,
    ) -> tuple[PipelineConfig | None, list[Problem]]:
        if replace is not None:
            assert replace[0] in text
            text = text.replace(*replace)
        path = tmp_path / "p.yaml"
        path.write_text(text, "utf-8", newline="")
        found = read(path, overrides=overrides, environment=environment)
        return found.config, found.problems

    return of
