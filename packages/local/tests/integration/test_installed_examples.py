"""Run the commands that ``examples copy`` prints in an empty folder; only the wheels are installed."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakefeed_local.examples import packaged_examples
from tests.support.installed import Shell, install
from tests.support.servers.mariadb import MariaDB
from tests.support.servers.postgresql import PostgreSQL
from tests.support.servers.search import SearchServer
from tools.expected import EXAMPLES

NAMES = {each.name for each in packaged_examples()}
OF_SERVERS = {each.file: each for each in EXAMPLES if each.server is not None}
NOT_HERE = {"kinesis": "needs Kinesis: tests/integration/test_kinesis.py runs it"}


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    made = install(tmp_path_factory.mktemp("installed"), extras="all,pandas,postgresql,mariadb")
    try:
        made("lakefeed", "local", "up")
        made.variables |= json.loads(made("lakefeed", "local", "env", "--output", "json"))
        yield made
    finally:
        made("lakefeed", "local", "down", "--erase")
        print("\n".join(made.said))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", sorted(NAMES - set(NOT_HERE)))
def test_the_commands_printed_by_examples_copy_run_the_example(
    shell: Shell, postgres: PostgreSQL, maria: MariaDB, search: SearchServer, name: str
) -> None:
    shell.folder = shell.folder.parent / f"only-{name}"
    shell.folder.mkdir()
    copied = json.loads(shell("lakefeed", "examples", "copy", name, "--output", "json"))
    assert all((shell.folder / file).is_file() for file in copied["copied"])
    for pipeline in copied["pipelines"]:
        file = Path(pipeline["file"]).relative_to("examples")
        example = OF_SERVERS.get(str(file))
        if example is not None and example.server == "opensearch":
            shell.variables["ELASTICSEARCH_URL"] = search.url
        elif example is not None:
            database = (postgres if example.server == "postgresql" else maria).new_database()
            for statement in example.prepared:
                database.execute(statement)
            shell.variables |= {
                "DATABASE_URL": database.jdbc_url,
                "DATABASE_USER": database.user,
                "DATABASE_PASSWORD": database.password,
            }
        for command in pipeline["commands"]:
            shell(*shlex.split(command))


@pytest.mark.slow
def test_the_wheel_has_all_examples(shell: Shell) -> None:
    assert {each["name"] for each in json.loads(shell("lakefeed", "examples", "list", "--output", "json"))} == NAMES
