"""Open the JDBC sink's table, check it before a run, and read its ledger without Spark."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lakefeed.config.trust import JavaOnly
from lakefeed.errors import AccessDenied, LakefeedError, MissingExtra, ResourceMissing, Unreachable
from lakefeed.lazy import SparkSession, StructType
from lakefeed.sinks.definition import Check, Claim, CommitHistory, Problem, SinkDefinition, SinkState, StoredState
from lakefeed_jdbc.layout import JdbcLayout, columns_of, misfit
from lakefeed_jdbc.ledger import JdbcLedger
from lakefeed_jdbc.session import TIMEOUT_SECONDS, PythonDatabase, PythonSession
from lakefeed_jdbc.settings import Address, JdbcSinkConfig
from lakefeed_jdbc.table import JdbcTable

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class JdbcDefinition(SinkDefinition[JdbcSinkConfig]):
    """Opens and checks the table, and reads its ledger."""

    def open(self, spark: SparkSession, claim: Claim) -> JdbcTable:
        return JdbcTable(spark, self.settings, self.context)

    def schema_planner(self, spark: SparkSession, noted: str | None) -> JdbcTable:
        return JdbcTable(spark, self.settings, self.context)

    def preflight(self, rows: Callable[[], StructType | None]) -> list[Check]:
        context = self.context
        return [lambda: list(problems(self.settings, key=context.place, feed=context.feed, rows_of=rows))]

    def state(self) -> SinkState:
        ledger = JdbcLedger(PythonDatabase(self.settings), self.settings, self.context.feed)
        return StoredState(keeps_ledger=True, position=ledger.position)

    @contextmanager
    def history(self) -> Iterator[CommitHistory]:
        settings, database = self.settings, PythonDatabase(self.settings)
        ledger = JdbcLedger(database, settings, self.context.feed)
        with database.session() as session:
            if not ledger.has_table(session):
                raise ResourceMissing("the table does not exist", where=settings.where, hint="lakefeed run creates it")
            # All statements read the same snapshot, so that the newest commit and the rows belong together.
            session.one_moment()
            commits = tuple(ledger.commits(session))[::-1]
            if settings.mode == "overwrite":
                # Every batch replaces all rows of the previous batch, so only the newest commit still has rows.
                commits = (*(replace(commit, grown=0) for commit in commits[:-1]), *commits[-1:])
            row = ledger.standing(session)
            yield CommitHistory(
                commits=commits,
                fence=row.fence if row else None,
                rows=DatabaseRows(session, ledger),
                # A unique index of the table prevents duplicate keys.
                has_keys=settings.mode == "upsert",
                marks_deletes=settings.on_delete == "mark",
                count_rows=lambda: ledger.count_rows(session),
            )


@dataclass(frozen=True)
class DatabaseRows:
    """The rows of a feed's table for ``lakefeed verify``, as integers and texts."""

    session: PythonSession
    ledger: JdbcLedger

    @property
    def columns(self) -> set[str]:
        return set(columns_of(self.session, self.ledger))

    @property
    def where(self) -> str:
        return self.ledger.where

    def read(self, columns: Sequence[str]) -> Any:
        """Return an Arrow record batch reader over columns, which reads with a server-side cursor."""
        import pyarrow as pa

        kinds = {"kafka_partition": pa.int32(), "kafka_offset": pa.int64()}
        schema = pa.schema([(column, kinds.get(column, pa.string())) for column in columns])
        listed = ", ".join(self.ledger.dialect.name(column) for column in columns)
        statement = f"SELECT {listed} FROM {self.ledger.name(self.ledger.table)}"  # noqa: S608

        def batches() -> Iterator[RecordBatch]:
            for rows in self.session.scan(statement):
                values = zip(*rows, strict=True)
                arrays = [pa.array(column, field.type) for column, field in zip(values, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())


def problems(
    sink: JdbcSinkConfig, *, key: str, feed: str, rows_of: Callable[[], StructType | None]
) -> Iterator[Problem]:
    """Yield all problems that would stop a run, without Spark.

    Args:
        key: the block's path in the pipeline file.
        rows_of: returns the rows' columns if they are known.
    """
    database = PythonDatabase(sink)
    try:
        with database.session() as session:
            ledger = JdbcLedger(database, sink, feed)
            if not ledger.has_table(session):
                return
            layout = JdbcLayout(ledger, sink, session)
            layout.check_keys()
            if (rows := rows_of()) is not None:
                have = layout.have()
                for field in rows.fields:
                    column = have.get(field.name.lower())
                    if column is not None and (message := misfit(field.dataType, column, database.dialect)):
                        hint = "change the table, or cast the column in transform.sql"
                        yield Problem(what=message, key=f"{key}.table", about=sink.where, hint=hint)
    except (MissingExtra, JavaOnly) as error:
        yield from _listens(sink, key, error)
    except Unreachable as error:
        yield Problem.of(error, key=f"{key}.url")
    except LakefeedError as error:
        setting = "user" if isinstance(error, AccessDenied) else "url"
        yield Problem.of(error, key=f"{key}.{'table' if sink.table in (error.where or '') else setting}")


def _listens(sink: JdbcSinkConfig, key: str, error: MissingExtra | JavaOnly) -> Iterator[Problem]:
    # Try only the port, because Python's client cannot connect with the feed's settings. The feed's start tries the
    # login.
    address = Address.of(sink.url)
    try:
        socket.create_connection((address.host, address.port), timeout=TIMEOUT_SECONDS).close()
    except OSError as failed:
        what, hint = (
            f"the database does not answer: {failed.strerror or failed}",
            "check that it runs, and sink.jdbc.url",
        )
        yield Problem.of(Unreachable(what, where=str(address), hint=hint), key=f"{key}.url")
        return
    yield Problem(what=f"the login was not tried: {error.what}", key=key, hint=error.hint, severity="warning")
