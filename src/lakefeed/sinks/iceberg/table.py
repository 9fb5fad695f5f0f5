"""Iceberg sink: appends one micro-batch in one commit, with its offset ranges in the snapshot.

Guarantee: exactly-once. The offset ranges and the rows become visible in the same commit, which succeeds only if the
ranges continue where the feed's last commit ended and no newer driver has taken over (``io.lakefeed.commit``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lakefeed.clients.iceberg.sql import quoted, set_properties
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.config.values import PartitionTransform
from lakefeed.errors import ConfigError
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.protocol import CommitCheck
from lakefeed.ledger.snapshot_summary import COMMIT_ID, Commit, SnapshotProperties
from lakefeed.records.schema import ddl
from lakefeed.records.schema.changes import Entry, history_properties, renames
from lakefeed.records.schema.ddl import type_sql
from lakefeed.records.schema.fit import align_columns, carries_data, find_field
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.adaptive import adaptive
from lakefeed.sinks.base import BaseSink
from lakefeed.sinks.definition import TableChange
from lakefeed.sinks.iceberg import layout
from lakefeed.sinks.iceberg.table_change import carry_out, creation, quoted_table
from lakefeed.sinks.table_kinds import require_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


CREATED_BY = "lakefeed.created-by"
"""Table property: the feed that has created the table."""


class IcebergTable(BaseSink):
    """One feed's table.

    Args:
        spark: the session.
        sink: its block in the pipeline file.
        feed: the feed's name.
        evolves: whether its columns follow the rows'.
    """

    keeps_ledger = True
    keeps_log = False

    def __init__(self, spark: SparkSession, sink: IcebergSinkConfig, *, feed: str, evolves: bool = True) -> None:
        self._evolves = evolves
        self._spark = spark
        self._sink = sink
        self._feed = feed
        self.ledger = IcebergLedger(spark, sink.table, feed)

    @property
    def name(self) -> str:
        """catalog.namespace.table"""
        return self._sink.table

    def stored_schema(self) -> StoredSchema | None:
        """The reader's schema that the feed had when it last changed the table."""
        if not self._spark.catalog.tableExists(self._sink.table):
            return None
        text = self.ledger.properties().get(self._reader_key)
        return None if text is None else StoredSchema.of_json(text)

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        """Creates the table for rows of this schema, or changes its columns so that it takes them.

        Args:
            rows: the rows' columns.
            stored: the reader's schema to remember.
            entries: what changed and why, for the table's history.

        Raises:
            ConfigError: if a partition transform names a column that the rows do not have, or the table is
                there, lacks a column and is not to be changed.
            SchemaIncompatible: if Iceberg has no such change.
        """
        for each in self.changes(rows, stored, entries):
            carry_out(self._spark, each)

    def changes(
        self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()
    ) -> tuple[TableChange, ...]:
        """Return what ``apply_schema`` does, and raise what it raises: to tables beside it first, to this one last."""
        self._check_partition_columns(rows)
        remembered = {} if stored is None else {self._reader_key: stored.to_json()}
        want = layout.FileLayout.of_sink(self._sink)
        is_new = not self._spark.catalog.tableExists(self._sink.table)
        properties = {} if is_new else self.ledger.properties()
        remembered |= history_properties(properties, entries, ids=stored.ids if stored else ())
        if is_new:
            statements: tuple[str, ...] = creation(
                self._sink.table,
                columns=columns_sql(rows),
                partitioned_by=", ".join(_ddl(each) for each in self._sink.partition_by),
                properties={**self._sink.properties, CREATED_BY: self._feed, **remembered},
            )
            laid_out = self._laid_out(have=layout.FileLayout(partitions=want.partitions), want=want)
        else:
            changed = {key: text for key, text in remembered.items() if properties.get(key) != text}
            have = self._spark.table(self._sink.table).schema
            require_rows(self._sink.table, have.names)
            self._require_own(properties)
            known = renames(stored.schema) if stored else ()
            statements = (
                # First, so that a crash in between leaves the names that the columns are renamed by.
                *([set_properties(self._sink.table, changed)] if changed else []),
                *ddl.statements(self._sink.table, have=have, want=rows, changes=known, grow=self._evolves),
            )
            renamed, _ = ddl.find_renames(have, rows, known if self._evolves else ())
            laid_out = self._laid_out(have=layout.FileLayout.of_table(self.ledger.loaded()).renamed(renamed), want=want)
        change = TableChange(
            table=self._sink.table,
            is_new=is_new,
            is_laid_out_anew=bool(laid_out),
            statements=(*statements, *laid_out),
        )
        return (change,)

    def _require_own(self, properties: Mapping[str, str]) -> None:
        """Refuses a table that only a topic's name has led to, unless the feed has made it."""
        if self._sink.table not in self._sink.names_made or properties.get(CREATED_BY) == self._feed:
            return
        # Tables of earlier versions do not say who has created them.
        if any(key.startswith("lakefeed.") and key.endswith(f".{self._feed}") for key in properties):
            return
        if self.ledger.position() is None:
            raise ConfigError(
                f"the table {self._sink.table} exists, and this feed has not created it",
                where=f"feed {self._feed}",
                hint="if the topic belongs there, name it: tables: {topics: {TOPIC: {table: "
                f"{self._sink.table}}}}}; otherwise name another table there",
            )

    def take_fence(self, suffix: str = "") -> str:
        """Makes this driver the only one whose commits of the feed succeed, until another takes a fence.

        Args:
            suffix: behind the feed's name, for what is fenced apart from its batches.
        """
        return self.ledger.take_fence(suffix)

    def location(self) -> str:
        """Where the table's files are, as its metadata says."""
        return self.ledger.location()

    def commits(self) -> Iterator[Commit]:
        """The feed's commits, newest first."""
        return self.ledger.commits()

    def position(self) -> Position | None:
        """Where the feed stands; None if there is no table, or it has no commit of the feed.

        Raises:
            CheckpointMismatch: the table was rolled back, and no commit says where the feed stands.
        """
        return self.ledger.position() if self._spark.catalog.tableExists(self._sink.table) else None

    def logged(self) -> None:
        """Batch ids say nothing here."""

    def land_move(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        """Commits a move of the feed's position: see ``Ledger.record_move``."""
        self.ledger.record_move(commit, commit_id=commit_id, delete_where=delete_where)

    def has(self, commit: Commit) -> bool:
        """Whether the table has exactly these ranges already, from before a restart.

        Raises:
            CheckpointMismatch: if the batch does not continue where the table's last commit of this feed ended, or
                another driver has taken over.
        """
        return self.ledger.check(commit) is CommitCheck.ALREADY_COMMITTED

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Appends the rows of one micro-batch in one commit, and returns how many they were.

        Raises:
            Py4JJavaError: Spark could not, or the commit was refused.
        """
        # Not those that ``apply_schema`` saw: a backfill beside the feed may have added some.
        columns = self._spark.table(self._sink.table).schema
        writer = align_columns(rows, columns).writeTo(self._sink.table)
        for key, value in {**commit.properties(), COMMIT_ID: commit_id}.items():
            writer = writer.option(f"snapshot-property.{key}", value)
        with adaptive(rows.sparkSession):
            writer.append()
        return self.ledger.rows_of(commit_id)

    def try_rows(self, rows: DataFrame, commit: Commit) -> None:
        """Compute some of a batch's rows with their partitions, and write nothing.

        Iceberg notices only at the commit that a decimal, rounded down by ``truncate``, has a digit too many. Spark's
        cast refuses it for each row.

        Raises:
            SparkRuntimeException: a row or its partition cannot be computed.
        """
        from pyspark.sql import functions as sf

        rounded = [sf.expr(each).alias(f"partition{at}") for at, each in enumerate(self._rounded(rows.schema))]
        rows.select("*", *rounded).write.format("noop").mode("overwrite").save()

    def _rounded(self, rows: StructType) -> Iterator[str]:
        """Yield SQL that rounds each decimal as its partition does, and fails where the result does not fit."""
        from pyspark.sql.types import DecimalType

        columns = self._spark.table(self._sink.table).schema
        for transform in self._sink.partition_by:
            column, own = find_field(columns, transform.column), find_field(rows, transform.column)
            if transform.name != "truncate" or column is None or own is None:
                continue
            if isinstance(column.dataType, DecimalType):
                precision, scale = column.dataType.precision, column.dataType.scale
                value = f"CAST({quoted((own.name,))} AS DECIMAL({precision}, {scale}))"
                unit = f"CAST({transform.width}e-{scale}BD AS DECIMAL(38, {scale}))"
                yield f"CAST({value} - pmod({value}, {unit}) AS DECIMAL({precision}, {scale}))"

    def files_of(self, batch_ids: Iterable[int]) -> int:
        """How many data files these batches' commits added, as their snapshots say."""
        requested = set(batch_ids)
        files = 0
        for commit in self.ledger.commits():
            if not requested:
                break
            if commit.batch_id in requested:
                requested.remove(commit.batch_id)
                files += commit.files
        return files

    def _check_partition_columns(self, schema: StructType) -> None:
        for column in (transform.column for transform in self._sink.partition_by):
            if find_field(schema, column.split(".")[0]) is None:
                raise ConfigError(
                    f"partition_by names the column '{column}', which the rows do not have",
                    where=f"table {self._sink.table}, columns {', '.join(schema.names)}",
                    hint="name one of these columns, or make the column in transform.sql",
                )

    def _laid_out(self, *, have: layout.FileLayout, want: layout.FileLayout) -> tuple[str, ...]:
        """Lets new files have the partitions and the order that the pipeline file names, if it names any."""
        said = self._sink.model_fields_set
        return tuple(
            layout.statements(
                self._sink.table,
                have=have,
                want=want,
                partitions="partition_by" in said,
                order="sort_by" in said,
            )
        )

    @property
    def _reader_key(self) -> str:
        return f"lakefeed.reader.{self._feed}"


def columns_sql(rows: StructType) -> str:
    """The columns of a new table for rows of this schema, all of them optional."""
    return ", ".join(
        f"{quoted((each.name,))} {type_sql(each.dataType)}" for each in rows.fields if carries_data(each.dataType)
    )


def _ddl(transform: PartitionTransform) -> str:
    column = quoted_table(transform.column)
    if transform.name == "identity":
        return column
    return f"{transform.name}({f'{transform.width}, ' if transform.width else ''}{column})"
