"""Dead letters in a topic are complete, and a crash loses none. ``test_dead_letters.py`` tests their replay."""

from typing import Any

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from lakefeed.clients.kafka.scan import scan
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.sources import KafkaSource
from tests.support.feed import Feed, trips


def dead(feed: Feed) -> str:
    return f"{feed.name}-dead-letters"


def cluster(feed: Feed) -> KafkaSource:
    return KafkaSource(bootstrap_servers=feed.stack.bootstrap_servers, topics=[feed.topic])


def letters(feed: Feed, topic: str | None = None) -> list[Any]:
    """Return all records of the dead-letter topic."""
    return list(scan(cluster(feed), topic or dead(feed)))


def ours(letter: Any) -> dict[str, str]:
    return {key: value.decode() for key, value in letter.headers()[-9:] if value is not None}


def test_letters_in_a_topic_are_complete_and_only_missing_letters_are_written_after_a_crash(
    lake: SparkSession, feed: Feed
) -> None:
    feed.create_topic(partitions=4)
    good = feed.avro(trips(0, 60))
    broken = [b"", b"\x01garbage", good[0][:7], good[1] + b"x"]
    # A feed may read a topic of dead letters, whose records already have lakefeed's headers.
    feed.send([*good[:30], *broken, *good[30:]], headers=[("source", b"\xff\x00"), ("lakefeed.feed", b"another")])
    blocks: dict[str, Any] = {"dead_letters": {"topic": dead(feed)}}
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

    # Simulate a kill in the middle of the write: a second topic has only the first letter.
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
