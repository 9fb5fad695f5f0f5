"""A driver that runs many pipelines in one JVM: ``python -m tests.support.faults.driver_child``.

The driver reads a JSON line for each run (``file``, the pipeline; ``begin_only``, stop as the first batch begins;
``pauses``, the most seconds to wait before a method) and answers ``ready``. Then the driver reads a line with seconds
to wait, runs the pipeline once, and reports the outcome: ``{"error": null}``, or the error's class and message.
"""

import json
import random
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from lakefeed.clients.spark.session import session
from lakefeed.config.connections import Connections
from lakefeed.feed.batch_writer import BatchWriter
from lakefeed.feed.feed import Feed
from lakefeed.feed.open import FeedStart
from lakefeed.feed.progress import FinishedBatch
from lakefeed.feed.streaming import StreamRun
from lakefeed.pipeline import Pipeline
from lakefeed_delta.settings import DeltaSinkConfig

SLOW: tuple[tuple[Any, str], ...] = (
    (Feed, "begin_writer"),
    (FeedStart, "decide_again"),
    (FeedStart, "apply"),
    (StreamRun, "start_query"),
    (StreamRun, "write_batch"),
    (BatchWriter, "commit_rows"),
)
"""The steps of a start and of a batch before which another driver may act."""


def main() -> None:
    """Run pipelines until stdin ends."""
    spark = session(
        "driver-child",
        connections=Connections.from_environment(),
        master="local[2]",
        conf={"spark.driver.memory": "700m", "spark.sql.shuffle.partitions": "2", **DeltaSinkConfig.spark_settings},
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
            with pausing(job.get("pauses", {})):
                pipeline.run(spark=spark, once=True, stop=stop, on_note=note, on_batch=note_all)
        except Exception as failed:
            error = f"{type(failed).__name__}: {failed}"
        print(json.dumps({"error": error}), flush=True)
    spark.stop()


def note(message: str) -> None:
    """Write a message to the log of this process."""
    print(message, file=sys.stderr, flush=True)


def note_all(batch: FinishedBatch) -> None:
    """Write the messages of a batch to the log."""
    for message in batch.notes:
        note(message)


@contextmanager
def pausing(seconds: Mapping[str, float]) -> Iterator[None]:
    """Wait a random time before calls of these methods, at most the given seconds, as slow servers or CPUs do."""

    def slow(method: Any, wait: float) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            time.sleep(random.uniform(0, wait))
            return method(*args, **kwargs)

        return called

    with ExitStack() as patches:
        for owner, name in SLOW:
            if wait := seconds.get(name):
                patches.enter_context(patch.object(owner, name, slow(getattr(owner, name), wait)))
        yield


if __name__ == "__main__":
    main()
