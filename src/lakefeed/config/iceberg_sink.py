"""The block of a pipeline file for an Iceberg table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PrivateAttr, StringConstraints

from lakefeed.config.addresses import Place
from lakefeed.config.base import ConfigProblem, Model, checked
from lakefeed.config.keyed import Deletes, keyed_problems
from lakefeed.config.routes import LEDGER, ROUTED, Routes
from lakefeed.config.sinks import Capabilities, SinkConfig, SinkFiles
from lakefeed.config.values import (
    TOPIC_MARK,
    Identifier,
    PartitionTransform,
    Period,
    RoutedTable,
    SortColumn,
    TableField,
    TableTemplate,
    seconds_of,
)

EACH_BATCH, BY_COMMAND = "each batch", "command"
Share = Annotated[float, Field(ge=0, le=1)]
Column = Annotated[str, StringConstraints(min_length=1)]


def _require_when(text: str) -> None:
    if text in (EACH_BATCH, BY_COMMAND):
        return
    try:
        seconds = seconds_of(text)
    except ValueError:
        seconds = 0
    if not seconds:
        raise ValueError(f"write '{EACH_BATCH}', a time such as '10 minutes', or '{BY_COMMAND}'")


class Count(Model):
    """Bounds on a number of rows."""

    at_least: Annotated[int, Field(ge=0)] | None = Field(None, description="The least number of rows.")
    at_most: Annotated[int, Field(ge=0)] | None = Field(None, description="The largest number of rows.")

    def _contradictions(self) -> Iterator[str]:
        if self.at_least is None and self.at_most is None:
            yield "give at_least or at_most"
        elif self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            yield "at_least is more than at_most"


class Fresh(Model):
    """A bound on the age of the newest row."""

    column: Column = Field(description="The column with the rows' timestamp.")
    within: Period = Field(description="The highest age of the newest row: '<n> minutes|hours|days'.")


class TableExpectations(Model):
    """Conditions that the table in the branch must meet before the feed publishes it."""

    rows: Count | None = Field(None, description="The number of rows in the table.")
    new_rows: Count | None = Field(None, description="How many more rows the branch has than the published table.")
    fresh: Fresh | None = Field(None, description="The age of the newest row.")
    null_share: dict[Column, Share] = Field(default_factory=dict)
    """By column: the highest share of rows with null, from 0 to 1; 0.01 for 1 %."""
    unique: list[Annotated[list[Column], Field(min_length=1)]] = Field(default_factory=list)
    """Lists of columns; no two rows may have the same values in all columns of a list: [[order_id], [shop, number]]."""

    def _contradictions(self) -> Iterator[str]:
        names = [tuple(column.lower() for column in columns) for columns in self.unique]
        if len(set(names)) < len(names):
            yield "unique has the same columns twice"


class Publish(Model):
    """When the feed publishes the branch to readers of the table, and the conditions that it checks before."""

    when: Annotated[str, checked(_require_when)] = EACH_BATCH
    """'each batch'. A duration such as '10 minutes': with the first batch after this time, and at the end of the run.
    'command': only when `lakefeed tables publish` runs."""
    on_failure: Literal["stop", "continue"] = "stop"
    """What happens if the audit fails; the rows stay in the branch. stop: stop the feed. continue: write further
    batches to the branch."""
    expect: TableExpectations = Field(default_factory=TableExpectations)

    @property
    def seconds(self) -> int | None:
        """The least number of seconds between two publications; None if only the command publishes."""
        if self.when == BY_COMMAND:
            return None
        return 0 if self.when == EACH_BATCH else seconds_of(self.when)


MAIN_BRANCH = "main"
"""The branch that readers of a table see."""

FORMAT_VERSION = "format-version"
"""The reserved table property for Iceberg's format version."""

RESERVED = frozenset(
    f"_{name}" for name in ("file", "pos", "deleted", "spec_id", "partition", "row_id", "last_updated_sequence_number")
)
"""The names that Iceberg reserves for metadata columns (https://iceberg.apache.org/spec/#reserved-field-ids)."""

_TIMES = {"TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"}
_DATES = {"DATE", *_TIMES}
_SLICED = {"TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG", "DECIMAL", "DEC", "NUMERIC"}
_SLICED |= {"STRING", "CHAR", "CHARACTER", "VARCHAR", "BINARY"}
_PARTITIONED: dict[str, tuple[set[str], str, str]] = {
    "identity": (_SLICED | _DATES | {"BOOLEAN", "FLOAT", "REAL", "DOUBLE"}, "columns without parts", ""),
    "years": (_DATES, "dates and timestamps", "_year"),
    "months": (_DATES, "dates and timestamps", "_month"),
    "days": (_DATES, "dates and timestamps", "_day"),
    "hours": (_TIMES, "timestamps", "_hour"),
    "truncate": (_SLICED, "whole numbers, decimals, texts and bytes", "_trunc"),
    "bucket": (_SLICED | _DATES, "whole numbers, decimals, texts, bytes, dates and timestamps", "_bucket"),
}
"""By transform: the accepted types, these types in words, and the suffix of the partition field's name.

Source: https://iceberg.apache.org/spec/#partition-transforms and Iceberg's PartitionSpec.Builder.
"""


class IcebergSinkConfig(SinkConfig):
    """An Iceberg table. If it is missing, the feed creates it with the schema of the rows."""

    definition: ClassVar[str] = "lakefeed.sinks.iceberg.definition:IcebergDefinition"
    guarantee: ClassVar[str] = "exactly-once"
    capabilities: ClassVar[Capabilities] = Capabilities(
        rewind=None, adopt=None, backfill=None, replay=None, verify=None, lag=None, no_checkpoint=None
    )
    other_modes: ClassVar[str] = "update requires mode: upsert and keys, complete requires mode: overwrite"

    table: RoutedTable = Field(examples=["lake.sales.orders"])
    """The table as catalog.namespace.table. If the name contains {topic}, each topic has its own table. With
    {column} or {header.name} in the last part, the value of this column or header names the table of each row."""
    routes: Routes = Field(default_factory=Routes)
    """With {column} or {header.name} in the table's name: which values name a table, and where other rows go."""
    partition_by: list[PartitionTransform] = Field(default_factory=list)
    """Partition transforms: column, years|months|days|hours(column), bucket(n, column), truncate(n, column)."""
    sort_by: list[SortColumn] = Field(default_factory=list)
    """Order of the rows in each file: column, column desc, column desc nulls first. A change of partition_by or sort_by
    applies to new files from the next start on."""
    properties: dict[str, str] = Field(default_factory=dict)
    """Table properties. lakefeed sets them when it creates the table."""
    format_version: Literal[2, 3] | None = None
    """Iceberg's format version of the table and its history: `lakefeed docs layout`. 3 upgrades a table of version 2 at
    the next start; this cannot be undone. Default: 2 for a new table; an existing table keeps its version."""
    mode: Literal["append", "upsert", "overwrite"] = "append"
    """append: add rows. upsert: keep the newest row of each key. overwrite: a batch replaces all rows, as
    transform.output_mode: complete requires."""
    keys: list[str] = Field(default_factory=list, description="With upsert: the columns that identify a row.")
    order_by: list[str] = Field(default_factory=list)
    """With upsert: columns that order the changes of a key. Default: the offset; all changes of a key must then be in
    one partition."""
    delete: Deletes = Field(default_factory=Deletes, description="With upsert: which records delete their key's row.")
    on_delete: Literal["remove", "mark"] = "remove"
    """With upsert: remove a deleted row, or mark it by lakefeed_deleted = true. A row that is marked cannot be restored
    by an older change that arrives late."""
    write: Literal["merge-on-read", "copy-on-write"] = "merge-on-read"
    """With upsert. merge-on-read: write changes to new files. copy-on-write: rewrite the files with changed rows."""
    key_index_mb: int | None = Field(None, ge=0, le=2**31 - 1)
    """With upsert: MB of the driver's memory for an index of the keys. With the index, a batch reads none of the
    table's files; with 0, each batch is a MERGE. Default: a quarter of the driver's memory, shared by all tables."""
    history: TableTemplate | None = None
    """With upsert: a second table, to which all changes are appended. Default: none."""
    branch: str | None = Field(None, pattern=f"^{Identifier}$")
    """The branch of the table that the feed writes to. Readers see its rows once it is published: `lakefeed docs
    write-audit-publish`."""
    publish: Publish | None = None
    """With branch: when the feed publishes the branch, and what it checks before. Default: only `lakefeed tables
    publish` publishes the branch, without an audit."""

    _names_made: frozenset[str] = PrivateAttr(frozenset())

    def _contradictions(self) -> Iterator[ConfigProblem]:
        yield from keyed_problems(self)
        if self.routed_by is None and "routes" in self.model_fields_set:
            what = "routes requires {column} or {header.name} in the last part of the table's name"
            yield ConfigProblem(what, key="routes", hint="write table: lake.shop.{event_type}, or remove routes")
        for setting in ("mode", "branch", "history") if self.routed_by is not None else ():
            if getattr(self, setting) not in (None, "append"):
                what = f"{setting}: {getattr(self, setting)} excludes a table for each value of a field"
                yield ConfigProblem(what, key=setting, hint=f"remove {setting}, or name one table")
        if self.format_version is not None and FORMAT_VERSION in self.properties:
            what = f"format_version and properties.{FORMAT_VERSION} both set the format version"
            hint = f"remove properties.{FORMAT_VERSION}, which does not upgrade an existing table"
            yield ConfigProblem(what, key="format_version", hint=hint)
        if self.publish is not None and self.branch is None:
            what = "publish requires a branch, to which the feed writes first"
            yield ConfigProblem(what, key="publish", hint="write branch: staging")
        if TOPIC_MARK in self.table and self.publish is not None and self.publish.seconds:
            what = "with a table for each topic, a table is published after each batch or by command"
            yield ConfigProblem(what, key="publish", hint=f"write publish.when: {EACH_BATCH}")
        if self.branch == MAIN_BRANCH:
            what = f"{MAIN_BRANCH} is the branch that readers see"
            yield ConfigProblem(what, key="branch", hint="write branch: staging; or remove branch, to write to main")
        if self.branch is not None and self.history is not None:
            what = "branch and history exclude each other: the history would show changes that are not published"
            yield ConfigProblem(what, key="history", hint="remove history or branch")

    def refuses(self, columns: Sequence[tuple[str, str]]) -> Iterator[ConfigProblem]:
        paths = [path.lower() for path, _ in columns]
        rename = "give the column another name in transform.sql, or in the records"
        for at, (path, type_) in enumerate(columns):
            if type_ == "VARIANT" and self.format_version != 3:
                hint = f"write sink.iceberg.format_version: 3, or {path} STRING, which keeps the JSON as text"
                yield ConfigProblem(f"the column {path} is a VARIANT, which Iceberg has from version 3 on", hint=hint)
            if path in RESERVED:
                yield ConfigProblem(f"the name {path} is reserved for a metadata column of Iceberg", hint=rename)
            if paths[at] in paths[:at]:
                what = f"two columns would have the name {path}: Iceberg ignores case and reads a dot as nesting"
                yield ConfigProblem(what, hint=rename)
        kinds = {path.lower(): each for path, each in columns}
        for at, partition in enumerate(self.partition_by):
            takes, words, ending = _PARTITIONED[partition.name]
            kind, field = kinds.get(partition.column.lower()), partition.column + ending
            if kind is not None and kind not in takes:
                what, hint = f"{partition} cannot partition a column of type {kind}", f"{partition.name} takes {words}"
                yield ConfigProblem(what, key=f"partition_by.{at}", hint=hint)
            if ending and field in kinds:
                what = f"Iceberg names the partition field of {partition} '{field}', and a column already has this name"
                yield ConfigProblem(what, key=f"partition_by.{at}", hint=rename)

    @property
    def target(self) -> str:
        return self.table

    @property
    def keyed(self) -> IcebergSinkConfig | None:
        return self if self.mode == "upsert" else None

    @property
    def merges_because(self) -> str | None:
        """The setting that makes every upsert a MERGE; None if the index of keys may land upserts."""
        return "key_index_mb is 0" if self.key_index_mb == 0 else None

    def places(self, *, brokers: str) -> Iterator[Place]:
        """Yield the tables in lower case, since Hive, Glue and most engines ignore the case of names."""
        for option, table in self.snapshot_tables.items():
            yield Place(option, "table", table.casefold())

    @property
    def routed_by(self) -> TableField | None:
        """The field whose value names the table of each row; None if the rows have one table."""
        return TableField.of(self.table)

    @property
    def supported(self) -> Capabilities:
        return self.capabilities if self.routed_by is None else ROUTED

    @property
    def record_positions(self) -> Literal["unused", "required"]:
        return "unused" if self.routed_by is None else "required"

    @property
    def snapshot_table(self) -> str:
        return self.table if self.routed_by is None else self.routed_by.table(LEDGER)

    @property
    def snapshot_tables(self) -> Mapping[str, str]:
        return {"table": self.snapshot_table} | ({} if self.history is None else {"history": self.history})

    @property
    def landing_branch(self) -> str | None:
        return self.branch

    @property
    def stored_files(self) -> SinkFiles:
        """The files of a batch: its data files and, for the commit, a manifest, a manifest list and a metadata file."""
        merges, is_partitioned = self.mode == "upsert", bool(self.partition_by)
        return SinkFiles(
            merges=merges,
            is_unknown=self.routed_by is not None,
            reads_rows=self.merges_because is not None or self.write == "copy-on-write",
            is_partitioned=is_partitioned,
            commit_puts=3,
            commit_name="3 of metadata",
        )

    def with_names_made(self, names: Iterable[str]) -> IcebergSinkConfig:
        """Return a copy of the sink with these tables as ``names_made``: their names come from a topic."""
        copy = self.model_copy()
        copy._names_made = frozenset(names)
        return copy

    @property
    def names_made(self) -> frozenset[str]:
        return self._names_made
