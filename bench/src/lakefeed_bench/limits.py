"""The limits beside ``lakefeed-bench throughput``: the least that a row costs on this machine, without Spark.

A plain Kafka consumer reads the topic, lakefeed's decoder is called in a loop, and Arrow's Parquet writer encodes
rows from memory into memory. No upload, no commit, no scheduler: no job can be faster with these parts.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.session import session
from lakefeed.config.kafka_options import CONSUMER_DEFAULTS, PREFIX
from lakefeed.errors import JobFailed
from lakefeed.lazy import SparkSession
from lakefeed.local import Endpoints
from lakefeed.operations.produce.taxi import taxi_schema
from lakefeed_bench import jobs
from lakefeed_bench.jobs import Work
from lakefeed_bench.processes import Took, timed

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


def measure_limits(work: Work, endpoints: Endpoints, records: int, rounds: int) -> Limits:
    """Measure the limits after a round that does not count: the least CPU time and the least time by the clock."""
    spark = session("bench-limit")
    schema = taxi_schema()
    decoder = {"registry-url": endpoints.schema_registry_url, "reader-schema": schema}
    trips = jobs.topic_source(spark.read, work.topic, endpoints).load().limit(_SAMPLE_ROWS)
    nothing: dict[str, str] = {}
    sample = jobs.decoded_plainly(trips, schema).toArrow()
    reading, decoding, encoding = list[Took](), list[Took](), list[float]()
    for at in range(1 + rounds):
        for found, options in ((reading, nothing), (decoding, decoder)):
            took = timed(partial(_read, spark, work, endpoints, options, records))
            if at:
                found.append(took)
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
    """Read the topic without Spark, and decode it if there is a decoder."""
    settings = {key.removeprefix(PREFIX): value for key, value in CONSUMER_DEFAULTS.items()}
    settings |= {"bootstrap.servers": endpoints.bootstrap_servers, "enable.auto.commit": "false"}
    records, _ = jvm.java(spark).bench.PlainReader.read(settings, work.topic, os.cpu_count() or 1, decoder)
    if records != expected:
        raise JobFailed(f"the topic has {expected:,} records, and a plain consumer has read {records:,}")


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
