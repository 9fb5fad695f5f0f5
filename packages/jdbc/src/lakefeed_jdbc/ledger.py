"""The ledger of a feed in a database: ``lakefeed_feeds`` and ``lakefeed_commits``, in the schema of the feed's table.

``lakefeed_feeds`` has one row per feed and table. A commit locks this row until its transaction ends, so that its
checks and its writes are atomic. ``lakefeed_commits`` has a row per commit, written in the same transaction as the
commit's rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import astuple
from datetime import UTC, datetime
from typing import Any

from lakefeed.errors import ConfigError
from lakefeed.ledger.continuity import ServerLedger, StoredCommit, next_fence
from lakefeed.ledger.outcomes import counts_by_partition
from lakefeed.ledger.protocol import CommitCheck
from lakefeed.ledger.snapshot_summary import PositionReset, Upserts
from lakefeed.offsets.ranges import OffsetRanges
from lakefeed.sinks.base import FeedEntry
from lakefeed.sinks.definition import Commit, Position
from lakefeed_jdbc.session import JvmDatabase, PythonDatabase, Session, StatementRefusal
from lakefeed_jdbc.settings import JdbcSinkConfig

FEEDS, COMMITS = "lakefeed_feeds", "lakefeed_commits"
COMMITS_PER_QUERY = 500
"""A query reads at most this many commits."""


class JdbcLedger(ServerLedger):
    """The commits of one feed into one table of a database."""

    def __init__(self, database: JvmDatabase | PythonDatabase, sink: JdbcSinkConfig, feed: str) -> None:
        super().__init__(feed, where=sink.where)
        self._database = database
        self.dialect = database.dialect
        self.schema, _, self.table = sink.table.rpartition(".")

    def name(self, table: str) -> str:
        return self.dialect.name(self.schema, table)

    def has_table(self, session: Session, table: str | None = None) -> bool:
        """Return True if a table exists in the schema of the feed's table; the default is the feed's table."""
        # information_schema.tables would also list tables of which the login may not read a single column.
        return bool(self.look_up(session, "SELECT 1 FROM information_schema.columns WHERE {table} LIMIT 1", table))

    def look_up(self, session: Session, select: str, table: str | None = None) -> list[tuple[Any, ...]]:
        """Run a SELECT on the database's catalog about a table, by default the feed's table.

        ``{table}`` in ``select`` becomes the condition that selects the table. A SELECT may instead have ``{schema}``,
        and ``?`` for the table's name.
        """
        schema = "?" if self.schema else self.dialect.here
        statement = select.format(table=f"table_schema = {schema} AND table_name = ?", schema=schema)
        return session.query(statement, *filter(None, (self.schema, table or self.table)))

    def creation(self, session: Session) -> list[str]:
        text, moment = self.dialect.types["string"][0], self.dialect.types["timestamp"][0]
        columns = {
            FEEDS: f"fence VARCHAR(190), reader {text}, keyed {text}, topics {text}, PRIMARY KEY (feed, target)",
            COMMITS: f"number BIGINT NOT NULL, commit_id VARCHAR(64) NOT NULL, batch_id BIGINT NOT NULL, fence "
            f"VARCHAR(190), ranges {text} NOT NULL, counts {text} NOT NULL, landed BIGINT NOT NULL, upserted {text}, "
            f"moved {text}, committed_at {moment} NOT NULL, PRIMARY KEY (feed, target, number)",
        }
        return [
            f"CREATE TABLE IF NOT EXISTS {self.name(table)} (feed VARCHAR(190) NOT NULL, target VARCHAR(190) NOT NULL, "
            f"{listed}){self.dialect.table_options}"
            for table, listed in columns.items()
            if not self.has_table(session, table)
        ]

    def ensure(self, session: Session) -> None:
        """Create the ledger's tables and the feed's row if they are missing."""
        for statement in self.creation(session):
            session.update(statement)
        if not session.query(f"SELECT 1 FROM {self.name(FEEDS)} WHERE {_OURS}", *self._ours):  # noqa: S608
            session.update(f"INSERT INTO {self.name(FEEDS)} (feed, target) VALUES (?, ?)", *self._ours)  # noqa: S608
        session.commit()

    def standing(self, session: Session, *, lock: bool = False) -> FeedEntry | None:
        """Return the feed's row in ``lakefeed_feeds``; None if the row does not exist.

        ``lock`` keeps other drivers from committing, and from taking the fence, until the transaction ends.
        """
        if not lock and not self.has_table(session, FEEDS):
            return None
        found = session.query(
            f"SELECT fence, reader, keyed, topics FROM {self.name(FEEDS)} WHERE {_OURS}"  # noqa: S608
            f"{' FOR UPDATE' if lock else ''}",
            *self._ours,
        )
        if not found:
            return None
        fence, reader, keyed, topics = found[0]
        return FeedEntry(fence, reader, keyed, json.loads(topics or "{}"))

    def note(self, session: Session, **columns: str | None) -> None:
        listed = ", ".join(f"{column} = ?" for column in columns)
        session.update(
            f"UPDATE {self.name(FEEDS)} SET {listed} WHERE {_OURS}",  # noqa: S608
            *columns.values(),
            *self._ours,
        )

    def forget(self, session: Session) -> None:
        """Delete the ledger's commits into a table that was dropped."""
        session.update(f"DELETE FROM {self.name(COMMITS)} WHERE {_OURS}", *self._ours)  # noqa: S608
        self.note(session, reader=None, keyed=None, topics=None)

    def take_fence(self) -> str:
        with self.session() as session:
            standing = self.standing(session, lock=True)
            fence = next_fence(standing.fence if standing else None)
            self.note(session, fence=fence)
            session.commit()
        return fence

    def fence_taken(self) -> str | None:
        with self.session() as session:
            standing = self.standing(session)
        return standing.fence if standing else None

    def position(self) -> Position | None:
        """Return the feed's position; None if the table does not exist or the feed has not committed."""
        with self.session() as session:
            last = self._last(session) if self.has_table(session) else None
        return None if last is None else last.position

    def commits(self, session: Session | None = None, *, most: int = COMMITS_PER_QUERY) -> Iterator[Commit]:
        """Yield the feed's commits, newest first, ``most`` per query, in ``session`` or in a new transaction."""
        with self.session() if session is None else nullcontext(session) as opened:
            for stored in self._stored(opened, most=most):
                yield stored.commit

    def record_move(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        if delete_where is not None:
            hint = "delete the rows with SQL, or name a new table and another checkpoint location"
            raise ConfigError("a rewind cannot delete rows of a database", where=self.where, hint=hint)
        with self.session() as session:
            if self.begin(session, commit, commit_id=commit_id):
                self.write(session, commit, commit_id=commit_id)
            session.commit()

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Open a transaction; within it, turn database errors into errors for the user."""
        with StatementRefusal.translated(self.where), self._database.session() as session:
            yield session

    def _last(self, session: Session) -> StoredCommit | None:
        return next(self._stored(session, most=1), None)

    def _stored(self, session: Session, *, most: int) -> Iterator[StoredCommit]:
        if not self.has_table(session, COMMITS):
            return
        below = 2**62
        while True:
            page = session.query(
                f"SELECT number, commit_id, batch_id, fence, ranges, counts, landed, upserted, moved, "  # noqa: S608
                f"{self.dialect.epoch} FROM {self.name(COMMITS)} WHERE {_OURS} AND number < ? "
                f"ORDER BY number DESC LIMIT {most}",
                *self._ours,
                below,
            )
            for row in page:
                below = int(row[0])
                yield StoredCommit(self._commit(row), str(row[1]))
            if len(page) < most:
                return

    def _commit(self, row: tuple[Any, ...]) -> Commit:
        number, _, batch_id, fence, ranges, counts, landed, upserted, moved, at = row
        upserts = None if upserted is None else Upserts(*json.loads(upserted))
        return Commit(
            feed=self.feed,
            batch_id=int(batch_id),
            ranges=OffsetRanges.from_json(ranges),
            fence=fence,
            snapshot_id=int(number),
            rows=int(landed),
            grown=int(landed) if upserts is None else upserts.inserted - upserts.deleted,
            counts=counts_by_partition(counts),
            committed_at=float(at),
            move=None if moved is None else PositionReset.from_json(moved),
            upserts=upserts,
        )

    def count_rows(self, session: Session) -> int:
        [[rows]] = session.query(f"SELECT COUNT(*) FROM {self.name(self.table)}")  # noqa: S608
        return int(rows)

    def begin(self, session: Session, commit: Commit, *, commit_id: str) -> bool:
        """Lock the feed's row, and return True unless the batch is already committed; raise the errors of ``admit``."""
        standing = self.standing(session, lock=True)
        if standing is None:
            raise self.removed(FEEDS)
        last = self._last(session) if self.has_table(session) else None
        return self.admit(commit, commit_id=commit_id, last=last, fence=standing.fence) is CommitCheck.NEW

    def write(self, session: Session, commit: Commit, *, commit_id: str, counts: str = "{}") -> None:
        """Add a commit to its rows' transaction, after ``begin``; ``counts`` has the records' outcomes, as JSON."""
        last = self._last(session)
        upserts = commit.upserts
        session.update(
            f"INSERT INTO {self.name(COMMITS)} (feed, target, number, commit_id, batch_id, fence, ranges, "  # noqa: S608
            "counts, landed, upserted, moved, committed_at) "
            f"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, CAST(? AS {self.dialect.types['timestamp'][0]}))",
            *self._ours,
            1 if last is None else (last.commit.snapshot_id or 0) + 1,
            commit_id,
            commit.batch_id,
            commit.fence,
            commit.ranges.to_json(),
            counts,
            commit.rows,
            None if upserts is None else json.dumps(astuple(upserts), separators=(",", ":")),
            None if commit.move is None else commit.move.to_json(commit.ranges),
            datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f"),
        )

    @property
    def _ours(self) -> tuple[str, str]:
        return self.feed, self.table


_OURS = "feed = ? AND target = ?"


def rows_changed(commit: Commit) -> int:
    """Return the number of rows that a commit has added or, with upsert, changed."""
    return commit.rows if commit.upserts is None else commit.upserts.landed + commit.upserts.deleted
