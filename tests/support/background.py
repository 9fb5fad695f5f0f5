"""Run a pipeline in a thread of the test's process."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from lakefeed.feed.progress import FinishedBatch
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.pipeline import Pipeline, RunSummary


class Background:
    """A pipeline that runs in a thread until ``stop`` is set."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, **options: Any) -> None:
        self.monitor, self.stop = FeedMonitor(pipeline.config.name), threading.Event()
        self.batches: list[FinishedBatch] = []
        self.summary: RunSummary | None = None
        self.failure: Exception | None = None
        self._said: list[str] = []
        given = {"monitor": self.monitor, "on_batch": self.batches.append, "on_note": self._said.append}
        options = {**given, **options}

        def run() -> None:
            try:
                self.summary = pipeline.run(spark=spark, stop=self.stop, **options)
            except Exception as error:
                self.failure = error

        self.thread = threading.Thread(target=run)
        self.thread.start()

    @property
    def notes(self) -> list[str]:
        """The notes of all batches, and of the run."""
        return [*(note for batch in list(self.batches) for note in batch.notes), *self._said]

    def until_records(self, count: int, *, seconds: float = 240) -> None:
        """Wait until the batches have read `count` records."""
        deadline = time.monotonic() + seconds
        while self.failure is None and sum(batch.records for batch in list(self.batches)) < count:
            assert time.monotonic() < deadline, self.notes
            time.sleep(0.1)
        assert self.failure is None, self.failure

    def end(self) -> RunSummary:
        """Stop the run; return its summary."""
        self.stop.set()
        self.thread.join(120)
        assert not self.thread.is_alive()
        assert self.failure is None, self.failure
        assert self.summary is not None
        return self.summary


@contextmanager
def running(pipeline: Pipeline, spark: SparkSession, **options: Any) -> Iterator[Background]:
    """Run the pipeline until the block ends; fail if the run fails."""
    run = Background(pipeline, spark, **options)
    try:
        yield run
    finally:
        run.stop.set()
        run.thread.join(120)
    run.end()
