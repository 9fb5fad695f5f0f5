"""A feed from a topic into a database, and a thread that reads the database while the feed runs."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lakefeed.pipeline import Pipeline
from tests.support.feed import Feed
from tests.support.servers.mariadb import MariaDB
from tests.support.servers.postgresql import PostgreSQL

Server = PostgreSQL | MariaDB
TABLE = "trips"


def sink_of(server: Server, **settings: Any) -> dict[str, Any]:
    """Return the sink's block; its password comes from the environment."""
    block = {"url": server.jdbc_url, "user": server.user, "password": "${DATABASE_PASSWORD}", "table": TABLE}
    return {"jdbc": {**block, **settings}}


def pipeline_of(feed: Feed, server: Server, *, sink: dict[str, Any] | None = None, **blocks: Any) -> Pipeline:
    """Return the feed's pipeline into the database; its rows have topic, partition and offset."""
    decode = {"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}, "metadata": ["topic", "partition", "offset"]}
    path = feed.write_file(**{"sink": sink_of(server, **(sink or {})), "decode": decode, **blocks})
    return Pipeline.from_file(path, environment=environment_of(feed, server))


def environment_of(feed: Feed, server: Server) -> dict[str, str]:
    return {**feed.environment, "DATABASE_PASSWORD": server.password}


def ids(server: Server) -> list[int]:
    return [row[0] for row in server.execute(f"SELECT id FROM {TABLE} ORDER BY id")]


def staging_tables(server: Server) -> list[str]:
    schema = "current_schema()" if isinstance(server, PostgreSQL) else "DATABASE()"
    found = server.execute(f"SELECT table_name FROM information_schema.tables WHERE table_schema = {schema}")
    return [name for (name,) in found if name.startswith("lakefeed_stage_")]


def wait_for(found: Callable[[], Any], *, timeout: float = 180) -> Any:
    """Wait until `found` returns a true value; ignore its errors, because the database may be down."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            if there := found():
                return there
        except Exception:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def watched(server: Server) -> Iterator[list[tuple[int, int]]]:
    """Until the block ends, compare the number of rows with the counts of the commits, read in one statement."""
    seen: list[tuple[int, int]] = []
    over = threading.Event()
    look = f"SELECT (SELECT COUNT(*) FROM {TABLE}), (SELECT COALESCE(SUM(landed), 0) FROM lakefeed_commits)"

    def read() -> None:
        while not over.is_set():
            try:
                [[rows, counted]] = server.execute(look)
                seen.append((int(rows), int(counted)))
            except Exception:
                # The table does not exist yet, or the server was killed.
                time.sleep(0.05)
            time.sleep(0.01)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield seen
    finally:
        over.set()
        reader.join(30)


@contextmanager
def sleeping_ledger(server: Server, seconds: float) -> Iterator[None]:
    """Let the transaction of each commit sleep after it has written the rows."""
    if isinstance(server, PostgreSQL):
        server.execute(
            f"CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS "
            f"'BEGIN PERFORM pg_sleep({seconds}); RETURN NEW; END'",
            "CREATE TRIGGER naps BEFORE INSERT ON lakefeed_commits FOR EACH ROW EXECUTE FUNCTION nap()",
        )
    else:
        server.execute(
            f"CREATE TRIGGER naps BEFORE INSERT ON lakefeed_commits FOR EACH ROW SET @napped = SLEEP({seconds})"
        )
    try:
        yield
    finally:
        server.execute("DROP TRIGGER naps" + (" ON lakefeed_commits" if isinstance(server, PostgreSQL) else ""))


def is_committing(server: Server) -> bool:
    """Check that a driver sleeps in its commit."""
    if isinstance(server, PostgreSQL):
        asked = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    else:
        asked = "SELECT 1 FROM information_schema.processlist WHERE state = 'User sleep'"
    return bool(server.execute(asked))
