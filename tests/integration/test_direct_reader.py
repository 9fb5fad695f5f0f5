"""The direct reader returns the records of any range after any other range, and refuses a range that was removed."""

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.config.sources import KafkaSource
from lakefeed.feed.batch_reader import DirectReader
from lakefeed.ledger.outcomes import BatchOutcomes, Counts
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.records.decode.verdict import RecordPolicy
from lakefeed.records.sources import FORMAT, client_options
from lakefeed.records.spec import Json
from tests.support.agreement import of_ledger
from tests.support.feed import Feed

LOST = "is not in the topic any more; some data may have been lost"
COMMITTED = [*range(10), *range(22, 32)]
"""The offsets of committed records: 10 ends a transaction, 11 to 20 are aborted, 21 and 32 end two transactions."""


def source_of(feed: Feed) -> KafkaSource:
    return KafkaSource.model_validate({"bootstrap_servers": feed.stack.bootstrap_servers, "topics": [feed.topic]})


def direct_reader(spark: SparkSession, feed: Feed, **policy: Any) -> DirectReader:
    """Return a new direct reader of the topic, as a new run creates one."""
    schema = SimpleNamespace(spec=Json(schema="id BIGINT"), refused_ids={})
    policies = RecordPolicy(**policy)
    rows: Any = SimpleNamespace(schema=schema, policy=policies, keep=("offset",), from_decoded=lambda it: it)
    sink: Any = None
    return DirectReader(spark, rows, sink, source=source_of(feed), most_records=1_000)


def read(
    spark: SparkSession, feed: Feed, rows: DirectReader, start: int, end: int
) -> tuple[dict[int, int | None], Counts]:
    """Read a range of offsets; return the ids of its rows by offset, and the counts of its records."""
    ranges = OffsetRanges((OffsetRange(feed.topic, 0, start, end),))
    with BatchOutcomes(spark) as outcomes:
        found = rows.read(spark, ranges, outcomes).collect()
        return {row.kafka_offset: row.id for row in found}, outcomes.counts


def test_any_range_of_offsets_is_read_correctly_after_any_other_range(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send_transactions("cac")
    rows = direct_reader(lake, feed)
    for start, end in [(0, 5), (5, 15), (15, 33), (3, 12), (11, 21), (10, 25), (0, 33), (24, 30), (32, 33), (30, 32)]:
        found, counts = read(lake, feed, rows, start, end)
        expected = [offset for offset in COMMITTED if start <= offset < end]
        assert list(found) == expected, (start, end)
        assert counts == Counts(records=len(expected)), (start, end)


def test_skipped_records_and_dead_letters_are_counted_and_not_returned(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send([b'{"id": 0}', b"{", None, b'{"id": 3}'])
    found, counts = read(lake, feed, direct_reader(lake, feed, on_error="dead_letter", on_null="skip"), 0, 4)
    assert found == {0: 0, 3: 3}
    assert counts == Counts(records=4, dead_letters=1, skipped=1)


def test_both_paths_count_fields_without_a_column_alike(lake: SparkSession, feed: Feed) -> None:
    """Fields are counted for rows only, not for dead letters and skipped records; run, ledger and verify agree."""
    feed.create_topic(partitions=2)
    feed.send([b'{"id": 0}', b'{"id": 1, "more": 2}', b'{"id": 2, "ID": 3, "x": {"y": [1]}}', b"{"], partition=0)
    feed.send([b'{"id": "x", "more": 1}', None, b'{"id": 4, "": null}', b'{"id": 5}'], partition=1)
    for path in ("auto", "off"):
        monitor = FeedMonitor(feed.name)
        pipeline = feed.pipeline(
            name=f"{feed.name}_{path}",
            fast_path=path,
            decode={"json": {"schema_ddl": "id BIGINT"}, "on_null": "skip"},
            sink={"iceberg": {"table": f"{feed.table}_{path}"}},
            dead_letters={"table": f"{feed.table}_letters"},
            checkpoint=feed.place(f"checkpoints/{feed.name}_{path}"),
        )
        pipeline.run(spark=lake, once=True, monitor=monitor)
        totals, proof = monitor.snapshot().totals, pipeline.verify()
        assert (totals.records, totals.rows, totals.dead_letters, totals.skipped, totals.left_out) == (8, 5, 2, 1, 3)
        assert of_ledger(pipeline)[1] == {(feed.topic, 0): Counts(4, 1, 0, 2), (feed.topic, 1): Counts(4, 1, 1, 1)}
        assert proof.faults == ()
        [note] = [each.what for each in proof.notes if each.kind == "left-out"]
        assert note == "3 rows: their records have JSON fields that have no column"


def test_a_range_with_removed_records_is_refused(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send_ids(range(10))
    feed.remove_records(4)
    with pytest.raises(Exception, match=f"offset 0 {LOST}"):
        read(lake, feed, direct_reader(lake, feed), 0, 10)
    assert list(read(lake, feed, direct_reader(lake, feed), 4, 10)[0]) == list(range(4, 10))


def test_a_range_beyond_the_end_of_the_topic_is_refused(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send_ids(range(10))
    ends = {"startingOffsets": {feed.topic: {"0": 5}}, "endingOffsets": {feed.topic: {"0": 20}}}
    options = {"assign": json.dumps({feed.topic: [0]}), **{name: json.dumps(ends[name]) for name in ends}}
    reader = lake.read.format(FORMAT).options(**client_options(source_of(feed)), **options)
    beyond = reader.options(fastPath="true", **{"kafkaConsumer.pollTimeoutMs": "2000"}).load()
    with pytest.raises(Exception, match=f"offset 10 {LOST}"):
        beyond.collect()


def test_the_first_batch_after_a_recreated_topic_gets_no_prefetched_records_of_the_old_topic(
    lake: SparkSession, feed: Feed
) -> None:
    feed.create_topic(partitions=1)
    feed.send_ids(range(10))
    # This read leaves a consumer that has already fetched the remaining records of the old topic.
    assert read(lake, feed, direct_reader(lake, feed), 0, 5)[0] == {offset: offset for offset in range(5)}
    feed.recreate_topic()
    feed.send_ids(range(100, 110))
    assert read(lake, feed, direct_reader(lake, feed), 5, 10)[0] == {offset: 100 + offset for offset in range(5, 10)}


def kept_consumers(spark: SparkSession) -> int:
    """Return the number of open consumers that the JVM keeps for later batches."""
    java: Any = spark._jvm
    kept = java.java.lang.Class.forName("io.lakefeed.kafka.PartitionConsumer").getDeclaredField("KEPT")
    kept.setAccessible(True)
    return len(kept.get(None))


def test_no_consumer_stays_open_after_a_run(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=2)
    for partition in range(2):
        feed.send([b'{"id": 1}'] * 50, partition=partition)
    before, kept = kept_consumers(lake), set[int]()
    summary = feed.pipeline(decode={"json": {"schema_ddl": "id BIGINT"}}, fast_path="auto").run(
        spark=lake, once=True, on_batch=lambda batch: kept.add(kept_consumers(lake))
    )
    assert summary.rows == 100
    # A batch keeps a consumer for each of its partitions.
    assert max(kept) >= before + 2
    assert kept_consumers(lake) <= before


def made_consumers(spark: SparkSession) -> int:
    """Return the number of consumers with a generated client id that this JVM has created so far."""
    java: Any = spark._jvm
    config = java.java.lang.Class.forName("org.apache.kafka.clients.consumer.ConsumerConfig")
    sequence = config.getDeclaredField("CONSUMER_CLIENT_ID_SEQUENCE")
    sequence.setAccessible(True)
    return int(sequence.get(None))


def test_a_consumer_is_reused_for_other_partitions_if_there_are_many(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=140)
    for partition in range(140):
        feed.send([json.dumps({"id": partition}).encode(), b'{"id": -1}'], partition=partition)
    rows = direct_reader(lake, feed)

    def read_of(partitions: range) -> set[tuple[int, int | None]]:
        ranges = OffsetRanges(tuple(OffsetRange(feed.topic, partition, 0, 1) for partition in partitions))
        with BatchOutcomes(lake) as outcomes:
            return {(row.kafka_offset, row.id) for row in rows.read(lake, ranges, outcomes).collect()}

    before = made_consumers(lake)
    assert read_of(range(70)) == {(0, number) for number in range(70)}
    assert made_consumers(lake) > before
    time.sleep(0.6)  # Wait until the broker has answered the consumers' prefetches.
    before = made_consumers(lake)
    assert read_of(range(80, 100)) == {(0, number) for number in range(80, 100)}
    assert made_consumers(lake) == before
    # A consumer that has moved to another partition can also return to a partition that it has read before.
    time.sleep(0.6)
    assert read_of(range(140)) == {(0, number) for number in range(140)}
