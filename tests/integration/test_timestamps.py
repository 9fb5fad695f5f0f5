"""A record with a timestamp that Spark cannot store becomes a row or a dead letter, and stops no feed."""

import json
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from lakefeed.cli.main import root
from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.topics import Topics
from lakefeed.errors import DecodeError
from lakefeed.pipeline import Pipeline
from lakefeed.sinks.dead_letters.store import DeadLetterFilter
from lakefeed_repair.backfill import BackfillRequest, backfill
from lakefeed_repair.replay import replay
from tests.support.feed import Feed

LARGEST = 2**63 - 1
NANOSECONDS = 1_700_000_000_000_000_000
TIMES = {
    0: 1_700_000_000_000,
    1: NANOSECONDS,
    2: LARGEST // 1000,  # The largest timestamp that Spark can store.
    3: LARGEST // 1000 + 1,
    4: 1_700_000_000_000_000,  # Microseconds instead of milliseconds: a date in the far future, but valid.
    5: LARGEST,
    6: 1_700_000_000_001,
    7: -1,  # Kafka's value for a missing timestamp.
    8: -86_400_000,
}
BAD = (1, 3, 5)
SHOWN = {number: None if at == -1 or number in BAD else at for number, at in TIMES.items()}
JSON = {"json": {"schema_ddl": "id BIGINT"}}
TIMED = {**JSON, "metadata": ["timestamp", "partition", "offset"]}


def send(feed: Feed, times: dict[int, int], *, topic: str | None = None) -> None:
    """Send a record for each id with its timestamp, to a topic that accepts any timestamp."""
    topics, name = Topics(feed.stack.bootstrap_servers), topic or feed.topic
    topics.create(name, partitions=1, config={"message.timestamp.after.max.ms": str(LARGEST)}, exist_ok=True)
    producer = Producer({"bootstrap.servers": feed.stack.bootstrap_servers, "linger.ms": 5})
    for number, time in times.items():
        producer.produce(name, value=json.dumps({"id": number}).encode(), timestamp=time, partition=0)
    assert producer.flush(30) == 0


def pipeline(feed: Feed, name: str, **blocks: Any) -> Pipeline:
    """Return a feed of this name, which lands the topic of the test in a separate table."""
    own = {"name": f"{feed.name}_{name}", "sink": {"iceberg": {"table": f"lake.{feed.name}.{name}"}}}
    return feed.pipeline(**{**own, "checkpoint": f"{feed.checkpoint}-{name}", **blocks})


def times(feed: Feed, name: str) -> dict[int, int | None]:
    """Return kafka_timestamp in milliseconds by id; some of these times are no datetime of Python."""
    rows = open_table(f"lake.{feed.name}.{name}", connections=feed.connections).scan().to_arrow()
    found: list[int | None] = rows["kafka_timestamp"].cast(pa.int64()).to_pylist()
    of_ids = zip(rows["id"].to_pylist(), found, strict=True)
    return {number: None if at is None else at // 1000 for number, at in of_ids}


def listed(feed: Feed, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, Any]:
    feed.export(monkeypatch)
    path = str(feed.folder / f"{feed.name}.yaml")
    done = CliRunner().invoke(root, ["dead-letters", "list", path, *arguments, "--output", "json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_timestamp_out_of_range_becomes_a_dead_letter(
    lake: SparkSession, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(feed, TIMES)
    plain = pipeline(feed, "plain", decode=JSON)
    assert plain.run(spark=lake, once=True).rows == len(TIMES), "no column has the time"

    letters = {"dead_letters": {"table": f"lake.{feed.name}.letters"}}
    done = pipeline(feed, "timed", decode=TIMED, **letters).run(spark=lake, once=True)
    assert (done.rows, done.dead_letters) == (6, 3)
    assert times(feed, "timed") == {number: at for number, at in SHOWN.items() if number not in BAD}
    found = listed(feed, monkeypatch)
    assert [each["offset"] for each in found["dead_letters"]] == list(BAD)
    assert found["dead_letters"][0]["reason"] == (
        f"timestamp {NANOSECONDS} ms is out of range: nanoseconds sent as milliseconds?"
    )
    assert {each["timestamp"] for each in found["dead_letters"]} == {None}

    every = DeadLetterFilter(feed=f"{feed.name}_timed")
    still = replay(pipeline(feed, "timed", decode=TIMED, **letters), every, spark=lake)
    assert (still.rows, still.still_dead) == (0, 3), "a replay judges the timestamp again"
    kept = pipeline(feed, "timed", decode={**TIMED, "on_bad_timestamp": "keep"}, **letters)
    assert replay(kept, every, spark=lake).rows == 3
    assert times(feed, "timed") == SHOWN
    assert not kept.verify(deep=True).faults


@pytest.mark.slow
def test_all_readers_accept_out_of_range_timestamps(
    lake: SparkSession, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(feed, TIMES)
    with pytest.raises(DecodeError, match=f"timestamp {NANOSECONDS} ms is out of range") as stopped:
        pipeline(feed, "stops", decode=TIMED).run(spark=lake, once=True)
    assert stopped.value.where == f"topic {feed.topic}, partition 0, offset 1"

    topic = {"dead_letters": {"topic": f"{feed.topic}-dead"}}
    lettered = pipeline(feed, "lettered", decode=TIMED, **topic)
    assert lettered.run(spark=lake, once=True).dead_letters == 3
    assert [each["timestamp"] for each in listed(feed, monkeypatch)["dead_letters"]] == [None] * 3
    every = DeadLetterFilter(feed=f"{feed.name}_lettered")
    assert replay(lettered, every, spark=lake).still_dead == 3
    keeping = {**TIMED, "on_bad_timestamp": "keep"}
    assert replay(pipeline(feed, "lettered", decode=keeping, **topic), every, spark=lake).rows == 3

    once = pipeline(feed, "once", decode=keeping)
    assert once.run_batch(spark=lake).rows == len(TIMES)
    held = [number for number, at in times(feed, "once").items() if at is None]
    assert sorted(held) == [*BAD, 7]

    latest = pipeline(feed, "latest", decode=keeping, source=feed.source(start="latest"))
    latest.run(spark=lake, once=True)
    send(feed, {9: NANOSECONDS})
    latest.run(spark=lake, once=True)
    assert backfill(latest, BackfillRequest(), spark=lake).rows == len(TIMES)
    assert set(times(feed, "latest")) == {*TIMES, 9}

    since = datetime.fromtimestamp(1_700_000_000, UTC) + timedelta(milliseconds=1)
    some = once.read_batch(lake, since=since)
    # The broker finds offset 1 for this time, the record with nanoseconds, so the offsets 1 to 9 are read.
    assert some.count() == len(TIMES)

    copies = pipeline(feed, "copies", decode=keeping, source=feed.source(deduplicate=True))
    assert copies.run(spark=lake, once=True).rows == len(TIMES) + 1
    assert times(feed, "copies") == {**SHOWN, 9: None}

    counting = pipeline(
        feed,
        "counting",
        decode=keeping,
        transform={"sql": f"SELECT count(*) AS n, max(id) AS id FROM {feed.name}_counting", "output_mode": "complete"},
        sink={"memory": {}},
    )
    assert counting.run(spark=lake, once=True).records == len(TIMES) + 1

    many = pipeline(
        feed,
        "many",
        source=feed.source(topics=None, topics_pattern=feed.topic),
        decode=keeping,
        sink={"iceberg": {"table": f"lake.{feed.name}.{{topic}}"}},
        checkpoint="",
    )
    assert many.run(spark=lake, once=True).rows == len(TIMES) + 1


@pytest.mark.slow
def test_an_out_of_range_timestamp_stops_no_feed_in_real_time(lake: SparkSession, feed: Feed) -> None:
    send(feed, TIMES)
    Topics(feed.stack.bootstrap_servers).create(f"{feed.topic}-out", partitions=1)
    stop = threading.Event()
    done = pipeline(
        feed, "real_time", decode=JSON, sink={"kafka": {"topic": f"{feed.topic}-out"}}, trigger="real-time, 5 seconds"
    ).run(spark=lake, stop=stop, on_batch=lambda progress: stop.set() if progress.records else None)
    assert done.rows == len(TIMES)
