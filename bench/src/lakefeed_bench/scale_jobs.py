"""The measured runs of ``lakefeed-bench scale``, in a process whose JVM stays warm between them."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.session import session
from lakefeed.config.models import PipelineConfig
from lakefeed.feed.progress import BatchProgress
from lakefeed.lazy import SparkSession
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.pipeline import Pipeline
from lakefeed_bench import jobs
from lakefeed_bench.processes import CpuTimes, forget_peaks, peak_megabytes, without_compilers

_COLLECTIONS = 3
_BETWEEN_COLLECTIONS_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class ScaleRun:
    """One run to measure.

    Attributes:
        pipeline: the document of its pipeline file.
        marks: the numbers of batches after which its figures are taken; the run ends with the last one.
        heap_at: those of them at which the driver's heap is collected and measured.
        files: so many more data files the table gets before.
        has_tables: each topic has a table of its own: a batch is a round of all of them.
    """

    pipeline: Mapping[str, Any]
    marks: tuple[int, ...]
    heap_at: tuple[int, ...]
    files: int = 0
    has_tables: bool = False


@dataclass(frozen=True, kw_only=True)
class Mark:
    """The use of a run up to the end of a batch; the heap is after a collection, in bytes."""

    batch: int
    cpu: Mapping[str, float]
    seconds: float
    requests: int
    heap: int | None

    @property
    def cpu_seconds(self) -> float:
        return without_compilers(self.cpu)


@dataclass(frozen=True, kw_only=True)
class ScaleFigures:
    """The marks of a run; it is complete if it came that far, and each record that it read became a row."""

    marks: tuple[Mark, ...]
    peak_rss_mb: int
    is_complete: bool


def run_scale(run: ScaleRun) -> ScaleFigures:
    """Run a pipeline in this process's session."""
    pipeline = Pipeline(PipelineConfig.model_validate(run.pipeline), environment=dict(os.environ))
    # Not pipeline.session(): its preflight asks S3 from Python.
    spark = session("bench-scale", connections=pipeline.connections)
    if run.files:
        add_files(spark, pipeline, run.files)
    collected_heap(spark)
    forget_peaks()
    clock = _Clock(spark, run)
    # Spark reports the batches of a stream; a job of many tables calls ``on_batch`` with its rounds.
    remove = None if run.has_tables else jobs.on_progress(spark, lambda _: clock.end_batch())
    try:
        summary = pipeline.run(spark=spark, once=True, stop=clock.stop, on_batch=clock.on_batch)
    finally:
        if remove is not None:
            remove()
    is_complete = summary.rows == summary.records > 0 and len(clock.marks) == len(run.marks)
    return ScaleFigures(marks=tuple(clock.marks), peak_rss_mb=peak_megabytes(), is_complete=is_complete)


def add_files(spark: SparkSession, pipeline: Pipeline, files: int) -> None:
    """Create the pipeline's table by its first batch, and give it the metadata of so many files more."""
    stop = threading.Event()
    pipeline.run(spark=spark, once=True, stop=stop, on_batch=lambda progress: stop.set())
    table = IcebergLedger(spark, pipeline.config.sink.chosen.target, pipeline.config.name).loaded()
    jvm.java(spark).bench.ManyFiles.append(table, files)


def collected_heap(spark: SparkSession) -> tuple[int, float]:
    """Collect the driver's garbage; return the bytes of its heap that stay in use, and the seconds that it stood still.

    The least of several collections: a batch or a maintenance at work holds memory that it gives back.
    """
    java: Any = spark.sparkContext._jvm
    heap, stopped = sys.maxsize, 0.0
    for number in range(_COLLECTIONS):
        if number:
            time.sleep(_BETWEEN_COLLECTIONS_SECONDS)
        began = time.monotonic()
        java.java.lang.System.gc()
        stopped += time.monotonic() - began
        used = java.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed()
        heap = min(heap, int(used))
    return heap, stopped


@dataclass
class _Clock:
    """Takes the figures at the end of batches: Spark reports those of a stream, a job of many tables its rounds."""

    spark: SparkSession
    run: ScaleRun
    stop: threading.Event = field(default_factory=threading.Event)
    marks: list[Mark] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._done = 0
        # The time that taking the figures has taken itself, the collections above all.
        self._own_seconds = self._own_cpu = 0.0
        self._requests = self._requests_now()
        self._began, self._cpu = time.monotonic(), CpuTimes.now()

    def on_batch(self, progress: BatchProgress) -> None:
        """Note a round of a job with many tables, which waits for this."""
        if self.run.has_tables:
            self.end_batch()

    def end_batch(self) -> None:
        self._done += 1
        if self._done not in self.run.marks:
            return
        now, cpu, requests = time.monotonic(), CpuTimes.now().since(self._cpu), self._requests_now()
        heap, stopped = collected_heap(self.spark) if self._done in self.run.heap_at else (None, 0.0)
        after = CpuTimes.now().since(self._cpu)
        self.marks.append(
            Mark(
                batch=self._done,
                cpu={**cpu, "collector": cpu["collector"] - self._own_cpu},
                seconds=now - self._began - self._own_seconds,
                requests=requests - self._requests,
                heap=heap,
            )
        )
        # For the log: a long run returns its figures at its end only.
        print(asdict(self.marks[-1]), flush=True)
        if heap is not None:
            self._own_cpu += after["collector"] - cpu["collector"]
            self._own_seconds += stopped
        if self._done >= max(self.run.marks):
            self.stop.set()

    def _requests_now(self) -> int:
        return sum(jvm.s3_requests(self.spark).values())
