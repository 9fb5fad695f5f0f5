"""Measure the Avro decoder and Spark's ``from_avro`` on the same records: ``lakefeed-bench decode``."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import click

from lakefeed.cli.options import options_of, output_option
from lakefeed.clients.http_server import HttpAnswer, serve_http
from lakefeed.clients.spark.session import log_path, session
from lakefeed.clients.spark.statements import expression
from lakefeed.config.connections import Connections
from lakefeed.lazy import DataFrame, SparkSession, sf
from lakefeed.records.decode import ConfluentAvro, decoded
from lakefeed.records.decode import rows as decoded_rows
from lakefeed_bench.harness import Outcome, finish, in_turns, median_of, number, only, table
from lakefeed_local.produce.taxi import KEY, taxi_rows, taxi_schema

_SCHEMA_ID = 100_001
"""The schema id in every record's header: larger than a byte, as in a registry in use."""

WARM_UP = 2
"""Rounds that do not count; the JVM compiles during them."""


@dataclass(frozen=True, kw_only=True)
class DecodeCase:
    """A schema (JSON), and a function that generates a number of rows with the schema's columns."""

    about: str
    schema: str
    rows: Callable[[SparkSession, int], DataFrame]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Medians over the rounds: the tasks' CPU time per row, and rows per second of the job's whole duration."""

    cpu_microseconds: float
    rows_per_second: float

    def __str__(self) -> str:
        return f"{self.cpu_microseconds:.3f} µs of CPU a row, {self.rows_per_second:,.0f} rows/s"


@dataclass(frozen=True, kw_only=True)
class DecoderComparison:
    """One schema's result.

    Attributes:
        bytes_per_record: the mean length, with the header.
        read: the job that only reads the values from memory.
        from_avro: ``from_avro(substring(value, 6))``, all fields.
        lakefeed: ``rows(decoded(...))``: header, the writer's schema by its id, all fields, all checks.
    """

    case: str
    about: str
    rows: int
    rounds: int
    bytes_per_record: float
    read: Cost
    from_avro: Cost
    lakefeed: Cost

    @property
    def ratio_to_from_avro(self) -> float:
        """Return how many times as fast as ``from_avro`` lakefeed's job is, by the CPU time of the tasks."""
        return self.from_avro.cpu_microseconds / self.lakefeed.cpu_microseconds

    @property
    def ratio_without_reading(self) -> float:
        """Return the same ratio for decoding alone, without the time to read the values from memory."""
        reading = self.read.cpu_microseconds
        return (self.from_avro.cpu_microseconds - reading) / max(self.lakefeed.cpu_microseconds - reading, 1e-6)


def compare(spark: SparkSession, name: str, *, rows: int, rounds: int, warm_up: int = WARM_UP) -> DecoderComparison:
    """Measure the two decoders on the same records, in turns. The records must fit into the driver's memory."""
    from pyspark import StorageLevel

    case = CASES[name]
    # Deserialized, so that rounds measure the decoders and not the decompression of the cache.
    held = values(spark, case, rows).persist(StorageLevel(False, True, False, True))
    answer = json.dumps({"schema": case.schema}).encode()
    try:
        [[length]] = held.agg(sf.avg(sf.length("value"))).collect()
        with serve_http(lambda request: HttpAnswer(200, answer)) as registry:
            ways = _ways(held, case, registry)

            def run(way: str, at: int) -> Cost:
                began = time.perf_counter()
                cpu = _task_cpu(spark, ways[way]) / 1000 / rows
                return Cost(cpu_microseconds=cpu, rows_per_second=rows / (time.perf_counter() - began))

            costs = in_turns(list(ways), run, rounds=rounds, warm_up=warm_up, title=f"{name}, ")
    finally:
        held.unpersist()
    medians = {way: median_of(found) for way, found in costs.items()}
    return DecoderComparison(
        case=name, about=case.about, rows=rows, rounds=rounds, bytes_per_record=round(length, 1), **medians
    )


def values(spark: SparkSession, case: DecodeCase, rows: int) -> DataFrame:
    """Return the column ``value`` in Confluent's wire format, written by Spark's ``to_avro``."""
    from pyspark.sql.avro.functions import to_avro

    header = sf.lit(bytearray(b"\0" + _SCHEMA_ID.to_bytes(4, "big")))
    encoded = to_avro(sf.struct("*"), case.schema)
    return case.rows(spark, rows).select(sf.concat(header, encoded).alias("value"))


def _ways(held: DataFrame, case: DecodeCase, registry_url: str) -> dict[str, DataFrame]:
    from pyspark.sql.avro.functions import from_avro

    spec = ConfluentAvro(registry_url=registry_url, reader_schema=case.schema)
    data = sf.expr("substring(value, 6)")
    records = held.selectExpr("'bench' AS topic", "0 AS partition", "0L AS offset", "value")
    return {
        "read": held.select("value"),
        "from_avro": held.select(from_avro(data, case.schema).alias("decoded")).select("decoded.*"),
        "lakefeed": decoded_rows(decoded(records, spec)),
    }


def _task_cpu(spark: SparkSession, frame: DataFrame) -> int:
    """Compute all rows and discard them; return the CPU time of the tasks in nanoseconds."""
    context = spark.sparkContext
    # A job group per call: Spark keeps the jobs of all groups, and jobs of another schema must not be counted.
    group = uuid.uuid4().hex
    context.setJobGroup(group, group)
    frame.write.format("noop").mode("overwrite").save()
    java: Any = context._jsc.sc()
    java.listenerBus().waitUntilEmpty()
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = {stage for job in jobs if job for stage in job.stageIds}
    return sum(int(java.statusStore().lastStageAttempt(stage).executorCpuTime()) for stage in stages)


def report(comparisons: Sequence[DecoderComparison]) -> str:
    """Return the results as a table."""
    costs = " ".join(f"{way}.cpu_microseconds" for way in ("read", "from_avro", "lakefeed"))
    columns = f"case bytes_per_record {costs} ratio_to_from_avro ratio_without_reading"
    note = "CPU time of the tasks for each row; medians. A ratio above 1: faster than from_avro."
    return f"{table(comparisons, columns)}\n\n{note}"


def _case(name: str, about: str) -> DecodeCase:
    """Return the case of a schema file and the file of its columns, which has one expression per paragraph."""
    folder = files("lakefeed_bench")
    _, *columns = folder.joinpath(f"{name}.sql").read_text("utf-8").split("\n\n")

    def make(spark: SparkSession, rows: int) -> DataFrame:
        return spark.range(rows).select(*(expression(spark, column) for column in columns))

    return DecodeCase(about=about, schema=folder.joinpath(f"{name}.avsc").read_text("utf-8"), rows=make)


CASES: Mapping[str, DecodeCase] = {
    "taxi": DecodeCase(
        about="17 fields, flat", schema=taxi_schema(), rows=lambda spark, rows: taxi_rows(spark, rows).drop(KEY)
    ),
    "nested": _case("nested", "records, an array, a map, unions, an enum"),
    "logical": _case("logical", "dates, moments, decimals, a UUID"),
}


@click.command()
@options_of(
    number("--rows", 1_000_000, "Records in memory."),
    number("--rounds", 9, "Turns of each decoder."),
    only("--schema", list(CASES), into="names"),
    output_option,
)
def decode(rows: int, rounds: int, names: Sequence[str]) -> None:
    """Compare the Avro decoder with Spark's from_avro.

    The records are in memory. The figure is the CPU time of the tasks, which other programs disturb least. No server.
    """
    name, log_file = "bench-decode", log_path("bench-decode")
    with session(name, connections=Connections(), master="local[1]", log_file=log_file) as spark:
        compared = [compare(spark, name, rows=rows, rounds=rounds) for name in names or CASES]
    finish(Outcome(results=compared, text=report(compared), holds=True))
