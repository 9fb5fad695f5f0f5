"""A feed gathers records, to write fewer and larger files, until a deadline; a run with ``once`` does not wait."""

import time

from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.pipeline import Pipeline
from tests.support.background import Background, running
from tests.support.feed import Feed, until

LEAST = 30
EACH = 6


def gathering(feed: Feed, max_wait: str, least: int = LEAST) -> Pipeline:
    return feed.pipeline(source=feed.source(min_records_per_batch=least, max_wait=max_wait))


def records(run: Background) -> list[int]:
    """Return the number of records of each batch, without empty batches."""
    return [each.records for each in run.batches if each.records]


def send(feed: Feed, count: int) -> None:
    feed.send(feed.avro([{"id": each, "zone": f"z{each % 2}"} for each in range(count)]))


def files(feed: Feed) -> int:
    return len(open_table(feed.table, connections=feed.connections).inspect.files())


def test_few_records_wait_until_the_deadline_and_land_in_one_batch(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=6)
    send(feed, EACH)
    with running(gathering(feed, "1 hour"), lake) as run:
        # The first batch of a run does not wait: it lands the records that are already in the topic.
        until(lambda: records(run) == [EACH])
        sent = EACH
        while len(records(run)) < 3:
            send(feed, EACH)
            sent += EACH
            time.sleep(0.3)
            assert sent < 100 * LEAST
    assert all(each >= LEAST for each in records(run)[1:])
    # Each batch wrote one file; with one task for each partition of the topic, it would have written six files.
    assert files(feed) == 3

    # A run with once does not wait: it lands the remaining records, however few they are.
    send(feed, 1)
    sent += 1
    assert gathering(feed, "1 hour").run(spark=lake, once=True).records == sent - sum(records(run))

    # A single record waits for the configured time and no longer.
    with running(gathering(feed, "2 seconds", least=10_000), lake) as run:
        send(feed, 1)
        until(lambda: sum(records(run)) == 1)
    assert len(feed.rows()) == sent + 1


def test_a_small_batch_writes_one_file_in_each_partition_of_the_table(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=6)
    send(feed, 60)
    pipeline = feed.pipeline(sink={"iceberg": {"table": feed.table, "partition_by": ["zone"]}})
    assert pipeline.run(spark=lake, once=True).rows == 60
    assert files(feed) == 2
    send(feed, 60)
    pipeline.run(spark=lake, once=True)
    assert files(feed) == 4
