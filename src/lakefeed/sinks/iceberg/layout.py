"""Creates tables, and changes their partitions and sort order when the pipeline file has changed.

Such a change commits only metadata (partition evolution): existing files stay as they are, and new files get the new
layout. Iceberg stores the layout of every file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lakefeed.clients.iceberg.sql import quoted_table, set_properties, with_properties
from lakefeed.clients.spark.statements import run
from lakefeed.config.iceberg_sink import FORMAT_VERSION, IcebergSinkConfig
from lakefeed.config.values import PartitionTransform, SortColumn
from lakefeed.errors import ConfigError, SchemaIncompatible
from lakefeed.lazy import SparkSession, StructType, py4j, spark_errors
from lakefeed.messages.pages import page_command
from lakefeed.records.schema.fit import paths
from lakefeed.sinks.definition import TableChange

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

TABLE_PROPERTIES = {
    FORMAT_VERSION: "2",
    "write.parquet.compression-codec": "zstd",
    "write.spark.fanout.enabled": "true",
    # Delete old metadata files, because every commit writes one, and a feed does not need the old ones.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    # Retry more often than Iceberg's 4 times: maintenance, replays and other feeds' dead letters commit here, too.
    "commit.retry.num-retries": "20",
}

DEAD_LETTER_COLUMNS = frozenset(("feed", "batch_id", "topic", "partition", "offset", "reason", "failed_at", "replay"))
UNITS = {"years": "year", "months": "month", "days": "day", "hours": "hour"}


@dataclass(frozen=True)
class FileLayout:
    """The partitions of a table, and the order of the rows in a file.

    ``partitions`` has the columns and transforms of the partition fields in Iceberg's form: ``("id", "bucket[16]")``.
    """

    partitions: tuple[tuple[str, str], ...] = ()
    order: tuple[SortColumn, ...] = ()

    @classmethod
    def of_table(cls, table: Any) -> FileLayout:
        """Return the layout of an Iceberg table, which is a Java object."""
        schema, parts, sorts = table.schema(), table.spec().fields(), table.sortOrder().fields()
        # Read the lists by index, because Py4J needs 70 calls to find the end of a Java iterator.
        partitions = [
            (str(schema.findColumnName(each.sourceId())), str(each.transform().toString()))
            for each in map(parts.get, range(parts.size()))
        ]
        order = [
            SortColumn(
                column=str(schema.findColumnName(each.sourceId())),
                descending=str(each.direction()) == "DESC",
                nulls_first="FIRST" in str(each.nullOrder().name()),
            )
            for each in map(sorts.get, range(sorts.size()))
            if str(each.transform().toString()) == "identity"
        ]
        # In format version 1, a dropped field stays in the spec, with the transform "void".
        return cls(tuple(each for each in partitions if each[1] != "void"), tuple(order))

    @classmethod
    def of_sink(cls, sink: IcebergSinkConfig) -> FileLayout:
        return cls(tuple((each.column, _text(each)) for each in sink.partition_by), tuple(sink.sort_by))

    def rename_columns(self, columns: Sequence[tuple[tuple[str, ...], str]]) -> FileLayout:
        """Return the layout after renaming columns in turn; ``columns`` has a column's path and its new last name."""

        def now(column: str) -> str:
            parts = column.split(".")
            for path, name in columns:
                if tuple(parts[: len(path)]) == path:
                    parts[len(path) - 1] = name
            return ".".join(parts)

        return FileLayout(
            tuple((now(column), transform) for column, transform in self.partitions),
            tuple(replace(each, column=now(each.column)) for each in self.order),
        )


def statements(table: str, *, have: FileLayout, want: FileLayout, partitions: bool, order: bool) -> Iterator[str]:
    """Yield the statements after which new files have the layout ``want``.

    ``partitions`` and ``order``: whether the pipeline file sets partitions and order; otherwise the table keeps its
    own.
    """
    alter = f"ALTER TABLE {quoted_table(table)}"
    if partitions and have.partitions != want.partitions:
        for partition in have.partitions:
            if partition not in want.partitions:
                yield f"{alter} DROP PARTITION FIELD {_sql(*partition)}"
        for partition in want.partitions:
            if partition not in have.partitions:
                yield f"{alter} ADD PARTITION FIELD {_sql(*partition)}"
    if order and have.order != want.order:
        # Sort only within files: for a global order, Spark would shuffle every batch.
        columns = [
            f"{quoted_table(sort.column)} {'DESC' if sort.descending else 'ASC'} NULLS "
            f"{'FIRST' if sort.nulls_first else 'LAST'}"
            for sort in want.order
        ]
        yield f"{alter} WRITE LOCALLY ORDERED BY {', '.join(columns)}" if columns else f"{alter} WRITE UNORDERED"


def upgrade(table: str, *, have: int, want: int | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the statements that upgrade a table's format version, and notes on readers; both empty without an upgrade.

    Raises:
        ConfigError: the table's format version is newer than the pipeline file's ``format_version``.
    """
    if want is None or want == have:
        return (), ()
    if want < have:
        raise ConfigError(
            f"the table has format version {have}, and format_version is {want}: Iceberg cannot downgrade a table",
            where=f"table {table}",
            hint=f"set format_version: {have}, or remove it; or write a new table for readers of version {want}",
        )
    note = (
        f"{table} is upgraded to format version {want} for good: readers that know only version {have} cannot open it "
        f"any more; {page_command('layout')} lists the readers that can"
    )
    return (set_properties(table, {FORMAT_VERSION: str(want)}),), (note,)


def _text(transform: PartitionTransform) -> str:
    width = f"[{transform.width}]" if transform.width else ""
    return f"{UNITS.get(transform.name, transform.name)}{width}"


def _sql(column: str, transform: str) -> str:
    path = quoted_table(column)
    if transform == "identity":
        return path
    if match := re.fullmatch(r"(\w+)\[(\d+)\]", transform):
        return f"{match[1]}({match[2]}, {path})"
    return f"{transform}s({path})"


def partitions_sql(partitions: Iterable[tuple[str, str]]) -> str:
    return ", ".join(_sql(*partition) for partition in partitions)


def creation(
    table: str, *, columns: str, partitioned_by: str = "", properties: Mapping[str, str] | None = None
) -> tuple[str, str]:
    """Return the statements that create a namespace and a table; columns and partition transforms are SQL lists.

    ``properties`` override ``TABLE_PROPERTIES``, which fit many small commits.
    """
    partitioning = f" PARTITIONED BY ({partitioned_by})" if partitioned_by else ""
    return (
        f"CREATE NAMESPACE IF NOT EXISTS {quoted_table(table.rpartition('.')[0])}",
        with_properties(
            f"CREATE TABLE IF NOT EXISTS {quoted_table(table)} ({columns}) USING iceberg{partitioning}",
            {**TABLE_PROPERTIES, **(properties or {})},
        ),
    )


def carry_out(spark: SparkSession, change: TableChange) -> None:
    """Run the statements of a change, each a commit of metadata; after a crash, the next start plans the rest."""
    statements = change.statements
    if change.is_new:
        namespace = change.table.rpartition(".")[0]
        _make(spark, statements[0], is_there=lambda: spark.catalog.databaseExists(namespace))
        _make(spark, statements[1], is_there=lambda: spark.catalog.tableExists(change.table))
        statements = statements[2:]
    for statement in statements:
        run(spark, statement)


def _make(spark: SparkSession, statement: str, *, is_there: Callable[[], bool]) -> None:
    # Even with IF NOT EXISTS, one of two drivers fails if both run the statement at the same time.
    try:
        run(spark, statement)
    except (py4j.Py4JError, spark_errors.PySparkException):
        if not is_there():
            raise


def require_dead_letters(table: str, columns: Iterable[str]) -> None:
    if missing := sorted(DEAD_LETTER_COLUMNS - set(columns)):
        raise ConfigError(
            f"{table} is not a table of dead letters: it lacks the columns {', '.join(missing)}",
            where=table,
            hint="name another table in dead_letters.table; lakefeed creates it",
        )


def require_own_types(table: str, schema: Schema) -> None:
    """Raise an error if the table has columns that a feed cannot write; runs without Spark."""
    from pyiceberg.schema import index_by_id
    from pyiceberg.types import TimestampNanoType, TimestamptzNanoType, TimeType

    from lakefeed.records.decode.verdict import METADATA_PREFIX

    for field in index_by_id(schema).values():
        if isinstance(field.field_type, TimeType | TimestampNanoType | TimestamptzNanoType):
            raise ConfigError(
                f"the table's column {schema.find_column_name(field.field_id)} has the type {field.field_type}, which "
                "Spark cannot read or write",
                where=f"table {table}",
                hint="write to another table, or drop the column with another tool: ALTER TABLE … DROP COLUMN",
            )
    names = [schema.find_column_name(each) or "" for each in schema.identifier_field_ids]
    if named := [name for name in names if not name.startswith(METADATA_PREFIX)]:
        raise ConfigError(
            f"the identifier fields of the table, {', '.join(named)}, are required, and columns of a feed are optional",
            where=f"table {table}",
            hint=f"run ALTER TABLE … DROP IDENTIFIER FIELDS {', '.join(named)}",
        )


def require_variants(table: str, rows: StructType, *, version: int) -> None:
    """Raise an error if rows have a variant, but the table's format version does not support variants."""
    found = [path for path, kind in paths(rows) if kind == "VARIANT"]
    if found and version < 3:
        raise SchemaIncompatible(
            f"the column {found[0]} is a variant, which Iceberg has from format version 3 on; the table has version "
            f"{version}",
            where=f"table {table}",
            hint="write sink.iceberg.format_version: 3, or make the column a text: to_json(column)",
        )


def require_rows(table: str, columns: Iterable[str]) -> None:
    if set(columns) >= DEAD_LETTER_COLUMNS:
        raise ConfigError(
            f"{table} is a table of dead letters, and rows must not mix with them",
            where=table,
            hint="name another table for the rows",
        )
