"""The jobs of ``lakefeed-bench throughput``: land a topic, and measure the limits without Spark.

The limits are the lowest possible costs of a row on this machine: a plain Kafka consumer reads the topic, a loop calls
lakefeed's decoder, and Arrow's Parquet writer encodes rows from memory into memory. The limits include no upload,
commit or scheduler.
"""

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
from lakefeed.clients.spark.session import session
from lakefeed.clients.spark.statements import run
from lakefeed.config.kafka_client import CONSUMER_DEFAULTS, PREFIX
from lakefeed.errors import JobFailed
from lakefeed.feed.s3_requests import s3_requests
from lakefeed.lazy import SparkSession
from lakefeed_bench import jobs
from lakefeed_bench.jobs import LandingCase, Work
from lakefeed_bench.processes import Took, cpu_seconds, forget_peaks, peak_megabytes, timed
from lakefeed_bench.stages import Stage, shares
from lakefeed_local.produce.taxi import Totals, taxi_schema, totals
from lakefeed_local.stack import Endpoints

# The options of Spark's Kafka source for the way ``seed``.
_SEED_OPTIONS = {"failOnDataLoss": "false", "minPartitions": "10"}


@dataclass(frozen=True, kw_only=True)
class RunFigures:
    """The figures of one run, measured in its process.

    Attributes:
        seconds, cpu_seconds: from the query's start to its end; the CPU time is that of the JVM and of Python.
        steady_rows, steady_seconds, steady_cpu_seconds: the same without the first batch.
        batch_overhead_seconds: the mean duration of a batch after the first, minus the tasks' time divided by the
            cores.
        peak_rss_mb: the JVM's plus Python's peak resident memory; driver and executor are one JVM.
        ends: the end offset of each partition, as the query reports it.
        totals: the totals of the rows in a Parquet sink; None for Iceberg, because the caller reads the table.
        stages: the stages' shares of the JVM's CPU samples, if the run was profiled.
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
    """Land the topic in this process's session."""
    spark = _session(case, work, endpoints)
    java: Any = spark.sparkContext._jvm
    context: Any = spark.sparkContext._jsc
    noted: list[_Report] = []
    remove_listener = jobs.on_progress(spark, partial(_note_batch, spark, noted))
    java.java.lang.System.gc()
    forget_peaks()
    # The profiler's event "ctimer" samples the CPU of all threads of the JVM, and needs no privileges.
    profiler = java.one.profiler.AsyncProfiler.getInstance() if profile else None
    if profiler is not None:
        profiler.execute("start,event=ctimer,interval=2ms,threads")
    requests = s3_requests(spark).total
    began, cpu = time.monotonic(), cpu_seconds()
    jobs.land(spark, case, work, endpoints, _SEED_OPTIONS if "-seed-" in case.name else {})
    seconds, cpu = time.monotonic() - began, cpu_seconds() - cpu
    peak = peak_megabytes()
    requests = s3_requests(spark).total - requests
    stages = None
    if profiler is not None:
        with tempfile.NamedTemporaryFile(prefix="lakefeed-") as file:
            profiler.execute(f"stop,collapsed,file={file.name}")
            stages = shares(Path(file.name).read_text(errors="replace"))
    context.sc().listenerBus().waitUntilEmpty()
    remove_listener()
    # Leave out empty batches, whose reports repeat the offsets of the previous batch.
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
    """Remove the table, the files and the checkpoint of a run, because the files of all runs would fill the disk."""
    spark = _session(case, work, endpoints)
    java: Any = spark.sparkContext._jvm
    configuration: Any = spark.sparkContext._jsc
    if case.sink == "iceberg":
        run(spark, f"DROP TABLE {case.table} PURGE")
    for location in (case.path, case.checkpoint):
        path = java.org.apache.hadoop.fs.Path(location)
        path.getFileSystem(configuration.hadoopConfiguration()).delete(path, True)


def _session(case: LandingCase, work: Work, endpoints: Endpoints) -> SparkSession:
    profiler = {"spark.driver.extraClassPath": os.pathsep.join(map(str, jars.fetch(["bench"])))}
    return jobs.start_session(case, work.topic, endpoints, profiler if case.manager == "lakefeed" else {})


def _stored(spark: SparkSession, case: LandingCase) -> tuple[int, int]:
    """Return the number of a run's data files, and their bytes."""
    if case.sink == "iceberg":
        [row] = spark.table(f"{case.table}.files").selectExpr("count(*)", "sum(file_size_in_bytes)").collect()
    else:
        files = spark.read.format("binaryFile").load(case.path)
        [row] = files.selectExpr("count(*)", "sum(length)").collect()
    return row[0], row[1]


@dataclass(frozen=True)
class _Report:
    """The figures at the end of a batch: time, CPU time, the time of all tasks divided by the cores, end offsets."""

    at: float
    cpu: float
    busy: float
    ends: dict[int, int]

    @property
    def records(self) -> int:
        """The number of records so far; the topic begins at offset 0."""
        return sum(self.ends.values())


def _note_batch(spark: SparkSession, reports: list[_Report], progress: Any) -> None:
    now, cpu = time.monotonic(), cpu_seconds()
    context: Any = spark.sparkContext._jsc
    [source] = progress.sources
    [ends] = json.loads(source.endOffset).values()
    busy = context.sc().statusStore().executorList(True).apply(0).totalDuration() / 1000
    cores = spark.sparkContext.defaultParallelism
    reports.append(_Report(now, cpu, busy / cores, {int(key): ends[key] for key in ends}))


_SAMPLE_ROWS = 500_000
_ZSTD_LEVEL = 3
"""The level that Iceberg uses for zstd by default."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The least CPU time per row of each step, in microseconds, and the plain consumer's rows per second.

    Attributes:
        fetch: a plain Kafka consumer, which does not decode the records.
        decode: the further time with lakefeed's decoder, called in a loop.
        encode: Arrow's Parquet writer, from memory into memory.
    """

    fetch: float
    decode: float
    encode: float
    read_rows_per_second: float
    decoded_rows_per_second: float

    @property
    def rows_per_cpu_second(self) -> float:
        return 1e6 / (self.fetch + self.decode + self.encode)


def measure_limits(work: Work, endpoints: Endpoints, records: int, rounds: int) -> Limits:
    """Measure the limits in a warm-up round and several further rounds; the fastest round counts."""
    spark = session("bench-limit", conf=jobs.own_classes())
    schema = taxi_schema()
    decoder = {"registry-url": endpoints.schema_registry_url, "reader-schema": schema}
    trips = jobs.topic_source(spark.read, work.topic, endpoints).load().limit(_SAMPLE_ROWS)
    nothing: dict[str, str] = {}
    sample = jobs.decoded_plainly(trips, schema).toArrow()
    reading, decoding, encoding = list[Took](), list[Took](), list[float]()
    for at in range(1 + rounds):
        for results, options in ((reading, nothing), (decoding, decoder)):
            took = timed(partial(_read, spark, work, endpoints, options, records))
            if at:
                results.append(took)
        if at:
            encoding.append(_encode(sample, records))
    fetch, both = (min(run.cpu_seconds for run in runs) * 1e6 / records for runs in (reading, decoding))
    return Limits(
        fetch=fetch,
        decode=max(both - fetch, 0.0),
        encode=min(encoding) * 1e6 / records,
        read_rows_per_second=records / min(run.seconds for run in reading),
        decoded_rows_per_second=records / min(run.seconds for run in decoding),
    )


def _read(spark: SparkSession, work: Work, endpoints: Endpoints, decoder: dict[str, str], expected: int) -> None:
    """Read the topic with a plain Kafka consumer, and decode the records if ``decoder`` has settings."""
    settings = {key.removeprefix(PREFIX): value for key, value in CONSUMER_DEFAULTS.items()}
    settings |= {"bootstrap.servers": endpoints.bootstrap_servers, "enable.auto.commit": "false"}
    records, _ = jvm.java(spark).bench.PlainReader.read(settings, work.topic, os.cpu_count() or 1, decoder)
    if records != expected:
        what = f"a plain consumer read {records:,} of the topic's {expected:,} records"
        raise JobFailed(what, hint="check the broker's log, and run the measurement again")


def _encode(sample: Any, rows: int) -> float:
    """Encode the sample repeatedly; return the CPU time, scaled to the given number of rows."""
    import pyarrow
    import pyarrow.parquet as parquet

    times = -(-rows // sample.num_rows)
    before = time.process_time()
    for _ in range(times):
        output = pyarrow.BufferOutputStream()
        parquet.write_table(sample, output, compression="zstd", compression_level=_ZSTD_LEVEL)
    return float((time.process_time() - before) / times / sample.num_rows * rows)
