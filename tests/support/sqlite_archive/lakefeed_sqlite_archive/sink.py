"""Writes the rows and the offset ranges of a batch in one transaction of SQLite."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.errors import ResourceMissing
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.protocol import SinkState
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.offsets.ranges import OffsetRanges
from lakefeed.sinks.base import LedgerSink
from lakefeed.sinks.definition import Check, CommitHistory, SinkDefinition, StoredState, checked
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

        return StoredState(keeps_ledger=True, position=position)

    @contextmanager
    def history(self) -> Iterator[CommitHistory]:
        """Open all commits and the rows at one moment, for ``lakefeed verify``."""
        archive = Archive(self.settings, self.context.feed)
        yield CommitHistory(commits=archive.commits(), fence=None, rows=ArchivedRows(archive))

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
        """Write the rows and the ledger's entry in one transaction."""
        self._archive.add(rows.toJSON().toLocalIterator(), commit)


class ArchivedRows:
    """Reads the archive's rows for ``lakefeed verify --deep``."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    @property
    def columns(self) -> set[str]:
        """The columns of the newest row."""
        return next((set(json.loads(row)) for row in self._archive.rows("ORDER BY rowid DESC LIMIT 1")), set())

    @property
    def where(self) -> str:
        """The place that errors name."""
        return self._archive.settings.path

    def read(self, columns: Sequence[str]) -> Any:
        """Read columns as an Arrow record batch reader."""
        import pyarrow as pa

        rows = [json.loads(row) for row in self._archive.rows()]
        return pa.table({name: [row.get(name) for row in rows] for name in columns}).to_reader()


class Archive:
    """The database of one feed."""

    def __init__(self, settings: SqliteArchiveConfig, feed: str) -> None:
        self.settings = settings
        self._feed = feed

    def last_ranges(self) -> OffsetRanges | None:
        """Read the ranges of the newest batch; None before the first one."""
        newest = self.commits()[-1:]
        return newest[0].ranges if newest else None

    def commits(self) -> tuple[Commit, ...]:
        """Read the feed's commits, oldest first."""
        if not Path(self.settings.path).exists():
            return ()
        with self._database() as database:
            query = "SELECT entry, number, at FROM lakefeed WHERE feed = ? ORDER BY number"
            found = database.execute(query, (self._feed,)).fetchall()
        return tuple(Commit.from_json(entry, number=number, committed_at=at) for entry, number, at in found)

    def rows(self, order: str = "") -> list[str]:
        """Read the rows as JSON."""
        with self._database() as database:
            return [row for (row,) in database.execute(f"SELECT json FROM {self.settings.table} {order}")]

    def add(self, rows: Iterator[str], commit: Commit) -> None:
        """Add rows, and the commit to the ledger."""
        with self._database() as database:
            insert = f"INSERT INTO {self.settings.table} VALUES (?)"
            database.executemany(insert, ((row,) for row in rows))
            entry = "INSERT INTO lakefeed (feed, entry, at) VALUES (?, ?, ?)"
            database.execute(entry, (self._feed, commit.to_json(), time.time()))

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.settings.path)) as database, database:
            database.execute(f"CREATE TABLE IF NOT EXISTS {self.settings.table} (json TEXT)")
            ledger = "number INTEGER PRIMARY KEY AUTOINCREMENT, feed TEXT, entry TEXT, at REAL"
            database.execute(f"CREATE TABLE IF NOT EXISTS lakefeed ({ledger})")
            yield database
