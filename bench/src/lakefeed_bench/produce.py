"""Measure how fast rows become records of a topic, beside the job that the seeds publish: ``lakefeed-bench produce``.

Each producer has a process of its own, whose JVM stays warm; runs take turns, each into a topic of its own. A ratio is
the median over the rounds of what both did in the same round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from lakefeed.clients.spark.session import session
from lakefeed.lazy import t
from lakefeed.records.encode.encode import to_records
from lakefeed_bench import jobs
from lakefeed_bench.harness import (
    Bench,
    Outcome,
    Run,
    in_turns,
    measurement,
    median_of,
    median_ratio,
    number,
    only,
    table,
)
from lakefeed_bench.processes import Took, timed
from lakefeed_local.produce.sources import read_rows
from lakefeed_local.produce.taxi import KEY, Totals, taxi_rows, taxi_schema, totals
from lakefeed_local.produce.write import produce as produce_records
from lakefeed_local.stack import Endpoints

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Producer = Literal["seed", "lakefeed", "read"]
Input = Literal["csv", "parquet", "generated"]
PRODUCERS: tuple[Producer, ...] = get_args(Producer)
INPUTS: tuple[Input, ...] = get_args(Input)


@dataclass(frozen=True, kw_only=True)
class Trips:
    """The rows that are produced: so many trips, generated or in files below ``folder``."""

    input: Input
    rows: int
    folder: Path

    @property
    def uri(self) -> str:
        return (self.folder / self.input).absolute().as_uri()

    def read(self, spark: SparkSession) -> DataFrame:
        """Read them as ``lakefeed topics produce`` does: 17 columns, and no key."""
        if self.input == "generated":
            return taxi_rows(spark, self.rows).drop(KEY)
        return read_rows(spark, self.uri, format=self.input, schema=taxi_schema())


@dataclass(frozen=True, kw_only=True)
class ProducerResult:
    """All timed runs of one producer with one input, beside those of the seeds' producer in the same rounds."""

    input: Input
    producer: Producer
    rows: int
    runs: Sequence[Took]
    ratio_to_seed: float
    ratio_to_seed_by_clock: float

    @property
    def rows_per_second(self) -> float:
        return self.rows / median_of(self.runs).seconds

    @property
    def rows_per_cpu_second(self) -> float:
        return self.rows / median_of(self.runs).cpu_seconds

    @property
    def rows_equal(self) -> bool:
        return all(run.rows_equal for run in self.runs)


@measurement(
    "produce",
    number("--rows", 2_000_000, "Trips to produce."),
    number("--partitions", 10, "Of each topic."),
    number("--runs", 3, "Timed runs of each producer."),
    only("--input", INPUTS, into="inputs"),
    store="s3proxy",
)
def produce(bench: Bench, rows: int, partitions: int, runs: int, inputs: Sequence[Input]) -> Outcome:
    """Measure lakefeed's producer beside the one that the seeds publish, on the same rows and in turns.

    Rows are read from CSV or Parquet files, or generated. The figure is rows for each second of the client's CPU time.
    Each topic is read and its rows are added up; if they differ from what was to be sent the status is 1.
    """
    found: list[ProducerResult] = []
    with bench.processes(*PRODUCERS) as processes:
        for each in inputs or INPUTS:
            trips = Trips(input=each, rows=rows, folder=bench.logs)
            found += measure(bench, trips, processes, partitions=partitions, runs=runs)
    columns = "input producer rows rows_per_second rows_per_cpu_second ratio_to_seed ratio_to_seed_by_clock rows_equal"
    note = (
        "Ratios: rows for each CPU second of JVM and Python, and each second, as a multiple of the seeds' "
        "producer in the same round; medians. read: the same rows read or generated, and dropped."
    )
    text = f"{table(found, columns)}\n\n{note}"
    return Outcome(results=found, text=text, holds=all(result.rows_equal for result in found))


def measure(
    bench: Bench, trips: Trips, processes: dict[str, Run], *, partitions: int, runs: int
) -> list[ProducerResult]:
    """Produce the same rows in turns."""
    expected: Totals = processes["read"](write_files, trips)

    def run(producer: Producer, at: int) -> Took:
        topic = f"produce-{trips.input}-{producer}-{at}"
        if producer != "read":
            bench.topics.create(topic, partitions=partitions)
        took: Took = processes[producer](run_producer, producer, trips, topic, bench.endpoints)
        if producer == "read":
            return took
        # By a process that is not measured.
        equal = processes["read"](topic_totals, producer, topic, bench.endpoints) == expected
        bench.topics.delete(topic)
        return replace(took, rows_equal=equal)

    found = in_turns(PRODUCERS, run, rounds=runs, title=f"{trips.input}, ")
    return [
        ProducerResult(
            input=trips.input,
            producer=producer,
            rows=trips.rows,
            runs=found[producer],
            ratio_to_seed=median_ratio(found["seed"], found[producer], lambda run: run.cpu_seconds),
            ratio_to_seed_by_clock=median_ratio(found["seed"], found[producer], lambda run: run.seconds),
        )
        for producer in PRODUCERS
    ]


def write_files(trips: Trips) -> Totals:
    """Write the trips into files, one for each core; return their totals."""
    spark = session("bench-files")
    rows = taxi_rows(spark, trips.rows, slices=spark.sparkContext.defaultParallelism).drop(KEY)
    if trips.input != "generated":
        options = {"header": True} if trips.input == "csv" else {}
        rows.write.format(trips.input).options(**options).mode("overwrite").save(trips.uri)
    return totals(rows, key=None)


def run_producer(producer: Producer, trips: Trips, topic: str, endpoints: Endpoints) -> Took:
    """Produce the trips in one way; ``read`` only reads and drops them."""
    spark = jobs.plain_session({}) if producer == "seed" else session(f"bench-{producer}")
    servers, registry, schema = endpoints.bootstrap_servers, endpoints.schema_registry_url, taxi_schema()

    def work() -> None:
        if producer == "lakefeed":
            records = to_records(trips.read(spark), topic=topic, registry=registry, schema=schema)
            produce_records(records, topic, bootstrap_servers=servers)
        elif producer == "seed":
            _seed(spark, trips, topic, servers)
        else:
            trips.read(spark).write.format("noop").mode("overwrite").save()

    return timed(work)


def _seed(spark: SparkSession, trips: Trips, topic: str, servers: str) -> None:
    """Produce as the published job does: the further options that it sets are none of Spark's Kafka sink."""
    from pyspark.sql.avro.functions import to_avro
    from pyspark.sql.functions import struct

    if trips.input == "csv":
        schema = t.StructType([field for field in taxi_rows(spark, 0).schema.fields if field.name != KEY])
        rows = spark.read.option("header", "true").schema(schema).csv(trips.uri)
    else:
        rows = trips.read(spark)
    records = rows.select(to_avro(struct(*rows.columns), taxi_schema()).alias("value"))
    records.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic).save()


def topic_totals(producer: Producer, topic: str, endpoints: Endpoints) -> Totals:
    """Decode the records of a topic with Spark's ``from_avro``, and add them up."""
    records = jobs.topic_source(session("bench-check").read, topic, endpoints).load()
    return totals(jobs.decoded_plainly(records, taxi_schema(), is_framed=producer == "lakefeed"), key=None)
