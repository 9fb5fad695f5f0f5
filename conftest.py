"""Fixtures of all tests, also of the plug-ins' tests. Servers and Spark sessions start when a test first needs them."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

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
from tests.support.pipeline_text import ENVIRONMENT, GOOD, Acceptor, Reader
from tests.support.probe import Probe
from tests.support.remembered import forget_afterwards
from tests.support.servers.mariadb import MariaDB, mariadb
from tests.support.servers.mysql import MySQL
from tests.support.servers.mysql import mysql as running_mysql
from tests.support.servers.postgresql import PostgreSQL, postgresql
from tests.support.servers.search import EACH_SEARCH_SERVER, SearchServer, search_server

# C2, Java's second compiler, is off, because it would take a third of the CPU time of the tests' short-lived JVMs, and
# save less. Without C2, the JVM reserves a fifth of the usual code cache, which a session with hundreds of tables would
# fill.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")

# Otherwise the first run of the tests would make an archive of classes in the background.
os.environ.setdefault("LAKEFEED_CLASS_ARCHIVE", "off")

# Hypothesis gets no deadline, because on a busy machine one example may take ten times as long as the next.
settings.register_profile("lakefeed", deadline=None)
settings.load_profile("lakefeed")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark unit tests as quick, except those with the marker "waits" and the bench's, which take seconds."""
    for item in items:
        if _is_unit_test(item) and not item.nodeid.startswith("bench/") and item.get_closest_marker("waits") is None:
            item.add_marker(pytest.mark.quick)


def _is_unit_test(item: pytest.Item) -> bool:
    return ("tests", "unit") in pairwise(item.path.parts)


@pytest.fixture(autouse=True)
def _authorities_of_one_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Reset the certificate authorities that a unit test's pipeline declares, so that later tests do not use them."""
    yield
    if _is_unit_test(request.node):
        trust.forget()


@pytest.fixture(autouse=True)
def _secrets_of_one_test() -> Iterator[None]:
    """Forget a test's passwords, because lakefeed would redact these words in the next test's messages."""
    with forget_afterwards():
        yield


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    """Yield the stack that all tests share; each test uses its own topics, subjects and tables."""
    embedded = Stack(tmp_path_factory.mktemp("stack"))
    try:
        yield embedded.up()
    finally:
        embedded.down(erase=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgreSQL]:
    """Yield the PostgreSQL server that all tests share; each test creates its own databases (``new_database``)."""
    with postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def maria() -> Iterator[MariaDB]:
    """Yield the MariaDB server that all tests share; each test creates its own databases."""
    with mariadb() as server:
        yield server


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySQL]:
    """Yield the MySQL server that all tests share; each test creates its own databases."""
    with running_mysql() as server:
        yield server


@pytest.fixture(scope="session")
def search_servers() -> Iterator[Callable[[str], SearchServer]]:
    """Yield a function that returns the search server of a kind, and starts it at the first call."""
    with ExitStack() as running:
        yield cache(lambda kind: running.enter_context(search_server(kind)))


@pytest.fixture(scope="session")
def search(search_servers: Callable[[str], SearchServer], request: pytest.FixtureRequest) -> SearchServer:
    """Return a search server that all tests share; each test creates its own indexes."""
    return search_servers(getattr(request, "param", "opensearch-2"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests in files ``test_elasticsearch.py`` on all search servers; other tests use one server."""
    if "search" in metafunc.fixturenames and metafunc.module.__name__.endswith("test_elasticsearch"):
        # The scope is not "session", because pytest would then run these files before the other files of their folders.
        metafunc.parametrize("search", EACH_SEARCH_SERVER, indirect=True, scope="module")


@pytest.fixture
def feed(stack: Endpoints, tmp_path: Path) -> Feed:
    """Return a new feed, with its own topic and table, on the shared stack."""
    return Feed(stack, tmp_path)


@pytest.fixture(scope="session")
def lake(stack: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a Spark session with two threads that uses the stack's object store and catalog."""
    with spark_on(stack, name="lakefeed-tests", folder=tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a Spark session with two threads that uses no server."""
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
    """Return a function that reads a text as the pipeline file ``p.yaml``."""

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
        loaded = read(path, overrides=overrides, environment=environment)
        return loaded.config, loaded.problems

    return of


@pytest.fixture
def accepted(reading: Reader) -> Acceptor:
    """Return a function like ``reading`` that requires a text without problems, and returns only the configuration."""

    def of(*arguments: Any, **options: Any) -> Any:
        config, found = reading(*arguments, **options)
        assert found == []
        assert config is not None
        return config

    return of
