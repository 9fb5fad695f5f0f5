"""The commit check on a scratch table, on each catalog and on catalogs that deviate from the protocol."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree

import pytest
from pydantic import SecretStr

from lakefeed.clients.iceberg.catalogs import make_catalog
from lakefeed.clients.iceberg.reader import open_catalog
from lakefeed.config.connections import Catalog, Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.sinks.definition import Problem
from lakefeed_inspect.catalog_check import try_commits
from lakefeed_local.stack import Endpoints
from tests.support.servers import deviations
from tests.support.servers.apicurio_catalog import apicurio_catalog
from tests.support.servers.deviations import Deviation
from tests.support.servers.glue_catalog import glue_catalog
from tests.support.servers.hive_metastore import hive_metastore
from tests.support.servers.postgresql import PostgreSQL
from tests.support.servers.rest_catalog import rest_catalog


@dataclass(frozen=True)
class Case:
    """A catalog, with its tables in a folder or a store."""

    block: Catalog
    connections: Connections = field(default_factory=Connections)
    folder: Path | None = None

    @property
    def opened(self) -> Connections:
        return self.connections.model_copy(update={"catalogs": {"c": self.block}})

    def problems(self, table: str = "c.ns.t") -> list[Problem]:
        """Return what ``check --connect`` reports about the catalog of a feed."""
        source = {"kafka": {"bootstrap_servers": "b:1", "topics": ["t"]}}
        decode = {"json": {"schema_ddl": "id BIGINT"}}
        blocks = {"name": "f", "source": source, "decode": decode, "sink": {"iceberg": {"table": table}}}
        return list(try_commits(PipelineConfig.model_validate(blocks), self.opened))

    def left(self) -> list[tuple[str, ...]]:
        """Return the namespaces of the catalog, and the files in its store that do not belong to the catalog itself."""
        with open_catalog("c", connections=self.opened) as catalog:
            names = [each for each in catalog.list_namespaces() if each != ("default",)]
        files = [] if self.folder is None else [each for each in self.folder.rglob("*") if each.is_file()]
        return [*names, *((each.name,) for each in files if not each.name.startswith("catalog.db"))]


@pytest.fixture(scope="module")
def deviating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Deviation], Case]]:
    """Return a function that makes a REST catalog deviate from the protocol in the given way."""
    folder = tmp_path_factory.mktemp("rest")
    with rest_catalog(warehouse=f"file://{folder}") as server:

        def case(deviation: Deviation) -> Case:
            server.deviation = deviation
            block = Catalog(type="rest", uri=server.url, credential=SecretStr(server.credential))
            return Case(block, folder=folder)

        yield case


def glue(stack: Endpoints, endpoint: str) -> Case:
    properties = {"glue.endpoint": endpoint, "glue.access-key-id": "key", "glue.secret-access-key": "secret"}
    block = Catalog(type="glue", warehouse=f"{stack.warehouse}/glue", properties=properties)
    return Case(block, Connections.from_environment(stack.as_environment()))


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("hive", "apicurio")]


@pytest.fixture(params=["sqlite", "postgresql", "rest", "glue", *SLOW])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    """Yield each catalog that the tests can start."""
    place = f"file://{tmp_path}"
    if request.param == "sqlite":
        make_catalog(tmp_path / "catalog.db")
        yield Case(Catalog(uri=f"jdbc:sqlite:{tmp_path}/catalog.db", warehouse=place), folder=tmp_path)
    elif request.param == "postgresql":
        database: PostgreSQL = request.getfixturevalue("postgres").new_database()
        login = {"username": database.user, "password": SecretStr(database.password)}
        yield Case(Catalog(uri=database.jdbc_url, warehouse=place, **login), folder=tmp_path)
    elif request.param == "rest":
        yield request.getfixturevalue("deviating")(deviations.none)
    elif request.param == "glue":
        with glue_catalog() as endpoint:
            yield glue(request.getfixturevalue("stack"), endpoint)
    elif request.param == "apicurio":
        with apicurio_catalog(request.getfixturevalue("tmp_path_factory").mktemp("log"), warehouse=place) as url:
            yield Case(Catalog(type="rest", uri=url), folder=tmp_path)
    else:
        with hive_metastore() as server:
            yield Case(Catalog(type="hive", uri=server.uri, warehouse=place), folder=tmp_path)


def test_a_catalog_with_safe_commits_passes_the_check_and_the_scratch_table_is_removed(case: Case) -> None:
    assert [str(each) for each in case.problems()] == []
    # If records decide the table, its namespace is not known before the run.
    assert [str(each) for each in case.problems("c.{topic}.t")] == []
    assert case.left() == []


UNSAFE = "error: this catalog does not guard commits, so rows could be lost or doubled: it"
FIRST = f"{UNSAFE} accepts two first commits, although both assert that the branch is absent"
BOTH = f"{UNSAFE} accepts two commits that begin at the same state of the table"
UNTRIED = "warning: the commit check was not tried on a scratch table: "
CONFLICT = (
    "warning: this catalog guards commits, but it answers a conflict not by status 409, but by: BadRequestException"
)
DEVIATIONS: dict[str, tuple[Deviation, list[str]]] = {
    "400 for a conflict": (deviations.conflict_400, [CONFLICT]),
    "first assertion ignored": (deviations.first_ignored, [FIRST]),
    "ignored": (deviations.all_ignored, [FIRST, BOTH, f"{UNSAFE} accepts a commit that asserts an old snapshot"]),
    "HTML": (deviations.html, [f"{UNTRIED}a commit fails: RESTError 404"]),
    "stale": (deviations.stale(), [f"{UNSAFE} returns an old state of a table after a commit"]),
    "no numbers": (deviations.no_numbers, [f"{UNSAFE} does not keep the sequence numbers of snapshots"]),
    "no keys": (
        deviations.no_keys,
        [f"{UNSAFE} does not keep the key lakef", f"{UNSAFE} does not keep the table prop"],
    ),
    "no creation": (deviations.no_creation, [f"{UNTRIED}this login cannot create a table: ForbiddenException"]),
    "no purge": (deviations.no_purge, []),
    "creation without an answer": (
        deviations.creation_502,
        [f"{UNTRIED}this login cannot create a table: ServerError"],
    ),
}


def compare(found: list[Problem], expected: list[str]) -> None:
    assert len(found) == len(expected), found
    for problem, text in zip(found, expected, strict=True):
        assert text in str(problem)
        assert problem.hint


@pytest.mark.parametrize("name", DEVIATIONS)
def test_the_check_names_the_guarantee_that_a_catalog_lacks(deviating: Callable[[Deviation], Case], name: str) -> None:
    deviation, expected = DEVIATIONS[name]
    case = deviating(deviation)
    compare(case.problems(), expected)
    assert case.left() == []


def test_the_check_refuses_a_glue_server_that_ignores_versions(stack: Endpoints) -> None:
    with glue_catalog(guards=False) as endpoint:
        compare(glue(stack, endpoint).problems(), [FIRST, BOTH])


@pytest.mark.parametrize("deviation", [deviations.no_drop, deviations.creation_502_no_drop], ids=["made", "no answer"])
def test_the_check_names_a_scratch_table_that_it_cannot_drop(
    deviating: Callable[[Deviation], Case], deviation: Deviation
) -> None:
    found = deviating(deviation).problems()
    compare(found[-1:], ["warning: the scratch table of this check is still there: ForbiddenException"])
    table = str(found[-1].hint).split()[2]
    assert table.startswith("c.ns.lakefeed_scratch_")
    case = deviating(deviations.none)
    with open_catalog("c", connections=case.opened) as catalog:
        catalog.purge_table(table.removeprefix("c."))
        catalog.drop_namespace("ns")
    rmtree(str(case.folder))
