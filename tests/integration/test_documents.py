"""The code of documents and docstrings runs on the real stack, exactly as shown."""

import doctest
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

import lakefeed as lf
from lakefeed.clients.kafka.topics import Topics
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed_encode.encode import to_records
from lakefeed_local.produce.taxi import KEY, taxi_rows, taxi_schema
from lakefeed_local.produce.write import produce
from lakefeed_local.stack import Endpoints
from tests.support.blocks import PAGES, ROOT, blocks_of
from tests.support.feed import Feed
from tests.support.page_reader import Reader

TOPIC = "nyc-avro-topic"
TRIPS = 10_000
LATER = 50
KAFKA: dict[str, Any] = {"bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}", "topics": [TOPIC]}
PIPELINE: dict[str, Any] = {
    "name": "taxi",
    "source": {"kafka": KAFKA},
    "decode": {"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}},
    "sink": {"iceberg": {"table": "lake.nyc.trips"}},
    "trigger": "1 minute",
}
SHOWN: dict[str, Any] = {
    "source": {"kafka": {**KAFKA, "monitoring_group": "taxi-feed"}},
    "decode": {"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}, "metadata": ["topic", "partition", "offset"]},
    "expect": {"within_town": {"rule": "trip_distance < 25", "on_violation": "dead_letter"}},
    "dead_letters": {"table": "lake.nyc.trips_dead_letters"},
}
"""Blocks of the feed whose state some pages show."""
OWN = ("python.md",)
"""Pages that a separate test follows."""
FULL: tuple[str, ...] = ()
"""Pages that ``make test-full`` follows; ``make test-all`` follows the others."""
FOLLOWED = [
    page
    for page in PAGES
    if page.name != "tutorial.md"  # test_tutorial.py runs the tutorial.
    and any(block.is_run and block.test is None and block.language != "yaml" for block in blocks_of(page))
]


def send_trips(stack: Endpoints, lake: SparkSession, rows: int) -> None:
    """Send generated trips, as ``lakefeed topics produce --generate taxi`` does."""
    records = to_records(
        taxi_rows(lake, rows), topic=TOPIC, registry=stack.schema_registry_url, schema=taxi_schema(), key=KEY
    )
    produce(records, TOPIC, bootstrap_servers=stack.bootstrap_servers)


@pytest.fixture(scope="module")
def trips(stack: Endpoints, lake: SparkSession) -> None:
    """Create the topics that the documents mention, and a consumer group."""
    topics = Topics(stack.bootstrap_servers)
    topics.create(TOPIC, partitions=10)
    send_trips(stack, lake, TRIPS)
    for topic in ("hits", "bytes"):
        topics.create(topic, partitions=1)
    group = Consumer({"bootstrap.servers": stack.bootstrap_servers, "group.id": "some-consumer-group"})
    group.commit(offsets=[TopicPartition(TOPIC, 0, 10)], asynchronous=False)
    group.close()


@pytest.fixture
def surroundings(
    trips: None, feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: SparkSession
) -> Iterator[dict[str, Any]]:
    """Prepare a working folder with pipeline.yaml; return environment variables with the addresses of the servers."""
    feed.export(monkeypatch)
    monkeypatch.chdir(tmp_path)
    for name in ("docs", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump({**PIPELINE, "checkpoint": feed.checkpoint}))
    lake.sql("CREATE NAMESPACE IF NOT EXISTS lake.nyc")
    for row in lake.sql("SHOW TABLES IN lake.nyc").collect():
        lake.sql(f"DROP TABLE lake.nyc.{row.tableName}")
    yield {}
    for query in lake.streams.active:
        query.stop()


@pytest.fixture
def table(surroundings: dict[str, Any], lake: SparkSession) -> None:
    """Create lake.nyc.trips, which the examples read."""
    lf.write_table(lf.read_topic(lake, TOPIC, stream=False), "lake.nyc.trips")


@pytest.fixture
def reader(
    surroundings: dict[str, Any], stack: Endpoints, lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Reader:
    """Return a reader whose feed has landed its topic with some dead letters; the topic then got 50 more records."""
    monkeypatch.setenv("COLUMNS", "120")
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | SHOWN))
    names = {
        "spark": lake,
        "pipeline": lf.Pipeline.from_file(file),
        "monitor": FeedMonitor("taxi"),
        "records": _records(lake, stack),
        "url": stack.schema_registry_url,
        "password": "not-a-secret",
        "schema": taxi_schema(),
        "reader_schema": taxi_schema(),
        "writer_schema": taxi_schema(),
    }
    made = Reader(tmp_path, dict(os.environ), names)
    made.type("lakefeed run pipeline.yaml --once")
    send_trips(stack, lake, LATER)
    return made


def _records(lake: SparkSession, stack: Endpoints) -> DataFrame:
    reader = lake.read.format("kafka").option("kafka.bootstrap.servers", stack.bootstrap_servers)
    return reader.option("subscribe", TOPIC).load()


@pytest.mark.parametrize("module", ["dataframes", "pipeline", "clients.spark.session", "clients.iceberg.reader"])
def test_examples_in_docstrings_work(module: str, table: None) -> None:
    found = doctest.testmod(importlib.import_module(f"lakefeed.{module}"), report=True)
    assert found.attempted > 0
    assert found.failed == 0


def test_the_examples_of_the_page_on_python_work(
    surroundings: dict[str, Any], lake: SparkSession, tmp_path: Path
) -> None:
    reader = Reader(tmp_path, dict(os.environ), surroundings)
    assert reader.follow(blocks_of(ROOT / "docs" / "python.md")) == []
    assert reader.names["some"].count() == 110 + 213
    assert reader.names["summary"].rows == TRIPS
    assert lf.open_table("lake.nyc.trips").scan().to_arrow().num_rows > 9_000
    assert lf.open_table("lake.nyc.trips_today").scan().to_arrow().num_rows == TRIPS


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=str(page.relative_to(ROOT)), marks=() if page.name in FULL else pytest.mark.slow)
        for page in FOLLOWED
        if page.name not in OWN
    ],
)
def test_commands_of_a_page_work(page: Path, reader: Reader) -> None:
    assert reader.follow(blocks_of(page)) == []
