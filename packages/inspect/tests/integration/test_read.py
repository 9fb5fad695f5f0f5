"""From a real broker, ``lakefeed read`` writes exactly the selected records, each once, into any kind of target."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import lakefeed as lf
from lakefeed.clients.kafka.selection import Selection
from lakefeed.clients.kafka.topics import Topics
from lakefeed.errors import ConfigError, DecodeError, ResourceMissing
from lakefeed_inspect.read import BatchRead, ConsoleResult, Files, PlainTable
from tests.support.cli import lakefeed
from tests.support.feed import Feed, trips

DECODE: dict[str, Any] = {"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}, "metadata": ["partition", "offset"]}


def ids(rows: Iterable[Any]) -> list[int]:
    return sorted(row["id"] for row in rows)


@pytest.fixture
def sent(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> Feed:
    """Send 100 records to each of 3 partitions, with ids that show the partition; return the feed."""
    feed.export(monkeypatch)
    feed.create_topic(partitions=3)
    for partition in range(3):
        feed.send(feed.avro(trips(partition * 100, partition * 100 + 100)), partition=partition)
    return feed


@pytest.mark.quick
def test_exactly_the_given_ranges_are_read_even_if_a_partition_has_several(lake: SparkSession, sent: Feed) -> None:
    pipeline = sent.pipeline(decode=DECODE, transform={"sql": f"SELECT id, zone FROM {sent.name} WHERE id <> 205"})
    ranges = [
        lf.OffsetRange(sent.topic, 0, 10, 20),
        lf.OffsetRange(sent.topic, 0, 50, 55),
        lf.OffsetRange(sent.topic, 2, 0, 8),
    ]
    expected = [*range(10, 20), *range(50, 55), *range(200, 205), 206, 207]
    frame = pipeline.read_batch(lake, ranges=ranges)
    assert frame.columns == ["id", "zone"]
    assert ids(frame.collect()) == expected
    shown = ConsoleResult(limit=None, as_json=True)
    done = BatchRead.of(pipeline).to(shown, Selection.of(ranges), spark=lake)
    assert ids(json.loads(row or "") for (row,) in shown.rows) == expected
    assert (done.whole, done.offsets, done.records, done.rows, done.unreadable) == (True, 23, 23, 22, 0)


def test_missing_offsets_are_an_error(lake: SparkSession, sent: Feed) -> None:
    pipeline = sent.pipeline(decode=DECODE)
    with pytest.raises(ResourceMissing, match=r"-1 has no offset 100 yet, it ends at 100"):
        pipeline.read_batch(lake, ranges=[lf.OffsetRange(sent.topic, 1, 90, 101)])
    with pytest.raises(ConfigError, match="does not read the topic other"):
        pipeline.read_batch(lake, ranges=[lf.OffsetRange("other", 1, 90, 101)])
    with pytest.raises(ResourceMissing, match=r"does not exist, .* has 3 partitions"):
        lf.read_topic(lake, sent.topic, ranges=[lf.OffsetRange(sent.topic, 3, 0, 1)])


def test_a_time_range_includes_its_start_and_excludes_its_end(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=2)
    noon = int(datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp() * 1000)
    producer = Producer({"bootstrap.servers": feed.stack.bootstrap_servers})
    for number, value in enumerate(feed.avro(trips(0, 60))):
        producer.produce(feed.topic, value=value, partition=number % 2, timestamp=noon + number * 60_000)
    assert producer.flush(30) == 0
    pipeline = feed.pipeline(decode=DECODE)

    def read(since: str | None = None, until: str | None = None) -> list[int]:
        return ids(pipeline.read_batch(lake, since=since, until=until).collect())

    assert read(since="2026-11-20T12:10", until="2026-11-20T12:20") == list(range(10, 20))
    assert read(since="2026-11-20T13:50+01:00") == list(range(50, 60))
    assert read(until="2026-11-20T12:05:30") == list(range(6))
    assert read(since="2026-11-21") == []
    assert read(until="2026-11-20") == []
    assert read() == list(range(60))


@pytest.mark.parametrize("keys", [50, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_compacted_topic_gives_the_newest_record_of_each_key(lake: SparkSession, feed: Feed, keys: int) -> None:
    topics = Topics(feed.stack.bootstrap_servers)
    topics.create(feed.topic, partitions=2, config={"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": feed.stack.bootstrap_servers, "linger.ms": 20, "acks": 1})

    def put(key: int, value: bytes | None) -> None:
        while True:
            try:
                producer.produce(feed.topic, key=f"k{key}", value=value, partition=key % 2)
                return
            except BufferError:
                producer.poll(0.1)

    for version in range(2):
        for key in range(keys):
            put(key, f"{key}.{version}".encode())
    for key in range(0, keys, 10):
        put(key, None)
    put(0, b"0.back")
    assert producer.flush(60) == 0
    expected = {f"{key}.1" for key in range(keys) if key % 10} | {"0.back"}
    pipeline = feed.pipeline(decode="string")
    rows = pipeline.read_batch(lake, latest_per_key=True)
    assert rows.count() == len(expected)
    if keys == 50:
        assert {row.value for row in rows.collect()} == expected
    target = PlainTable(lake, f"{feed.table}_newest", append=False)
    done = BatchRead.of(pipeline).to(target, Selection(), spark=lake, latest=True)
    assert (done.records, done.rows) == (len(expected), len(expected))
    assert {row["value"] for row in feed.rows(f"{feed.table}_newest")} == expected


def test_all_topics_of_a_pattern_are_read(lake: SparkSession, feed: Feed) -> None:
    for number in range(2):
        feed.create_topic(partitions=1, topic=f"{feed.topic}.{number}")
        feed.send([f"{number}.{each}".encode() for each in range(5)], topic=f"{feed.topic}.{number}")
    source = feed.source(topics=None, topics_pattern=f"{feed.name}-topic\\..*")
    pipeline = feed.pipeline(source=source, decode="string")
    assert pipeline.read_batch(lake).count() == 10
    some = pipeline.read_batch(lake, ranges=[lf.OffsetRange(f"{feed.topic}.1", 0, 2, 4)])
    assert {row.value for row in some.collect()} == {"1.2", "1.3"}


def test_each_target_gets_every_row_and_an_existing_target_stays_unchanged(
    lake: SparkSession, sent: Feed, tmp_path: Path
) -> None:
    read = BatchRead.of(sent.pipeline(decode=DECODE))
    table, folder = f"lake.{sent.name}.copy", f"s3://{sent.stack.bucket}/copies/{sent.name}"
    assert read.to(PlainTable(lake, table, append=False), Selection(), spark=lake).rows == 300
    assert read.to(Files(lake, folder, file_format="parquet", append=False), Selection(), spark=lake).rows == 300
    assert ids(lake.table(table).collect()) == list(range(300))
    assert ids(lake.read.parquet(folder.replace("s3:", "s3a:")).collect()) == list(range(300))
    with pytest.raises(ConfigError, match="the table is not empty"):
        PlainTable(lake, table, append=False)
    with pytest.raises(ConfigError, match="the path is not empty"):
        Files(lake, folder, file_format="parquet", append=False)
    some = Selection.of([lf.OffsetRange(sent.topic, 0, 0, 3)])
    assert read.to(PlainTable(lake, table, append=True), some, spark=lake).rows == 3
    assert lake.table(table).count() == 303
    for file_format in ("csv", "json"):
        path = str(tmp_path / file_format)
        read.to(Files(lake, path, file_format=file_format, append=False), some, spark=lake)
        assert [each for each in Path(path).iterdir() if each.suffix == f".{file_format}"]


def test_a_read_that_is_refused_writes_no_rows(lake: SparkSession, sent: Feed, tmp_path: Path) -> None:
    sent.send([b"\x01broken", None], partition=0)
    read = BatchRead.of(sent.pipeline(decode=DECODE))
    table, folder = f"lake.{sent.name}.copy", tmp_path / "copy"
    selection = Selection()
    files = Files(lake, str(folder), file_format="parquet", append=False)
    for target in (PlainTable(lake, table, append=False), files, ConsoleResult(limit=None, as_json=False)):
        with pytest.raises(DecodeError, match="magic byte"):
            read.to(target, selection, spark=lake)
    assert not lake.catalog.tableExists(table)
    assert not list(folder.glob("*.parquet"))
    Files(lake, str(folder), file_format="parquet", append=False)
    counting = BatchRead.of(sent.pipeline(decode={**DECODE, "on_null": "skip"})).on_error("skip")
    done = counting.to(PlainTable(lake, table, append=False), selection, spark=lake)
    assert (done.records, done.rows, done.unreadable, done.skipped) == (302, 300, 1, 1)
    assert "magic byte" in done.reasons[0].reason


def test_a_read_into_the_table_of_a_feed_is_refused(lake: SparkSession, sent: Feed) -> None:
    sent.pipeline().run(spark=lake, once=True)
    with pytest.raises(ConfigError, match=f"belongs to the feed {sent.name}"):
        PlainTable(lake, sent.table, append=True)
    path = f"s3a://{sent.stack.bucket}/parquet/{sent.name}"
    sent.pipeline(sink={"parquet": {"path": path}}, checkpoint=f"{sent.checkpoint}-parquet").run(spark=lake, once=True)
    with pytest.raises(ConfigError, match="the path belongs to a feed"):
        Files(lake, path, file_format="parquet", append=True)


def test_records_of_an_open_transaction_are_not_read(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send_transactions("c", count=3)
    feed.send_transactions("a", count=2)
    producer = Producer({"bootstrap.servers": feed.stack.bootstrap_servers, "transactional.id": feed.name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(feed.topic, b"open", partition=0)
    producer.flush(30)
    pipeline, shown = feed.pipeline(decode="string"), ConsoleResult(limit=None, as_json=False)
    done = BatchRead.of(pipeline).to(shown, Selection(), spark=lake)
    # Below the open transaction are 7 offsets: three records, their marker, two aborted records and their marker.
    expected = [b'{"id": %d}' % number for number in range(3)]
    assert (done.offsets, done.records, [value.encode() for (value,) in shown.rows if value]) == (7, 3, expected)
    with pytest.raises(ResourceMissing, match="has no offset 8 yet, it ends at 7"):
        pipeline.read_batch(lake, ranges=[lf.OffsetRange(feed.topic, 0, 0, 9)])
    producer.abort_transaction(30)


@pytest.mark.slow
def test_the_read_command_takes_its_settings_from_a_pipeline_or_a_topic(sent: Feed) -> None:
    file = sent.write_file(decode=DECODE)
    some = ("--range", f"{sent.topic}:0:10:13", "--range", f"{sent.topic}:2:0:2")
    shown = lakefeed("read", file, *some, environment=sent.environment)
    assert shown.stdout.splitlines()[0].split() == ["id", "zone", "kafka_partition", "kafka_offset"]
    assert len(shown.stdout.splitlines()) == 6
    assert "5 records of 5 offsets in 2 partitions, 5 rows" in shown.stderr
    result = lakefeed(
        "read", sent.topic, "--last", "1h", "--limit", "7", "--output", "json", environment=sent.environment
    )
    document = json.loads(result.stdout)
    assert (document["whole"], document["rows"], len(document["shown"]), document["records"]) == (False, 7, 7, None)
    assert set(document["shown"][0]) == {"id", "zone", "kafka_partition", "kafka_offset"}
    missing = lakefeed("read", file, "--range", f"{sent.topic}:0:10:1000", environment=sent.environment, status=2)
    assert "has no offset 999 yet, it ends at 100" in missing.stderr


@pytest.mark.slow
def test_the_read_command_writes_files(sent: Feed, tmp_path: Path) -> None:
    done = lakefeed(
        "read", sent.topic, "--to", tmp_path / "out", "--format", "csv", "--decode", "raw", environment=sent.environment
    )
    assert "300 records of 300 offsets in 3 partitions, 300 rows" in done.stdout
    lines = [line for file in (tmp_path / "out").glob("*.csv") for line in file.read_text().splitlines()]
    assert lines[0] == "value,kafka_partition,kafka_offset"
    assert len(lines) == 300 + len(list((tmp_path / "out").glob("*.csv")))
