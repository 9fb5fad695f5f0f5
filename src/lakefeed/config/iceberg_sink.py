"""The block of a pipeline file for an Iceberg table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Literal

from pydantic import Field, PrivateAttr

from lakefeed.config.base import ConfigProblem
from lakefeed.config.capabilities import Capabilities, SinkFiles
from lakefeed.config.keyed import Deletes, keyed_problems
from lakefeed.config.sinks import MODES, SinkConfig
from lakefeed.config.transform import OutputMode
from lakefeed.config.values import PartitionTransform, SortColumn, TableTemplate


class IcebergSinkConfig(SinkConfig):
    """An Iceberg table, created from the rows' schema if it is missing."""

    definition: ClassVar[str] = "lakefeed.sinks.iceberg.definition:IcebergDefinition"
    guarantee: ClassVar[str] = "exactly-once"
    capabilities: ClassVar[Capabilities] = Capabilities(
        rewind=None, adopt=None, backfill=None, replay=None, verify=None, lag=None, no_checkpoint=None
    )
    other_modes: ClassVar[str] = "update requires mode: upsert and keys, complete requires mode: overwrite"

    table: TableTemplate
    """catalog.namespace.table. With {topic} in it, each topic goes to a table of its own."""
    partition_by: list[PartitionTransform] = Field(default_factory=list)
    """Partition transforms: column, years|months|days|hours(column), bucket(n, column), truncate(n, column)."""
    sort_by: list[SortColumn] = Field(default_factory=list)
    """Order of the rows in each file: column, column desc, column desc nulls first. If partition_by or sort_by change
    here, the table's new files follow at the next start."""
    properties: dict[str, str] = Field(default_factory=dict)
    """Table properties, set when lakefeed creates the table."""
    mode: Literal["append", "upsert", "overwrite"] = "append"
    """Rows are added; or the newest row for each key is kept; or each batch replaces all rows, which
    transform.output_mode: complete requires."""
    keys: list[str] = Field(default_factory=list, description="With upsert: the columns that a row is known by.")
    order_by: list[str] = Field(default_factory=list)
    """With upsert: columns that say which change of a key is newer. Default: the offset, so that all changes of a key
    have to be in one partition."""
    delete: Deletes = Field(default_factory=Deletes, description="With upsert: which records delete.")
    on_delete: Literal["remove", "mark"] = "remove"
    """With upsert: remove the row, or keep it with lakefeed_deleted = true, so that an older change that comes late
    does not bring the key back."""
    write: Literal["merge-on-read", "copy-on-write"] = "merge-on-read"
    """With upsert: write what has changed beside the old files, or rewrite the files that it is in."""
    history: TableTemplate | None = None
    """With upsert: a table beside it that every change is appended to."""

    _names_made: frozenset[str] = PrivateAttr(frozenset())

    def _contradictions(self) -> Iterator[ConfigProblem]:
        return keyed_problems(self)

    @property
    def modes(self) -> tuple[OutputMode, ...]:
        return MODES[self.mode]

    @property
    def target(self) -> str:
        return self.table

    @property
    def snapshot_table(self) -> str:
        return self.table

    @property
    def snapshot_tables(self) -> Mapping[str, str]:
        return {"table": self.table} | ({} if self.history is None else {"history": self.history})

    @property
    def stored_files(self) -> SinkFiles:
        """Data files, and in each commit a manifest, the manifest list and the metadata file."""
        merges, is_partitioned = self.mode == "upsert", bool(self.partition_by)
        return SinkFiles(merges=merges, is_partitioned=is_partitioned, commit_puts=3, commit_name="3 of metadata")

    def with_names_made(self, names: Iterable[str]) -> IcebergSinkConfig:
        """Return the same sink, with these tables named after a topic, not by the file."""
        copy = self.model_copy()
        copy._names_made = frozenset(names)
        return copy

    @property
    def names_made(self) -> frozenset[str]:
        """The tables that the file does not name; such a table is the feed's only if the feed has made it."""
        return self._names_made
