"""The main job from end to end: rows into a topic, the topic into a table, the table read back by another engine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.topics import Topics
from lakefeed.errors import ResourceMissing
from lakefeed.local import Endpoints
from lakefeed.operations.produce.sources import read_rows
from lakefeed.operations.produce.taxi import KEY, TOTALS_SQL, Totals, taxi_rows, taxi_schema, totals
from lakefeed.operations.produce.write import produce
from lakefeed.pipeline import Pipeline, RunSummary
from lakefeed.records.encode.encode import to_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "nyc-avro-topic"
PARTITIONS = 10
TABLE_KEY = "kafka_key"
SUMMED = ("passenger_count", "trip_distance", "fare_amount", "tip_amount", "tolls_amount", "total_amount")


@dataclass(frozen=True, kw_only=True)
class DemoReport:
    """The figures of a demo.

    Attributes:
        verified: count, distinct keys and all sums of the table equal those of the rows produced.
        expected: the totals of the rows produced, from Spark.
        found: the totals of the table, from DuckDB over pyiceberg.
    """

    produced: int
    rows: int
    dead_letters: int
    batches: int
    seconds: float
    rows_per_second: int
    produce_rows_per_second: int
    s3_requests: int
    s3_requests_by_operation: dict[str, int]
    files: int
    verified: bool
    table: str
    warehouse: str
    expected: Totals
    found: Totals

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Demo:
    """The steps of the demo on one running stack.

    Args:
        endpoints: the stack.
        rows: trips to generate, unless there is a file.
        csv: real trips to use instead: a CSV file with the 17 columns.
    """

    def __init__(self, endpoints: Endpoints, *, rows: int, csv: Path | None) -> None:
        self._endpoints = endpoints
        self._rows = rows
        self._csv = csv
        self.pipeline = Pipeline.from_file(example("taxi") / "pipeline.yaml", environment=endpoints.as_environment())
        self.table = self.pipeline.config.sink.ledger_table

    def trips(self, spark: SparkSession) -> DataFrame:
        """Return the rows to produce, with the column ``trip_key``: the same ones in each call."""
        if self._csv is None:
            return taxi_rows(spark, self._rows)
        from pyspark.sql import functions as F

        trips = read_rows(spark, str(self._csv), format="csv", schema=taxi_schema())
        return trips.withColumn(KEY, F.hex(F.xxhash64(*trips.columns)))

    def produce(self, spark: SparkSession, *, reached: Callable[[int], None] | None = None) -> tuple[int, float]:
        """Make the topic and write the trips into it; return records and seconds."""
        Topics(self._endpoints.bootstrap_servers).create(TOPIC, partitions=PARTITIONS)
        began = time.monotonic()
        records = to_records(
            self.trips(spark),
            topic=TOPIC,
            format="confluent-avro",
            registry=self._endpoints.schema_registry_url,
            schema=taxi_schema(),
            key=KEY,
        )
        done = produce(records, TOPIC, bootstrap_servers=self._endpoints.bootstrap_servers, reached=reached)
        return done.records, time.monotonic() - began

    def expected(self, spark: SparkSession) -> Totals:
        """Add up the rows produced."""
        return totals(self.trips(spark))

    def found(self) -> Totals:
        """Add up the table, read by pyiceberg, with DuckDB: no Spark.

        The rows are streamed: the table may be larger than memory.
        """
        import duckdb

        opened = open_table(self.table, connections=self.pipeline.connections)
        scan = opened.scan(selected_fields=(TABLE_KEY, *SUMMED))
        expressions = {**TOTALS_SQL, "distinct_keys": f"count(distinct {TABLE_KEY})"}
        with duckdb.connect() as connection:
            connection.register("trips", scan.to_arrow_batch_reader())
            listed = ", ".join(f"{sql} AS {name}" for name, sql in expressions.items())
            found = connection.execute(f"SELECT {listed} FROM trips").fetchone()  # noqa: S608  # our own words
        values = found or (0,) * len(expressions)
        return Totals(**{name: int(value or 0) for name, value in zip(expressions, values, strict=True)})

    def report(
        self, *, expected: Totals, found: Totals, produced: int, produce_seconds: float, run: RunSummary
    ) -> DemoReport:
        return DemoReport(
            produced=produced,
            rows=found.records,
            dead_letters=run.dead_letters,
            batches=run.batches,
            seconds=run.seconds,
            rows_per_second=round(run.rows_per_second),
            produce_rows_per_second=round(produced / produce_seconds) if produce_seconds > 0 else 0,
            s3_requests=sum(run.s3_requests.values()),
            s3_requests_by_operation=dict(run.s3_requests),
            files=run.files or 0,
            verified=found == expected and produced == expected.records,
            table=self.table,
            warehouse=self._endpoints.warehouse,
            expected=expected,
            found=found,
        )


def example(name: str) -> Path:
    """Return the folder of an example: inside the installed package, or in a checkout beside ``src/``."""
    here = Path(__file__).resolve().parents[1]
    for folder in (here / "examples" / name, here.parents[1] / "examples" / name):
        if folder.is_dir():
            return folder
    raise ResourceMissing(f"there is no example '{name}'", where=str(here))
