"""A driver whose executors are separate JVMs: ``python -m tests.support.faults.executors_child``.

The driver reads a JSON line from stdin, runs a stateful query until a batch, and prints the executors' process ids. For
each further line, the driver prints the S3 requests that its meter has counted so far.
"""

import json
import os
import signal
import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lakefeed.clients.spark.session import session
from lakefeed.config.connections import Connections
from lakefeed.feed.s3_requests import s3_requests
from tests.contract.test_checkpoint_queries import ROWS, numbers, run_until
from tests.support.checkpoint import CLASS, CLASS_KEY


def main() -> None:
    """Run one query as the line on stdin says."""
    job = json.loads(sys.stdin.readline())
    streaming = "spark.sql.streaming"
    spark = session(
        "executors",
        connections=Connections.from_environment(),
        master="local-cluster[2,1,1024]",
        conf={
            "spark.driver.memory": "700m",
            "spark.executor.memory": "1g",
            "spark.authenticate": "false",
            "spark.sql.shuffle.partitions": "4",
            CLASS_KEY: CLASS,
            f"{streaming}.stateStore.providerClass": job["provider"],
            f"{streaming}.stateStore.maintenanceInterval": "2s",
            f"{streaming}.stateStore.minDeltasForSnapshot": "3",
            f"{streaming}.minBatchesToRetain": "4",
        },
    )
    before = executors(spark)

    def start() -> StreamingQuery:
        unique = numbers(spark).selectExpr(f"value div {2 * ROWS} as value").dropDuplicates(["value"])
        return (
            unique.writeStream.format("parquet")
            .option("checkpointLocation", job["checkpoint"])
            .trigger(processingTime="0 seconds")
            .start(job["table"])
        )

    if job["kill"]:
        run_until(start, job["until"] - 4)
        os.kill(before[0], signal.SIGKILL)
    run_until(start, job["until"])
    seen = {"driver": int(str(java_pid(spark))), "executors": sorted(set(before) | set(executors(spark)))}
    print(json.dumps(seen), flush=True)
    for _ in sys.stdin:
        requests = s3_requests(spark)
        counts = {"requests": requests.by_operation, "state": requests.by_key_class.get("state", 0)}
        print(json.dumps(counts), flush=True)
    spark.stop()


def executors(spark: SparkSession) -> list[int]:
    """Return the ids of the processes that run tasks."""
    pid = "java_method('java.lang.ProcessHandle', 'current') as pid"
    found: set[int] = set()
    while len(found) < 2:
        found |= {int(row.pid) for row in spark.range(0, 8, 1, 8).selectExpr(pid).collect()}
    return sorted(found)


def java_pid(spark: SparkSession) -> object:
    """Return the process id of the driver's JVM."""
    return spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
