"""One of two drivers that start on the same checkpoints: ``python -m tests.support.faults.two_drivers_child``.

For each round, the driver reads a JSON line from stdin (checkpoint, table, batches), answers ``ready``, and waits for
``go``. Then the driver reports ``survived``, or the message of the error that stopped its query. A surviving query runs
until the driver reads ``stop``.
"""

import json
import sys
import time

from lakefeed.clients.spark.session import session
from lakefeed.config.connections import Connections
from tests.contract.test_checkpoint_queries import numbers
from tests.support.checkpoint import CLASS, CLASS_KEY


def main() -> None:
    """Run rounds until stdin ends."""
    spark = session(
        "two-drivers",
        connections=Connections.from_environment(),
        master="local[1]",
        conf={"spark.driver.memory": "700m", CLASS_KEY: CLASS},
    )
    for line in sys.stdin:
        job = json.loads(line)
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            query = (
                numbers(spark)
                .writeStream.format("parquet")
                .option("checkpointLocation", job["checkpoint"])
                .trigger(processingTime="0 seconds")
                .start(job["table"])
            )
            while query.isActive:
                progress = query.lastProgress
                if progress is not None and progress["batchId"] >= job["batches"]:
                    break
                time.sleep(0.02)
            error = query.exception()
            if error is not None:
                raise error
            print(json.dumps({"survived": True}), flush=True)
            sys.stdin.readline()
            query.stop()
            print("stopped", flush=True)
        except Exception as error:  # Report any error that Spark raises.
            print(json.dumps({"survived": False, "message": str(error)[:4000]}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
