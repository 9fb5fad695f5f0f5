"""The steps of ``lakefeed quickstart``: fill a topic with trips, write a pipeline file and a query, land and query."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lakefeed import Pipeline, session
from lakefeed.clients.environment import write_whole
from lakefeed.clients.kafka.topics import Topics
from lakefeed.clients.spark.session import log_path
from lakefeed.clients.spark.signals import stop_on_signals
from lakefeed.config.addresses import local_path
from lakefeed.config.connections import Catalog, Connections
from lakefeed.errors import ConfigError, JobFailed, WorldError
from lakefeed.lazy import SparkSession
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.terminal import RunView
from lakefeed_encode.encode import to_records
from lakefeed_local import template
from lakefeed_local.discover import discover
from lakefeed_local.doctor import examine
from lakefeed_local.produce.taxi import KEY, taxi_rows, taxi_schema
from lakefeed_local.produce.write import ProduceView, produce

PAGE = "quickstart"

TOPIC, PARTITIONS = "quickstart-trips", 3
NAME = template.name_of(TOPIC)
TABLE = "lake.quickstart.trips"
NEEDED = ("java", "spark", "memory", "cores", "cache", "home", "temporary files")
"""The checks of ``lakefeed local doctor`` that must succeed before a quickstart, which needs no store."""
PIPELINE, QUERY, LAKE = "pipeline.yaml", "query.py", "lake"
_QUERY = '''"""Reads the table without Spark and without lakefeed: with pyiceberg and DuckDB."""

from pathlib import Path

from pyiceberg.catalog import load_catalog

lake = Path(__file__).resolve().parent / "lake"
catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}")
connection = catalog.load_table("quickstart.trips").scan().to_duckdb("trips")
print(
    connection.sql(
        "SELECT payment_type, count(*) AS trips, round(avg(trip_distance), 2) AS miles, "
        "round(avg(total_amount), 2) AS dollars FROM trips GROUP BY payment_type ORDER BY trips DESC"
    )
)
'''


def require_ready_machine() -> None:
    """Raise an error if a check of ``lakefeed local doctor`` fails."""
    errors = [found for found in examine() if found.verdict == "error" and found.name in NEEDED]
    if errors:
        listed = "; ".join(f"{found.name}: {found.what}" for found in errors)
        hint = f"{errors[0].hint}; lakefeed local doctor shows the rest" if errors[0].hint else "lakefeed local doctor"
        raise WorldError(f"this machine is not ready: {listed}", hint=hint)


@dataclass(frozen=True)
class LandedTrips:
    """The number of rows that a run has written; ``is_new`` is False if the table already had all rows."""

    rows: int
    is_new: bool


class Quickstart:
    """The steps of the quickstart; each step is skipped if an earlier run has done it.

    Raises:
        ConfigError: the folder's name cannot be used for a warehouse, or the folder has another pipeline's file.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder.expanduser().absolute()
        self.file = self.folder / PIPELINE
        self._environment = environment
        self._servers = environment["KAFKA_BOOTSTRAP_SERVERS"]
        self._registry = environment["SCHEMA_REGISTRY_URL"]
        self._spark: SparkSession | None = None
        try:
            local_path(str(self.folder))
        except ValueError as error:
            raise ConfigError(str(error), where=str(folder), hint="name another folder") from None
        if self.file.exists() and self._pipeline().config.name != NAME:
            what = "the folder has the file of another pipeline"
            raise ConfigError(what, where=str(self.file), hint="name another folder: lakefeed quickstart FOLDER")

    @contextmanager
    def spark_ends(self) -> Iterator[None]:
        """Stop the Spark session at the end of this block, if a step has started one."""
        try:
            yield
        finally:
            if self._spark is not None:
                self._spark.stop()
                self._spark = None

    def fill_topic(self, rows: int) -> tuple[int, bool]:
        """Produce trips into an empty topic; return the number of its records, and True if this call produced them."""
        topics = Topics(self._servers)
        topics.create(TOPIC, partitions=PARTITIONS, exist_ok=True)
        if earlier := topics.describe(TOPIC).offsets:
            return earlier, False
        trips = taxi_rows(self._session(), rows)
        records = to_records(
            trips, topic=TOPIC, format="confluent-avro", registry=self._registry, schema=taxi_schema(), key=KEY
        )
        with ProduceView(TOPIC, expected=rows) as view:
            return produce(records, TOPIC, bootstrap_servers=self._servers, reached=view.reached).records, True

    def write_files(self) -> bool:
        """Write the pipeline file and the query unless they exist; return True if this call wrote the pipeline file."""
        is_new = not self.file.exists()
        if is_new:
            blank = template.Blank(
                topic=TOPIC,
                name=NAME,
                table=TABLE,
                bucket="",
                bootstrap_servers=None,
                registry_url=None,
                discovery=discover(TOPIC, bootstrap_servers=self._servers, registry_url=self._registry),
                warehouse=self.folder / LAKE,
            )
            template.check(blank)
            self.folder.mkdir(parents=True, exist_ok=True)
            template.write_new(self.file, template.pipeline_text(blank))
            template.write_schema_beside(self.file)
        write_whole(self.folder / QUERY, _QUERY, overwrite=False)
        return is_new

    def land(self) -> LandedTrips:
        """Run the pipeline until the table has all current records.

        Raises:
            LakefeedError: the feed refuses its start, for example after ``lakefeed local down --erase``.
        """
        pipeline = self._pipeline()
        status = pipeline.status()
        if (refusal := status.refusal) is not None:
            here = shlex.quote(str(self.folder))
            hint = f"to start over: lakefeed quickstart FOLDER, with another folder. To keep this one: cd {here}"
            hint += f"; {refusal.hint}" if refusal.hint else ""
            raise type(refusal)(refusal.what, where=refusal.where, hint=hint)
        if status.position is not None and not any(part.lag for part in status.partitions):
            return LandedTrips(0, is_new=False)
        self._session()
        monitor = FeedMonitor(pipeline.config.name)
        with RunView(monitor) as view, stop_on_signals(view.note) as stop:
            run = pipeline.run(
                spark=pipeline.session(),
                once=True,
                stop=stop,
                on_batch=lambda progress: view.batch(monitor.batches()[-1], notes=progress.notes),
                on_note=view.note,
                monitor=monitor,
            )
        if stop.is_set():
            raise KeyboardInterrupt
        return LandedTrips(run.rows, is_new=True)

    def query(self) -> str:
        """Run the query file as a separate program, and return its output."""
        done = subprocess.run([sys.executable, QUERY], cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            hint = f"run the query to see the whole error: cd {shlex.quote(str(self.folder))}; python {QUERY}"
            raise JobFailed(f"the query failed: {last}", where=str(self.folder / QUERY), hint=hint)
        return done.stdout.rstrip()

    def _pipeline(self) -> Pipeline:
        return Pipeline.from_file(self.file, environment=self._environment)

    def _session(self) -> SparkSession:
        if self._spark is None:
            lake = Catalog.model_validate({"warehouse": str(self.folder / LAKE)})
            connections = Connections.from_environment(self._environment).model_copy(
                update={"catalogs": {"lake": lake}}
            )
            self._spark = session("quickstart", connections=connections, log_file=log_path("quickstart"))
        return self._spark
