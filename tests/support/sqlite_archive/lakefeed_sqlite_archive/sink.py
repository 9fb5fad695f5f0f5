"""Writes the rows of a batch, as JSON, and its entry in one transaction of SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from lakefeed.errors import ResourceMissing
from lakefeed.sinks.base import Batch
from lakefeed_sqlite_archive.settings import SqliteArchiveConfig


class SqliteArchive:
    """The rows of one feed."""

    def __init__(self, settings: SqliteArchiveConfig, feed: str) -> None:
        self._path, self._table, self._feed = Path(settings.path), settings.table, feed

    def begin(self, columns: Any) -> None:
        """Create the tables."""
        with self._transaction() as database:
            database.execute(f"CREATE TABLE IF NOT EXISTS {self._table} (json TEXT)")
            key = "feed TEXT, number INTEGER, entry TEXT, PRIMARY KEY (feed, number)"
            database.execute(f"CREATE TABLE IF NOT EXISTS lakefeed ({key})")

    def write(self, rows: Any, batch: Batch) -> None:
        """Store the rows and the entry in one transaction."""
        with self._transaction() as database:
            if rows is not None:
                documents = ((document,) for document in rows.toJSON().toLocalIterator())
                database.executemany(f"INSERT INTO {self._table} VALUES (?)", documents)
            # If the feed has an entry with this number, this insert fails, and the transaction rolls the rows back.
            database.execute("INSERT INTO lakefeed VALUES (?, ?, ?)", (batch.feed, batch.number, batch.entry))

    def entries(self) -> list[str]:
        """Read the feed's entries, newest first."""
        if not self._path.exists():
            return []
        with self._transaction() as database:
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'lakefeed'").fetchone():
                return []
            query = "SELECT entry FROM lakefeed WHERE feed = ? ORDER BY number DESC"
            return [entry for (entry,) in database.execute(query, (self._feed,))]

    def read(self, columns: Sequence[str] | None) -> Any:
        """Read the rows as an Arrow record batch reader."""
        import pyarrow as pa

        with self._transaction() as database:
            rows = [json.loads(row) for (row,) in database.execute(f"SELECT json FROM {self._table}")]
        names = columns or sorted({name for row in rows for name in row})
        return pa.table({name: [row.get(name) for row in rows] for name in names}).to_reader()

    def check(self) -> None:
        """Look for the folder of the file."""
        folder = self._path.absolute().parent
        if not folder.is_dir():
            raise ResourceMissing("the archive's folder does not exist", where=str(folder), hint=f"mkdir -p {folder}")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path)) as database, database:
            yield database
