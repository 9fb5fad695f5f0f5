"""Produce trips into a topic, land them in a table, read the table without Spark, and compare it with the trips."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lakefeed import Pipeline, session
from lakefeed.clients.kafka.topics import Topics
from lakefeed.clients.spark.session import log_path
from lakefeed.clients.spark.signals import stop_on_signals
from lakefeed.messages.text import duration
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.terminal import RunView
from lakefeed_encode.encode import to_records
from lakefeed_local.examples import packaged_example
from lakefeed_local.produce.taxi import KEY, Totals, table_totals, taxi_schema, taxi_trips, totals
from lakefeed_local.produce.write import ProduceView, produce
from lakefeed_local.stack import Endpoints

TOPIC = "nyc-avro-topic"
PARTITIONS = 10
TABLE_KEY = "kafka_key"


@dataclass(frozen=True, kw_only=True)
class DemoReport:
    """The figures of a demo.

    The demo is verified if Spark's totals of the produced trips equal DuckDB's totals of the table.
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


def run_demo(endpoints: Endpoints, *, rows: int, csv: Path | None, say: Callable[[str], None]) -> DemoReport:
    """Produce ``rows`` generated trips, or the trips of a CSV file, land them in a table, and compare the totals."""
    pipeline = Pipeline.from_file(packaged_example("taxi").main, environment=endpoints.as_environment())
    table = pipeline.config.sink.ledger_table
    log_file = log_path("demo")
    say(f"starting Spark; its log is {log_file}")
    with session("demo", connections=pipeline.connections, log_file=log_file) as spark:
        say("producing trips into the topic")
        trips = taxi_trips(spark, rows=rows, csv=csv)
        with ProduceView(TOPIC, expected=None if csv else rows) as producing:
            began = time.monotonic()
            Topics(endpoints.bootstrap_servers).create(TOPIC, partitions=PARTITIONS)
            schema, registry = taxi_schema(), endpoints.schema_registry_url
            records = to_records(trips, topic=TOPIC, format="confluent-avro", registry=registry, schema=schema, key=KEY)
            servers = endpoints.bootstrap_servers
            produced = produce(records, TOPIC, bootstrap_servers=servers, reached=producing.reached).records
            produce_seconds = time.monotonic() - began
        say(f"{produced:,} records produced in {duration(produce_seconds)}; landing them in the table")
        monitor = FeedMonitor(pipeline.config.name)
        with RunView(monitor) as view, stop_on_signals(view.note) as stop:
            run = pipeline.run(
                spark=spark,
                once=True,
                stop=stop,
                on_batch=lambda progress: view.batch(monitor.batches()[-1], notes=progress.notes),
                monitor=monitor,
            )
        if stop.is_set():
            raise KeyboardInterrupt
        say("reading the table back with pyiceberg and DuckDB")
        found, expected = table_totals(table, pipeline.connections, key=TABLE_KEY), totals(trips)
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
        table=table,
        warehouse=endpoints.warehouse,
        expected=expected,
        found=found,
    )
