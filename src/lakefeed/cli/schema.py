"""``lakefeed schema``: what the registry has, what the table has, what would change, what has changed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakefeed.cli.output import echo, emit, output_option
from lakefeed.cli.topic import one_part_of, topic_option
from lakefeed.messages.tabular import aligned

if TYPE_CHECKING:
    from lakefeed.config.connections import Connections
    from lakefeed.config.models import PipelineConfig
    from lakefeed.operations.compare_schemas import SchemaComparison, TableState

pipeline_argument = click.argument("pipeline", type=click.Path(path_type=Path, dir_okay=False))
set_option = click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a setting.")


@click.group()
def schema() -> None:
    """What the registry has, what the table has, and what would change."""


@schema.command()
@pipeline_argument
@topic_option
@set_option
@output_option
def show(pipeline: Path, topic: str | None, overrides: tuple[str, ...], output: str) -> None:
    """Show all versions in the registry, and the latest beside the table's columns. Without Spark."""
    from lakefeed.operations.compare_schemas import existing_table, registered, side_by_side

    config, connections = _loaded(pipeline, overrides, topic)
    versions = registered(config)
    table = existing_table(config, connections=connections)
    lines = side_by_side(versions[-1], table)
    steps = _steps([each.text for each in versions])

    def text() -> None:
        echo(f"subject {versions[-1].subject}")
        for version, step in zip(versions, steps, strict=True):
            echo(f"  version {version.version}  id {version.schema_id}  {step}")
        echo(f"table {_table_name(config)}{'' if table else ': not there yet'}")
        _columns(lines)

    document = {
        "subject": versions[-1].subject,
        "versions": [
            {"version": each.version, "schema_id": each.schema_id, "schema": json.loads(each.text)} for each in versions
        ],
        "table": _table_name(config),
        "exists": table is not None,
        "columns": [asdict(each) for each in lines],
    }
    emit(output, document, text)


@schema.command()
@pipeline_argument
@topic_option
@set_option
@output_option
def diff(pipeline: Path, topic: str | None, overrides: tuple[str, ...], output: str) -> None:
    """Show what the table would become if the latest version came now. Changes nothing; without Spark."""
    from lakefeed.operations.compare_schemas import existing_table, outlook, registered

    config, connections = _loaded(pipeline, overrides, topic)
    latest = registered(config)[-1]
    found = outlook(config, latest, existing_table(config, connections=connections))

    def text() -> None:
        echo(f"subject {latest.subject}, version {latest.version}, id {latest.schema_id}")
        echo(f"table {_table_name(config)}")
        for change in found.changes:
            echo(f"  {change}")
        for statement in found.ddl or ():
            echo(f"{statement};")
        if found.ddl == () and not found.changes:
            echo("  takes it as it is")
        if found.note:
            echo(f"note: {found.note}")

    document = {
        "subject": latest.subject,
        "version": latest.version,
        "schema_id": latest.schema_id,
        "table": _table_name(config),
        "changes": [asdict(each) for each in found.changes],
        "ddl": None if found.ddl is None else list(found.ddl),
        "note": found.note,
    }
    emit(output, document, text)


@schema.command()
@click.argument("pipeline", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--table", metavar="CATALOG.NAMESPACE.TABLE", help="The table, instead of a pipeline's.")
@topic_option
@set_option
@output_option
@click.pass_context
def history(
    context: click.Context,
    pipeline: Path | None,
    table: str | None,
    topic: str | None,
    overrides: tuple[str, ...],
    output: str,
) -> None:
    """Show what became of a table's columns, when, and by which schema id. Without Spark."""
    from lakefeed.operations.compare_schemas import table_state

    if (pipeline is None) == (table is None):
        raise click.UsageError("Give either a pipeline file or --table.", context)
    state = table_state(table, connections=_default_connections()) if table else _table_of(pipeline, overrides, topic)

    def text() -> None:
        if state.history.dropped:
            echo(f"({state.history.dropped} older entries are gone)")
        for entry in state.history.entries:
            by = f"schema id {entry.schema_id}" if entry.schema_id is not None else "no schema id"
            echo(f"{entry.at:%Y-%m-%d %H:%M:%S} UTC  {by}")
            for change in entry.changes:
                echo(f"  {change}")
        if not state.history.entries:
            echo(f"{state.name} has the columns that it was created with")

    entries = [each.as_dict() for each in state.history.entries]
    emit(output, {"table": state.name, "dropped": state.history.dropped, "entries": entries}, text)


@schema.command()
@pipeline_argument
@click.option("--records", type=click.IntRange(1, 100_000), default=1_000, show_default=True, help="At most so many.")
@topic_option
@set_option
@output_option
def infer(pipeline: Path, records: int, topic: str | None, overrides: tuple[str, ...], output: str) -> None:
    """Guess a schema from the newest JSON records of the topics, and say what speaks against it."""
    from lakefeed.clients.spark.session import log_path
    from lakefeed.records.schema.inference import infer_schema, newest_values

    config, connections = _loaded(pipeline, overrides, topic)
    log_file = log_path(f"{config.name}-infer")
    values = newest_values(config, records=records, connections=connections, log_file=log_file)
    found = infer_schema(values, name=config.name)

    def text() -> None:
        echo(f"guessed from {found.records:,} records")
        echo(f"\ndecode:\n  json:\n    schema_ddl: {json.dumps(found.ddl, ensure_ascii=False)}")
        echo(f"\n{json.dumps(found.avro, indent=2, ensure_ascii=False)}")
        if found.conflicts:
            echo("\nspeaks against it:")
        for conflict in found.conflicts:
            echo(f"  {conflict}")

    emit(output, asdict(found), text)


def _loaded(pipeline: Path, overrides: Sequence[str], topic: str | None) -> tuple[PipelineConfig, Connections]:
    from lakefeed.pipeline import Pipeline

    declared = one_part_of(Pipeline.from_file(pipeline, overrides=overrides), topic)
    return declared.config, declared.connections


def _default_connections() -> Connections:
    from lakefeed.clients.environment import default_connections

    return default_connections()


def _table_of(pipeline: Path | None, overrides: Sequence[str], topic: str | None) -> TableState:
    from lakefeed.errors import ConfigError
    from lakefeed.operations.compare_schemas import table_state

    assert pipeline is not None  # click has seen to it.
    config, connections = _loaded(pipeline, overrides, topic)
    if (name := config.sink.chosen.snapshot_table) is None:
        raise ConfigError(
            "only Iceberg tables remember their schema's history", where=f"sink.{config.sink.kind} of {pipeline}"
        )
    return table_state(name, connections=connections)


def _table_name(config: PipelineConfig) -> str | None:
    return config.sink.chosen.snapshot_table


def _steps(texts: Sequence[str]) -> list[str]:
    """What each version is to a reader of the one before."""
    return ["the first", *(_step(one, two) for one, two in itertools.pairwise(texts))]


def _step(before: str, after: str) -> str:
    from lakefeed.errors import SchemaIncompatible
    from lakefeed.records.schema.merge import merge_schemas

    try:
        return "; ".join(map(str, merge_schemas(before, after).changes)) or "reads as the one before"
    except SchemaIncompatible as misfit:
        return f"incompatible: {misfit.what}"


def _columns(lines: Sequence[SchemaComparison]) -> None:
    rows = [("column", "registry", "table")]
    for each in lines:
        ours, theirs = each.registry or "-", each.table or "-"
        rows.append((each.path, ours, theirs if ours == theirs else f"{theirs}  <"))
    for line in aligned(rows, left=3):
        echo(f"  {line}")
