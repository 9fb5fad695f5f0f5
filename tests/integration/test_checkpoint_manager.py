"""A session of lakefeed writes checkpoints with the checkpoint manager, one PUT for each entry."""

import time
import uuid

import pytest
from pyspark.sql import SparkSession

from lakefeed.clients.spark import jvm
from lakefeed_local.stack import Endpoints


@pytest.mark.quick
def test_the_default_session_makes_two_puts_a_batch(lake: SparkSession, stack: Endpoints) -> None:
    assert (
        lake.conf.get("spark.sql.streaming.checkpointFileManagerClass")
        == "io.lakefeed.checkpoint.ObjectStoreCheckpointFileManager"
    )
    numbers = lake.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1).load()
    query = (
        numbers.writeStream.format("noop")
        .option("checkpointLocation", f"s3a://{stack.bucket}/checkpoints/{uuid.uuid4().hex}")
        .trigger(processingTime="1 second")
        .start()
    )
    try:
        while query.lastProgress is None:
            assert query.exception() is None
            time.sleep(0.05)
        first, before = query.lastProgress["batchId"], jvm.s3_requests(lake)
        while query.lastProgress["batchId"] < first + 5:
            assert query.exception() is None
            time.sleep(0.05)
        last, after = query.lastProgress["batchId"], jvm.s3_requests(lake)
    finally:
        query.stop()
    counted = {name: count - before.get(name, 0) for name, count in after.items() if count > before.get(name, 0)}
    # Deferred deletes of earlier queries of this session may be sent meanwhile.
    assert set(counted) - {"DeleteObjects"} == {"PutObject"}
    # At both readings the batch after the reported one may have begun or ended.
    assert 2 * (last - first) - 2 <= counted["PutObject"] <= 2 * (last - first) + 2
