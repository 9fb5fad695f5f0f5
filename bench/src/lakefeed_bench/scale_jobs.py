"""Fill the topics of ``lakefeed-bench scale`` and run its pipelines, in a process with a warm JVM."""

from __future__ import annotations

import base64
import io
import json
import os
import random
import struct
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import fastavro

from lakefeed.clients.kafka.topics import Topics
from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.session import session
from lakefeed.clients.spark.statements import expression
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import JobFailed
from lakefeed.feed.s3_requests import s3_requests
from lakefeed.lazy import SparkSession
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.pipeline import Pipeline
from lakefeed.records.decode.registry import SchemaRegistry
from lakefeed_bench import jobs
from lakefeed_bench.processes import CpuTimes, forget_peaks, peak_megabytes, without_compilers
from lakefeed_encode.encode import to_records
from lakefeed_local.produce.write import produce
from lakefeed_local.stack import Endpoints

_SCHEMA = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": "id", "type": "long"}, {"name": "zone", "type": "string"}],
}
_OVERHEAD = 20
"""The bytes of a record besides its text: Confluent's header, the number, and the text's length."""
LARGEST_RECORD = 4_000_000
# With its default settings, the broker would preallocate 20 GB of index files for a thousand partitions.
_TOPIC = {"segment.index.bytes": "65536", "max.message.bytes": str(LARGEST_RECORD)}
_COLUMNS = (
    "cast(id * {n} % 1000003 AS BIGINT)",
    "cast(hash(id, {n}) / 1000.0D AS DOUBLE)",
    "concat('text-', cast(hash(id, {n}) % 1000 AS STRING))",
    "timestamp_micros(1700000000000000 + id * {n})",
)
"""The expressions of the columns of wide rows, used in turn; ``n`` is the column's number."""
_COLLECTIONS = 3
_BETWEEN_COLLECTIONS_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class ScaleRun:
    """A run to measure.

    Attributes:
        pipeline: the content of its pipeline file.
        marks: the numbers of the batches after which the run measures; it ends after the last of them.
        heap_at: the marks at which a garbage collection precedes the measurement of the driver's heap.
        files: the number of data files to add to the table before the run.
        has_tables: each topic has its own table; a batch then consists of a batch of each topic.
    """

    pipeline: Mapping[str, Any]
    marks: tuple[int, ...]
    heap_at: tuple[int, ...]
    files: int = 0
    has_tables: bool = False


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A measurement: the resources used from the start of the run to the end of a batch.

    ``heap`` is the driver's heap in bytes after a garbage collection; None if it was not measured.
    """

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
    """The measurements of a run; ``is_complete`` if the run reached its last mark, and every record became a row."""

    marks: tuple[Mark, ...]
    peak_rss_mb: int
    is_complete: bool

    def __str__(self) -> str:
        before, after = self.marks[0], self.marks[-1]
        batches = max(1, after.batch - before.batch)
        cpu, seconds = after.cpu_seconds - before.cpu_seconds, after.seconds - before.seconds
        complete = "" if self.is_complete else "; ROWS ARE MISSING"
        return f"{cpu / batches:.3f} CPU s and {seconds / batches:.3f} s per batch{complete}"


def run_scale(run: ScaleRun) -> ScaleFigures:
    """Run a pipeline in this process's session, and measure after the batches in its ``marks``."""
    pipeline = Pipeline(PipelineConfig.model_validate(run.pipeline), environment=dict(os.environ))
    # Do not call pipeline.session(): its preflight would add S3 requests from Python.
    spark = session("bench-scale", connections=pipeline.connections, conf=jobs.own_classes())
    if run.files:
        _add_files(spark, pipeline, run.files)
    _collected_heap(spark)
    forget_peaks()
    clock = _Clock(spark, run)
    # Spark reports the end of a batch; with many tables, ``on_batch`` reports it when all topics have had one.
    remove = None if run.has_tables else jobs.on_progress(spark, lambda _: clock.end_batch())
    on_batch = (lambda _: clock.end_batch()) if run.has_tables else None
    try:
        summary = pipeline.run(spark=spark, once=True, stop=clock.stop, on_batch=on_batch)
    finally:
        if remove is not None:
            remove()
    is_complete = summary.rows == summary.records > 0 and len(clock.marks) == len(run.marks)
    return ScaleFigures(marks=tuple(clock.marks), peak_rss_mb=peak_megabytes(), is_complete=is_complete)


def _add_files(spark: SparkSession, pipeline: Pipeline, files: int) -> None:
    """Create the pipeline's table with a first batch; add data files to its metadata, without writing the files."""
    stop = threading.Event()
    pipeline.run(spark=spark, once=True, stop=stop, on_batch=lambda progress: stop.set())
    table = IcebergLedger(spark, pipeline.config.sink.chosen.target, pipeline.config.name).loaded()
    jvm.java(spark).bench.ManyFiles.append(table, files)


def _collected_heap(spark: SparkSession) -> tuple[int, float]:
    """Collect the driver's garbage; return the bytes in use on the heap, and the seconds that the collections took.

    The garbage is collected several times, and the smallest heap counts, because running batches use memory
    temporarily.
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
    """Measures at the marks, and subtracts the cost of measuring, which is mainly garbage collection."""

    spark: SparkSession
    run: ScaleRun
    stop: threading.Event = field(default_factory=threading.Event)
    marks: list[Mark] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._done = 0
        self._own_seconds = self._own_cpu = 0.0
        self._requests = self._requests_now()
        self._began, self._cpu = time.monotonic(), CpuTimes.now()

    def end_batch(self) -> None:
        self._done += 1
        if self._done not in self.run.marks:
            return
        seconds = time.monotonic() - self._began - self._own_seconds
        cpu, requests = CpuTimes.now().since(self._cpu), self._requests_now() - self._requests
        heap, stopped = _collected_heap(self.spark) if self._done in self.run.heap_at else (None, 0.0)
        spent = {**cpu, "collector": cpu["collector"] - self._own_cpu}
        self.marks.append(Mark(batch=self._done, cpu=spent, seconds=seconds, requests=requests, heap=heap))
        # Also print the measurement into the log, because a long run returns its measurements only at its end.
        print(asdict(self.marks[-1]), flush=True)
        if heap is not None:
            self._own_cpu += CpuTimes.now().since(self._cpu)["collector"] - cpu["collector"]
            self._own_seconds += stopped
        if self._done >= max(self.run.marks):
            self.stop.set()

    def _requests_now(self) -> int:
        return s3_requests(self.spark).total


def create_topic(topic: str, endpoints: Endpoints, *, partitions: int) -> None:
    Topics(endpoints.bootstrap_servers).create(topic, partitions=partitions, config=_TOPIC)


def fill_topic(
    topic: str, endpoints: Endpoints, *, records: int, partitions: int, bytes_each: int | None = None
) -> None:
    """Create a topic, and spread records of about ``bytes_each`` bytes (default: small) evenly over its partitions."""
    from confluent_kafka import Producer

    create_topic(topic, endpoints, partitions=partitions)
    schema_id = SchemaRegistry(endpoints.schema_registry_url).register(f"{topic}-value", json.dumps(_SCHEMA))
    length = max(1, (bytes_each or 0) - _OVERHEAD)
    # The texts are slices of random text, which codecs can hardly compress.
    pool = base64.b64encode(random.Random(1).randbytes(length + 1_000_000)).decode()  # noqa: S311  (the same each time)
    settings = {"linger.ms": 20, "message.max.bytes": LARGEST_RECORD, "log_level": 0}
    producer = Producer({"bootstrap.servers": endpoints.bootstrap_servers, **settings})
    for number in range(records):
        at = number * 7919 % 1_000_000
        zone = f"zone-{number % 100}" if bytes_each is None else pool[at : at + length]
        value = io.BytesIO()
        value.write(b"\0" + struct.pack(">I", schema_id))
        fastavro.schemaless_writer(value, _SCHEMA, {"id": number, "zone": zone})
        while True:
            try:
                producer.produce(topic, value.getvalue(), partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(300):
        what = "the broker did not acknowledge all records within 300 s"
        raise JobFailed(what, where=f"topic {topic}", hint="check the broker's log and the free disk space")


def produce_columns(columns: int, rows: int, topic: str, endpoints: Endpoints) -> None:
    """Produce rows with the given number of columns: integers, floats, texts and timestamps in turn."""
    spark = session("bench-scale")
    texts = [_COLUMNS[number % len(_COLUMNS)].format(n=number + 1) for number in range(columns)]
    named = [expression(spark, text).alias(f"c{number}") for number, text in enumerate(texts)]
    records = to_records(spark.range(rows).select(*named), topic=topic, registry=endpoints.schema_registry_url)
    produce(records, topic, bootstrap_servers=endpoints.bootstrap_servers)
