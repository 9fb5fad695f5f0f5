"""What the documents and the docstrings show is run, on the real stack, as it stands there."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lakefeed as lf
from lakefeed.clients.kafka.topics import Topics
from lakefeed.local import Endpoints
from lakefeed.operations.produce.taxi import KEY, taxi_rows, taxi_schema
from lakefeed.operations.produce.write import produce
from lakefeed.records.encode.encode import to_records
from tests.support.feed import Feed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[2] / "docs"
TRIPS = 10_000


@pytest.fixture(scope="module")
def trips(stack: Endpoints, lake: SparkSession) -> None:
    """The topics that the documents speak of."""
    topics = Topics(stack.bootstrap_servers)
    topics.create("nyc-avro-topic", partitions=10)
    records = to_records(
        taxi_rows(lake, TRIPS),
        topic="nyc-avro-topic",
        registry=stack.schema_registry_url,
        schema=taxi_schema(),
        key=KEY,
    )
    produce(records, "nyc-avro-topic", bootstrap_servers=stack.bootstrap_servers)
    for topic in ("hits", "bytes"):
        topics.create(topic, partitions=1)


@pytest.fixture
def surroundings(trips: None, feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A shell at work: the environment names the stack, and pipeline.yaml is in the folder."""
    for name, value in feed.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    source = {"kafka": {"bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}", "topics": ["nyc-avro-topic"]}}
    feed.write_file(source=source).rename("pipeline.yaml")
    return {}


@pytest.fixture
def table(trips: None, lake: SparkSession, surroundings: dict[str, Any]) -> None:
    """lake.nyc.trips, for the examples that read it."""
    if not lake.catalog.tableExists("lake.nyc.trips"):
        lf.write_table(lf.read_topic(lake, "nyc-avro-topic", stream=False), "lake.nyc.trips")


@pytest.mark.parametrize("module", ["dataframes", "pipeline", "clients.spark.session", "clients.iceberg.reader"])
def test_the_examples_of_the_docstrings(module: str, table: None) -> None:
    found = doctest.testmod(importlib.import_module(f"lakefeed.{module}"), report=True)
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.quick
def test_the_page_on_python(surroundings: dict[str, Any], lake: SparkSession) -> None:
    lake.sql("DROP TABLE IF EXISTS lake.nyc.trips")
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "python.md").read_text("utf-8"), re.DOTALL)
    assert len(blocks) >= 5
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), surroundings)
    assert surroundings["some"].count() == 110 + 213
    assert surroundings["summary"].rows == TRIPS
    assert lf.open_table("lake.nyc.trips").scan().to_arrow().num_rows > 9_000
    assert lf.open_table("lake.nyc.trips_today").scan().to_arrow().num_rows == TRIPS
