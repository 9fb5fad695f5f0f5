"""What can be said of a JDBC sink before a run, without Spark: whether one may log in, and the table can serve."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from lakefeed.config.jdbc import Address, JdbcSinkConfig
from lakefeed.config.problem import Problem
from lakefeed.config.tls import JavaOnly
from lakefeed.errors import LakefeedError, MissingExtra, Unreachable
from lakefeed.sinks.jdbc.columns import misfit
from lakefeed.sinks.jdbc.layout import JdbcLayout
from lakefeed.sinks.jdbc.ledger import JdbcLedger
from lakefeed.sinks.jdbc.session import TIMEOUT_SECONDS, PythonDatabase

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def problems(
    sink: JdbcSinkConfig, *, key: str, feed: str, rows_of: Callable[[], StructType | None]
) -> Iterator[Problem]:
    """Everything that would stop a run.

    Args:
        sink: the block.
        key: where it is in the pipeline file.
        feed: the feed's name.
        rows_of: the rows' columns, if they are known without Spark.
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
                for each in rows.fields:
                    column = have.get(each.name.lower())
                    if column is not None and (message := misfit(each.dataType, column, database.dialect)):
                        hint = "change the table, or cast it in transform.sql"
                        yield Problem(what=message, key=f"{key}.table", about=sink.where, hint=hint)
    except (MissingExtra, JavaOnly) as error:
        yield from _listens(sink, key, error)
    except Unreachable as error:
        yield Problem.of(error, key=f"{key}.url")
    except LakefeedError as error:
        yield Problem.of(error, key=f"{key}.{'table' if sink.table in (error.where or '') else 'user'}")


def _listens(sink: JdbcSinkConfig, key: str, error: MissingExtra | JavaOnly) -> Iterator[Problem]:
    """Without a client that asks as the feed does: whether anybody listens; the login comes with the feed's start."""
    address = Address.of(sink.url)
    try:
        socket.create_connection((address.host, address.port), timeout=TIMEOUT_SECONDS).close()
    except OSError as failed:
        away = Unreachable(f"the database does not answer: {failed.strerror or failed}", where=str(address))
        yield Problem.of(away, key=f"{key}.url")
        return
    yield Problem(what=f"the login was not tried: {error.what}", key=key, hint=error.hint, severity="warning")
