"""A steady batch into a Delta table costs as many S3 requests as it has files, and seven."""

from pyspark.sql import SparkSession

from lakefeed.feed.progress import FinishedBatch
from packages.delta.tests.delta_feed import pipeline_of
from tests.support.feed import Feed

FILES = 3
BATCH = 60


def test_a_batch_of_f_files_costs_at_most_f_and_seven_requests(feed: Feed, lake: SparkSession) -> None:
    feed.create_topic(partitions=FILES)
    for partition in range(FILES):
        feed.send_ids(range(7 * BATCH // FILES), partition=partition)
    batches: list[FinishedBatch] = []
    pipeline = pipeline_of(feed, source=feed.source(max_records_per_batch=BATCH))
    pipeline.run(spark=lake, once=True, on_batch=batches.append)
    # The table's versions begin with its creation and the fence, so the log gets no checkpoint up to version 9.
    steady = [batch.requests for batch in batches[1:7] if batch.requests is not None]
    assert [each.data_files for each in steady] == [FILES] * 6
    assert max(each.total for each in steady) <= FILES + 7, [each.counts for each in steady]
