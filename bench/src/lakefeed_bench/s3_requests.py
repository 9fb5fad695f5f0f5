"""Count the S3 requests of streams by the store's trace: ``lakefeed-bench s3-requests``."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import click

from lakefeed.cli.output import echo, is_json
from lakefeed.clients.iceberg.reader import open_table
from lakefeed.config.connections import Connections
from lakefeed.feed import s3_requests as meter
from lakefeed_bench import jobs
from lakefeed_bench.harness import Bench, Outcome, measurement, only, say, table
from lakefeed_bench.jobs import LandingCase, Manager, Sink, Work
from lakefeed_bench.minio import ApiCalls, Kept, Minio, Phases, as_traced, by_api, phases
from lakefeed_local.stack import Endpoints

MANAGERS, SINKS = get_args(Manager), get_args(Sink)


@dataclass(frozen=True, kw_only=True)
class Workload(Work):
    """The trips to land, the Spark settings of all cases, and published figures for comparison."""

    conf: Mapping[str, str] = field(default_factory=dict)
    published: tuple[str, ...]


# The published figures give versions and delete markers only as a sum.
WORKLOADS = {
    "six": Workload(
        name="six",
        rows=6_000_000,
        batches=6,
        partitions=10,
        published=(
            "published: Spark 3.3, default, parquet: 152.0 requests per batch, 912 in all, 140 versions and markers",
            "published: Spark 3.3, MinIO manager, parquet: 75.5 requests per batch, 453 in all, 84 versions, markers",
        ),
    ),
    "steady": Workload(
        name="steady",
        rows=20_000,
        batches=200,
        partitions=1,
        # With these small values, most batches of the run include a compaction of logs and a purge of old entries.
        conf={
            "spark.sql.streaming.minBatchesToRetain": "10",
            "spark.sql.streaming.fileSink.log.compactInterval": "10",
            "spark.sql.streaming.fileSink.log.cleanupDelay": "1s",
        },
        published=(
            "published: Spark 3.3, default, parquet: 103.8 requests per batch",
            "published: Spark 3.3, MinIO manager, parquet: 22.9 requests per batch",
        ),
    ),
}


def case_of(sink: Sink, versioned: bool, manager: Manager) -> LandingCase:
    """Return a case with its own bucket."""
    name = f"bench-{manager}-{sink}-{'versioned' if versioned else 'plain'}"
    return LandingCase(name=name, bucket=name, manager=manager, sink=sink)


@dataclass(frozen=True, kw_only=True)
class CountedCase:
    """One case.

    Attributes:
        apis: the requests that the store counted.
        metered: the number of requests by API that the JVM counted.
        expected, rows: the number of records in the topic, and of rows in the table.
        seconds: the duration, including the start of the JVM.
    """

    manager: Manager
    sink: Sink
    versioned: bool
    apis: tuple[ApiCalls, ...]
    metered: dict[str, int]
    phases: Phases
    kept: Kept
    expected: int
    rows: int
    seconds: float

    @property
    def calls(self) -> dict[str, int]:
        return {api.api: api.calls for api in self.apis}

    @property
    def total(self) -> int:
        return sum(self.calls.values())

    @property
    def meter_agrees(self) -> bool:
        """Return True if the JVM and the store counted the same number of requests for every API."""
        return self.metered == self.calls

    @property
    def complete(self) -> bool:
        return self.rows == self.expected

    @property
    def bucket(self) -> str:
        return "versioned" if self.versioned else "plain"


def measure(bench: Bench, minio: Minio, case: LandingCase, work: Workload, *, expected: int) -> CountedCase:
    """Run one case in a new bucket and a new JVM while the store traces the requests."""
    say(f"{case.name}; Spark's log is {bench.logs / case.name}.log")
    versioned = case.name.endswith("versioned")
    minio.make_bucket(case.bucket, versioned=versioned)
    environment = case.environment(bench.endpoints)
    with minio.trace(case.name) as finish_trace, bench.processes(case.name, **environment) as processes:
        run = processes[case.name]
        began = time.monotonic()
        metered = run(run_case, case, work, bench.endpoints)
        seconds = time.monotonic() - began
        requests = finish_trace()
        if case.sink == "parquet":
            rows = run(count_rows, case.path)
        else:  # pyiceberg counts the rows of an Iceberg table.
            rows = open_table(case.table, connections=Connections.from_environment(environment)).scan().count()
    return CountedCase(
        manager=case.manager,
        sink=case.sink,
        versioned=versioned,
        apis=tuple(by_api(requests)),
        metered=as_traced(metered),
        phases=phases(requests, checkpoint=case.checkpoint),
        kept=minio.kept(case.bucket),
        expected=expected,
        rows=int(rows),
        seconds=seconds,
    )


def run_case(case: LandingCase, work: Workload, endpoints: Endpoints) -> dict[str, int]:
    """Land the topic, and return the number of S3 requests that the JVM counted, by operation."""
    spark = jobs.start_session(case, work.topic, endpoints, work.conf)
    jobs.land(spark, case, work, endpoints)
    return meter.s3_requests(spark).by_operation


def count_rows(path: str) -> int:
    """Return the number of committed rows of a Parquet sink; Spark skips uncommitted files by ``_spark_metadata``."""
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate().read.parquet(path).count()


def case_report(measured: CountedCase) -> str:
    difference = ", ".join(
        f"{name}: {measured.metered.get(name, 0)} in the JVM, {measured.calls.get(name, 0)} in the trace"
        for name in sorted(measured.metered.keys() | measured.calls.keys())
        if measured.metered.get(name, 0) != measured.calls.get(name, 0)
    )
    agreement = f"THE JVM'S COUNT DIFFERS: {difference}" if difference else "the JVM counted the same requests"
    landed = "as in the topic" if measured.complete else f"BUT THE TOPIC HAS {measured.expected:,}"
    title = f"{measured.manager} · {measured.sink} · {measured.bucket} bucket"
    apis = table(measured.apis, "api received sent calls errors")
    return f"{title}\n\n{apis}\n\n{measured.rows:,} rows landed, {landed}; {agreement}"


def comparison(measured: Sequence[CountedCase], work: Workload) -> str:
    columns = (
        "manager sink bucket phases.batches kept.files phases.startup phases.first_batch phases.per_batch total "
        "kept.objects kept.versions kept.delete_markers complete meter_agrees"
    )
    return "\n".join([table(measured, columns), "", *work.published])


@measurement(
    "s3-requests",
    click.option(
        "--workload",
        type=click.Choice([*WORKLOADS]),
        default="six",
        show_default=True,
        help="six: 6 batches of 10 files. steady: 200 small batches with log compaction and purging.",
    ),
    click.option("--rows", type=click.IntRange(1), help="Trips in the topic.  [default: six 6000000, steady 20000]"),
    click.option("--batches", type=click.IntRange(2), help="Micro-batches.  [default: six 6, steady 200]"),
    click.option("--partitions", type=click.IntRange(1), help="Files per batch.  [default: six 10, steady 1]"),
    only("--manager", MANAGERS, into="managers"),
    only("--sink", SINKS, into="sinks"),
    click.option("--versioned/--plain", default=None, help="Measure only versioned, or only plain buckets."),
)
def s3_requests(
    bench: Bench,
    workload: str,
    managers: Sequence[Manager],
    sinks: Sequence[Sink],
    versioned: bool | None,
    **sizes: int | None,
) -> Outcome:
    """Count the S3 requests of streams.

    Compares checkpoint managers, sinks, and plain and versioned buckets by MinIO's own trace. Status 1 if the JVM's
    count differs for any API, or the table lacks rows of the topic. The first use builds MinIO from source, which takes
    minutes and needs Go.
    """
    chosen: dict[str, Any] = {name: size for name, size in sizes.items() if size is not None}
    work, minio, measured = replace(WORKLOADS[workload], **chosen), Minio(bench), list[CountedCase]()
    expected = jobs.fill_topic(bench, work).records
    kinds = (False, True) if versioned is None else (versioned,)
    for case in itertools.starmap(case_of, itertools.product(sinks or SINKS, kinds, managers or MANAGERS)):
        measured.append(measure(bench, minio, case, work, expected=expected))
        if not is_json():
            echo(f"\n{case_report(measured[-1])}\n")
    holds = all(result.meter_agrees and result.complete for result in measured)
    return Outcome(results=measured, text=comparison(measured, work), holds=holds)
