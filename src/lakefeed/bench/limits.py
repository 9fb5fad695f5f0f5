"""The limits beside ``lakefeed bench throughput``: the least that a row costs on this machine, without Spark.

A plain Kafka consumer reads the topic, lakefeed's decoder is called in a loop, and Arrow's Parquet writer encodes
rows from memory into memory. No upload, no commit, no scheduler: no job can be faster with these parts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from lakefeed.bench import jobs
from lakefeed.bench.cases import Workload
from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.session import session
from lakefeed.config.kafka_options import CONSUMER_DEFAULTS, PREFIX
from lakefeed.errors import JobFailed
from lakefeed.lazy import SparkSession
from lakefeed.local import Endpoints
from lakefeed.operations.produce.taxi import taxi_schema

_SAMPLE_ROWS = 500_000
_ZSTD_LEVEL = 3
"""Iceberg's own."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The CPU time that a row costs at least, in microseconds, step by step, and the consumer's rows a second.

    Attributes:
        fetch: a plain Kafka consumer that looks at no record.
        decode: what lakefeed's decoder adds to it, called in a loop.
        encode: Arrow's Parquet writer in C++, with the same rows in memory and no file.
    """

    fetch: float
    decode: float
    encode: float
    read_rows_per_second: float
    decoded_rows_per_second: float

    @property
    def rows_per_cpu_second(self) -> float:
        return 1e6 / (self.fetch + self.decode + self.encode)

    def as_dict(self) -> dict[str, float]:
        return {**asdict(self), "rows_per_cpu_second": round(self.rows_per_cpu_second)}


def measure_limits(work: Workload, endpoints: Endpoints, records: int, rounds: int) -> Limits:
    """Measure the limits after a round that does not count; raise if the consumer finds another number of records."""
    spark = session("bench-limit")
    reading: list[tuple[float, float]] = []
    decoding: list[tuple[float, float]] = []
    encoding: list[float] = []
    nothing: dict[str, str] = {}
    decoder = {"registry-url": endpoints.schema_registry_url, "reader-schema": taxi_schema()}
    sample = _sample(spark, work, endpoints)
    for number in range(1 + rounds):
        for found, options in ((reading, nothing), (decoding, decoder)):
            cost = _cost(partial(_read, spark, work, endpoints, options, expected=records))
            if number:
                found.append(cost)
        if number:
            encoding.append(_encode(sample, records))
    (read_cpu, read_seconds), (decoded_cpu, decoded_seconds) = map(_least, (reading, decoding))
    fetch, both, encode = (seconds * 1e6 / records for seconds in (read_cpu, decoded_cpu, min(encoding)))
    return Limits(
        fetch=round(fetch, 4),
        decode=round(max(both - fetch, 0.0), 4),
        encode=round(encode, 4),
        read_rows_per_second=round(records / read_seconds),
        decoded_rows_per_second=round(records / decoded_seconds),
    )


def _least(costs: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the least CPU time and the least time by the clock: a limit is what was reached at best."""
    return min(cpu for cpu, _ in costs), min(seconds for _, seconds in costs)


def _cost(work: Callable[[], None]) -> tuple[float, float]:
    began, cpu = time.monotonic(), jobs.cpu_seconds()
    work()
    return jobs.cpu_seconds() - cpu, time.monotonic() - began


def _read(spark: SparkSession, work: Workload, endpoints: Endpoints, decoder: dict[str, str], *, expected: int) -> None:
    settings = {key.removeprefix(PREFIX): value for key, value in CONSUMER_DEFAULTS.items()}
    settings |= {"bootstrap.servers": endpoints.bootstrap_servers, "enable.auto.commit": "false"}
    threads = os.cpu_count() or 1
    records, _ = jvm.java(spark).bench.PlainReader.read(settings, work.topic, threads, decoder)
    if records != expected:
        raise JobFailed(f"the topic has {expected:,} records, and a plain consumer has read {records:,}")


def _sample(spark: SparkSession, work: Workload, endpoints: Endpoints) -> Any:
    """Return rows of the topic as an Arrow table."""
    records = jobs.topic_source(spark.read, work.topic, endpoints).load().limit(_SAMPLE_ROWS)
    return jobs.decoded_plainly(records, taxi_schema()).toArrow()


def _encode(sample: Any, rows: int) -> float:
    """Write as many rows as there are records, the sample's over and over; return the CPU time."""
    import pyarrow
    import pyarrow.parquet as parquet

    times = -(-rows // sample.num_rows)
    before = time.process_time()
    for _ in range(times):
        output = pyarrow.BufferOutputStream()
        parquet.write_table(sample, output, compression="zstd", compression_level=_ZSTD_LEVEL)
    return float((time.process_time() - before) / times / sample.num_rows * rows)
