"""The block of a pipeline file: ``sink: {sqlite_archive: {path: /data/rows.db}}``."""

from typing import ClassVar

from pydantic import Field

from lakefeed.config.sinks import EntrySinkConfig


class SqliteArchiveConfig(EntrySinkConfig):
    """A SQLite database with one row for each record."""

    definition: ClassVar[str] = "lakefeed_sqlite_archive.sink:SqliteArchive"

    path: str = Field(description="The database's file; created if it is missing.")
    table: str = Field("archive", pattern=r"^[a-z_]+$", description="The table.")

    @property
    def target(self) -> str:
        """The file and the table, which the checkpoint belongs to and errors name."""
        return f"{self.path} {self.table}"
