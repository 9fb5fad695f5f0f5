"""On a real broker, a feed of a thousand topics is planned, and a topic of ten thousand partitions lands.

With ``-s`` the tests print durations and sizes. docs/size-a-feed.md has the arithmetic for more than one machine.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.ledger.snapshot_summary import Commit
from tests.support.cli import lakefeed
from tests.support.feed import Feed, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

TOPICS = 1000
RECORDS = 5
PARTITIONS = 10_000
# With so many partitions the indexes must be small: by default a broker reserves 20 MB of address space for an index.
SMALL = {"segment.index.bytes": "65536"}
DECODE = {"json": {"schema_ddl": "id BIGINT"}}


@pytest.fixture
def admin(feed: Feed) -> Iterator[AdminClient]:
    """Yield the broker's admin client; delete the test's topics afterwards."""
    client = AdminClient({"bootstrap.servers": feed.stack.bootstrap_servers})
    yield client
    names = [name for name in client.list_topics(timeout=60).topics if name.startswith(feed.name)]
    for start in range(0, len(names), 200):
        for done in client.delete_topics(names[start : start + 200], request_timeout=120).values():
            done.result()


def topic(feed: Feed, number: int) -> str:
    return f"{feed.name}.{number:04}"


def fill(feed: Feed, admin: AdminClient) -> None:
    """Create all topics, and send some records to each."""
    for start in range(0, TOPICS, 100):
        names = [topic(feed, number) for number in range(start, start + 100)]
        new = [NewTopic(name, num_partitions=1, replication_factor=1, config=SMALL) for name in names]
        for made in admin.create_topics(new, request_timeout=120).values():
            made.result()
    producer = Producer({"bootstrap.servers": feed.stack.bootstrap_servers, "linger.ms": 50})
    for number in range(TOPICS):
        for record in range(RECORDS):
            producer.produce(topic(feed, number), json.dumps({"id": record}).encode())
        producer.poll(0)
    assert producer.flush(300) == 0


def plan(feed: Feed, pattern: str) -> tuple[dict[str, Any], float]:
    """Run ``lakefeed plan`` on the topics of a pattern; return the printed plan and the duration in seconds."""
    source = {"bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}", "topics_pattern": pattern}
    table = f"lake.{feed.name}.{{topic}}"
    file = feed.write_file(source={"kafka": source}, decode=DECODE, sink={"iceberg": {"table": table}}, checkpoint="")
    began = time.monotonic()
    done = lakefeed("plan", file, "--output", "json", environment=feed.environment, timeout=1800)
    seconds = time.monotonic() - began
    document: dict[str, Any] = json.loads(done.stdout)
    print(f"a plan of {len(document['tables'])} topics: {seconds:.1f} s", flush=True)
    return document, seconds


def test_a_thousand_topics_are_planned(feed: Feed, admin: AdminClient) -> None:
    fill(feed, admin)
    few, seconds = plan(feed, rf"{feed.name}\.00.*")
    assert len(few["tables"]) == 100
    many, longer = plan(feed, rf"{feed.name}\..*")
    assert many["starts"] is True
    assert [each["topics"] for each in many["tables"]] == [[topic(feed, number)] for number in range(TOPICS)]
    for each in many["tables"]:
        assert each["kind"] == "fresh"
        assert [(part["start"], part["end"]) for part in each["partitions"]] == [(0, RECORDS)]
        assert any("CREATE TABLE" in statement for table in each["tables"] for statement in table["statements"])
    assert many["total"]["records"]["all"] == TOPICS * RECORDS
    # A plan of ten times as many topics must take about ten times as long, not more.
    assert longer < 15 * seconds
    assert longer < 600


def test_a_topic_of_ten_thousand_partitions_lands(feed: Feed, admin: AdminClient) -> None:
    # The controller cannot create all partitions in one request.
    half = NewTopic(feed.topic, num_partitions=PARTITIONS // 2, replication_factor=1, config=SMALL)
    for made in admin.create_topics([half], request_timeout=300).values():
        made.result()
    for made in admin.create_partitions([NewPartitions(feed.topic, PARTITIONS)], request_timeout=300).values():
        made.result()
    # A producer refuses a partition that the broker does not list yet.
    until(lambda: len(admin.list_topics(feed.topic, timeout=60).topics[feed.topic].partitions) == PARTITIONS)
    file = feed.write_file(decode=DECODE)
    for batch in range(2):
        send_to_each_partition(feed, batch)
        report, seconds = run(feed, file)
        assert (report["records"], report["batches"]) == (PARTITIONS, 1)
        print(
            f"{PARTITIONS:,} partitions: {seconds:.1f} s the run, {report['seconds']:.1f} s of them its batch, "
            f"{report['files']:,} files",
            flush=True,
        )
    assert sorted(row["id"] for row in feed.rows()) == list(range(2 * PARTITIONS))

    table = open_table(feed.table, connections=feed.connections)
    metadata = table.metadata
    (newest,) = (each for each in metadata.snapshots if each.snapshot_id == metadata.current_snapshot_id)
    assert newest.summary is not None
    summary = dict(newest.summary.additional_properties)
    ranges = Commit.of(newest.snapshot_id, summary).ranges
    assert (len(ranges.ranges), ranges.records) == (PARTITIONS, PARTITIONS)
    ledger = sum(len(key) + len(value) for key, value in summary.items() if key.startswith("lakefeed."))
    size = len(table.io.new_input(table.metadata_location))
    print(f"the ledger of a commit: {ledger:,} bytes; the metadata file: {size:,} bytes", flush=True)
    assert ledger < 400_000
    began = time.monotonic()
    lakefeed("verify", file, "--output", "json", environment=feed.environment, timeout=900)
    print(f"verify: {time.monotonic() - began:.1f} s", flush=True)


def send_to_each_partition(feed: Feed, batch: int) -> None:
    # Silence the producer, which would warn of each partition whose leader is not known yet.
    quiet = {"log_level": 3}
    producer = Producer({"bootstrap.servers": feed.stack.bootstrap_servers, "linger.ms": 50, **quiet})
    failed: list[Any] = []
    for partition in range(PARTITIONS):
        producer.produce(
            feed.topic,
            json.dumps({"id": batch * PARTITIONS + partition}).encode(),
            partition=partition,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(300) == 0
    assert not failed


def run(feed: Feed, file: Path) -> tuple[dict[str, Any], float]:
    began = time.monotonic()
    done = lakefeed("run", file, "--once", "--output", "json", environment=feed.environment, timeout=1800)
    report: dict[str, Any] = json.loads(done.stdout)
    return report, time.monotonic() - began
