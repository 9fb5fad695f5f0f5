"""A search server or driver is killed during a batch; after the next run, every record is one document."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.pipeline import Pipeline
from lakefeed_local.stack import Endpoints
from packages.elasticsearch.tests.search_pipeline import environment_of, pipeline_of, sink_of
from tests.support.faults.drivers import SHORT_LIVED, driver
from tests.support.feed import Feed
from tests.support.lake import spark_on
from tests.support.servers.search import Answer, Gate, SearchServer, gate

BATCH = 300


@pytest.fixture(scope="module")
def here(stack: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start a Spark session for the drivers that run in this process."""
    with spark_on(stack, name="search-faults", folder=tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture
def opened(search: SearchServer) -> Iterator[Gate]:
    with gate(search) as made:
        yield made


def send(feed: Feed, count: int, *, start: int = 0) -> None:
    feed.send(feed.avro({"id": number, "zone": f"z{number}"} for number in range(start, start + count)))


def small_requests(feed: Feed, opened: Gate) -> Pipeline:
    """Return a pipeline with batches of 300 records and requests of 20 documents."""
    brokers = "${KAFKA_BOOTSTRAP_SERVERS}"
    source = {"bootstrap_servers": brokers, "topics": [feed.topic], "max_records_per_batch": BATCH}
    return pipeline_of(feed, opened, sink={"bulk_documents": 20}, source={"kafka": source})


def ids(search: SearchServer, feed: Feed) -> list[int]:
    return sorted(each["id"] for each in search.documents(feed.name).values())


def versions(search: SearchServer, feed: Feed) -> dict[str, int]:
    search.ask("POST", f"/{feed.name}/_refresh")
    found = search.ask("GET", f"/{feed.name}/_search?size=10000&version=true")["hits"]["hits"]
    return {each["_id"]: each["_version"] for each in found}


def at_bulk(number: int, act: Any) -> Any:
    """Return a hook for a gate; the hook calls `act` once, at the bulk request with this number."""
    lock, come = threading.Lock(), [0]

    def before(method: str, path: str, body: bytes) -> Answer | None:
        if "/_bulk" not in path:
            return None
        with lock:
            come[0] += 1
            is_it = come[0] == number
        if is_it:
            act()
        return None

    return before


@pytest.mark.slow
def test_each_record_is_one_document_after_the_server_was_killed_during_a_batch(
    feed: Feed, search: SearchServer, opened: Gate, here: SparkSession
) -> None:
    feed.create_topic(partitions=2)
    send(feed, 3 * BATCH)
    pipeline, process = small_requests(feed, opened), search.process
    assert process is not None
    starting: list[threading.Thread] = []

    def kill() -> None:
        process.kill()
        starting.append(threading.Thread(target=process.start_again, daemon=True))
        starting[0].start()

    opened.before = at_bulk(20, kill)
    assert pipeline.run(spark=here, once=True).rows == 3 * BATCH
    starting[0].join(60)
    assert ids(search, feed) == list(range(3 * BATCH))
    assert {each.lag for each in pipeline.status().partitions} == {0}


@pytest.mark.slow
def test_a_search_server_that_is_down_pauses_only_its_own_sink(
    feed: Feed, search: SearchServer, opened: Gate, here: SparkSession
) -> None:
    copied = {**sink_of(feed, opened), "on_failure": "pause"}
    sql = f"SELECT id, zone, kafka_topic, kafka_partition, kafka_offset FROM {feed.name}"
    metadata = ["topic", "partition", "offset"]
    file = feed.write_file(
        sinks={"copy": copied},
        decode={"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}, "metadata": metadata},
        transform={"sql": sql},
    )
    pipeline, process = Pipeline.from_file(file, environment=environment_of(feed, opened)), search.process
    assert process is not None
    feed.create_topic(partitions=2)
    send(feed, 100)
    pipeline.run(spark=here, once=True)
    process.kill()
    send(feed, 50, start=100)
    try:
        summary = pipeline.run(spark=here, once=True)
    finally:
        process.start_again()
    assert list(summary.paused) == ["copy"]
    assert len(feed.rows()) == 150
    assert pipeline.run(spark=here, once=True).paused == {}
    assert ids(search, feed) == list(range(150))


@pytest.mark.slow
def test_each_record_is_one_document_after_the_driver_was_killed_during_a_batch(
    feed: Feed, search: SearchServer, opened: Gate, here: SparkSession, tmp_path: Path
) -> None:
    feed.create_topic(partitions=2)
    send(feed, BATCH)
    pipeline = small_requests(feed, opened)
    environment = {**environment_of(feed, opened), **SHORT_LIVED}
    dead = threading.Event()
    with driver("tests.support.faults.driver_child", environment=environment, log=tmp_path / "driver.log") as dies:

        def kill() -> None:
            for each in (*dies.children(), dies.process.pid):
                os.kill(each, signal.SIGKILL)
            dead.set()

        opened.before = at_bulk(8, kill)
        dies.prepare(tmp_path / f"{feed.name}.yaml")
        dies.tell("0")
        assert dead.wait(120)
        dies.process.wait(30)
    assert 0 < len(ids(search, feed)) < BATCH
    send(feed, 10, start=BATCH)
    assert pipeline.run(spark=here, once=True).rows == BATCH + 10
    assert ids(search, feed) == list(range(BATCH + 10))


@pytest.mark.slow
def test_a_suspended_driver_writes_nothing_after_another_driver_has_replaced_it(
    feed: Feed, search: SearchServer, opened: Gate, here: SparkSession, tmp_path: Path
) -> None:
    feed.create_topic(partitions=2)
    send(feed, BATCH)
    pipeline = small_requests(feed, opened)
    environment = {**environment_of(feed, opened), **SHORT_LIVED}
    asleep, awake = threading.Event(), threading.Event()
    with driver("tests.support.faults.driver_child", environment=environment, log=tmp_path / "driver.log") as sleeps:

        def sleep() -> None:
            # The driver's request stays open until the other driver has ended.
            for each in (sleeps.process.pid, *sleeps.children()):
                os.kill(each, signal.SIGSTOP)
            asleep.set()
            awake.wait(120)

        opened.before = at_bulk(8, sleep)
        sleeps.prepare(tmp_path / f"{feed.name}.yaml")
        sleeps.tell("0")
        assert asleep.wait(120)
        assert pipeline.run(spark=here, once=True).rows == BATCH
        before = versions(search, feed)
        awake.set()
        for each in (sleeps.process.pid, *sleeps.children()):
            os.kill(each, signal.SIGCONT)
        message = sleeps.ended()
        assert message is not None
        assert "another driver has taken over" in message
    assert versions(search, feed) == before
    assert ids(search, feed) == list(range(BATCH))
