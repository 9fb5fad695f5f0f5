"""``lakefeed check``: every mistake in a pipeline file, and with --connect in what it points at."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakefeed.cli.output import emit, output_option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakefeed.config.connections import Connections
    from lakefeed.config.load import Reading
    from lakefeed.config.problem import Problem


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Override one setting; repeatable.")
@click.option("--connect", is_flag=True, help="Also ask broker, registry, S3 store and catalog.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of pipeline files instead.")
@output_option
@click.pass_context
def check(
    context: click.Context, file: Path | None, overrides: tuple[str, ...], connect: bool, schema: bool, output: str
) -> None:
    """Find every mistake in a pipeline file. Nothing is run; a transform is looked at by a Spark of its own.

    Each is printed as file:line:column: error: what, and below it what to do next. Exit status: 2 if there is
    a mistake, 1 if only something outside does not answer, 0 otherwise; warnings count for nothing.
    """
    from lakefeed.config.problem import errors_of, exit_status

    if schema:
        from lakefeed.config.schema import json_schema

        click.echo(json.dumps(json_schema(), indent=2))
        return
    if file is None:
        raise click.UsageError("Missing argument 'FILE'.", context)
    problems = _problems(file, overrides, connect=connect)

    def text() -> None:
        for problem in problems:
            click.echo(str(problem))
        count = len(errors_of(problems))
        asked = ", and what it points at is there" if connect else ""
        click.echo(f"{file}: {count} error{'s' if count > 1 else ''}" if count else f"{file}: no mistakes{asked}")

    emit(output, [problem.as_dict() for problem in problems], text)
    context.exit(exit_status(problems))


def _problems(file: Path, overrides: tuple[str, ...], *, connect: bool) -> list[Problem]:
    from lakefeed.config.load import read
    from lakefeed.config.problem import errors_of
    from lakefeed.session import default_environment

    environment = default_environment()
    reading = read(file, overrides=overrides, environment=environment)
    problems = list(reading.problems)
    if reading.config is None:
        return problems
    connections = reading.config.connections(environment)
    if connect:
        from lakefeed.config.connect import preflight

        problems += [_located(each, reading) for each in preflight(reading.config, connections=connections)]
    if not errors_of(problems):
        from lakefeed.analysis import analysed

        found = analysed(
            reading.config,
            connections=connections,
            spark=lambda: _spark(connections),
            folder=file.absolute().parent,
            connect=connect,
        )
        problems += [_located(each, reading) for each in found]
    return problems


def _spark(connections: Connections) -> SparkSession:
    from lakefeed.session import log_path, session

    return session(
        "lakefeed-check",
        connections=connections,
        master="local[1]",
        conf={"spark.ui.enabled": "false"},
        log_file=log_path("check"),
    )


def _located(problem: Problem, reading: Reading) -> Problem:
    """With the line of the setting; a setting that comes from the environment has none."""
    place: tuple[str | int, ...] = tuple(int(part) if part.isdigit() else part for part in problem.key.split("."))
    if isinstance(place[-1], int) and place not in reading.document.contents:
        place = place[:-1]
    if place not in reading.document.contents:
        return problem
    location = reading.document.locate(place)
    return replace(problem, file=location.file, line=location.line, column=location.column)
