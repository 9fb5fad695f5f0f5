"""The block of a pipeline file: ``sink: {sqlite_archive: {path: /data/rows.db}}``."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from lakefeed.config.capabilities import Capabilities, Refusal, SinkFiles
from lakefeed.config.sinks import SinkConfig


class SqliteArchiveConfig(SinkConfig):
    """A SQLite database with one row for each record."""

    definition: ClassVar[str] = "lakefeed_sqlite_archive.sink:SqliteArchiveDefinition"
    guarantee: ClassVar[str] = "exactly-once"
    capabilities: ClassVar[Capabilities] = Capabilities(
        rewind=Refusal("an archive cannot be rewound: it keeps every row that it was given", "name another path"),
        verify=None,
        lag=None,
    )

    path: str = Field(description="The database's file; created if it is missing.")
    table: str = Field("archive", pattern=r"^[a-z_]+$", description="The table.")

    @property
    def target(self) -> str:
        """The file and the table, which the checkpoint belongs to."""
        return f"{self.path} {self.table}"

    @property
    def stored_files(self) -> SinkFiles:
        """None in the object store."""
        return SinkFiles(elsewhere="a SQLite database")
