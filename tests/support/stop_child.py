"""Run a user's script: a stream with slow batches, which ends on a signal. The script prints its steps."""

import sys
import time
from typing import Any

import lakefeed as lf
from lakefeed.feed.batch_writer import BatchResult
from lakefeed.feed.run import MicroBatches, watch

BATCH_SECONDS = float(sys.argv[1])


def tell(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    tell("starting")
    spark = lf.session("stop", master="local[1]", conf={"spark.driver.memory": "512m"})
    tell("started")
    with lf.stop_on_signals(tell) as stop:
        batches = MicroBatches(stop)

        def land(batch: Any, batch_id: int) -> BatchResult:
            tell(f"batch {batch_id} begins")
            time.sleep(BATCH_SECONDS)
            tell(f"batch {batch_id} ends with {batch.count()} rows")
            return BatchResult(batch_id, 0, replayed=False)

        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
        query = rows.writeStream.foreachBatch(batches.guarded(land)).start()
        watch(query, batches, on_batch=lambda progress: None)
    tell("done")


main()
