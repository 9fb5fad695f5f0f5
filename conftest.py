"""Fixtures of all tests, those of plug-ins too: servers and sessions, started for the first test that needs them."""

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

# The tests' JVMs live for minutes: what the second compiler costs, a third of all CPU time, it does not earn.
# Without it the room for compiled code is a fifth, and a session of hundreds of tables fills it.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")

# A busy machine takes ten times as long for one example as for the next, and says nothing of the code by it.
settings.register_profile("lakefeed", deadline=None)
settings.load_profile("lakefeed")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the unit tests, which are quick unless they have to wait; the bench's draw and fit curves for seconds."""
    for item in items:
        if _is_unit_test(item) and not item.nodeid.startswith("bench/") and item.get_closest_marker("waits") is None:
            item.add_marker(pytest.mark.quick)


def _is_unit_test(item: pytest.Item) -> bool:
    return ("tests", "unit") in pairwise(item.path.parts)


@pytest.fixture(autouse=True)
def _authorities_of_one_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep the certificates that one unit test's pipeline declares from the connections of the next."""
    yield
    if _is_unit_test(request.node):
        trust.forget()


@pytest.fixture(autouse=True)
def _secrets_of_one_test() -> Iterator[None]:
    """Keep one test's passwords out of the redaction of the next one's messages."""
    with forget_afterwards():
        yield


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    """Yield a stack for the whole session. Tests share it: each takes topic, subject and table names of its own."""
    embedded = Stack(tmp_path_factory.mktemp("stack"))
    try:
        yield embedded.up()
    finally:
        embedded.down(erase=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgreSQL]:
    """Yield a PostgreSQL server. Tests share it: each takes a database of its own (``new_database``)."""
    with postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def maria() -> Iterator[MariaDB]:
    """Yield a MariaDB server. Tests share it: each takes a database of its own (``new_database``)."""
    with mariadb() as server:
        yield server


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySQL]:
    """Yield a MySQL server. Tests share it: each takes a database of its own (``new_database``)."""
    with running_mysql() as server:
        yield server


@pytest.fixture(scope="session")
def search_servers() -> Iterator[Callable[[str], SearchServer]]:
    """Search servers by kind, each started for the first test that needs it."""
    with ExitStack() as running:
        yield cache(lambda kind: running.enter_context(search_server(kind)))


@pytest.fixture(scope="session")
def search(search_servers: Callable[[str], SearchServer], request: pytest.FixtureRequest) -> SearchServer:
    """Return a search server. Tests share it: each takes an index of its own."""
    return search_servers(getattr(request, "param", "opensearch-2"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of the search sink on each search server, other tests on one."""
    if "search" in metafunc.fixturenames and metafunc.module.__name__.endswith("test_elasticsearch"):
        # Not of the session: pytest would run these files one after the other, ahead of their folders.
        metafunc.parametrize("search", EACH_SEARCH_SERVER, indirect=True, scope="module")


@pytest.fixture
def feed(stack: Endpoints, tmp_path: Path) -> Feed:
    """Return a feed of the test's own on the shared stack."""
    return Feed(stack, tmp_path)


@pytest.fixture(scope="session")
def lake(stack: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a Spark session on two threads that reaches the stack's store and catalog."""
    with spark_on(stack, name="lakefeed-tests", folder=tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a session on two threads of this machine; it needs no server."""
    folder: Path = tmp_path_factory.mktemp("spark")
    with spark_in(folder, conf={"spark.sql.warehouse.dir": str(folder / "warehouse")}) as running:
        yield running


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probe]:
    """Yield decoders without Spark."""
    running = Probe(tmp_path_factory.mktemp("probe"))
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def reading(tmp_path: Path) -> Reader:
    """Read a text as ``p.yaml``; the problems name that file without its folder."""

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
