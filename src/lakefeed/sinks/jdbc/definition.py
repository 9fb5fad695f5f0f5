"""The JDBC sink: its table, its checks before a run, and its ledger read without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from lakefeed.config.jdbc import JdbcSinkConfig
from lakefeed.errors import ResourceMissing
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.protocol import SinkState
from lakefeed.sinks.definition import Check, CommitHistory, SinkDefinition, StoredState
from lakefeed.sinks.jdbc.ledger import JdbcLedger
from lakefeed.sinks.jdbc.probe import problems
from lakefeed.sinks.jdbc.reading import DatabaseRows
from lakefeed.sinks.jdbc.session import PythonDatabase
from lakefeed.sinks.jdbc.table import JdbcTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class JdbcDefinition(SinkDefinition[JdbcSinkConfig]):
    """A table of PostgreSQL or MariaDB, with the ledger in tables beside it."""

    def open(self, spark: SparkSession, claim: Claim) -> JdbcTable:
        """Open the table."""
        return self._table(spark)

    def schema_planner(self, spark: SparkSession, noted: str | None) -> JdbcTable:
        """Return the table, which plans its own changes."""
        return self._table(spark)

    def preflight(self, rows: Callable[[], StructType | None]) -> list[Check]:
        """Log in, and compare the table with the rows."""
        context = self.context
        return [lambda: list(problems(self.settings, key=context.place, feed=context.feed, rows_of=rows))]

    def state(self) -> SinkState:
        """Read the feed's position from the ledger's tables."""
        return StoredState(keeps_ledger=True, read_position=self._position)

    def history(self) -> AbstractContextManager[CommitHistory]:
        """Open the ledger's tables in one transaction.

        Raises:
            ResourceMissing: the table does not exist.
        """
        return self._history()

    @contextmanager
    def _history(self) -> Iterator[CommitHistory]:
        settings, database = self.settings, PythonDatabase(self.settings)
        ledger = JdbcLedger(database, settings, self.context.feed)
        with database.session() as session:
            if not ledger.has_table(session):
                raise ResourceMissing("the table does not exist", where=settings.where, hint="lakefeed run creates it")
            # One moment: the newest commit, and the rows that were there with it.
            session.one_moment()
            commits = tuple(ledger.commits(session))[::-1]
            if settings.mode == "overwrite":
                # Each batch replaces all rows of the one before.
                commits = (*(replace(commit, grown=0) for commit in commits[:-1]), *commits[-1:])
            row = ledger.standing(session)
            yield CommitHistory(
                commits=commits,
                fence=row.fence if row else None,
                rows=DatabaseRows(session, ledger),
                # A unique index of the table keeps each key from being there twice.
                has_keys=settings.mode == "upsert",
                marks_deletes=settings.on_delete == "mark",
                count_rows=lambda: ledger.count_rows(session),
            )

    def _position(self) -> Position | None:
        database = PythonDatabase(self.settings)
        with database.session() as session:
            return JdbcLedger(database, self.settings, self.context.feed).position(session)

    def _table(self, spark: SparkSession) -> JdbcTable:
        context = self.context
        return JdbcTable(
            spark,
            self.settings,
            feed=context.feed,
            evolves=context.evolves,
            groups=context.groups,
            patience=context.patience,
        )
