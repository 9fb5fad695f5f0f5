"""The main job from end to end: rows into a topic, the topic into a table, the table read back by another engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.connections import Connections
from lakefeed.errors import ResourceMissing
from lakefeed.feed.progress import BatchProgress
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
SUMMED = ("passenger_count", "trip_distance", "fare_amount", "tip_amount", "tolls_amount", "total_amount")


@dataclass(frozen=True, kw_only=True)
class DemoReport:
    """What the demo did and found.

    Attributes:
        produced: records written into the topic.
        rows: rows of the table, counted by DuckDB over pyiceberg.
        dead_letters: records that became dead letters.
        verified: whether count, distinct keys and all sums of the table equal those of the rows produced.
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
        """For ``--output json``."""
        return asdict(self)


class Demo:
    """The demo on one running stack; each step can be run by itself.

    Args:
        endpoints: the stack.
        rows: how many trips to generate, unless there is a file.
        csv: real trips to use instead: a CSV file with the 17 columns.
    """

    def __init__(self, endpoints: Endpoints, *, rows: int = 1_000_000, csv: Path | None = None) -> None:
        self._endpoints = endpoints
        self._environment = endpoints.as_environment()
        self._rows = rows
        self._csv = csv
        self.pipeline = Pipeline.from_file(example("taxi") / "pipeline.yaml", environment=self._environment)

    def trips(self, spark: SparkSession) -> DataFrame:
        """The rows to produce, with the column ``trip_key``: the same ones whenever they are asked for."""
        if self._csv is None:
            return taxi_rows(spark, self._rows)
        from pyspark.sql import functions as F

        trips = read_rows(spark, str(self._csv), format="csv", schema=taxi_schema())
        return trips.withColumn(KEY, F.hex(F.xxhash64(*trips.columns)))

    def produce(self, spark: SparkSession, *, reached: Callable[[int], None] | None = None) -> tuple[int, float]:
        """Makes the topic and writes the trips into it: records and seconds."""
        topics = Topics(self._endpoints.bootstrap_servers)
        topics.create(TOPIC, partitions=PARTITIONS)
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

    def land(
        self,
        spark: SparkSession,
        *,
        on_batch: Callable[[BatchProgress], None] | None = None,
        stop: threading.Event | None = None,
    ) -> RunSummary:
        """Runs ``examples/taxi/pipeline.yaml`` until it has caught up."""
        return self.pipeline.run(spark=spark, once=True, on_batch=on_batch, stop=stop)

    def found(self) -> Totals:
        """The totals of the table, read by pyiceberg and added up by DuckDB: no Spark."""
        connections = Connections.from_environment(self._environment)
        return table_totals(connections, self.table)

    @property
    def table(self) -> str:
        """catalog.namespace.table"""
        return self.pipeline.config.sink.ledger_table

    def report(
        self, *, expected: Totals, found: Totals, produced: int, produce_seconds: float, run: RunSummary
    ) -> DemoReport:
        """All figures together."""
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

    def expected(self, spark: SparkSession) -> Totals:
        """The totals of the rows produced."""
        return totals(self.trips(spark))


def table_totals(connections: Connections, table: str, *, key: str = "kafka_key") -> Totals:
    """The totals of a table of trips, read by pyiceberg and added up by DuckDB.

    The rows are streamed, so that a table larger than memory can be checked.
    """
    import duckdb

    opened = open_table(table, connections=connections)
    scan = opened.scan(selected_fields=(key, *SUMMED))
    expressions = {**TOTALS_SQL, "distinct_keys": f"count(distinct {key})"}
    with duckdb.connect() as connection:
        connection.register("trips", scan.to_arrow_batch_reader())
        listed = ", ".join(f"{sql} AS {name}" for name, sql in expressions.items())
        found = connection.execute(f"SELECT {listed} FROM trips").fetchone()  # noqa: S608  # our own words
    values = found or (0,) * len(expressions)
    return Totals(**{name: int(value or 0) for name, value in zip(expressions, values, strict=True)})


def example(name: str) -> Path:
    """The folder of an example: inside the installed package, or in a checkout beside ``src/``.

    Raises:
        ResourceMissing: if there is no such example.
    """
    here = Path(__file__).resolve().parents[1]
    for folder in (here / "examples" / name, here.parents[1] / "examples" / name):
        if folder.is_dir():
            return folder
    raise ResourceMissing(f"there is no example '{name}'", where=str(here))
