"""A driver that lost its network, as a pod on an isolated node, commits nothing after its successor has begun."""

import json
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.pipeline import Pipeline
from lakefeed_local.stack import Endpoints
from tests.support.cli import COMMAND, Running, lakefeed
from tests.support.cut_off import Link
from tests.support.feed import JSON_ROWS, Feed, records
from tests.support.servers.postgresql import PostgreSQL

ROWS = 8_000
BATCH = 1_000


@pytest.fixture
def database(postgres: PostgreSQL) -> PostgreSQL:
    return postgres.new_database()


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "status"), [(0, 2), (1, 0)])
def test_a_disconnected_driver_commits_nothing_after_a_successor_replaced_it(
    stack: Endpoints, feed: Feed, database: PostgreSQL, tmp_path: Path, seconds: int, status: int
) -> None:
    # The catalog runs on a server, so that the disconnection may also interrupt the request of a commit.
    feed.catalog = "pg"
    catalog = {"uri": database.jdbc_url, "warehouse": f"{stack.warehouse}/pg", "username": database.user}
    feed.create_topic(partitions=2)
    feed.send(records(ROWS))
    file = feed.write_file(
        catalogs={"pg": {**catalog, "password": "${PG_PASSWORD}"}},
        source=feed.source(max_records_per_batch=BATCH),
        decode=JSON_ROWS,
        trigger="1 second",
    )
    environment = {**feed.environment, "PG_PASSWORD": database.password}
    addresses = [
        stack.bootstrap_servers,
        urlsplit(stack.schema_registry_url).netloc,
        urlsplit(stack.s3_endpoint).netloc,
    ]
    ports = [*(int(address.rpartition(":")[2]) for address in addresses), database.port]
    link = Link(tmp_path, ports)
    with link.running():
        # With exit status 0, a restart policy would not start the replaced driver again beside its successor.
        arguments: list[str | Path] = ["run", file, "--exit-when-replaced", str(status)]
        with Running(arguments, environment, tmp_path / "first.log", command=link.command(COMMAND)) as first:
            first.wait_until_it_says(": batch ", times=3)
            time.sleep(seconds)  # Each case cuts the network at a different moment of a batch.
            link.cut()
            second = lakefeed("run", file, "--once", "--output", "json", environment=environment)
            assert 0 < json.loads(second.stdout)["rows"] < ROWS
            assert first.process.poll() is None, first.said()
            feed.send(records(10, first=ROWS))
            link.restore()
            assert first.process.wait(240) == status, first.said()
    assert "Traceback" not in first.said()
    assert "another driver has taken over" in first.said(), first.said()
    rows = pipeline_rows(file, feed, environment)
    assert sorted(rows) == list(range(ROWS))  # The ten records sent after the cut are for a later run.


def pipeline_rows(file: Path, feed: Feed, environment: dict[str, str]) -> list[int]:
    """Return the ids in the table, read without Spark."""
    connections = Pipeline.from_file(file, environment=environment).connections
    return [row["id"] for row in open_table(feed.table, connections=connections).scan().to_arrow().to_pylist()]
