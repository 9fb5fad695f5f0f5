"""Compare lakefeed's Avro decoder with Spark's ``from_avro`` on the same records: ``lakefeed-bench decode``."""

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
from lakefeed.clients.spark.session import log_path, session
from lakefeed.clients.spark.statements import expression
from lakefeed.config.connections import Connections
from lakefeed.lazy import DataFrame, SparkSession, sf
from lakefeed.records.decode import ConfluentAvro, decoded
from lakefeed.records.decode import rows as decoded_rows
from lakefeed_bench.harness import Outcome, finish, in_turns, median_of, number, only, table
from lakefeed_local.produce.taxi import KEY, taxi_rows, taxi_schema
from lakefeed_testing.schemas import HttpAnswer, serve_http

_SCHEMA_ID = 100_001
"""The schema id in every record's header. It takes several bytes, like the ids in a production registry."""

WARM_UP = 2
"""The number of rounds at the beginning that do not count, because the JVM still compiles the code."""


@dataclass(frozen=True, kw_only=True)
class DecodeCase:
    """An Avro schema (JSON), and a function that generates a given number of rows with the schema's columns."""

    about: str
    schema: str
    rows: Callable[[SparkSession, int], DataFrame]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The tasks' CPU time per row, and the rows per second of elapsed time, of one round or as medians over rounds."""

    cpu_microseconds: float
    rows_per_second: float

    def __str__(self) -> str:
        return f"{self.cpu_microseconds:.3f} µs of CPU a row, {self.rows_per_second:,.0f} rows/s"


@dataclass(frozen=True, kw_only=True)
class DecoderComparison:
    """The result for one schema.

    Attributes:
        bytes_per_record: the mean length of the values, including Confluent's header.
        read: the cost of a job that only reads the values from memory.
        from_avro: the cost of ``from_avro(substring(value, 6))`` with all fields.
        lakefeed: the cost of ``rows(decoded(...))``, which reads the header, gets the writer's schema by its id, and
            checks and decodes all fields.
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
        """The CPU time of ``from_avro``, divided by that of lakefeed's decoder."""
        return self.from_avro.cpu_microseconds / self.lakefeed.cpu_microseconds

    @property
    def ratio_without_reading(self) -> float:
        """The CPU time of ``from_avro`` divided by lakefeed's, both without the time to read the values from memory."""
        reading = self.read.cpu_microseconds
        return (self.from_avro.cpu_microseconds - reading) / max(self.lakefeed.cpu_microseconds - reading, 1e-6)


def compare(spark: SparkSession, name: str, *, rows: int, rounds: int, warm_up: int = WARM_UP) -> DecoderComparison:
    """Measure the two decoders alternately on the same records, all of which must fit into the driver's memory."""
    from pyspark import StorageLevel

    case = CASES[name]
    # Cache the records deserialized: otherwise each round would include the decompression of the cache.
    records = values(spark, case, rows).persist(StorageLevel(False, True, False, True))
    answer = json.dumps({"schema": case.schema}).encode()
    try:
        [[length]] = records.agg(sf.avg(sf.length("value"))).collect()
        with serve_http(lambda request: HttpAnswer(200, answer)) as registry:
            jobs = _jobs(records, case, registry)

            def run(job: str, at: int) -> Cost:
                began = time.perf_counter()
                cpu = _task_cpu(spark, jobs[job]) / 1000 / rows
                return Cost(cpu_microseconds=cpu, rows_per_second=rows / (time.perf_counter() - began))

            costs = in_turns(list(jobs), run, rounds=rounds, warm_up=warm_up, title=f"{name}, ")
    finally:
        records.unpersist()
    medians = {job: median_of(runs) for job, runs in costs.items()}
    return DecoderComparison(
        case=name, about=case.about, rows=rows, rounds=rounds, bytes_per_record=round(length, 1), **medians
    )


def values(spark: SparkSession, case: DecodeCase, rows: int) -> DataFrame:
    """Return rows with one column, ``value``: Avro that Spark's ``to_avro`` wrote, after Confluent's header."""
    from pyspark.sql.avro.functions import to_avro

    header = sf.lit(bytearray(b"\0" + _SCHEMA_ID.to_bytes(4, "big")))
    encoded = to_avro(sf.struct("*"), case.schema)
    return case.rows(spark, rows).select(sf.concat(header, encoded).alias("value"))


def _jobs(values: DataFrame, case: DecodeCase, registry_url: str) -> dict[str, DataFrame]:
    from pyspark.sql.avro.functions import from_avro

    spec = ConfluentAvro(registry_url=registry_url, reader_schema=case.schema)
    data = sf.expr("substring(value, 6)")
    records = values.selectExpr("'bench' AS topic", "0 AS partition", "0L AS offset", "value")
    return {
        "read": values,
        "from_avro": values.select(from_avro(data, case.schema).alias("decoded")).select("decoded.*"),
        "lakefeed": decoded_rows(decoded(records, spec)),
    }


def _task_cpu(spark: SparkSession, frame: DataFrame) -> int:
    """Compute all rows, discard them, and return the tasks' CPU time in nanoseconds."""
    context = spark.sparkContext
    # Each call needs its own job group, because Spark's status store keeps the jobs of earlier calls.
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
    costs = " ".join(f"{job}.cpu_microseconds" for job in ("read", "from_avro", "lakefeed"))
    columns = f"case bytes_per_record {costs} ratio_to_from_avro ratio_without_reading"
    note = "Medians of the tasks' CPU time per row. A ratio above 1 means that lakefeed is faster than from_avro."
    return f"{table(comparisons, columns)}\n\n{note}"


def _case(name: str, about: str) -> DecodeCase:
    """Read a case from its schema file and its SQL file; each paragraph of the SQL is a column's expression."""
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
    number("--rows", 1_000_000, "Number of records."),
    number("--rounds", 9, "Timed runs of each decoder."),
    only("--schema", list(CASES), into="names"),
    output_option,
)
def decode(rows: int, rounds: int, names: Sequence[str]) -> None:
    """Compare lakefeed's Avro decoder with Spark's from_avro.

    Both decode records in memory, without a server. The figure is the tasks' CPU time, because other programs on the
    machine affect it less than elapsed time.
    """
    name, log_file = "bench-decode", log_path("bench-decode")
    with session(name, connections=Connections(), master="local[1]", log_file=log_file) as spark:
        compared = [compare(spark, name, rows=rows, rounds=rounds) for name in names or CASES]
    finish(Outcome(results=compared, text=report(compared), holds=True))
