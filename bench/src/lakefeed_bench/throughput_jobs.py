"""The measured run of a way, in a process with a JVM of its own that stays warm between runs."""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lakefeed.clients.spark import jars, jvm
from lakefeed.clients.spark.statements import run
from lakefeed.lazy import SparkSession
from lakefeed.local import Endpoints
from lakefeed.operations.produce.taxi import Totals, totals
from lakefeed_bench import jobs
from lakefeed_bench.jobs import LandingCase, Work
from lakefeed_bench.processes import cpu_seconds, forget_peaks, peak_megabytes
from lakefeed_bench.stages import Stage, shares

# As the seeds' consumer has them; its other options are none of Spark's.
_SEED_OPTIONS = {"failOnDataLoss": "false", "minPartitions": "10"}


@dataclass(frozen=True, kw_only=True)
class RunFigures:
    """The figures of one run, as its own process measures them.

    Attributes:
        seconds, cpu_seconds: from the start of the query to its end; the CPU time is that of the JVM and of Python.
        steady_rows, steady_seconds, steady_cpu_seconds: the same from the end of the first batch to that of the last.
        batch_overhead_seconds: the mean time of those later batches less the time that their tasks kept the cores busy.
        peak_rss_mb: of the JVM and of Python, each at its own highest; driver and executor are one process here.
        ends: the offset after the last record of each partition, as the query reports it.
        totals: of the rows of a Parquet sink, which Spark reads; None where another engine reads the table.
        stages: each stage's share of the JVM's CPU samples, of a run that was profiled.
    """

    batches: int
    rows: int
    seconds: float
    cpu_seconds: float
    steady_rows: int
    steady_seconds: float
    steady_cpu_seconds: float
    batch_overhead_seconds: float
    peak_rss_mb: int
    files: int
    stored_bytes: int
    s3_requests: int
    ends: dict[int, int]
    totals: Totals | None
    stages: dict[Stage, float] | None


def run_once(case: LandingCase, work: Work, endpoints: Endpoints, profile: bool) -> RunFigures:
    """Land the topic in one way, in this process's session."""
    spark = _session(case, work, endpoints)
    java: Any = spark.sparkContext._jvm
    context: Any = spark.sparkContext._jsc
    noted: list[_Report] = []
    remove_listener = jobs.on_progress(spark, partial(_note_batch, spark, noted))
    java.java.lang.System.gc()
    forget_peaks()
    # Samples the CPU of all threads of the driver's JVM by its own timers, which need no rights.
    profiler = java.one.profiler.AsyncProfiler.getInstance() if profile else None
    if profiler is not None:
        profiler.execute("start,event=ctimer,interval=2ms,threads")
    requests = sum(jvm.s3_requests(spark).values())
    began, cpu = time.monotonic(), cpu_seconds()
    jobs.land(spark, case, work, endpoints, _SEED_OPTIONS if "-seed-" in case.name else {})
    seconds, cpu = time.monotonic() - began, cpu_seconds() - cpu
    peak = peak_megabytes()
    requests = sum(jvm.s3_requests(spark).values()) - requests
    stages = None
    if profiler is not None:
        with tempfile.NamedTemporaryFile(prefix="lakefeed-") as file:
            profiler.execute(f"stop,collapsed,file={file.name}")
            stages = shares(Path(file.name).read_text(errors="replace"))
    context.sc().listenerBus().waitUntilEmpty()
    remove_listener()
    # Without the reports after which the query is no further: those of empty batches.
    before = [0, *(report.records for report in noted)]
    reports = [report for report, records in zip(noted, before, strict=False) if report.records > records]
    files, stored = _stored(spark, case)
    first, last = reports[0], reports[-1]
    return RunFigures(
        batches=len(reports),
        rows=last.records,
        seconds=seconds,
        cpu_seconds=cpu,
        steady_rows=last.records - first.records,
        steady_seconds=last.at - first.at,
        steady_cpu_seconds=last.cpu - first.cpu,
        batch_overhead_seconds=(last.at - first.at - (last.busy - first.busy)) / max(1, len(reports) - 1),
        peak_rss_mb=peak,
        s3_requests=requests,
        files=files,
        stored_bytes=stored,
        ends=last.ends,
        totals=totals(spark.read.parquet(case.path), key=None) if case.sink == "parquet" else None,
        stages=stages,
    )


def remove(case: LandingCase, work: Work, endpoints: Endpoints) -> None:
    """Remove what a run has written; large ones would fill the disk."""
    spark = _session(case, work, endpoints)
    java: Any = spark.sparkContext._jvm
    configuration: Any = spark.sparkContext._jsc
    if case.sink == "iceberg":
        run(spark, f"DROP TABLE {case.table} PURGE")
    for location in (case.path, case.checkpoint):
        path = java.org.apache.hadoop.fs.Path(location)
        path.getFileSystem(configuration.hadoopConfiguration()).delete(path, True)


def _session(case: LandingCase, work: Work, endpoints: Endpoints) -> SparkSession:
    """Return the session of a way; lakefeed's too has the profiler on its class path."""
    profiler = {"spark.driver.extraClassPath": os.pathsep.join(map(str, jars.fetch(["bench"])))}
    return jobs.start_session(case, work, endpoints, profiler if case.manager == "lakefeed" else {})


def _stored(spark: SparkSession, case: LandingCase) -> tuple[int, int]:
    """Count the data files of a run and their bytes."""
    if case.sink == "iceberg":
        [row] = spark.table(f"{case.table}.files").selectExpr("count(*)", "sum(file_size_in_bytes)").collect()
    else:
        files = spark.read.format("binaryFile").load(case.path)
        [row] = files.selectExpr("count(*)", "sum(length)").collect()
    return row[0], row[1]


@dataclass(frozen=True)
class _Report:
    """The state at the end of a batch; ``busy`` is the time of all tasks so far by the number of cores."""

    at: float
    cpu: float
    busy: float
    ends: dict[int, int]

    @property
    def records(self) -> int:
        """Count the records so far, of topics that begin at 0."""
        return sum(self.ends.values())


def _note_batch(spark: SparkSession, reports: list[_Report], progress: Any) -> None:
    """Note time, CPU time and offsets at the end of a batch, of any query of the session alike."""
    now, cpu = time.monotonic(), cpu_seconds()
    context: Any = spark.sparkContext._jsc
    [source] = progress.sources
    [ends] = json.loads(source.endOffset).values()
    busy = context.sc().statusStore().executorList(True).apply(0).totalDuration() / 1000
    cores = spark.sparkContext.defaultParallelism
    reports.append(_Report(now, cpu, busy / cores, {int(key): ends[key] for key in ends}))
