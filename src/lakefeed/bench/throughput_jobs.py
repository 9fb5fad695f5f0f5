"""The jobs of ``lakefeed bench throughput``, each in a process with a JVM of its own that stays warm between runs."""

from __future__ import annotations

import json
import os
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from lakefeed.bench import jobs
from lakefeed.bench.cases import FAST_PATHS, WITHOUT_CHECKPOINT, RequestCase, Way, Workload
from lakefeed.bench.stages import Stage, shares
from lakefeed.clients.spark import jars, jvm
from lakefeed.clients.spark.session import session
from lakefeed.clients.spark.statements import run
from lakefeed.lazy import SparkSession
from lakefeed.local import Endpoints
from lakefeed.operations.produce.taxi import KEY, Totals, taxi_schema, totals
from lakefeed.operations.produce.trips import taxi_trips
from lakefeed.operations.produce.write import produce
from lakefeed.records.encode.encode import to_records

_SAMPLE_RECORDS = 10_000
# As the seeds' consumer has them; its other options are none of Spark's.
_SEED_OPTIONS = {"failOnDataLoss": "false", "minPartitions": "10"}


@dataclass(frozen=True, kw_only=True)
class TimedRun(RequestCase):
    """One run of one way; its table, path and checkpoint are its own, in the bucket of the stack."""

    way: Way
    number: int
    bucket: str

    @classmethod
    def of(cls, way: Way, number: int, *, bucket: str) -> TimedRun:
        return cls(
            way=way,
            number=number,
            bucket=bucket,
            manager="lakefeed" if way.startswith("lakefeed") else "spark",
            sink="iceberg" if "iceberg" in way else "parquet",
            versioned=False,
            fast_path=FAST_PATHS.get(way),
            has_checkpoint=way != WITHOUT_CHECKPOINT,
        )

    @property
    def name(self) -> str:
        return f"throughput-{self.way}-{self.number}"

    @property
    def checkpoint(self) -> str:
        return f"s3a://{self.bucket}/checkpoints/{self.name}"

    @property
    def path(self) -> str:
        return f"s3a://{self.bucket}/{self.name}"

    @property
    def warehouse(self) -> str:
        return f"s3://{self.bucket}/warehouse"


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


@dataclass(frozen=True, kw_only=True)
class Filled:
    """The topic that all ways read: its records, their mean bytes with the key, and the totals of the trips in it."""

    records: int
    record_bytes: float
    totals: Totals


def fill_topic(work: Workload, endpoints: Endpoints, csv: Path | None) -> Filled:
    """Produce trips, generated ones or a file's, into the topic."""
    spark = session("bench-produce")
    rows = taxi_trips(spark, rows=work.rows, csv=csv)
    registry = endpoints.schema_registry_url
    records = to_records(rows, topic=work.topic, registry=registry, schema=taxi_schema(), key=KEY)
    produced = produce(records, work.topic, bootstrap_servers=endpoints.bootstrap_servers)
    [mean] = records.limit(_SAMPLE_RECORDS).selectExpr("avg(length(key) + length(value))").collect()
    return Filled(records=produced.records, record_bytes=round(mean[0], 1), totals=totals(rows, key=None))


def run_once(case: TimedRun, work: Workload, endpoints: Endpoints, profile: bool) -> RunFigures:
    """Land the topic in one way, in this process's session."""
    started = _run_lakefeed if case.manager == "lakefeed" else _run_plain
    spark = _session(case, work, endpoints)
    noted: list[_Report] = []
    remove_listener = jobs.on_progress(spark, partial(_note_batch, spark, noted))
    java: Any = spark.sparkContext._jvm
    java.java.lang.System.gc()
    forget_peaks()
    profiler = _Profiler(spark) if profile else None
    requests = sum(jvm.s3_requests(spark).values())
    began, cpu = time.monotonic(), jobs.cpu_seconds()
    started(spark, case, work, endpoints)
    seconds, cpu = time.monotonic() - began, jobs.cpu_seconds() - cpu
    peak = peak_megabytes()
    requests = sum(jvm.s3_requests(spark).values()) - requests
    stages = profiler.stop() if profiler else None
    context: Any = spark.sparkContext._jsc
    context.sc().listenerBus().waitUntilEmpty()
    remove_listener()
    reports = _of_batches(noted)
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


def _stored(spark: SparkSession, case: TimedRun) -> tuple[int, int]:
    """Count the data files of a run and their bytes."""
    if case.sink == "iceberg":
        [row] = spark.table(f"{case.table}.files").selectExpr("count(*)", "sum(file_size_in_bytes)").collect()
        return row[0], row[1]
    files = spark.read.format("binaryFile").load(case.path)
    [row] = files.selectExpr("count(*)", "sum(length)").collect()
    return row[0], row[1]


def remove(case: TimedRun, work: Workload, endpoints: Endpoints) -> None:
    """Remove what a run has written; large ones would fill the disk."""
    spark = _session(case, work, endpoints)
    java: Any = spark.sparkContext._jvm
    configuration: Any = spark.sparkContext._jsc
    if case.sink == "iceberg":
        run(spark, f"DROP TABLE {case.table} PURGE")
    for location in (case.path, case.checkpoint):
        path = java.org.apache.hadoop.fs.Path(location)
        path.getFileSystem(configuration.hadoopConfiguration()).delete(path, True)


def _session(case: TimedRun, work: Workload, endpoints: Endpoints) -> SparkSession:
    if case.manager == "lakefeed":
        pipeline = jobs.pipeline_of(case, work, endpoints)
        # Not pipeline.session(): its preflight asks S3 from Python.
        profiler = os.pathsep.join(map(str, jars.fetch(["bench"])))
        return session(case.way, connections=pipeline.connections, conf={"spark.driver.extraClassPath": profiler})
    return jobs.plain_session(case, endpoints)


def _run_lakefeed(spark: SparkSession, case: TimedRun, work: Workload, endpoints: Endpoints) -> None:
    jobs.pipeline_of(case, work, endpoints).run(spark=spark, once=True)


def _run_plain(spark: SparkSession, case: TimedRun, work: Workload, endpoints: Endpoints) -> None:
    options = _SEED_OPTIONS if case.way == "seed" else {}
    jobs.start_plain_stream(spark, case, work, endpoints, options=options).awaitTermination()


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


def _of_batches(reports: list[_Report]) -> list[_Report]:
    """Leave out the reports after which the query is no further: those of empty batches."""
    before = [0, *(report.records for report in reports)]
    return [report for report, records in zip(reports, before, strict=False) if report.records > records]


def _note_batch(spark: SparkSession, reports: list[_Report], progress: Any) -> None:
    """Note time, CPU time and offsets at the end of a batch, of any query of the session alike."""
    now, cpu, context = time.monotonic(), jobs.cpu_seconds(), cast("Any", spark.sparkContext._jsc)
    [source] = progress.sources
    [ends] = json.loads(source.endOffset).values()
    busy = context.sc().statusStore().executorList(True).apply(0).totalDuration() / 1000
    cores = spark.sparkContext.defaultParallelism
    reports.append(_Report(now, cpu, busy / cores, {int(key): ends[key] for key in ends}))


class _Profiler:
    """Samples the CPU of all threads of the driver's JVM by its own timers, which need no rights."""

    def __init__(self, spark: SparkSession) -> None:
        java: Any = spark.sparkContext._jvm
        self._profiler = java.one.profiler.AsyncProfiler.getInstance()
        self._profiler.execute("start,event=ctimer,interval=2ms,threads")

    def stop(self) -> dict[Stage, float]:
        with tempfile.TemporaryDirectory(prefix="lakefeed-") as folder:
            file = Path(folder) / "stacks"
            self._profiler.execute(f"stop,collapsed,file={file}")
            return shares(file.read_text(errors="replace"))


def forget_peaks() -> None:
    """Let the peak of the resident memory begin again; Linux alone has this, and not in every sandbox."""
    for pid in (jobs.jvm_pid(), os.getpid()):
        with suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_megabytes() -> int:
    """Return the peak of the resident memory since then: the JVM's and this process's, each at its own highest."""

    def kilobytes(pid: int) -> int:
        status = Path(f"/proc/{pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))

    return sum(map(kilobytes, (jobs.jvm_pid(), os.getpid()))) // 1024
