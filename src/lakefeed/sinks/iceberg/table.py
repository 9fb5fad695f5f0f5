"""Appends micro-batches to an Iceberg table, one commit per batch; the commit's snapshot has the offset ranges.

Guarantee: exactly-once. Rows and offset ranges become visible in the same commit. The commit succeeds only if the
ranges start where the feed's last commit ended, and if no newer driver has taken over (``io.lakefeed.commit``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from lakefeed.clients.iceberg.sql import in_branch, quoted, set_properties
from lakefeed.clients.iceberg.write_lock import run_in_turn
from lakefeed.clients.spark.errors import NO_HOUR
from lakefeed.clients.spark.jvm import java, spark_setting
from lakefeed.config.iceberg_sink import FORMAT_VERSION, IcebergSinkConfig
from lakefeed.errors import ConfigError, SchemaIncompatible
from lakefeed.lazy import sf, t
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.outcomes import BatchOutcomes
from lakefeed.ledger.snapshot_summary import COMMIT_ID, POSITION, Commit, SnapshotProperties
from lakefeed.records.schema import ddl
from lakefeed.records.schema.changes import Change, Entry, history_properties, renames
from lakefeed.records.schema.ddl import column_defaults, type_sql
from lakefeed.records.schema.fit import align_columns, carries_data, find_field
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.base import BaseSink
from lakefeed.sinks.definition import Changes, TableChange
from lakefeed.sinks.iceberg import layout
from lakefeed.sinks.iceberg.layout import carry_out, creation, require_rows
from lakefeed.sinks.iceberg.publish import branch_statements

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameWriterV2, SparkSession
    from pyspark.sql.types import StructType


CREATED_BY = "lakefeed.created-by"
"""The table property with the name of the feed that has created the table."""

# Turn adaptive execution on, which fits shuffles to a batch's size; Spark turns it off in a stream's session.
ADAPTIVE = ("spark.sql.adaptive.enabled", "true")

HOURS_END = 2**31 * 3_600_000_000
"""The first time, in microseconds since 1970, whose hours since 1970 exceed an int."""


class IcebergTable(BaseSink):
    """One feed's table.

    Args:
        evolves: whether the table's columns are changed to match the rows' columns.
        takes_defaults: whether the rows' columns are the fields of the reader's schema, so that the schema's defaults
            apply.

    Attributes:
        takes: by column, a type of the table that allows fewer values than Spark's type: ``uuid`` or ``fixed[4]``.
    """

    ledger: IcebergLedger
    takes: Mapping[str, str] = {}
    _hours: Sequence[str] = ()

    def __init__(
        self,
        spark: SparkSession,
        sink: IcebergSinkConfig,
        *,
        feed: str,
        evolves: bool = True,
        takes_defaults: bool = False,
    ) -> None:
        self._evolves = evolves
        self._takes_defaults = takes_defaults
        self._spark = spark
        self._sink = sink
        self._feed = feed
        self.ledger = IcebergLedger(spark, sink.table, feed, branch=sink.branch)

    @property
    def name(self) -> str:
        return self._sink.table

    @property
    def written(self) -> str:
        """The name of the table to write rows to, with the feed's branch if it has one."""
        return in_branch(self.name, self._sink.branch)

    def stored_schema(self) -> StoredSchema | None:
        if not self._spark.catalog.tableExists(self.name):
            return None
        text = self.ledger.properties().get(self._reader_key)
        return None if text is None else StoredSchema.of_json(text)

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        for change in self.changes(rows, stored, entries):
            carry_out(self._spark, change)

    def changes(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> Changes:
        self._check_rows(rows)
        remembered = {} if stored is None else {self._reader_key: stored.to_json()}
        want = layout.FileLayout.of_sink(self._sink)
        is_new = not self._spark.catalog.tableExists(self.name)
        properties = {} if is_new else self.ledger.properties()
        remembered |= history_properties(properties, entries, ids=stored.ids if stored else ())
        version, notes = self._sink.format_version, tuple[str, ...]()
        have_version = int(self._sink.properties.get(FORMAT_VERSION, 2)) if is_new else self.ledger.format_version()
        layout.require_variants(self.name, rows, version=max(have_version, version or 0))
        if is_new:
            own = {} if version is None else {FORMAT_VERSION: str(version)}
            statements: tuple[str, ...] = creation(
                self.name,
                columns=columns_sql(rows),
                partitioned_by=layout.partitions_sql(want.partitions),
                properties={
                    **self._own_properties(),
                    **own,
                    **self._sink.properties,
                    CREATED_BY: self._feed,
                    **remembered,
                },
            )
            self._try_new(rows, want.partitions)
            laid_out = layout.FileLayout(partitions=want.partitions)
        else:
            changed = {key: text for key, text in remembered.items() if properties.get(key) != text}
            have = self._spark.table(self.name).schema
            require_rows(self.name, have.names)
            self._require_own(properties)
            known = renames(stored.schema) if stored else ()
            upgrade, notes = layout.upgrade(self.name, have=have_version, want=version)
            has_defaults = stored is not None and self._takes_defaults and max(have_version, version or 0) >= 3
            defaults = column_defaults(stored.schema) if stored is not None and has_defaults else None
            statements = (
                # Upgrade first, because new columns may need the newer version.
                *upgrade,
                # Set properties before columns: after a crash in between, the properties still show which columns to
                # rename.
                *([set_properties(self.name, changed)] if changed else []),
                *ddl.statements(self.name, have=have, want=rows, changes=known, grow=self._evolves, defaults=defaults),
            )
            self._try_columns(have, rows, known)
            self.takes = json.loads(str(java(self._spark).commit.FeedLedger.constrained(self.ledger.loaded())))
            renamed, _ = ddl.find_renames(have, rows, known if self._evolves else ())
            laid_out = layout.FileLayout.of_table(self.ledger.loaded()).rename_columns(renamed)
        named = self._sink.model_fields_set
        self._hours = [column for column, how in want.partitions or laid_out.partitions if how == "hour"]
        by_file = {"partitions": "partition_by" in named, "order": "sort_by" in named}
        layouts = list(layout.statements(self.name, have=laid_out, want=want, **by_file))
        # Create the branch last, because it needs the table.
        all_ = (*statements, *layouts, *branch_statements(self.ledger, self._sink, self._feed, properties))
        change = TableChange(
            table=self.name, is_new=is_new, is_laid_out_anew=bool(layouts), statements=all_, notes=notes
        )
        return (change,)

    def _try_columns(self, have: StructType, rows: StructType, known: Sequence[Change]) -> None:
        """Raise an error if Iceberg would refuse the changes of the table's columns that the rows need."""
        if steps := ddl.trial_steps(have=have, want=rows, changes=known, grow=self._evolves):
            self._refuse(java(self._spark).commit.TrialSchema.refusal(self.ledger.loaded(), json.dumps(steps)))

    def _try_new(self, rows: StructType, partitions: Sequence[tuple[str, str]]) -> None:
        stored = t.StructType([each for each in rows.fields if carries_data(each.dataType)])
        parts = [text for partition in partitions for text in partition]
        self._refuse(java(self._spark).commit.TrialSchema.refusal(stored.json(), parts))

    def _refuse(self, refusal: str | None) -> None:
        if refusal is not None:
            hint = "rename the column or leave it out in transform.sql; or change the table in SQL, for example by "
            hint += "ALTER TABLE … DROP IDENTIFIER FIELDS"
            raise SchemaIncompatible(
                f"Iceberg refuses the columns of the rows: {refusal}", where=f"table {self.name}", hint=hint
            )

    def _own_properties(self) -> dict[str, str]:
        return {}

    def _require_own(self, properties: Mapping[str, str]) -> None:
        """Raise an error if the table's name is made from a topic's and another feed has created the table."""
        if self.name not in self._sink.names_made or properties.get(CREATED_BY) == self._feed:
            return
        if self.ledger.position() is None:
            raise ConfigError(
                f"the table {self.name} exists, and this feed has not created it",
                where=f"feed {self._feed}",
                hint="if the topic belongs to this table, write in the file: tables: {topics: {TOPIC: {table: "
                f"{self.name}}}}}; otherwise name another table for TOPIC",
            )

    def take_fence(self, suffix: str = "", *, prefix: str = "") -> str:
        return self.ledger.take_fence(suffix, prefix=prefix)

    def location(self) -> str:
        return self.ledger.location()

    def position(self) -> Position | None:
        return self.ledger.position() if self._spark.catalog.tableExists(self.name) else None

    def feeds_of(self, topics: Iterable[str]) -> list[str]:
        """Return the other feeds whose position in the table contains one of these topics."""
        properties = self.ledger.properties() if self._spark.catalog.tableExists(self.name) else {}
        names = [json.dumps(topic) for topic in topics]
        return sorted(
            key.removeprefix(f"{POSITION}.")
            for key, text in properties.items()
            if key.startswith(POSITION) and any(name in text for name in names)
        )

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        with spark_setting(rows.sparkSession, *ADAPTIVE):
            self.append(rows, {**commit.properties(), COMMIT_ID: commit_id})
        return self.ledger.rows_of(commit_id)

    def append(self, rows: DataFrame, properties: Mapping[str, str]) -> None:
        """Append rows in one commit, whose snapshot gets these properties."""
        self._writer(rows, properties).append()

    def _writer(self, rows: DataFrame, properties: Mapping[str, str]) -> DataFrameWriterV2:
        # Read the columns again, because a backfill beside the feed may have added columns since ``apply_schema``.
        aligned = self.with_countable_hours(align_columns(rows, self.ledger.columns()))
        return with_summary(aligned.writeTo(self.written), properties)

    def with_countable_hours(self, rows: DataFrame) -> DataFrame:
        """Make Spark fail at a row whose hours since 1970 exceed an int: Iceberg would give it a wrong partition."""
        for column in self._hours:
            micros = sf.unix_micros(sf.col(quoted(tuple(column.split(".")))).cast("timestamp"))
            refusal = sf.raise_error(sf.lit(f"{NO_HOUR}{column}")).cast("boolean")
            rows = rows.filter(sf.when(~micros.between(-HOURS_END, HOURS_END - 1), refusal).otherwise(sf.lit(True)))
        return rows

    def _run_in_turn(
        self, statement: str, properties: Mapping[str, str], *, session: SparkSession, bounds: Any = None
    ) -> None:
        """Run a statement; repeat it if another writer has meanwhile changed rows that the statement has read."""
        act = partial(self.ledger.run, statement, properties, session=session, bounds=bounds)
        run_in_turn(self.name, act, ask_for_quiet=self.ledger.ask_for_quiet)

    def try_rows(self, rows: DataFrame, commit: Commit) -> None:
        """Write files of some of a batch's rows, but refuse the commit, so that Iceberg removes the files."""
        # ``truncate`` rounds down: -9.9 becomes -10, which may have a digit too many for the column's type. Iceberg
        # would fail only at the commit; Spark's cast fails at the row.
        rounded = [each.alias(f"partition{at}") for at, each in enumerate(self._rounded(rows.schema))]
        if rounded:
            rows.select("*", *rounded).write.format("noop").mode("overwrite").save()
        with BatchOutcomes(self._spark) as outcomes:
            outcomes.refuse()
            try:
                self._writer(rows, {COMMIT_ID: outcomes.commit_id}).append()
            except Exception:
                if outcomes.refusal is None:
                    raise

    def _rounded(self, rows: StructType) -> Iterator[Column]:
        """Yield columns that truncate decimals as the table's partitions do; they fail if a result does not fit."""
        columns = self._spark.table(self.name).schema
        for transform in self._sink.partition_by:
            column, own = find_field(columns, transform.column), find_field(rows, transform.column)
            if transform.name != "truncate" or column is None or own is None:
                continue
            if isinstance(column.dataType, t.DecimalType):
                value, scale = sf.col(quoted((own.name,))).cast(column.dataType), column.dataType.scale
                unit = sf.lit(Decimal(transform.width or 0).scaleb(-scale)).cast(t.DecimalType(38, scale))
                yield (value - sf.pmod(value, unit)).cast(column.dataType)

    def files_of(self, batch_ids: Iterable[int]) -> int:
        requested, files = set(batch_ids), 0
        for commit in self.ledger.commits():
            if not requested:
                break
            if commit.batch_id in requested:
                requested.remove(commit.batch_id)
                files += commit.files
        return files

    def encoder_refusal(self, rows: Callable[[], StructType | None]) -> str | None:
        """Return why lakefeed's encoder cannot write the files, if so; ``rows`` returns a new table's columns."""
        model, refusal = java(self._spark).parquet.ColumnarModel, None
        if self._spark.catalog.tableExists(self.name):
            refusal = model.refusal(self.ledger.loaded())
        elif (new := rows()) is not None:
            columns = t.StructType([field for field in new.fields if carries_data(field.dataType)])
            refusal = model.refusal(columns.json(), dict(self._sink.properties))
        return None if refusal is None else str(refusal)

    def _check_rows(self, rows: StructType) -> None:
        for column in (transform.column for transform in self._sink.partition_by):
            if find_field(rows, column.split(".")[0]) is None:
                raise ConfigError(
                    f"partition_by names the column '{column}', which the rows do not have",
                    where=f"table {self.name}, columns {', '.join(rows.names)}",
                    hint="name one of these columns, or make the column in transform.sql",
                )

    @property
    def _reader_key(self) -> str:
        return f"lakefeed.reader.{self._feed}"


def columns_sql(rows: StructType) -> str:
    """Return the columns of a new table for rows of this schema; all columns are optional."""
    return ", ".join(
        f"{quoted((each.name,))} {type_sql(each.dataType, variants=True)}"
        for each in rows.fields
        if carries_data(each.dataType)
    )


def write_modes(sink: IcebergSinkConfig) -> dict[str, str]:
    """Return the properties by which Spark writes changes in the sink's mode: copy-on-write or merge-on-read."""
    return {f"write.{statement}.mode": sink.write for statement in ("merge", "update", "delete")}


def with_summary(writer: DataFrameWriterV2, properties: Mapping[str, str]) -> DataFrameWriterV2:
    """Return a writer that adds properties to the summary of its snapshot."""
    return writer.options(**{f"snapshot-property.{key}": value for key, value in properties.items()})


class OverwriteTable(IcebergTable):
    """A table in which a batch replaces all rows, in one commit."""

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        properties = {**commit.properties(), COMMIT_ID: commit_id}
        self._writer(rows, properties).overwrite(sf.lit(True))
        # If an empty batch replaces no rows, Spark does not commit.
        self.ledger.ensure_commit(properties)
        return self.ledger.rows_of(commit_id)
