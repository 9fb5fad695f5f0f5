"""A database or driver is killed during a batch: readers see no part of a batch, and every record lands once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from pyspark.sql import SparkSession

from lakefeed.operations.preflight.connect import preflight
from lakefeed.pipeline import Pipeline
from lakefeed_local.stack import Endpoints
from packages.jdbc.tests.databases import EACH_DATABASE, server_of
from packages.jdbc.tests.jdbc_feed import (
    Server,
    environment_of,
    ids,
    is_committing,
    pipeline_of,
    sink_of,
    sleeping_ledger,
    staging_tables,
    wait_for,
    watched,
)
from tests.support.faults.drivers import SHORT_LIVED, Driver, driver
from tests.support.feed import Feed
from tests.support.lake import spark_on
from tests.support.servers.postgresql import PostgreSQL

BATCH = 300


@pytest.fixture(params=EACH_DATABASE)
def server(request: pytest.FixtureRequest) -> Server:
    return server_of(request.param, request.getfixturevalue)


@pytest.fixture(scope="module")
def here(stack: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start a Spark session for the drivers that run in this process."""
    with spark_on(stack, name="jdbc-faults", folder=tmp_path_factory.mktemp("spark")) as running:
        yield running


def send(feed: Feed, count: int, *, start: int = 0) -> None:
    feed.send(feed.avro({"id": number, "zone": f"z{number}"} for number in range(start, start + count)))


def small_batches(feed: Feed, server: Server) -> Pipeline:
    kafka = {"bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}", "topics": [feed.topic]}
    source = {**kafka, "max_records_per_batch": BATCH}
    return pipeline_of(feed, server, source={"kafka": source})


@contextmanager
def running(pipeline: Pipeline, spark: SparkSession) -> Iterator[list[Any]]:
    """Run the feed in a thread; after the block, the yielded list has the run's summary or error."""
    ended: list[Any] = []

    def run() -> None:
        try:
            ended.append(pipeline.run(spark=spark, once=True))
        except Exception as error:
            ended.append(error)

    runs = threading.Thread(target=run, daemon=True)
    runs.start()
    yield ended
    runs.join(300)
    assert not runs.is_alive()


def test_each_record_lands_once_after_the_database_was_killed_during_a_batch(
    feed: Feed, server: Server, here: SparkSession
) -> None:
    feed.create_topic(partitions=2)
    send(feed, 100)
    pipeline = small_batches(feed, server)
    pipeline.run(spark=here, once=True)
    send(feed, 3 * BATCH, start=100)
    process = server.process
    assert process is not None
    with watched(server) as seen, running(pipeline, here) as ended:
        # The tasks write their rows while a staging table exists.
        wait_for(lambda: staging_tables(server))
        process.kill()
        process.start_again()
        with sleeping_ledger(server, 3):
            # All rows are in the table, but the transaction has not committed.
            wait_for(lambda: is_committing(server))
            process.kill()
            process.start_again()
    assert ended[0].rows == 3 * BATCH
    assert all(rows == counted for rows, counted in seen)
    whole = accumulate(count for (count,) in server.execute("SELECT landed FROM lakefeed_commits ORDER BY number"))
    assert {rows for rows, _ in seen} <= {0, *whole}
    assert ids(server) == list(range(100 + 3 * BATCH))
    assert pipeline.verify(deep=True).findings == ()
    pipeline.run(spark=here, once=True)
    assert staging_tables(server) == []


@pytest.mark.parametrize("server", ["mariadb", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True)
def test_a_database_that_is_down_pauses_only_its_own_sink(feed: Feed, server: Server, here: SparkSession) -> None:
    def pipeline(**sinks: Any) -> Pipeline:
        return Pipeline.from_file(feed.write_file(sinks=sinks), environment=environment_of(feed, server))

    feed.create_topic(partitions=2)
    send(feed, 100)
    pipeline().run(spark=here, once=True)
    # If a feed has already run, a sink that is added to it begins with the next batch.
    both = pipeline(copy={**sink_of(server), "on_failure": "pause"})
    send(feed, 50, start=100)
    both.run(spark=here, once=True)
    assert ids(server) == list(range(100, 150))

    process = server.process
    assert process is not None
    process.kill()
    send(feed, 50, start=150)
    try:
        found = preflight(both.config, connections=both.connections)
        assert [(each.key, each.severity) for each in found] == [("sinks.copy.jdbc.url", "warning")]
        notes: list[str] = []
        summary = both.run(spark=here, once=True, on_note=notes.append)
    finally:
        process.start_again()
    assert list(summary.paused) == ["copy"]
    assert any("'copy' waits" in each for each in notes)
    assert len(feed.rows()) == 200
    assert ids(server) == list(range(100, 150))

    assert both.run(spark=here, once=True).paused == {}
    assert ids(server) == list(range(100, 200))


@contextmanager
def another_driver(feed: Feed, server: Server, folder: Path) -> Iterator[Driver]:
    """Start a driver in another process, so that the test can kill it."""
    environment = {**environment_of(feed, server), **SHORT_LIVED}
    with driver("tests.support.faults.driver_child", environment=environment, log=folder / "driver.log") as running:
        yield running


@contextmanager
def transaction(server: Server, statement: str) -> Iterator[None]:
    """Run another client's statement in a transaction that stays open until the block ends."""
    login: dict[str, Any] = {name: getattr(server, name) for name in ("host", "port", "user", "password")}
    connected: Any
    if isinstance(server, PostgreSQL):
        connected = psycopg.connect(dbname=server.database, **login)
    else:
        connected = pymysql.connect(database=server.database, **login)
    with closing(connected), connected.cursor() as cursor:
        cursor.execute(statement)
        cursor.fetchall()
        yield


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_each_record_lands_once_after_the_driver_was_killed_before_or_after_the_transaction(
    feed: Feed, server: Server, here: SparkSession, when: str, tmp_path: Path
) -> None:
    feed.create_topic(partitions=2)
    send(feed, 100)
    pipeline = small_batches(feed, server)
    pipeline.run(spark=here, once=True)
    send(feed, BATCH, start=100)
    with another_driver(feed, server, tmp_path) as dies:
        dies.prepare(tmp_path / f"{feed.name}.yaml")
        if when == "before":
            # Let the driver take the fence first, because the fence is in the row that this transaction locks.
            fence = server.execute("SELECT fence FROM lakefeed_feeds")
            dies.tell("0")
            wait_for(lambda: server.execute("SELECT fence FROM lakefeed_feeds") != fence)
            with transaction(server, "SELECT * FROM lakefeed_feeds FOR UPDATE"):
                wait_for(lambda: staged(server) == BATCH)
                dies.process.kill()
                dies.process.wait(30)
            assert ids(server) == list(range(100))
        else:
            dies.tell("0")
            [stage] = wait_for(lambda: staging_tables(server))
            with transaction(server, f"SELECT * FROM {stage} LIMIT 1"):
                # The driver has committed but cannot drop its staging table.
                wait_for(lambda: len(ids(server)) == 100 + BATCH)
                wait_for(lambda: is_dropping(server))
                dies.process.kill()
                dies.process.wait(30)
                # While MySQL waits for a lock, it checks only once a second whether its client is still connected. If
                # MySQL got the lock before this check, it would drop the table for the dead client.
                wait_for(lambda: not is_dropping(server))
    assert staging_tables(server)
    send(feed, 10, start=100 + BATCH)
    pipeline.run(spark=here, once=True)
    assert ids(server) == list(range(110 + BATCH))
    assert staging_tables(server) == []
    assert pipeline.verify(deep=True).findings == ()


@pytest.mark.slow
def test_a_suspended_driver_writes_nothing_after_another_driver_has_replaced_it(
    feed: Feed, server: Server, here: SparkSession, tmp_path: Path
) -> None:
    feed.create_topic(partitions=2)
    send(feed, 100)
    pipeline = small_batches(feed, server)
    pipeline.run(spark=here, once=True)
    send(feed, BATCH, start=100)
    with another_driver(feed, server, tmp_path) as sleeps:
        sleeps.prepare(tmp_path / f"{feed.name}.yaml")
        fence = server.execute("SELECT fence FROM lakefeed_feeds")
        sleeps.tell("0")
        wait_for(lambda: server.execute("SELECT fence FROM lakefeed_feeds") != fence)
        with transaction(server, "SELECT * FROM lakefeed_feeds FOR UPDATE"):
            wait_for(lambda: staged(server) == BATCH)
            jvms = [sleeps.process.pid, *sleeps.children()]
            for each in jvms:
                os.kill(each, signal.SIGSTOP)
        if isinstance(server, PostgreSQL):
            # The suspended driver holds the lock now. The server would end its transaction after LOCK_SECONDS; the test
            # ends the transaction immediately.
            server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state LIKE 'idle in%'")
        else:
            for (number,) in server.execute(
                "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx "
                "WHERE trx_mysql_thread_id <> CONNECTION_ID()"
            ):
                server.execute(f"KILL {number}")
        pipeline.run(spark=here, once=True)
        for each in jvms:
            os.kill(each, signal.SIGCONT)
        assert sleeps.ended() is not None
    assert ids(server) == list(range(100 + BATCH))
    assert pipeline.verify(deep=True).findings == ()


def staged(server: Server) -> int:
    return sum(server.execute(f"SELECT COUNT(*) FROM {stage}")[0][0] for stage in staging_tables(server))


def is_dropping(server: Server) -> bool:
    """Check that the server runs a driver's DROP TABLE."""
    if isinstance(server, PostgreSQL):
        asked = "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'DROP TABLE%'"
    else:
        asked = "SELECT 1 FROM information_schema.processlist WHERE info LIKE 'DROP TABLE%'"
    return bool(server.execute(asked))
