"""A driver that stays, so that a run costs no new JVM: ``python -m tests.support.faults.driver_child``.

Reads a JSON line for each run (``file``, the pipeline; ``begin_only``, stop as the first batch begins), answers
``ready``, waits for a line with seconds to wait, runs the pipeline once, and reports the end: ``{"error": null}``,
or the error's class and what it says.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from lakefeed.clients.spark.session import session
from lakefeed.config.connections import Connections
from lakefeed.errors import LakefeedError
from lakefeed.pipeline import Pipeline


def main() -> None:
    """Runs until stdin ends."""
    spark = session(
        "driver-child",
        connections=Connections.from_environment(),
        master="local[2]",
        conf={"spark.driver.memory": "700m", "spark.sql.shuffle.partitions": "2"},
    )
    for line in sys.stdin:
        job = json.loads(line)
        pipeline = Pipeline.from_file(Path(job["file"]))
        stop = threading.Event()
        if job.get("begin_only"):
            stop.set()
        print("ready", flush=True)
        time.sleep(float(sys.stdin.readline()))
        error = None
        try:
            pipeline.run(spark=spark, once=True, stop=stop)
        except LakefeedError as failed:
            error = f"{type(failed).__name__}: {failed}"
        print(json.dumps({"error": error}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
