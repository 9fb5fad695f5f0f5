"""A new table begins where Hudi Streamer or a Kafka Connect sink for S3 has stopped."""

import json
import random
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from lakefeed.clients.kafka.topics import Topics
from lakefeed.errors import CheckpointMismatch, ConfigError, RecordsLost, ResourceMissing
from lakefeed.ledger.checkpoint import StoredCheckpoint
from packages.adopt.tests.adoption import DECODE, plan, send, take_over
from tests.support.cli import lakefeed
from tests.support.feed import Feed, ids

NAMES = {
    "confluent": "{topic}/partition={partition}/{topic}+{partition}+{at:010}.json",
    "aiven": "{topic}-{partition}-{at}",
}


def files_of(feed: Feed, name: str) -> tuple[str, StoredCheckpoint]:
    place = f"s3a://{feed.stack.bucket}/{name}/{feed.name}"
    return place, StoredCheckpoint(place, s3=feed.connections.s3)


def test_a_new_table_begins_at_the_last_commit_of_hudi_streamer(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=2)
    send(feed, range(60), partition=0)
    send(feed, range(60, 100), partition=1)
    place, files = files_of(feed, "hudi")
    extra = {"streamer.checkpoint.key.v2": f"{feed.topic},0:25,1:40"}
    files.write(".hoodie/timeline/20261101000000000_20261101000005000.commit", json.dumps({"extraMetadata": extra}))
    pipeline = feed.pipeline(decode=DECODE)
    command: list[str | Path] = ["adopt", feed.folder / f"{feed.name}.yaml", "--from", f"hudi:{place}", "--yes"]
    absent = lakefeed(*command, "--stopped", environment=feed.environment, status=2)
    assert absent.returncode == 2
    assert "--new-table" in absent.stderr
    early = lakefeed(*command, "--new-table", environment=feed.environment, status=2)
    assert early.returncode == 2
    assert "may still run" in early.stderr
    for _ in range(2):
        done = lakefeed(*command, "--new-table", "--stopped", "--output", "json", environment=feed.environment)
        assert done.returncode == 0, done.stderr
        assert [part["offset"] for part in json.loads(done.stdout)["partitions"]] == [25, 40]
    assert ids(feed) == []
    assert pipeline.run(spark=lake, once=True).rows == 35
    assert ids(feed) == list(range(25, 60))
    assert not pipeline.verify(deep=True).faults


class FileSink:
    """Writes records of a topic into files as an S3 sink does."""

    def __init__(self, feed: Feed, name: str) -> None:
        self.feed, self.pattern = feed, NAMES[name]
        self.place, self.files = files_of(feed, name)
        self.written: list[int] = []

    def write(self, partition: int, records: list[tuple[int, int]]) -> None:
        """Write a file of records; each record is an offset and a number."""
        lines = [json.dumps({"id": number}) for _, number in records]
        text = "\n".join(lines) + ("\n" if "+" in self.pattern else "")
        self.files.write(self.pattern.format(topic=self.feed.topic, partition=partition, at=records[0][0]), text)
        self.written += [number for _, number in records]


def send_in_transactions(feed: Feed, count: int, dice: random.Random) -> list[tuple[int, int]]:
    """Send `count` records to partition 0 in transactions of random sizes; return their offsets and numbers."""
    producer = Producer({"bootstrap.servers": feed.stack.bootstrap_servers, "transactional.id": feed.name})
    producer.init_transactions(30)
    placed: list[tuple[int, int]] = []
    while len(placed) < count:
        producer.begin_transaction()
        for number in range(len(placed), min(count, len(placed) + dice.randint(1, 9))):
            place = lambda error, message, number=number: placed.append((message.offset(), number))  # noqa: E731
            producer.produce(feed.topic, json.dumps({"id": number}).encode(), partition=0, on_delivery=place)
        producer.commit_transaction(30)
    return placed


def continue_after_the_files(lake: SparkSession, feed: Feed, name: str, dice: random.Random) -> None:
    """Write files up to a random record of each partition; check that a new table gets exactly the records after it."""
    feed.create_topic(partitions=3)
    placed = {0: send_in_transactions(feed, 200, dice)}
    for partition, numbers in ((1, range(200, 300)), (2, range(300, 330))):
        send(feed, numbers, partition=partition)
        placed[partition] = list(enumerate(numbers))
    sink, ends = FileSink(feed, name), {}
    for partition, records in placed.items():
        at, stops = 0, dice.randrange(len(records))
        while at < stops:
            file = records[at : at + dice.randint(1, 40)]
            sink.write(partition, file)
            at += len(file)
        ends[partition] = records[at - 1][0] + 1 if at else 0
    if not sink.written:
        sink.write(1, placed[1][:60])
        ends[1] = 60
    pipeline = feed.pipeline(decode=DECODE)
    agreed = take_over(pipeline, lake, f"s3-files:{sink.place}", new_table=True)
    assert {part.partition: part.offset for part in agreed.partitions} == ends
    assert pipeline.run(spark=lake, once=True).rows == 330 - len(sink.written)
    assert sorted([*sink.written, *ids(feed)]) == list(range(330))
    assert not pipeline.verify(deep=True).faults


@pytest.mark.parametrize("name", NAMES)
def test_a_new_table_begins_after_the_last_file_of_each_partition(lake: SparkSession, feed: Feed, name: str) -> None:
    continue_after_the_files(lake, feed, name, random.Random(name))


def test_files_with_an_unknown_end_offset_are_refused(feed: Feed) -> None:
    feed.create_topic(partitions=1)
    send(feed, range(50))
    pipeline = feed.pipeline(decode=DECODE)
    sink = FileSink(feed, "confluent")
    origin = f"s3-files:{sink.place}"
    with pytest.raises(ResourceMissing, match="no file here is named"):
        plan(pipeline, origin, new_table=True)
    sink.write(0, [(at, at) for at in range(20)])
    sink.write(0, [(at, at) for at in range(15, 30)])
    with pytest.raises(CheckpointMismatch, match="overlap"):
        plan(pipeline, origin, new_table=True)
    sink.write(0, [(at, at) for at in range(40, 60)])
    with pytest.raises(RecordsLost, match="has fewer from 40 on"):
        plan(pipeline, origin, new_table=True)
    # The file does not show whether the sink has read past the records of an aborted transaction.
    producer = Producer({"bootstrap.servers": feed.stack.bootstrap_servers, "transactional.id": feed.name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(feed.topic, b'{"id": -1}', partition=0)
    producer.flush(30)
    producer.abort_transaction(30)
    send(feed, range(50, 80))
    with pytest.raises(ConfigError, match="aborted transactions are among"):
        plan(pipeline, origin, new_table=True)
    Topics(feed.stack.bootstrap_servers).create(f"{feed.name}-c", partitions=1, config={"cleanup.policy": "compact"})
    sink.files.write(f"{feed.name}-c+0+0000000000.json", "{}\n")
    source = {"bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}", "topics": [f"{feed.name}-c"]}
    compacted = feed.pipeline(decode=DECODE, source={"kafka": source})
    with pytest.raises(ConfigError, match="is compacted"):
        plan(compacted, origin, new_table=True)
