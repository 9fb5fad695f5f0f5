"""A stream is joined with a table or another stream: each pair lands once, as in a batch run."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.errors import ConfigError
from tests.support.feed import Feed

START = datetime(2024, 1, 1, 12, 0, tzinfo=UTC)
HOUR = "orders.at BETWEEN clicks.at AND clicks.at + INTERVAL 1 HOUR"
INNER = f"SELECT clicks.id, clicks.at, orders.price FROM clicks JOIN orders ON clicks.id = orders.id AND {HOUR}"
OUTER = INNER.replace("JOIN", "LEFT JOIN")


def topics(feed: Feed) -> tuple[str, str]:
    return f"{feed.name}-clicks", f"{feed.name}-orders"


def settings(feed: Feed, sql: str, *, delay: str | None = "10 minutes", **blocks: Any) -> dict[str, Any]:
    clicks, orders = topics(feed)
    late = {} if delay is None else {"watermark": {"column": "at", "delay": delay}}
    return {
        "source": feed.source(topics=[clicks, orders]),
        "decode": {"json": {"schema_ddl": "id BIGINT, at TIMESTAMP, price BIGINT"}},
        "transform": {
            "streams": {"clicks": {"topic": clicks, **late}, "orders": {"topic": orders, **late}},
            "sql": sql,
        },
        **blocks,
    }


@pytest.fixture
def joined(feed: Feed) -> Feed:
    for topic in topics(feed):
        feed.create_topic(partitions=2, topic=topic)
    return feed


def send(feed: Feed, which: int, *events: tuple[int, float]) -> None:
    """Send events to the topic of clicks (`which` is 0) or orders (1); an event is an id and minutes after noon."""
    feed.send(
        [
            json.dumps({"id": number, "at": (START + timedelta(minutes=at)).isoformat(), "price": number * 10}).encode()
            for number, at in events
        ],
        topic=topics(feed)[which],
    )


def landed(feed: Feed) -> list[tuple[int, int | None]]:
    return sorted(((each["id"], each["price"]) for each in feed.rows()), key=str)


@pytest.mark.quick
def test_joined_pairs_land_and_each_record_is_counted_once(joined: Feed, lake: SparkSession) -> None:
    job = joined.pipeline(**settings(joined, INNER))
    send(joined, 0, (1, 0), (2, 1))
    send(joined, 1, (1, 30), (2, 70))
    job.run(spark=lake, once=True)
    assert landed(joined) == [(1, 10)]
    found = job.verify()
    assert found.faults == ()
    assert found.records == 4


@pytest.mark.slow
def test_a_stream_is_joined_with_a_table_a_path_and_a_database(feed: Feed, lake: SparkSession, tmp_path: Path) -> None:
    feed.create_topic(partitions=1)
    lake.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{feed.name}")
    lake.sql(f"CREATE TABLE lake.{feed.name}.isps (isp STRING, provider STRING) USING iceberg")
    lake.sql(f"INSERT INTO lake.{feed.name}.isps VALUES ('a', 'Alpha')")
    lake.createDataFrame([("8001", "Zurich")], "zip STRING, town STRING").write.parquet(f"file:{tmp_path}/towns")
    with closing(sqlite3.connect(tmp_path / "plans.db")) as database:
        database.execute("CREATE TABLE plans (isp TEXT, plan TEXT)")
        database.execute("INSERT INTO plans VALUES ('a', 'fast')")
        database.commit()
    url = f"jdbc:sqlite:{tmp_path}/plans.db"
    tables = {
        "isps": {"table": f"lake.{feed.name}.isps"},
        "towns": {"format": "parquet", "path": f"file:{tmp_path}/towns"},
        "plans": {"format": "jdbc", "options": {"url": url, "dbtable": "plans", "driver": "org.sqlite.JDBC"}},
    }
    rows = f"{feed.name} JOIN isps USING (isp) JOIN towns USING (zip) LEFT JOIN plans USING (isp)"
    job = feed.pipeline(
        decode={"json": {"schema_ddl": "zip STRING, isp STRING"}},
        transform={"tables": tables, "sql": f"SELECT provider, town, plan FROM {rows}"},
    )
    feed.send([b'{"zip": "8001", "isp": "a"}', b'{"zip": "1", "isp": "a"}'])
    job.run(spark=lake, once=True)
    # A join with a table has no state, because each batch reads the current rows of the table.
    lake.sql(f"INSERT INTO lake.{feed.name}.isps VALUES ('b', 'Beta')")
    feed.send([b'{"zip": "8001", "isp": "b"}'])
    job.run(spark=lake, once=True)
    found = sorted((each["provider"], each["town"], each["plan"]) for each in feed.rows())
    assert found == [("Alpha", "Zurich", "fast"), ("Beta", "Zurich", None)]


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ({"sql": OUTER, "delay": None}, "watermark"),
        ({"sql": INNER.replace("JOIN orders", "JOIN clicks AS orders")}, "has to read each stream exactly once"),
        ({"sql": "SELECT id FROM clicks"}, "has to read each stream exactly once"),
    ],
)
def test_an_invalid_join_is_refused_before_the_start(
    joined: Feed, lake: SparkSession, blocks: dict[str, Any], message: str
) -> None:
    job = joined.pipeline(**settings(joined, blocks.pop("sql"), **blocks))
    with pytest.raises(ConfigError, match=message):
        job.run(spark=lake, once=True)
    assert not lake.catalog.tableExists(joined.table)


def test_the_same_topic_in_two_streams_is_refused(feed: Feed) -> None:
    blocks = settings(feed, INNER)
    blocks["transform"]["streams"]["orders"]["topic"] = topics(feed)[0]
    with pytest.raises(ConfigError, match="each topic of"):
        feed.pipeline(**blocks)
