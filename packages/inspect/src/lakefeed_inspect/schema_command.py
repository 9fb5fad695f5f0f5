"""``lakefeed schema``: shows the schemas of registry and table, and their changes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

import lakefeed
from lakefeed.cli.options import (
    is_default,
    one_part_of,
    options_of,
    output_option,
    pipeline_argument,
    set_option,
    topic_option,
)
from lakefeed.cli.output import column_lines, emit
from lakefeed.clients.environment import default_connections
from lakefeed.errors import ConfigError, SchemaIncompatible

if TYPE_CHECKING:
    from lakefeed.config.connections import Connections
    from lakefeed.config.models import PipelineConfig

PAGE = "schema-evolution"

of_pipeline = options_of(pipeline_argument, topic_option, set_option, output_option)


@click.group()
def schema() -> None:
    """Compare the registry's schema with the table's."""


@schema.command()
@of_pipeline
def show(pipeline: Path, topic: str | None, overrides: tuple[str, ...]) -> None:
    """Show the registry's versions, and the columns of table and latest version. Without Spark."""
    from lakefeed_inspect.compare_schemas import existing_table, registered, side_by_side

    config, connections = _load(pipeline, overrides, topic)
    versions = registered(config)
    table = existing_table(config, connections=connections)
    name, subject = config.sink.chosen.snapshot_table, versions[-1].subject
    columns = side_by_side(versions[-1], table)
    steps = ["the first", *(_step(one.text, two.text) for one, two in itertools.pairwise(versions))]

    def text() -> Iterator[str]:
        yield f"subject {subject}"
        for version, step in zip(versions, steps, strict=True):
            yield f"  version {version.version}  id {version.schema_id}  {step}"
        yield f"table {name}{'' if table else ': does not exist yet'}"
        rows = [("column", "registry", "table")]
        for column in columns:
            ours, theirs = column.registry or "-", column.table or "-"
            rows.append((column.path, ours, theirs if ours == theirs else f"{theirs}  <"))
        yield from column_lines(rows, left=3)

    document = {
        "subject": subject,
        "versions": [
            {"version": version.version, "schema_id": version.schema_id, "schema": json.loads(version.text)}
            for version in versions
        ],
        "table": name,
        "exists": table is not None,
        "columns": [asdict(column) for column in columns],
    }
    emit(document, text())


@schema.command()
@of_pipeline
def diff(pipeline: Path, topic: str | None, overrides: tuple[str, ...]) -> None:
    """Show how the latest version would change the table. Changes nothing; without Spark."""
    from lakefeed_inspect.compare_schemas import existing_table, outlook, registered

    config, connections = _load(pipeline, overrides, topic)
    latest = registered(config)[-1]
    found = outlook(config, latest, existing_table(config, connections=connections))
    table = config.sink.chosen.snapshot_table

    def text() -> Iterator[str]:
        yield f"subject {latest.subject}, version {latest.version}, id {latest.schema_id}"
        yield f"table {table}"
        for change in found.changes:
            yield f"  {change}"
        for statement in found.ddl or ():
            yield f"{statement};"
        if found.ddl == () and not found.changes:
            yield "  needs no change"
        if found.note:
            yield f"note: {found.note}"

    document = {
        "subject": latest.subject,
        "version": latest.version,
        "schema_id": latest.schema_id,
        "table": table,
        "changes": [asdict(change) for change in found.changes],
        "ddl": None if found.ddl is None else list(found.ddl),
        "note": found.note,
    }
    emit(document, text())


@schema.command()
@of_pipeline
@click.option("--table", metavar="CATALOG.NAMESPACE.TABLE", help="The table, instead of a pipeline's table.")
def history(pipeline: Path, table: str | None, topic: str | None, overrides: tuple[str, ...]) -> None:
    """Show the changes of a table's columns, with times and schema ids. Without Spark."""
    from lakefeed_inspect.compare_schemas import table_state

    if table is None:
        config, connections = _load(pipeline, overrides, topic)
        if (table := config.sink.chosen.snapshot_table) is None:
            where = f"sink.{config.sink.kind} of {pipeline}"
            hint = "name an Iceberg table with --table"
            raise ConfigError("only Iceberg tables have a history of their columns", where=where, hint=hint)
    elif is_default("pipeline"):
        connections = default_connections()
    else:
        raise click.UsageError("give --table or a pipeline file, not both")
    state = table_state(table, connections=connections)

    def text() -> Iterator[str]:
        if state.history.dropped:
            yield f"({state.history.dropped} older entries were dropped)"
        for entry in state.history.entries:
            by = f"schema id {entry.schema_id}" if entry.schema_id is not None else "no schema id"
            yield f"{entry.at:%Y-%m-%d %H:%M:%S} UTC  {by}"
            for change in entry.changes:
                yield f"  {change}"
        if not state.history.entries:
            yield f"the columns of {state.name} have not changed since its creation"

    entries = [entry.as_dict() for entry in state.history.entries]
    emit({"table": state.name, "dropped": state.history.dropped, "entries": entries}, text())


@schema.command()
@click.option(
    "--records", type=click.IntRange(1, 100_000), default=1_000, show_default=True, help="The most records to read."
)
@of_pipeline
def infer(pipeline: Path, records: int, topic: str | None, overrides: tuple[str, ...]) -> None:
    """Guess a schema from the topics' newest JSON records, and show conflicts."""
    from lakefeed.records.schema.inference import infer_schema, newest_values

    config, _ = _load(pipeline, overrides, topic)
    found = infer_schema(newest_values(config.kafka, records=records), name=config.name)

    def text() -> Iterator[str]:
        yield f"guessed from {found.records:,} records"
        yield f"\ndecode:\n  json:\n    schema_ddl: {json.dumps(found.ddl, ensure_ascii=False)}"
        yield f"\n{json.dumps(found.avro, indent=2, ensure_ascii=False)}"
        if found.conflicts:
            yield "\nconflicts:"
        for conflict in found.conflicts:
            yield f"  {conflict}"

    emit(asdict(found), text())


def _load(pipeline: Path, overrides: Sequence[str], topic: str | None) -> tuple[PipelineConfig, Connections]:
    declared = one_part_of(lakefeed.Pipeline.from_file(pipeline, overrides=overrides, to_run=False), topic)
    return declared.config, declared.connections


def _step(before: str, after: str) -> str:
    """Describe the changes between two consecutive versions, or why the two are incompatible."""
    from lakefeed.records.schema.merge import merge_schemas

    try:
        return "; ".join(map(str, merge_schemas(before, after).changes)) or "no change for readers"
    except SchemaIncompatible as error:
        return f"incompatible: {error.what}"
