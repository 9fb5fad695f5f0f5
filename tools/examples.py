"""Run the examples on real servers: ``python -m tools.examples [word...]``, or ``make examples``.

The comment at the top of an example's file has its commands, and ``tools.expected`` its result. With words, only those
examples run whose path contains one of the words. Exit status 1 if a result differs.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lakefeed.cli.main import root
from lakefeed.dataframes import read_topic
from lakefeed_local.stack import Endpoints, Stack
from tests.support.lake import spark_on
from tests.support.servers.database import DatabaseServer
from tests.support.servers.mariadb import mariadb
from tests.support.servers.postgresql import postgresql
from tests.support.servers.search import SearchServer, search_server
from tools.expected import EXAMPLES, Example
from tools.photograph import photograph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent
COMMAND = re.compile(r"^#   ((?:lakefeed|python) .+)$", re.MULTILINE)
CONTINUED = re.compile(r" \\\n# +")
NOTEBOOKS = ROOT / "examples" / "notebooks"
Server = DatabaseServer | SearchServer
Outcome = Literal["ok", "DIFFERS", "FAILED"]
SERVERS: dict[str, Callable[[], Any]] = {"mariadb": mariadb, "postgresql": postgresql}
SERVERS["opensearch"] = lambda: search_server("opensearch-2")


def commands(file: Path) -> list[list[str]]:
    """Return each command in the comment at the top of a pipeline file, as a list of words."""
    top = file.read_text("utf-8").partition("\nname:")[0]
    return [shlex.split(each) for each in COMMAND.findall(CONTINUED.sub(" ", top))]


@dataclass
class Runner:
    """Runs examples in one Spark session; ``server`` is a function that returns the running server of a name."""

    spark: SparkSession
    server: Callable[[str], Server]
    _done: set[str] = field(default_factory=set)

    def run(self, example: Example) -> list[tuple[str, ...]]:
        """Run the example's commands, and return the rows of its result, as text."""
        if example.after is not None:
            self.run(next(each for each in EXAMPLES if each.file == example.after))
        printed = StringIO()
        with ExitStack() as stack:
            server = None
            if example.server is not None:
                server = self.server(example.server)
                if isinstance(server, DatabaseServer):
                    server.execute(*example.prepared)
                stack.enter_context(_environment(_addresses(server)))
            if example.file not in self._done:
                self._done.add(example.file)
                stack.enter_context(redirect_stdout(_Both(printed)))
                for words in commands(ROOT / "examples" / example.file):
                    carry_out(words)
        if example.topic is not None:
            _show_records(self.spark, example.topic, example.columns)
        elif isinstance(server, SearchServer) and example.index is not None:
            _show_documents(self.spark, server, example.index)
        elif isinstance(server, DatabaseServer) and example.result is not None:
            return [tuple(map(str, row)) for row in server.execute(example.result)]
        if example.result is not None:
            return [tuple(map(str, row)) for row in self.spark.sql(example.result).collect()]
        lines = [each.strip("|").split("|") for each in printed.getvalue().splitlines() if each.startswith("|")]
        return [tuple(each.strip() for each in line) for line in lines[1:]]


class _Both(StringIO):
    """Writes to stdout, and stores the written text."""

    def __init__(self, copy: StringIO) -> None:
        super().__init__()
        self._copy, self._out = copy, sys.stdout

    def write(self, text: str) -> int:
        self._out.write(text)
        return self._copy.write(text)


def carry_out(words: Sequence[str]) -> None:
    """Run a command in this process, with its Spark session; raise SystemExit if the command fails."""
    print(f"\n$ {shlex.join(words)}", file=sys.stderr, flush=True)
    program, *arguments = words
    if program == "lakefeed":
        status = root.main(arguments, standalone_mode=False)
        if status:
            raise SystemExit(f"status {status}: {shlex.join(words)}")
        return
    before = sys.argv
    sys.argv = arguments
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    finally:
        sys.argv = before


def _addresses(server: Server) -> dict[str, str]:
    if isinstance(server, SearchServer):
        return {"ELASTICSEARCH_URL": server.url}
    return {"DATABASE_URL": server.jdbc_url, "DATABASE_USER": server.user, "DATABASE_PASSWORD": server.password}


def _show_records(spark: SparkSession, topic: str, columns: str | None) -> None:
    """Create the view ``records`` with a topic's records."""
    decode: dict[str, Any] = {"avro": {"registry": os.environ["SCHEMA_REGISTRY_URL"]}, "metadata": ["key"]}
    if columns is not None:
        decode = {"json": {"schema_ddl": columns}, "metadata": ["key"]}
    read_topic(spark, topic, stream=False, decode=decode).createOrReplaceTempView("records")


def _show_documents(spark: SparkSession, server: SearchServer, index: str) -> None:
    """Create the view ``documents`` with an index's documents."""
    documents = [{"_id": name, **each} for name, each in server.documents(index).items()]
    spark.createDataFrame(documents).createOrReplaceTempView("documents")


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def surroundings(endpoints: Endpoints) -> Iterator[None]:
    """Run the block in the repository's folder, with the stack's environment variables."""
    where = Path.cwd()
    os.chdir(ROOT)
    try:
        with _environment({**endpoints.as_environment(), "PWD": str(ROOT)}):
            yield
    finally:
        os.chdir(where)


def take_picture(example: Example, spark: SparkSession) -> Outcome:
    """Take a picture of the example's dashboard while records arrive."""
    file = ROOT / "examples" / example.file
    [send] = [words for words in commands(file) if words[0] == "python"]
    picture = ROOT / "build" / "examples" / f"{file.parent.name}.png"
    try:
        grown = photograph(
            file, spark, picture=picture, send=lambda: carry_out(send), number=example.photographed or ""
        )
    except Exception as error:
        print(f"the dashboard was not photographed: {type(error).__name__}: {error}", flush=True)
        return "FAILED"
    print(f"  the dashboard counted {grown} more {example.photographed}: {picture.relative_to(ROOT)}", flush=True)
    return "ok"


def main(words: list[str]) -> int:
    """Run the examples that the words choose, and report their results."""
    chosen = [each for each in EXAMPLES if not words or any(word in each.file for word in words)]
    outcomes: dict[str, Outcome] = {}
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="lakefeed-examples-")))
        stack = Stack(folder / "stack")
        running.callback(lambda: stack.down(erase=True))
        endpoints = stack.up()
        started: dict[str, Server] = {}

        def server(kind: str) -> Server:
            if kind not in started:
                started[kind] = running.enter_context(SERVERS[kind]())
            running_server = started[kind]
            return running_server.new_database() if isinstance(running_server, DatabaseServer) else running_server

        running.enter_context(surroundings(endpoints))
        spark = running.enter_context(spark_on(endpoints, name="examples", folder=folder))
        runner = Runner(spark, server)
        for example in chosen:
            print(f"\n=== examples/{example.file}", file=sys.stderr, flush=True)
            try:
                rows = runner.run(example)
            except Exception as error:
                outcomes[example.file] = "FAILED"
                print(f"{type(error).__name__}: {error}", flush=True)
                continue
            outcomes[example.file] = "ok" if rows == list(example.expected) else "DIFFERS"
            for row in rows:
                print("  " + " · ".join(row), flush=True)
            if rows != list(example.expected):
                print("expected:", *("  " + " · ".join(row) for row in example.expected), sep="\n", flush=True)
            elif example.photographed is not None:
                outcomes[example.file] = take_picture(example, spark)
    print()
    for file, outcome in outcomes.items():
        print(f"{outcome:8} examples/{file}")
    return 0 if set(outcomes.values()) <= {"ok"} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
