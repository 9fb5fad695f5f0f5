"""Topics as they are in practice: several schema versions at once, broken records, a registry that fails."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pydantic import SecretStr
from pyspark.sql import SparkSession

from lakefeed.clients.kafka.topics import Topics
from lakefeed.clients.s3 import Keys
from lakefeed.errors import ErrorBudgetExceeded
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.sinks.dead_letters.store import DeadLetterFilter, kinds
from lakefeed.sinks.dead_letters.table import TableReader
from lakefeed_local.home import Home
from lakefeed_local.part import NotReady
from lakefeed_local.ports import choose_free
from lakefeed_local.servers import RegistryServer
from lakefeed_repair.replay import replay
from tests.support.broken import KINDS, broken
from tests.support.feed import TRIP, Feed

REGISTRY = {"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}}


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Trip", "fields": list(fields)}


ID = {"name": "id", "type": "long"}
OPTIONAL = ["null", "string"]
PLACE = {"type": "record", "name": "Place", "fields": [{"name": "zone", "type": "string"}]}
WIDER_PLACE = {**PLACE, "fields": [*PLACE["fields"], {"name": "borough", "type": OPTIONAL, "default": None}]}
VERSIONS = (
    record(ID, {"name": "fare", "type": "float"}),
    record(ID, {"name": "fare", "type": "float"}, {"name": "note", "type": OPTIONAL, "default": None}),
    record(ID, {"name": "fare", "type": "double"}, {"name": "note", "type": OPTIONAL, "default": None}),
    record(
        ID,
        {"name": "fare", "type": "double"},
        {"name": "note", "type": OPTIONAL, "default": None},
        {"name": "place", "type": ["null", PLACE], "default": None},
    ),
    record(
        ID,
        {"name": "fare", "type": "double"},
        {"name": "place", "type": ["null", WIDER_PLACE], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    ),
)


def row_of(version: int, number: int) -> dict[str, Any]:
    place = {"zone": f"z{number % 5}"} | ({"borough": f"b{number % 3}"} if version == 4 else {})
    return {
        "id": number,
        "fare": number / 2,
        **({"note": f"note {number}" if number % 2 else None} if version in (1, 2, 3) else {}),
        **({"place": place if number % 3 else None} if version >= 3 else {}),
        **({"tags": [str(number)] * (number % 3)} if version == 4 else {}),
    }


def test_records_of_five_random_schema_versions_land_while_the_query_runs(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=10)
    client = SchemaRegistryClient({"url": feed.stack.schema_registry_url})
    context = SerializationContext(feed.topic, MessageField.VALUE)
    numbers = random.Random(7)
    sent: dict[int, bytes] = {}
    schemas: dict[int, dict[str, Any]] = {}

    def serializer(version: int) -> AvroSerializer:
        made = AvroSerializer(client, json.dumps(VERSIONS[version]))
        schemas[int.from_bytes(made(row_of(version, 0), context)[1:5], "big")] = VERSIONS[version]
        return made  # type: ignore[no-any-return]  # the package types it as Any

    # Only the first two versions are registered when the query starts.
    serializers = [serializer(0), serializer(1)]
    stop, failed = threading.Event(), []

    def send() -> None:
        producer = Producer({"bootstrap.servers": feed.stack.bootstrap_servers, "linger.ms": 5})
        try:
            for number in range(4_000):
                if number in (1_000, 2_000, 3_000):
                    serializers.append(serializer(len(serializers)))
                version = numbers.randrange(len(serializers))
                value: Any = serializers[version](row_of(version, number), context)
                sent[number] = value
                producer.produce(feed.topic, value=value, partition=numbers.randrange(10))
                if number % 250 == 249:
                    producer.flush(30)
                    time.sleep(0.5)
        except BaseException as error:
            failed.append(error)
        finally:
            producer.flush(30)

    sender = threading.Thread(target=send)
    sender.start()
    landed = 0

    def on_batch(progress: Any) -> None:
        nonlocal landed
        landed += progress.rows
        if landed >= 4_000:
            stop.set()

    watchdog = threading.Timer(240, stop.set)
    watchdog.start()
    summary = feed.pipeline(trigger="1 second").run(spark=lake, stop=stop, on_batch=on_batch)
    watchdog.cancel()
    sender.join()
    assert failed == []
    assert (summary.rows, summary.dead_letters) == (4_000, 0)
    rows = {row["id"]: row for row in feed.rows()}
    assert len(rows) == 4_000
    for number, value in sent.items():
        writer = fastavro.parse_schema(schemas[int.from_bytes(value[1:5], "big")])
        expected: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), writer, None)
        assert filled(rows[number]) == filled(expected), number


def filled(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with all fields of later versions: a field that the row lacks is null, or has its default."""
    place = row.get("place")
    return {
        "id": row["id"],
        "fare": row["fare"],
        "note": row.get("note"),
        "place": None if place is None else {"zone": place["zone"], "borough": place.get("borough")},
        "tags": row.get("tags", []) or [],
    }


def send_broken(feed: Feed, *, records: int, share: float, large: int) -> Counter[tuple[int, str]]:
    """Send valid records with broken ones among them; return the counts of broken records by partition and kind."""
    client = SchemaRegistryClient({"url": feed.stack.schema_registry_url})
    [first] = feed.avro([{"id": 0, "zone": "zone 0"}])
    header = first[:5]
    other = {**TRIP, "fields": [{"name": "id", "type": "string"}, TRIP["fields"][1]]}
    gone = {**TRIP, "fields": [*TRIP["fields"], {"name": "gone", "type": "string", "default": ""}]}
    other_id = client.register_schema(f"{feed.name}-other", Schema(json.dumps(other), "AVRO"))
    deleted_id = client.register_schema(f"{feed.name}-gone", Schema(json.dumps(gone), "AVRO"))
    client.delete_subject(f"{feed.name}-gone", permanent=False)
    client.delete_subject(f"{feed.name}-gone", permanent=True)
    parsed = fastavro.parse_schema(TRIP)
    numbers = random.Random(11)
    sent: Counter[tuple[int, str]] = Counter()
    counts: Counter[str] = Counter()
    producer = Producer(
        {
            "bootstrap.servers": feed.stack.bootstrap_servers,
            "linger.ms": 20,
            "message.max.bytes": 12_000_000,
            "queue.buffering.max.kbytes": 256_000,
        }
    )
    failed: list[Any] = []
    for number in range(records):
        partition = number % 10
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, {"id": number, "zone": f"zone {number % 7}"})
        value: bytes | None = header + buffer.getvalue()
        if numbers.random() < share:
            kind = KINDS[sum(counts.values()) % len(KINDS)]
            counts[kind] += 1
            if kind == "10 MB" and counts[kind] > large:
                kind = "truncated"
            assert value is not None
            value = broken(kind, value, deleted_id=deleted_id, other_id=other_id, seed=number)
            sent[partition, kind] += 1
        while True:
            try:
                producer.produce(
                    feed.topic,
                    value=value,
                    partition=partition,
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )
                break
            except BufferError:
                producer.poll(0.2)
        producer.poll(0)
    assert producer.flush(120) == 0
    assert not failed
    return sent


@pytest.mark.parametrize(("records", "large"), [(24_000, 2), pytest.param(1_000_000, 5, marks=pytest.mark.slow)])
def test_records_broken_in_twelve_ways_are_all_accounted_for(
    lake: SparkSession, feed: Feed, records: int, large: int
) -> None:
    Topics(feed.stack.bootstrap_servers).create(feed.topic, partitions=10, config={"max.message.bytes": "12000000"})
    sent = send_broken(feed, records=records, share=0.01, large=large)
    assert {kind for _, kind in sent} == set(KINDS)
    dead = f"lake.{feed.name}.dead_letters"
    blocks: dict[str, Any] = {
        "decode": {**REGISTRY, "metadata": ["partition", "offset"], "on_null": "dead_letter"},
        "dead_letters": {"table": dead, "budget": {"max_share": 0.05}},
        "source": feed.source(max_records_per_batch=records // 4),
    }
    summary = feed.pipeline(**blocks).run(spark=lake, once=True)
    broken_ones = sum(sent.values())
    assert (summary.records, summary.rows, summary.dead_letters) == (records, records - broken_ones, broken_ones)

    # In each partition, rows + dead letters = records: by the ledger's counts, and by the rows of both tables.
    per_partition: Counter[tuple[int, str]] = Counter()
    for commit in IcebergLedger(lake, feed.table, feed.name).commits():
        for (_, partition), counts in commit.counts.items():
            per_partition[partition, "records"] += counts.records
            per_partition[partition, "dead"] += counts.dead_letters
    held = {
        row.p: row.n for row in lake.sql(f"SELECT kafka_partition p, count(*) n FROM {feed.table} GROUP BY 1").collect()
    }
    buried = {row.p: row.n for row in lake.sql(f"SELECT partition p, count(*) n FROM {dead} GROUP BY 1").collect()}
    for partition in range(10):
        expected = sum(count for (of, _), count in sent.items() if of == partition)
        assert per_partition[partition, "records"] == records // 10
        assert per_partition[partition, "dead"] == buried[partition] == expected
        assert held[partition] == records // 10 - expected
    positions = lake.sql(
        f"SELECT count(*) a, count(DISTINCT p, o) d FROM (SELECT kafka_partition p, kafka_offset o FROM {feed.table} "
        f"UNION ALL SELECT partition, offset FROM {dead})"
    ).first()
    assert positions is not None
    assert (positions.a, positions.d) == (records, records)

    # The letters can be listed with their original bytes, and replayed; all stay letters, because none has become
    # decodable.
    largest = lake.sql(f"SELECT max(length(value)) n FROM {dead}").first()
    assert largest is not None
    assert largest.n > 10_000_000
    listed = TableReader(dead, connections=feed.connections).find(DeadLetterFilter(feed=feed.name))
    assert len(listed) == broken_ones
    assert sum(kind.count for kind in kinds(listed)) == broken_ones
    assert len(kinds(listed)) >= 8
    again = replay(feed.pipeline(**blocks), DeadLetterFilter(feed=feed.name), spark=lake)
    assert (again.rows, again.still_dead) == (0, broken_ones)

    # The feed stops before a batch that would exceed the error budget.
    feed.send([b"\x01"] * (records // 10), partition=0)
    with pytest.raises(ErrorBudgetExceeded):
        feed.pipeline(**blocks).run(spark=lake, once=True)
    assert feed.pipeline(**{**blocks, "dead_letters": {"table": dead}}).run(spark=lake, once=True).rows == 0


@pytest.fixture
def own_registry(tmp_path: Path) -> Iterator[OwnRegistry]:
    registry = OwnRegistry(tmp_path)
    registry.start()
    yield registry
    registry.kill()
    registry.log.close()


class OwnRegistry:
    """A separate registry for one test, which the test can kill and start again."""

    def __init__(self, folder: Path) -> None:
        home = Home(folder / "registry-home")
        home.make()
        self.part = RegistryServer(
            home=home,
            ports={"registry": choose_free(avoid=())},
            credentials=Keys(access_key="unused", secret_key=SecretStr("unused")),
            cluster_id="unused",
        )
        self.log = (folder / "registry.log").open("wb")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.part.prepare()
        self._process = subprocess.Popen(
            self.part.command(), env={**os.environ, **self.part.environment()}, stdout=self.log, stderr=self.log
        )
        deadline = time.monotonic() + 120
        while True:
            try:
                self.part.check()
                self.part.finish()
                return
            except NotReady:
                assert time.monotonic() < deadline, "the registry does not come up"
                time.sleep(0.5)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@pytest.mark.parametrize("away", [5, pytest.param(60, marks=pytest.mark.slow)])
def test_a_registry_that_is_killed_in_mid_batch_only_delays_the_feed(
    lake: SparkSession, feed: Feed, own_registry: OwnRegistry, away: int
) -> None:
    feed.create_topic()
    client = SchemaRegistryClient({"url": own_registry.part.url})
    context = SerializationContext(feed.topic, MessageField.VALUE)
    old = AvroSerializer(client, json.dumps(TRIP))
    newer = {**TRIP, "fields": [*TRIP["fields"], {"name": "fare", "type": "double", "default": 0.0}]}
    new = AvroSerializer(client, json.dumps(newer))
    feed.send([old({"id": number, "zone": "z"}, context) for number in range(100)])
    values = [new({"id": number, "zone": "z", "fare": 1.5}, context) for number in range(100, 200)]
    # The feed begins with the subject that has only the first version; later versions come while it runs.
    client.register_schema(f"{feed.name}-first", Schema(json.dumps(TRIP), "AVRO"))
    stop, back = threading.Event(), threading.Event()
    killed = threading.Event()

    def return_() -> None:
        own_registry.start()
        back.set()

    def on_batch(progress: Any) -> None:
        if not killed.is_set():
            # Kill the registry before the next batch, which needs a schema that was not requested yet.
            own_registry.kill()
            killed.set()
            feed.send(values)
            threading.Timer(away, return_).start()
        elif progress.rows:
            stop.set()

    dead = f"lake.{feed.name}.dead_letters"
    pipeline = feed.pipeline(
        decode={"avro": {"registry": own_registry.part.url, "subject": f"{feed.name}-first"}},
        dead_letters={"table": dead},
        trigger="1 second",
    )
    summary = pipeline.run(spark=lake, stop=stop, on_batch=on_batch)
    assert back.is_set()
    assert (summary.records, summary.rows, summary.dead_letters) == (200, 200, 0)
    assert {(row["id"], row["fare"]) for row in feed.rows()} == {
        *((number, None) for number in range(100)),
        *((number, 1.5) for number in range(100, 200)),
    }
