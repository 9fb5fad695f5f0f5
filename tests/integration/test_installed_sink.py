"""A feed writes to a sink that is installed as a separate package and has its own ledger."""

import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.errors import ConfigError, LakefeedError
from lakefeed_local.stack import Endpoints
from lakefeed_repair.rewind import plan_rewind
from tests.support.deaths import dying
from tests.support.feed import Feed
from tests.support.sink_package import install

DECODE = {"json": {"schema_ddl": "id BIGINT"}}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("package"))


@pytest.fixture
def feed(stack: Endpoints, tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Feed]:
    monkeypatch.syspath_prepend(str(site))
    made = Feed(stack, tmp_path)
    made.create_topic(partitions=1)
    yield made
    for name in [name for name in sys.modules if name.startswith("lakefeed_sqlite_archive")]:
        del sys.modules[name]


def send(feed: Feed, *ids: int) -> None:
    feed.send(json.dumps({"id": each}).encode() for each in ids)


def archived(path: Path, table: str = "archive") -> list[int]:
    with closing(sqlite3.connect(path)) as database:
        return sorted(json.loads(row)["id"] for (row,) in database.execute(f"SELECT json FROM {table}"))


@pytest.mark.quick
def test_an_installed_sink_writes_a_repeated_batch_once(
    feed: Feed, lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.db"
    blocks: dict[str, Any] = {"decode": DECODE, "sink": {"sqlite_archive": {"path": str(path)}}}
    send(feed, 1, 2)
    assert feed.pipeline(**blocks).run(spark=lake, once=True).rows == 2

    send(feed, 3)
    with monkeypatch.context() as crash:
        dying(crash)
        with pytest.raises(LakefeedError):
            feed.pipeline(**blocks).run(spark=lake, once=True)
    assert archived(path) == [1, 2, 3]

    send(feed, 4)
    pipeline = feed.pipeline(**blocks)
    assert pipeline.run(spark=lake, once=True).repeated == 0
    assert archived(path) == [1, 2, 3, 4]
    assert [each.table for each in pipeline.status(spark=lake).partitions] == [4]


def test_a_sink_refuses_settings_that_it_does_not_support(feed: Feed, tmp_path: Path) -> None:
    pipeline = feed.pipeline(decode=DECODE, sink={"sqlite_archive": {"path": str(tmp_path / "rows.db")}})
    with pytest.raises(ConfigError, match="sqlite_archive cannot be rewound: rows would be written twice"):
        plan_rewind(pipeline, "earliest")


def test_verify_finds_missing_and_doubled_rows_of_an_installed_sink(
    feed: Feed, lake: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "rows.db"
    pipeline = feed.pipeline(
        decode={**DECODE, "metadata": ["topic", "partition", "offset"]},
        dead_letters={"table": f"{feed.table}_letters"},
        sink={"sqlite_archive": {"path": str(path)}},
    )
    feed.send([b'{"id": 1}', b"no JSON", b'{"id": 2}'])
    pipeline.run(spark=lake, once=True)
    feed.send([b"no JSON either", b'{"id": 3}'])
    pipeline.run(spark=lake, once=True)

    result = pipeline.verify(deep=True)
    assert result.findings == ()
    assert (result.commits, result.offsets, result.records, result.dead_letters, result.rows) == (2, 5, 5, 2, 3)

    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE archive SET json = (SELECT max(json) FROM archive) WHERE json LIKE '%\"id\":1,%'")
    assert sorted(finding.kind for finding in pipeline.verify(deep=True).faults) == ["duplicates", "missing"]


def test_an_installed_secondary_sink_catches_up_after_an_error(feed: Feed, lake: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "later"
    path = folder / "rows.db"
    blocks: dict[str, Any] = {
        "decode": DECODE,
        "sinks": {"copy": {"on_failure": "pause", "sqlite_archive": {"path": str(path), "table": "copies"}}},
    }
    folder.mkdir()
    send(feed, 1)
    feed.pipeline(**blocks).run(spark=lake, once=True)
    folder.rename(tmp_path / "away")
    send(feed, 2)
    # The sink's folder was moved away: SQLite cannot open the database, and the sink pauses.
    assert list(feed.pipeline(**blocks).run(spark=lake, once=True).paused) == ["copy"]
    (tmp_path / "away").rename(folder)
    send(feed, 3)
    assert feed.pipeline(**blocks).run(spark=lake, once=True).paused == {}
    assert archived(path, "copies") == [1, 2, 3]
