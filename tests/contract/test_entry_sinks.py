"""A third-party sink passes lakefeed's contract suite for sinks, and broken variants of the sink fail it."""

import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.sinks.base import Batch
from lakefeed_testing.sink_contract import SinkContract, SinkPlace
from tests.support.sink_package import install


@pytest.fixture(scope="module", autouse=True)
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(install(tmp_path_factory.mktemp("package"))))
        yield
    for name in [name for name in sys.modules if name.startswith("lakefeed_sqlite_archive")]:
        del sys.modules[name]


@pytest.mark.quick
class TestSqliteArchive(SinkContract):
    @pytest.fixture
    def spark(self, spark: SparkSession) -> SparkSession:
        return spark

    def block(self, folder: Path) -> dict[str, Any]:
        return {"sqlite_archive": {"path": str(folder / "rows.db")}}


def without_a_key(own: Any, rows: Any, batch: Batch) -> None:
    """Store the rows and the ledger's entry in one transaction, without a unique key on the batch number."""
    with own._transaction() as database:
        store(own, database, rows)
        database.execute("INSERT INTO lakefeed VALUES (?, ?, ?)", (batch.feed, batch.number, batch.entry))


def that_looks_first(own: Any, rows: Any, batch: Batch) -> None:
    """Check the batch number with a query before the write, instead of by a unique key."""
    if len(own.entries()) >= batch.number:
        raise ValueError("the number is taken")
    without_a_key(own, rows, batch)


def in_two_transactions(own: Any, rows: Any, batch: Batch) -> None:
    """Check the batch number, then store the rows in one transaction and the ledger's entry in another."""
    if len(own.entries()) >= batch.number:
        raise ValueError("the number is taken")
    with own._transaction() as database:
        store(own, database, rows)
    with own._transaction() as database:
        if database.execute("SELECT 1 FROM lakefeed WHERE number = ?", (batch.number,)).fetchone():
            raise ValueError("the number is taken")
        database.execute("INSERT INTO lakefeed VALUES (?, ?, ?)", (batch.feed, batch.number, batch.entry))


def store(own: Any, database: sqlite3.Connection, rows: Any) -> None:
    documents = [] if rows is None else [(row,) for row in rows.toJSON().collect()]
    database.executemany(f"INSERT INTO {own._table} VALUES (?)", documents)


def begin_without_a_key(own: Any, columns: Any) -> None:
    with own._transaction() as database:
        database.execute(f"CREATE TABLE IF NOT EXISTS {own._table} (json TEXT)")
        database.execute("CREATE TABLE IF NOT EXISTS lakefeed (feed TEXT, number INTEGER, entry TEXT)")


REPLACED: Any = SinkContract.test_a_replaced_driver_cannot_write
AT_ONCE: Any = SinkContract.test_one_of_two_concurrent_writes_is_refused


@pytest.mark.parametrize(
    ("write", "test"), [(without_a_key, REPLACED), (that_looks_first, AT_ONCE), (in_two_transactions, AT_ONCE)]
)
def test_the_contract_suite_fails_for_each_broken_sink(
    write: Callable[..., None], test: Any, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakefeed_sqlite_archive.sink import SqliteArchive

    contract = TestSqliteArchive()
    monkeypatch.setattr(SqliteArchive, "write", write)
    monkeypatch.setattr(SqliteArchive, "begin", begin_without_a_key)
    place = SinkPlace(spark, contract.block(tmp_path), tmp_path)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test(contract, place, **{"monkeypatch": monkeypatch} if test is REPLACED else {"tmp_path": tmp_path})
