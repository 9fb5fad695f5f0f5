"""What all tests share: the embedded stack, started for the first test that needs it."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from lakefeed.local import Endpoints, Stack
from tests.support import guardian
from tests.support.feed import Feed
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


def pytest_configure() -> None:
    """In this process, and in each worker of pytest-xdist."""
    # A shell starts background jobs with SIGINT ignored, and the commands that tests start would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "LAKEFEED_HOME" not in os.environ:
        # Drivers' files and traces of runs are no one's who runs the tests; workers inherit the folder.
        home = tempfile.mkdtemp(prefix="lakefeed-tests-home-")
        os.environ["LAKEFEED_HOME"] = home
        atexit.register(shutil.rmtree, home, ignore_errors=True)
    guardian.watch()


@pytest.fixture(autouse=True)
def _secrets_of_one_test() -> Iterator[None]:
    """Keep one test's passwords out of the redaction of the next one's messages."""
    with forget_afterwards():
        yield


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    """A stack for the whole session. Tests share it: each takes topic, subject and table names of its own."""
    embedded = Stack(tmp_path_factory.mktemp("stack"))
    try:
        yield embedded.up()
    finally:
        embedded.down(erase=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgreSQL]:
    """A PostgreSQL server. Tests share it: each takes a database of its own (``new_database``)."""
    with postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def maria() -> Iterator[MariaDB]:
    """A MariaDB server. Tests share it: each takes a database of its own (``new_database``)."""
    with mariadb() as server:
        yield server


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySQL]:
    """A MySQL server. Tests share it: each takes a database of its own (``new_database``)."""
    with running_mysql() as server:
        yield server


@pytest.fixture(scope="session")
def search_servers() -> Iterator[Callable[[str], SearchServer]]:
    """Search servers by kind, each started for the first test that needs it."""
    with ExitStack() as running:
        yield cache(lambda kind: running.enter_context(search_server(kind)))


@pytest.fixture(scope="session")
def search(search_servers: Callable[[str], SearchServer], request: pytest.FixtureRequest) -> SearchServer:
    """A search server. Tests share it: each takes an index of its own."""
    return search_servers(getattr(request, "param", "opensearch-2"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of the search sink on each search server, other tests on one."""
    if "search" in metafunc.fixturenames and metafunc.module.__name__.endswith("test_elasticsearch"):
        # Not of the session: pytest would run these files one after the other, ahead of their folders.
        metafunc.parametrize("search", EACH_SEARCH_SERVER, indirect=True, scope="module")


@pytest.fixture
def feed(stack: Endpoints, tmp_path: Path) -> Feed:
    """A feed of the test's own on the shared stack."""
    return Feed(stack, tmp_path)
