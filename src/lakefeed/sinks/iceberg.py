"""Iceberg sink: appends one micro-batch in one commit, with its offset ranges in the snapshot.

Guarantee: exactly-once with one driver at a time. The offset ranges and the rows become visible in the same
commit, and a batch is compared with the table's last commit before it is written (``lakefeed.commit.ledger``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefeed.commit.ledger import Commit, Ledger
from lakefeed.commit.ranges import OffsetRanges
from lakefeed.config.models import IcebergSink, PartitionTransform
from lakefeed.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Landed:
    """What became of a micro-batch."""

    batch_id: int
    rows: int
    replayed: bool
    """True if the table had it already, from before a restart."""


class IcebergTable:
    """One feed's table."""

    def __init__(self, spark: SparkSession, sink: IcebergSink, *, feed: str) -> None:
        self._spark = spark
        self._sink = sink
        self._feed = feed
        self.ledger = Ledger(spark, sink.table, feed)

    @property
    def name(self) -> str:
        """catalog.namespace.table"""
        return self._sink.table

    def ensure(self, schema: StructType) -> None:
        """Creates namespace and table for rows of this schema if they are missing.

        Raises:
            ConfigError: if a partition transform names a column that the rows do not have, or the table is
                there and lacks a column.
        """
        self._check_partition_columns(schema)
        if self._spark.catalog.tableExists(self._sink.table):
            self._check_columns(schema)
            return
        namespace = self._sink.table.rpartition(".")[0]
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {_quoted(namespace)}")
        self._spark.sql(self.ddl(schema))

    def location(self) -> str:
        """Where the table's files are, as its metadata says."""
        return self.ledger.location()

    def ddl(self, schema: StructType) -> str:
        """The CREATE TABLE statement for rows of this schema."""
        columns = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in schema.fields)
        transforms = [PartitionTransform.parse(text) for text in self._sink.partition_by]
        partitioned = f" PARTITIONED BY ({', '.join(_ddl(each) for each in transforms)})" if transforms else ""
        properties = {
            "format-version": "2",
            "write.parquet.compression-codec": "zstd",
            "write.spark.fanout.enabled": "true",
            # Old metadata files are of no use to a feed, and one is written with every commit.
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "100",
            **self._sink.properties,
        }
        listed = ", ".join(f"'{_escaped(key)}'='{_escaped(value)}'" for key, value in properties.items())
        return (
            f"CREATE TABLE IF NOT EXISTS {_quoted(self._sink.table)} ({columns}) USING iceberg"
            f"{partitioned} TBLPROPERTIES ({listed})"
        )

    def land(self, rows: DataFrame, ranges: OffsetRanges, batch_id: int) -> Landed:
        """Appends the rows of one micro-batch, unless the table has them already.

        Raises:
            CheckpointMismatch: if the batch does not go on where the table's last commit of this feed ended.
        """
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        commit = Commit(self._feed, batch_id, ranges)
        if self.ledger.is_in_table(commit):
            return Landed(batch_id, rows=0, replayed=True)
        counted = Observation()
        writer = rows.observe(counted, F.count(F.lit(1)).alias("rows")).writeTo(self._sink.table)
        for key, value in commit.properties().items():
            writer = writer.option(f"snapshot-property.{key}", value)
        writer.append()
        return Landed(batch_id, rows=int(counted.get["rows"]), replayed=False)

    def files_of(self, landed: Sequence[Landed]) -> int:
        """How many data files these batches' commits added, as their snapshots say."""
        wanted = {each.batch_id for each in landed if not each.replayed}
        files = 0
        for commit in self.ledger.commits():
            if not wanted:
                break
            if commit.batch_id in wanted:
                wanted.remove(commit.batch_id)
                files += commit.files
        return files

    def _check_partition_columns(self, schema: StructType) -> None:
        for text in self._sink.partition_by:
            column = PartitionTransform.parse(text).column
            if column.split(".")[0] not in schema.names:
                raise ConfigError(
                    f"partition_by names the column '{column}', which the rows do not have",
                    where=f"table {self._sink.table}, columns {', '.join(schema.names)}",
                    hint="name one of these columns, or make the column in transform.sql",
                )

    def _check_columns(self, schema: StructType) -> None:
        there = self._spark.table(self._sink.table).schema
        missing = [name for name in schema.names if name not in there.names]
        if missing:
            raise ConfigError(
                f"the table lacks columns that the rows have: {', '.join(missing)}",
                where=f"table {self._sink.table}, columns {', '.join(there.names)}",
                hint="ALTER TABLE … ADD COLUMN, or leave the columns out in transform.sql",
            )


def _quoted(identifier: str) -> str:
    return ".".join(f"`{part}`" for part in identifier.split("."))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _ddl(transform: PartitionTransform) -> str:
    column = _quoted(transform.column)
    if transform.name == "identity":
        return column
    return f"{transform.name}({f'{transform.width}, ' if transform.width else ''}{column})"
