"""Hundreds of topics of all sorts of schemas in one job: each table right, a broken one alone, costs linear.

``LAKEFEED_TOPICS`` says how many topics the jobs have that are compared; each topic has 20 partitions.
"""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.topics import Topics
from lakefeed.feed.progress import FinishedBatch
from lakefeed.pipeline import Pipeline, RunSummary
from lakefeed_local.stack import Endpoints
from tests.support.feed import Feed
from tests.support.shapes import REGISTRY, SHAPES, Row, Shape, plain

COUNTS = [int(count) for count in os.environ.get("LAKEFEED_TOPICS", "25,50,100,200").split(",")]
TOPICS = COUNTS[-1]
PARTITIONS = 20
RECORDS = 100
BROKEN = 1
MEMORY_EACH = 250_000
"""Bytes of a topic: less is lost among what else comes and goes."""
KEPT = ["partition", "offset"]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What one job cost.

    Attributes:
        topics: how many it had.
        first_commit: seconds from its start to the first commit of any table.
        all_committed: seconds until each table had its first commit.
        heap: bytes of the driver's heap in use after a collection, the job at work, above what was before.
        rss: bytes that the Python process had more than before.
        requests: to S3.
    """

    topics: int
    first_commit: float
    all_committed: float
    heap: int
    rss: int
    requests: int

    def __str__(self) -> str:
        each = self.all_committed / self.topics
        return (
            f"{self.topics:>4} topics: first commit after {self.first_commit:6.1f} s, all after "
            f"{self.all_committed:7.1f} s ({each:.2f} s each), heap +{self.heap / 1e6:6.1f} MB, "
            f"Python +{self.rss / 1e6:6.1f} MB, {self.requests:,} S3 requests ({self.requests / self.topics:.1f} each)"
        )


class Fleet:
    """All topics of the test, filled, and the jobs that land some of them."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.shapes = [list(SHAPES.values())[number % len(SHAPES)] for number in range(TOPICS)]

    def topic(self, number: int) -> str:
        return f"{self.feed.name}.{number:03d}"

    def create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.feed.stack.bootstrap_servers})
        for start in range(0, TOPICS, 20):
            config = {"segment.index.bytes": "65536"}
            new = [
                NewTopic(self.topic(number), num_partitions=PARTITIONS, replication_factor=1, config=config)
                for number in range(start, min(TOPICS, start + 20))
            ]
            for made in admin.create_topics(new, request_timeout=120).values():
                made.result()

        # The broker says that they are made before it can take records for all of them.
        deadline = time.monotonic() + 300
        topics = Topics(self.feed.stack.bootstrap_servers)
        names = [self.topic(number) for number in range(TOPICS)]
        while len(topics.describe_all(names)) < TOPICS:
            assert time.monotonic() < deadline
            time.sleep(0.5)

    def send(self, numbers: range, *, topics: range | None = None) -> None:
        servers = self.feed.stack.bootstrap_servers
        producer = Producer(
            {"bootstrap.servers": servers, "linger.ms": 100, "topic.metadata.propagation.max.ms": 300_000}
        )
        failed: list[Any] = []
        for at in topics or range(TOPICS):
            topic = self.topic(at)
            values = self.shapes[at].values(numbers, topic=topic, registry=self.feed.stack.schema_registry_url)
            for number, value in zip(numbers, values, strict=True):
                producer.produce(
                    topic,
                    value=value,
                    partition=number % PARTITIONS,
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )
            producer.poll(0)
        assert producer.flush(300) == 0
        assert not failed

    def special(self, count: int) -> dict[str, Any]:
        return {
            self.topic(number): {"decode": {**self.shapes[number].decode, "metadata": KEPT}} for number in range(count)
        }

    def pipeline(self, count: int, *, job: str, **tables: Any) -> Pipeline:
        """The job of the first topics, with tables of its own."""
        path: Path = self.feed.folder / f"{job}.yaml"
        special = self.special(count)
        for topic, blocks in tables.pop("topics", {}).items():
            special[topic] |= blocks
        document = {
            "name": job,
            "source": {
                "kafka": {
                    "bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}",
                    "topics": [self.topic(number) for number in range(count)],
                }
            },
            "decode": {"avro": REGISTRY, "metadata": KEPT},
            "sink": {"iceberg": {"table": f"lake.{job}.{{topic}}"}},
            "trigger": "1 second",
            "tables": {"on_failure": "stop", **tables, "topics": special},
        }
        path.write_text(json.dumps(document))
        return Pipeline.from_file(path, environment=self.feed.environment)

    def tables(self, pipeline: Pipeline, count: int) -> list[tuple[int, str]]:
        configs = [pipeline.of_topic(self.topic(number)).config.sink.iceberg for number in range(count)]
        return [(number, config.table) for number, config in enumerate(configs) if config is not None]

    def rows(self, table: str) -> list[Row]:
        found = [plain(row) for row in self.feed.rows(table)]
        return sorted(
            ({name: value for name, value in row.items() if not name.startswith("kafka_")} for row in found),
            key=lambda row: int(row["id"]),
        )


class Memory:
    """The driver's, asked after each round, while the job is at work."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.heap, self.rss = self.used()
        self.before = self.heap, self.rss

    def used(self) -> tuple[int, int]:
        jvm: Any = self._spark._jvm
        for _ in range(2):
            jvm.java.lang.System.gc()
        runtime = jvm.java.lang.Runtime.getRuntime()
        status = Path("/proc/self/status").read_text().split("VmRSS:")[1].split()
        return int(runtime.totalMemory()) - int(runtime.freeMemory()), int(status[0]) * 1024

    def look(self, progress: FinishedBatch) -> None:
        self.heap, self.rss = self.used()


def expected(shape: Shape, numbers: range) -> list[Row]:
    return [plain(shape.row(number)) for number in numbers]


@pytest.mark.slow
@pytest.mark.timeout(14_400)
def test_hundreds_of_topics_in_one_job(lake: SparkSession, feed: Feed, stack: Endpoints) -> None:
    fleet = Fleet(feed)
    began = time.monotonic()
    fleet.create()
    fleet.send(range(RECORDS))
    feed.send([b"poison"], topic=fleet.topic(BROKEN), partition=0)
    print(f"\n{TOPICS} topics with {PARTITIONS} partitions each filled in {time.monotonic() - began:.1f} s")

    # Whatever is made once in a session is not to count for the first job.
    fleet.pipeline(len(SHAPES), job=f"{feed.name}_warm").run(spark=lake, once=True)
    costs = []
    for count in COUNTS:
        found, pipeline, summary = cost(fleet, lake, count)
        print(found, flush=True)
        costs.append(found)
        failed = [each.topic for each in summary.tables if each.failure]
        assert failed == [fleet.topic(BROKEN)]
        assert summary.rows == (count - 1) * RECORDS

    smaller, larger = costs[0], costs[-1]
    times = larger.topics / smaller.topics
    assert larger.first_commit <= 1.5 * times * smaller.first_commit
    assert larger.all_committed <= 1.5 * times * smaller.all_committed
    assert larger.heap <= 2 * times * max(smaller.heap, smaller.topics * MEMORY_EACH)
    assert larger.rss <= 2 * times * max(smaller.rss, smaller.topics * MEMORY_EACH)

    # A second job resumes where the tables are: the broken one is healed, and all get something new.
    fleet.send(range(RECORDS, RECORDS + PARTITIONS))
    dead = {"dead_letters": {"table": f"lake.{feed.name}.dead"}}
    healed = fleet.pipeline(TOPICS, job=pipeline.config.name, topics={fleet.topic(BROKEN): dead})
    began = time.monotonic()
    plans = healed.plan(spark=lake).tables
    print(f"a plan of all {TOPICS}: {time.monotonic() - began:.1f} s")
    assert len(plans) == TOPICS
    began = time.monotonic()
    summary = healed.run(spark=lake, once=True)
    seconds = time.monotonic() - began
    print(
        f"a restart of all {TOPICS}, with {summary.records:,} records: {seconds:.1f} s, {seconds / TOPICS:.2f} s each"
    )
    assert [each.failure for each in summary.tables if each.failure] == []
    assert summary.dead_letters == 1
    began = time.monotonic()
    for number, table in fleet.tables(healed, TOPICS):
        assert fleet.rows(table) == expected(fleet.shapes[number], range(RECORDS + PARTITIONS)), table
    for each in healed.parts():
        assert each.verify(deep=True).faults == (), each.config.name
    print(f"{TOPICS} tables compared row by row and verified in {time.monotonic() - began:.1f} s")


def cost(fleet: Fleet, lake: SparkSession, count: int) -> tuple[Figures, Pipeline, RunSummary]:
    pipeline = fleet.pipeline(count, job=f"{fleet.feed.name}_{count}")
    memory = Memory(lake)
    began = time.time()
    summary = pipeline.run(spark=lake, once=True, on_batch=memory.look)
    healthy = [each.table for each in summary.tables if not each.failure]
    commits = [
        min(each.timestamp_ms for each in open_table(table, connections=fleet.feed.connections).metadata.snapshots)
        for table in healthy
    ]
    found = Figures(
        topics=count,
        first_commit=min(commits) / 1000 - began,
        all_committed=max(commits) / 1000 - began,
        heap=memory.heap - memory.before[0],
        rss=memory.rss - memory.before[1],
        requests=summary.requests.total,
    )
    return found, pipeline, summary
