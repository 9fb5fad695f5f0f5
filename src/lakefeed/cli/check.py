"""``lakefeed check``: finds all mistakes in a pipeline file, and with --connect problems of its servers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from lakefeed.cli.options import output_option, pipeline_argument, set_option
from lakefeed.cli.output import echo, emit
from lakefeed.clients.environment import default_environment
from lakefeed.config.problem import Problem, errors_of, exit_status
from lakefeed.errors import LakefeedError
from lakefeed.lazy import SparkSession
from lakefeed.plugins import CHECKS_GROUP, installed

if TYPE_CHECKING:
    from lakefeed.config.connections import Connections
    from lakefeed.config.loading.load import Reading


@click.command()
@pipeline_argument
@set_option
@click.option("--connect", is_flag=True, help="Also ask the brokers, registry, store and catalog.")
@click.option("--static", is_flag=True, help="Only read the file: run no code, read no environment variable.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of pipeline files instead.")
@output_option
def check(pipeline: Path, overrides: tuple[str, ...], connect: bool, static: bool, schema: bool) -> None:
    """Find all mistakes in PIPELINE, without reading a record.

    A pipeline file is code: check imports its Python functions, and a local Spark analyzes its transforms. With
    --static, check runs no code and reads no environment variable: use it for files that you do not trust.

    A mistake is printed as file:line:column: error: text, with the next step below. Exit status: 2 if there is a
    mistake, 1 if only a server does not answer, otherwise 0; warnings do not change it.
    """
    if schema:
        from lakefeed.config.schema import json_schema

        echo(json.dumps(json_schema(), indent=2))
        return
    if static and connect:
        raise click.UsageError("--static connects to no server, and --connect does: give one of them.")
    problems = _problems(pipeline, overrides, static=static, connect=connect)
    count = len(errors_of(problems))
    asked = ", and its servers, topics and tables can be used" if connect else ""
    verdict = f"{count} error{'s' if count > 1 else ''}" if count else f"no mistakes{asked}"
    text = "\n".join([*map(str, problems), f"{pipeline}: {verdict}"])
    emit([problem.as_dict() for problem in problems], text)
    raise Exit(exit_status(problems))


def _problems(file: Path, overrides: tuple[str, ...], *, static: bool, connect: bool) -> list[Problem]:
    from lakefeed.config.loading.load import read

    environment = None if static else default_environment()
    reading = read(file, overrides=overrides, environment=environment)
    problems = list(reading.problems)
    if environment is None:
        return problems
    if reading.config is None:
        return [*problems, *_sql_problems(reading, environment)]
    connections = reading.config.connections(environment)
    if connect:
        from lakefeed.operations.preflight.connect import preflight

        found = preflight(reading.config, connections=connections, tables=True)
        for entry in installed(CHECKS_GROUP) if not errors_of([*problems, *found]) else ():
            found += entry.load()(reading.config, connections)
        problems += map(reading.document.located, found)
    problems += _sql_problems(reading, environment)
    if not errors_of(problems):
        from lakefeed.operations.preflight.analysis import analyze

        found = analyze(
            reading.config,
            connections=connections,
            spark=lambda: _spark(connections),
            folder=file.absolute().parent,
            connect=connect,
        )
        problems += map(reading.document.located, found)
    return problems


def _sql_problems(reading: Reading, environment: Mapping[str, str]) -> list[Problem]:
    """Return the SQL mistakes that Spark's parser finds; the parser works even if the file has other mistakes."""
    mistakes = reading.mistakes
    if mistakes is None or mistakes.config is None:
        return []
    from lakefeed.operations.preflight.analysis import parse_sql

    try:
        connections = (reading.config or mistakes.config).connections(environment)
        found = parse_sql(mistakes.config, spark=lambda: _spark(connections))
    except LakefeedError:
        if reading.config is not None:
            raise
        return []  # The cause may be a mistake that is reported already.
    return [reading.document.located(problem) for problem in found if not mistakes.is_noise(problem)]


def _spark(connections: Connections) -> SparkSession:
    # Import the parser only for a file with SQL: the import takes nine times as long as the check of another file.
    from lakefeed.clients.spark.session import log_path, session

    return session(
        "lakefeed-check",
        connections=connections,
        master="local[1]",
        conf={"spark.ui.enabled": "false"},
        log_file=log_path("check"),
    )
