"""What a start does to a table, as the statements that do it: shown by ``lakefeed plan``, executed by a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from lakefeed.clients.iceberg.sql import listed, quoted
from lakefeed.sinks.definition import TableChange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE_PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.spark.fanout.enabled": "true",
    # Old metadata files are of no use to a feed, and one is written with every commit.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    # Others commit to the table too: upkeep, replays, other feeds' dead letters. Iceberg's default is 4.
    "commit.retry.num-retries": "20",
}


def creation(
    table: str, *, columns: str, partitioned_by: str = "", properties: Mapping[str, str] | None = None
) -> tuple[str, str]:
    """The statements that make a table and its namespace, with settings that suit many small commits.

    Args:
        table: catalog.namespace.table
        columns: as SQL lists them.
        partitioned_by: the transforms, as SQL lists them.
        properties: table properties; they win over the settings.
    """
    partitioning = f" PARTITIONED BY ({partitioned_by})" if partitioned_by else ""
    return (
        f"CREATE NAMESPACE IF NOT EXISTS {quoted_table(table.rpartition('.')[0])}",
        f"CREATE TABLE IF NOT EXISTS {quoted_table(table)} ({columns}) USING iceberg{partitioning} "
        f"TBLPROPERTIES ({listed({**TABLE_PROPERTIES, **(properties or {})})})",
    )


def carry_out(spark: SparkSession, change: TableChange) -> None:
    """Runs the statements. Each is one commit of metadata, and what is left after a crash follows from the table."""
    statements = change.statements
    if change.is_new:
        namespace = change.table.rpartition(".")[0]
        _make(spark, statements[0], is_there=lambda: spark.catalog.databaseExists(namespace))
        _make(spark, statements[1], is_there=lambda: spark.catalog.tableExists(change.table))
        statements = statements[2:]
    for statement in statements:
        spark.sql(statement)


def quoted_table(identifier: str) -> str:
    """A table's, namespace's or column's name as SQL takes it, whatever its letters."""
    return quoted(tuple(identifier.split(".")))


def _make(spark: SparkSession, statement: str, *, is_there: Callable[[], bool]) -> None:
    """Creates something, unless somebody else does: IF NOT EXISTS looks first, and of two that look, one fails."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        spark.sql(statement)
    except (Py4JError, PySparkException):
        if not is_there():
            raise
