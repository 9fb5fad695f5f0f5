"""Dead letters in a topic: complete, none missing after a crash, and each replayed into the table once."""

import base64
import json
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from lakefeed.clients.kafka.scan import scan
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.sources import KafkaSource
from lakefeed.sinks.dead_letters.store import DeadLetterFilter
from tests.support.cli import lakefeed
from tests.support.feed import Feed, trips

REGISTRY = {"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}}


def dead(feed: Feed) -> str:
    return f"{feed.name}-dead-letters"


def cluster(feed: Feed) -> KafkaSource:
    return KafkaSource(bootstrap_servers=feed.stack.bootstrap_servers, topics=[feed.topic])


def letters(feed: Feed, topic: str | None = None) -> list[Any]:
    """Return all records of the dead-letter topic."""
    return list(scan(cluster(feed), topic or dead(feed)))


def ours(letter: Any) -> dict[str, str]:
    return {key: value.decode() for key, value in letter.headers()[-9:] if value is not None}


def test_letters_are_whole_and_after_a_crash_only_the_missing_are_written(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=4)
    good = feed.avro(trips(0, 60))
    broken = [b"", b"\x01garbage", good[0][:7], good[1] + b"x"]
    # A feed may read dead letters itself, so a record may already have headers with our names.
    feed.send([*good[:30], *broken, *good[30:]], headers=[("source", b"\xff\x00"), ("lakefeed.feed", b"another")])
    blocks: dict[str, Any] = {"decode": REGISTRY, "dead_letters": {"topic": dead(feed)}}
    summary = feed.pipeline(**blocks).run(spark=lake, once=True)
    assert (summary.records, summary.rows, summary.dead_letters) == (64, 60, 4)
    found = letters(feed)
    assert sorted((each.key(), each.value()) for each in found) == [
        (str(number).encode(), value) for number, value in enumerate(broken, start=30)
    ]
    by_value = {each.value(): each for each in found}
    assert by_value[b""].headers()[:-9] == [("source", b"\xff\x00"), ("lakefeed.feed", b"another")]
    said = ours(by_value[b"\x01garbage"])
    assert said["lakefeed.feed"] == feed.name
    assert said["lakefeed.batch-id"] == "0"
    assert "magic byte" in said["lakefeed.reason"]
    at = (feed.topic, int(said["lakefeed.partition"]), int(said["lakefeed.offset"]))
    [record] = [
        each for each in scan(cluster(feed), feed.topic) if (each.topic(), each.partition(), each.offset()) == at
    ]
    assert (record.value(), record.timestamp()[1]) == (b"\x01garbage", int(said["lakefeed.timestamp"]))
    assert "lakefeed.schema-id" not in said
    assert "lakefeed.schema-id" in ours(by_value[broken[3]])
    topics = Topics(feed.stack.bootstrap_servers)
    assert len(topics.describe(dead(feed)).partitions) == 3
    largest = [int(topics.setting(each, "max.message.bytes") or 0) for each in (feed.topic, dead(feed))]
    assert largest[0] < largest[1]

    # The state after a kill during the writing of letters: another topic with only one of them.
    half = f"{feed.name}-half"
    feed.create_topic(topic=half)
    producer = Producer({"bootstrap.servers": feed.stack.bootstrap_servers})
    producer.produce(half, key=found[0].key(), value=found[0].value(), headers=found[0].headers())
    assert producer.flush(30) == 0
    blocks["dead_letters"]["topic"] = half
    for _ in range(2):
        feed.pipeline(**blocks).run(spark=lake, once=True)
        assert sorted(each.value() for each in letters(feed, half)) == sorted(broken)
    assert len(feed.rows()) == 60


@pytest.mark.parametrize("cut_after", [pytest.param("marked", marks=pytest.mark.slow), "landed"])
def test_a_replay_lands_once_wherever_it_was_cut_off(lake: SparkSession, feed: Feed, cut_after: str) -> None:
    feed.create_topic()
    feed.send([*feed.avro(trips(0, 20)), b"\x01"], headers=[("who", b"me")])
    blocks: dict[str, Any] = {
        "decode": {**REGISTRY, "metadata": ["topic", "partition", "offset", "timestamp", "headers"]},
        "dead_letters": {"topic": dead(feed)},
        "expect": {"small": {"rule": "id < 10", "on_violation": "dead_letter"}},
    }
    feed.pipeline(**blocks).run(spark=lake, once=True)
    choice = DeadLetterFilter(feed=feed.name)
    before = {(each["partition"], each["offset"]) for each in feed.pipeline(**blocks).feed.dead_letters().find(choice)}
    assert len(before) == 11
    del blocks["expect"]
    pipeline = feed.pipeline(**blocks)

    class CutOff(Exception):
        pass

    def cut(step: str) -> None:
        if step == cut_after:
            raise CutOff

    with pytest.raises(CutOff):
        pipeline.replay(choice, spark=lake, step=cut)
    assert sum(each["replay"] is not None for each in pipeline.feed.dead_letters().find(choice)) == 10
    done = pipeline.replay(choice, spark=lake)
    assert (done.rows, done.finished_earlier, done.still_dead) == ((10, 0, 1) if cut_after == "marked" else (0, 10, 1))
    again = pipeline.replay(choice, spark=lake)
    assert (again.rows, again.still_dead, again.replay_id) == (0, 1, None)
    rows = feed.rows()
    assert sorted(row["id"] for row in rows) == list(range(20))
    replayed = {(row["kafka_partition"], row["kafka_offset"]) for row in rows if row["id"] >= 10}
    assert replayed < before
    assert all(row["kafka_headers"] == [{"key": "who", "value": b"me"}] for row in rows)
    [left] = pipeline.feed.dead_letters().find(choice)
    assert left["replay"] is None


def test_the_commands(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send([*feed.avro(trips(0, 5)), b"\x01one", b"\x02two", b""], headers=[("who", b"me")])
    blocks = {"decode": REGISTRY, "dead_letters": {"topic": dead(feed)}}
    file = feed.write_file(**blocks)
    feed.pipeline(**blocks).run(spark=lake, once=True)
    listed = lakefeed("dead-letters", "list", str(file), environment=feed.environment)
    assert listed.returncode == 0, listed.stderr
    assert f"topic {dead(feed)}: 3 dead letters" in listed.stdout
    shown = json.loads(
        lakefeed("dead-letters", "show", "0:5", str(file), "--output", "json", environment=feed.environment).stdout
    )
    assert base64.b64decode(shown["value_base64"]) == b"\x01one"
    assert shown["headers"] == [{"key": "who", "value_base64": base64.b64encode(b"me").decode()}]
    kept = feed.pipeline(**blocks).feed.dead_letter_store(lake)
    assert kept.drop(DeadLetterFilter(feed=feed.name, reason="wrong magic")) == 2
    left = json.loads(
        lakefeed("dead-letters", "list", str(file), "--output", "json", environment=feed.environment).stdout
    )
    assert (left["topic"], left["count"]) == (dead(feed), 1)
    assert left["dead_letters"][0]["offset"] == 7
