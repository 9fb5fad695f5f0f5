"""Writes the rows and the offset ranges of a batch in one transaction of SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lakefeed.errors import ResourceMissing
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.protocol import SinkState
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.offsets.ranges import OffsetRanges
from lakefeed.sinks.base import LedgerSink
from lakefeed.sinks.definition import Check, SinkDefinition, StoredState, checked
from lakefeed_sqlite_archive.settings import SqliteArchiveConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class SqliteArchiveDefinition(SinkDefinition[SqliteArchiveConfig]):
    """Opens, checks and reads an archive."""

    def open(self, spark: SparkSession, claim: Claim) -> SqliteArchive:
        """Open the archive for the batches of a feed."""
        return SqliteArchive(Archive(self.settings, self.context.feed), claim)

    def state(self) -> SinkState:
        """Read where the feed stands, without Spark."""
        archive = Archive(self.settings, self.context.feed)

        def position() -> Position | None:
            ranges = archive.last_ranges()
            return None if ranges is None else Position(ranges, snapshot_id=0)

        return StoredState(keeps_ledger=True, read_position=position)

    def preflight(self, rows: Callable[[], StructType | None]) -> list[Check]:
        """Look for the folder of the file."""
        return [checked(f"{self.context.place}.path", self._require_folder)]

    def _require_folder(self) -> None:
        folder = Path(self.settings.path).absolute().parent
        if not folder.is_dir():
            raise ResourceMissing("the archive's folder does not exist", where=str(folder), hint=f"mkdir -p {folder}")


class SqliteArchive(LedgerSink):
    """Writes batches."""

    def __init__(self, archive: Archive, claim: Claim) -> None:
        super().__init__(claim)
        self._archive = archive

    def location(self) -> str:
        """The place that errors name."""
        return self._archive.settings.path

    def last_ranges(self) -> OffsetRanges | None:
        """The ranges of the newest batch."""
        return self._archive.last_ranges()

    def write(self, rows: DataFrame, commit: Commit) -> None:
        """Write the rows and the ranges in one transaction."""
        self._archive.add(rows.toJSON().toLocalIterator(), commit.ranges)


class Archive:
    """The database of one feed."""

    def __init__(self, settings: SqliteArchiveConfig, feed: str) -> None:
        self.settings = settings
        self._feed = feed

    def last_ranges(self) -> OffsetRanges | None:
        """Read the ranges of the newest batch; None before the first one."""
        if not Path(self.settings.path).exists():
            return None
        with self._database() as database:
            found = database.execute("SELECT ranges FROM lakefeed WHERE feed = ?", (self._feed,)).fetchone()
        return None if found is None else OffsetRanges.from_json(found[0])

    def add(self, rows: Iterator[str], ranges: OffsetRanges) -> None:
        """Add rows, and replace the ranges."""
        with self._database() as database:
            insert = f"INSERT INTO {self.settings.table} VALUES (?)"
            database.executemany(insert, ((row,) for row in rows))
            database.execute("INSERT OR REPLACE INTO lakefeed VALUES (?, ?)", (self._feed, ranges.to_json()))

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.settings.path)) as database, database:
            database.execute(f"CREATE TABLE IF NOT EXISTS {self.settings.table} (json TEXT)")
            database.execute("CREATE TABLE IF NOT EXISTS lakefeed (feed TEXT PRIMARY KEY, ranges TEXT)")
            yield database
