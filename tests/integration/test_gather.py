"""Small batches are gathered: fewer and larger files; no record waits for ever, and a run to the end does not wait."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.feed.progress import FinishedBatch
from lakefeed.pipeline import Pipeline, RunSummary
from tests.support.feed import Feed

LEAST = 30
EACH = 6


def gathering(feed: Feed, max_wait: str, least: int = LEAST, **sink: Any) -> Pipeline:
    kafka = {
        "bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}",
        "topics": [feed.topic],
        "min_records_per_batch": least,
        "max_wait": max_wait,
    }
    return feed.pipeline(source={"kafka": kafka}, sink={"iceberg": {"table": feed.table, **sink}})


@contextmanager
def running(pipeline: Pipeline, spark: SparkSession) -> Iterator[list[FinishedBatch]]:
    stop = threading.Event()
    batches: list[FinishedBatch] = []
    done: list[RunSummary] = []
    job = threading.Thread(target=lambda: done.append(pipeline.run(spark=spark, stop=stop, on_batch=batches.append)))
    job.start()
    try:
        yield batches
    finally:
        stop.set()
        job.join(120)
    assert done


def until(met: Callable[[], bool], *, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def send(feed: Feed, count: int) -> None:
    feed.send(feed.avro([{"id": each, "zone": f"z{each % 2}"} for each in range(count)]))


def records(batches: list[FinishedBatch]) -> list[int]:
    return [each.records for each in batches if each.records]


def files(feed: Feed) -> int:
    return len(open_table(feed.table, connections=feed.connections).inspect.files())


def test_trickles_come_together_and_nothing_waits_for_ever(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=6)
    send(feed, EACH)
    with running(gathering(feed, "1 hour"), lake) as batches:
        # A start lands the existing records.
        until(lambda: records(batches) == [EACH])
        sent = EACH
        while len(records(batches)) < 3:
            send(feed, EACH)
            sent += EACH
            time.sleep(0.3)
            assert sent < 100 * LEAST
    assert all(each >= LEAST for each in records(batches)[1:])
    # One task per partition of the topic would have written six files for each batch.
    assert files(feed) == 3

    # A run to the end lands the remaining records, however few they are.
    send(feed, 1)
    sent += 1
    assert gathering(feed, "1 hour").run(spark=lake, once=True).records == sent - sum(records(batches))

    # A lone record waits for the configured time and no longer.
    with running(gathering(feed, "2 seconds", least=10_000), lake) as batches:
        send(feed, 1)
        until(lambda: sum(records(batches)) == 1)
    assert len(feed.rows()) == sent + 1


def test_a_small_batch_is_one_file_in_each_partition_of_the_table(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=6)
    send(feed, 60)
    pipeline = feed.pipeline(sink={"iceberg": {"table": feed.table, "partition_by": ["zone"]}})
    assert pipeline.run(spark=lake, once=True).rows == 60
    assert files(feed) == 2
    send(feed, 60)
    pipeline.run(spark=lake, once=True)
    assert files(feed) == 4
