"""A thousand topics are planned on a real broker.

``-s`` prints what it takes. docs/size-a-feed.md has the arithmetic for more than one machine.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.support.cli import lakefeed
from tests.support.feed import Feed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

TOPICS = 1000
RECORDS = 5
# A broker reserves 20 MB of address space for each partition else.
SMALL = {"segment.index.bytes": "65536"}
DECODE = {"json": {"schema_ddl": "id BIGINT"}}


@pytest.fixture
def admin(feed: Feed) -> Iterator[AdminClient]:
    """The broker's; topics of the test are deleted after it."""
    client = AdminClient({"bootstrap.servers": feed.stack.bootstrap_servers})
    yield client
    names = [name for name in client.list_topics(timeout=60).topics if name.startswith(feed.name)]
    for start in range(0, len(names), 200):
        for done in client.delete_topics(names[start : start + 200], request_timeout=120).values():
            done.result()


def topic(feed: Feed, number: int) -> str:
    return f"{feed.name}.{number:04}"


def fill(feed: Feed, admin: AdminClient) -> None:
    """Make the topics, with some records in each."""
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
    """Run ``lakefeed plan`` over the topics of a pattern; return its document and the seconds that it took."""
    source = {"bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}", "topics_pattern": pattern}
    table = f"lake.{feed.name}.{{topic}}"
    file = feed.write_file(source={"kafka": source}, decode=DECODE, sink={"iceberg": {"table": table}}, checkpoint="")
    began = time.monotonic()
    done = lakefeed("plan", file, "--output", "json", environment=feed.environment, timeout=1800)
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stderr
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
    # Ten times the topics are not much more than ten times the work.
    assert longer < 15 * seconds
    assert longer < 600
