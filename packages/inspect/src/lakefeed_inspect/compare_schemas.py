"""Compare the registry's schemas with the table's columns, and predict how the latest version changes the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from lakefeed.clients.spark.session import log_path, session
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.lazy import DataType, StructType
from lakefeed.operations.preflight.connect import with_metadata
from lakefeed.records.decode.avro_schema import table_schema
from lakefeed.records.decode.registry import KINDS, RegisteredSchema, SchemaRegistry
from lakefeed.records.decode.resolve import subject_of
from lakefeed.records.schema.changes import Change, History, read_history, renames
from lakefeed.records.schema.ddl import statements
from lakefeed.records.schema.fit import columns_of, columns_of_table, find_field, spark_types
from lakefeed.records.schema.merge import merge_schemas
from lakefeed.records.schema.reader import StoredSchema

PAGE = "schema-evolution"


@dataclass(frozen=True)
class TableState:
    """A table as its catalog describes it: its columns in Spark's types, and the changes of its columns."""

    name: str
    columns: StructType
    history: History
    properties: Mapping[str, str]


@dataclass(frozen=True)
class SchemaComparison:
    """A column's type in the registry and in the table; None on the side that lacks the column."""

    path: str
    registry: str | None
    table: str | None


@dataclass(frozen=True)
class Outlook:
    """The changes to reader's schema and table that records of the latest schema version would cause.

    Attributes:
        changes: changes of the reader's schema; if the feed has not run yet, only new columns.
        ddl: statements for the table; None if only Spark can determine them, or if there is no table yet.
    """

    changes: tuple[Change, ...]
    ddl: tuple[str, ...] | None
    note: str | None


def registered(config: PipelineConfig) -> list[RegisteredSchema]:
    """Return all versions of the pipeline's subject, oldest first, as equivalent Avro record schemas.

    Starts the JVM if the schemas are Protobuf, because the JVM translates Protobuf to Avro.
    """
    decode = config.decode
    if decode.registry is None:
        raise ConfigError(
            "this pipeline decodes without a schema registry, so there are no schema versions to show",
            where=f"decode.{decode.kind}",
            hint="lakefeed schema history shows the table's changes, lakefeed schema infer guesses a schema of records",
        )
    subject = subject_of(decode.subject, config.kafka, "value")
    registry = SchemaRegistry.of(decode.registry)
    versions = registry.versions(subject)
    if not versions:
        hint = f"register a schema, or name another subject: decode.{decode.kind}.subject"
        raise ResourceMissing(f"subject {subject} has no versions", where=registry.url, hint=hint)
    requested = KINDS[decode.kind]
    if other := next((version.kind for version in versions if version.kind != requested), None):
        raise ConfigError(
            f"subject {subject} has {other} schemas, but this pipeline decodes {requested}",
            where=registry.url,
            hint="name another subject, or another format below decode",
        )
    message = decode.protobuf.message if decode.protobuf else None
    spark: Any = session("lakefeed-schema", log_file=log_path("schema")) if requested == "PROTOBUF" else None
    translate = partial(table_schema, spark, registry=registry.url, message=message)
    return [replace(version, text=translate(version)) for version in versions]


def table_state(name: str, *, connections: Connections) -> TableState:
    """Return a table's columns and their changes; raise ResourceMissing if the table does not exist."""
    from lakefeed.clients.iceberg.reader import open_table

    spark_types()
    table = open_table(name, connections=connections)
    return TableState(name, columns_of_table(table.schema()), read_history(table.properties), table.properties)


def existing_table(config: PipelineConfig, *, connections: Connections) -> TableState | None:
    """Return the state of the pipeline's table; None if the sink is not Iceberg, or if the table does not exist yet."""
    if (name := config.sink.chosen.snapshot_table) is None:
        return None
    try:
        return table_state(name, connections=connections)
    except ResourceMissing:
        return None


def side_by_side(latest: RegisteredSchema, table: TableState | None) -> list[SchemaComparison]:
    """Compare a registered version's columns with the table's, including nested columns, in the version's order."""
    ours = dict(_leaves(columns_of(latest.text), ""))
    theirs = dict(_leaves(table.columns, "")) if table else {}
    spelt = {path.lower(): path for path in theirs}
    lines = [SchemaComparison(path, type_, theirs.get(spelt.pop(path.lower(), ""))) for path, type_ in ours.items()]
    return lines + [SchemaComparison(path, None, theirs[path]) for path in spelt.values()]


def outlook(config: PipelineConfig, latest: RegisteredSchema, table: TableState | None) -> Outlook:
    """Predict the changes that records of the latest version would cause.

    Raises SchemaIncompatible if no reader's schema fits both the old and the new records.
    """
    changes: tuple[Change, ...] = ()
    reader, note = latest.text, None
    recorded = table.properties.get(f"lakefeed.reader.{config.name}") if table else None
    if recorded is not None:
        stored, is_avro = StoredSchema.of_json(recorded).schema, config.decode.avro is not None
        merge = merge_schemas(stored, latest.text, times_are_numbers=is_avro)
        reader, changes = merge.schema, merge.changes
    want = with_metadata(columns_of(reader), config)
    if table is None:
        return Outlook((), None, "the table does not exist yet: lakefeed run creates it")
    if config.transform is not None:
        note = "the transform makes columns of these fields: lakefeed plan shows the changes of the table"
        return Outlook(changes, None, note)
    if recorded is None:
        new = (field for field in want.fields if find_field(table.columns, field.name) is None)
        changes = tuple(Change("added", field.name, None, field.dataType.simpleString()) for field in new)
        note = "the feed has not run with this table yet, so fields within a column are not compared"
    ddl = statements(table.name, have=table.columns, want=want, changes=renames(reader))
    if ddl and (policy := config.schema_.on_change) != "evolve":
        note = {
            "ignore": "schema.on_change is ignore: the feed would neither add nor rename these columns",
            "fail": "schema.on_change is fail: the feed would stop instead",
        }[policy]
    return Outlook(changes, ddl, note)


def _leaves(type_: DataType, path: str) -> Iterator[tuple[str, str]]:
    t = spark_types()
    if isinstance(type_, t.StructType):
        for each in type_.fields:
            yield from _leaves(each.dataType, f"{path}.{each.name}" if path else each.name)
    elif isinstance(type_, t.ArrayType) and isinstance(type_.elementType, t.StructType | t.ArrayType | t.MapType):
        yield from _leaves(type_.elementType, f"{path}.element")
    elif isinstance(type_, t.MapType) and isinstance(type_.valueType, t.StructType | t.ArrayType | t.MapType):
        yield from _leaves(type_.valueType, f"{path}.value")
    else:
        yield path, type_.simpleString()
