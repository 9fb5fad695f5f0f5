"""Measure how fast lakefeed and other programs land a topic in a table: ``lakefeed-bench throughput``.

A "way" is a program with its settings; it has its own process, whose JVM stays warm. The ways take turns, and each run
has a new table and checkpoint. A ratio compares two ways in the same round; its result is the median over the rounds.
The figure is rows per CPU second of the client, because other work on the machine affects it much less than rows per
second.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import click

from lakefeed.cli.options import FILE
from lakefeed.clients.environment import measured_throughput
from lakefeed.config.blocks import FastPath
from lakefeed.config.connections import Connections
from lakefeed_bench import harness, jobs
from lakefeed_bench.harness import Bench, Outcome, document, in_turns, measurement, median_ratio, number, table
from lakefeed_bench.jobs import Filled, LandingCase, Work
from lakefeed_bench.processes import cpu_seconds_of
from lakefeed_bench.stages import STAGES, Stage
from lakefeed_bench.throughput_jobs import Limits, RunFigures, measure_limits, remove, run_once
from lakefeed_local.produce.taxi import table_totals
from lakefeed_local.stack import Stack

USUAL_WAYS = ("lakefeed-iceberg", "lakefeed-parquet", "spark-iceberg", "seed")
"""The ways that are measured by default: lakefeed into both sinks, plain Spark into Iceberg, and ``seed`` (plain Spark
into Parquet)."""
FAST_PATHS: Mapping[str, FastPath] = {
    f"lakefeed-{sink}-{value}": value for sink in ("iceberg", "parquet") for value in get_args(FastPath)
}
"""The ways that set ``fast_path``, and the value that they set; other ways use its default."""
WITHOUT_CHECKPOINT = "lakefeed-iceberg-ledger"
WAYS = (*USUAL_WAYS, *FAST_PATHS, WITHOUT_CHECKPOINT)
LIMIT = "limit"
"""The way that measures how fast records can be fetched, decoded and encoded at best, without Spark."""


def case_of(way: str, at: int, *, bucket: str) -> LandingCase:
    return LandingCase(
        name=f"throughput-{way}-{at}",
        bucket=bucket,
        manager="lakefeed" if way.startswith("lakefeed") else "spark",
        sink="iceberg" if "iceberg" in way else "parquet",
        fast_path=FAST_PATHS.get(way),
        has_checkpoint=way != WITHOUT_CHECKPOINT,
    )


@dataclass(frozen=True, kw_only=True)
class Landed(RunFigures):
    """One run: the CPU time of the servers, and whether the rows, sums and offsets are those of the topic."""

    server_cpu_seconds: dict[str, float]
    rows_equal: bool

    @property
    def rows_per_second(self) -> float:
        return self.steady_rows / self.steady_seconds

    @property
    def rows_per_cpu_second(self) -> float:
        return self.steady_rows / self.steady_cpu_seconds

    def __str__(self) -> str:
        return (
            f"{self.rows_per_cpu_second:,.0f} rows/CPU s, {self.rows_per_second:,.0f} rows/s, "
            f"{self.cpu_seconds:.1f} CPU s in {self.seconds:.1f} s{'' if self.rows_equal else '; ROWS DIFFER'}"
        )


@dataclass(frozen=True, kw_only=True)
class WayResult:
    """All timed runs of one way.

    Attributes:
        stages, idle: from an additional run with a profiler, the stages' shares of CPU samples, and the cores' idle
        share.
        ratio_to_spark, ratio_to_seed, ratio_to_off, ratio_to_limit: None if the other way was not measured.
    """

    way: str
    runs: Sequence[Landed]
    rows_equal: bool
    stages: Mapping[Stage, float] | None = None
    idle: float | None = None
    ratio_to_spark: float | None = None
    ratio_to_seed: float | None = None
    ratio_to_off: float | None = None
    ratio_to_limit: float | None = None

    @property
    def rows_per_second(self) -> float:
        return statistics.median(run.rows_per_second for run in self.runs)

    @property
    def rows_per_cpu_second(self) -> float:
        return statistics.median(run.rows_per_cpu_second for run in self.runs)

    @property
    def peak_rss_mb(self) -> int:
        return max(run.peak_rss_mb for run in self.runs)

    @property
    def s3_requests(self) -> float:
        return statistics.median(run.s3_requests for run in self.runs)


@dataclass(frozen=True, kw_only=True)
class Throughput:
    records: int
    record_bytes: float
    partitions: int
    batches: int
    runs: int
    cores: int
    limits: Limits | None
    ways: Sequence[WayResult]

    @property
    def holds(self) -> bool:
        return all(way.rows_equal for way in self.ways)


def compared(ways: Sequence[WayResult], limits: Limits | None) -> list[WayResult]:
    """Return the ways with their ratios to other ways and to the limits."""
    by_name = {way.way: way for way in ways}

    def ratio(way: WayResult, other: str) -> float | None:
        if other not in by_name:
            return None
        return median_ratio(way.runs, by_name[other].runs, lambda run: run.rows_per_cpu_second)

    return [
        replace(
            way,
            ratio_to_spark=ratio(way, "spark-iceberg"),
            ratio_to_seed=ratio(way, "seed"),
            ratio_to_off=ratio(way, f"lakefeed-{'parquet' if 'parquet' in way.way else 'iceberg'}-off"),
            ratio_to_limit=way.rows_per_cpu_second / limits.rows_per_cpu_second if limits is not None else None,
        )
        for way in ways
    ]


@measurement(
    "throughput",
    number("--rows", 10_000_000, "Trips to generate."),
    click.option(
        "--file", "csv", type=FILE, help="Produce the trips in this CSV file, which has the 17 columns of taxi trips."
    ),
    number("--batches", 6, "Micro-batches per run.", least=2),
    number("--partitions", 10, "Partitions of the topic."),
    number("--runs", 3, "Timed runs of each case."),
    click.option(
        "--case",
        "cases",
        type=click.Choice([*WAYS, LIMIT]),
        multiple=True,
        help=f"Measure only this case; repeatable.  [default: {', '.join((*USUAL_WAYS, LIMIT))}]",
    ),
    click.option(
        "--profile/--no-profile", default=True, show_default=True, help="Profile CPU by stage in a further run."
    ),
    harness.store_option(),
)
def throughput(bench: Bench, csv: Path | None, runs: int, cases: Sequence[str], profile: bool, **sizes: int) -> Outcome:
    """Measure how fast a topic lands in Iceberg and Parquet.

    Compares lakefeed with plain Spark into Iceberg and Parquet, and with the fastest possible fetch, decode and
    encode. The cases take turns in warm JVMs, into new tables. The figure is rows per CPU second of the client. Status
    1 if rows, sums or offsets differ from the topic's. ``lakefeed deploy size`` reads the newest result.
    """
    work, chosen = Work(name="throughput", **sizes), cases or (*USUAL_WAYS, LIMIT)
    topic = jobs.fill_topic(bench, work, csv)
    limits = None
    if LIMIT in chosen:
        with bench.processes(LIMIT) as processes:
            limits = processes[LIMIT](measure_limits, work, bench.endpoints, topic.records, runs)
        harness.say(f"limit: {limits.rows_per_cpu_second:,.0f} rows/CPU s")
    ways = [way for way in WAYS if way in chosen]
    result = Throughput(
        records=topic.records,
        record_bytes=topic.record_bytes,
        partitions=work.partitions,
        batches=work.batches,
        runs=runs,
        cores=os.cpu_count() or 1,
        limits=limits,
        ways=compared(measure(bench, work, topic, ways, runs=runs, profile=profile), limits),
    )
    if result.holds and ways:
        measured_throughput().parent.mkdir(parents=True, exist_ok=True)
        measured_throughput().write_text(json.dumps(document(result), indent=2) + "\n", "utf-8")
    return Outcome(results=result, text=report(result), holds=result.holds)


def measure(
    bench: Bench, work: Work, topic: Filled, ways: Sequence[str], *, runs: int, profile: bool
) -> list[WayResult]:
    """Run the ways in turns; with ``profile``, run a further round with a profiler."""
    endpoints = bench.endpoints
    servers = {part.part: part.pid for part in Stack(bench.folder).status() if part.pid is not None}
    ends = bench.topics.end_offsets(work.topic)
    with bench.processes(*ways) as processes:

        def run(way: str, at: int) -> Landed:
            case = case_of(way, at, bucket=endpoints.bucket)
            before = {name: cpu_seconds_of(pid) for name, pid in servers.items()}
            figures: RunFigures = processes[way](run_once, case, work, endpoints, at > runs)
            spent = {name: round(cpu_seconds_of(pid) - before[name], 2) for name, pid in servers.items()}
            totals = figures.totals
            if totals is None:
                totals = table_totals(case.table, Connections.from_environment(endpoints.as_environment()), key=None)
            equal = totals == topic.totals and figures.ends == ends and figures.rows == topic.records
            processes[way](remove, case, work, endpoints)
            return Landed(**vars(figures), server_cpu_seconds=spent, rows_equal=equal)

        landed = in_turns(ways, run, rounds=runs + profile)
    return [_result(way, landed[way][:runs], landed[way][runs:]) for way in ways]


def _result(way: str, runs: Sequence[Landed], profiled: Sequence[Landed]) -> WayResult:
    equal = all(run.rows_equal for run in (*runs, *profiled))
    if not profiled:
        return WayResult(way=way, runs=runs, rows_equal=equal)
    [last] = profiled
    idle = max(0.0, 1 - last.cpu_seconds / last.seconds / (os.cpu_count() or 1))
    return WayResult(way=way, runs=runs, rows_equal=equal, stages=last.stages, idle=idle)


def report(result: Throughput) -> str:
    ratios = " ".join(f"ratio_to_{name}" for name in ("spark", "seed", "limit", "off"))
    columns = f"way rows_per_cpu_second {ratios} rows_per_second peak_rss_mb s3_requests rows_equal"
    sections = [table(result.ways, columns)]
    if (limits := result.limits) is not None:
        steps = f"fetch {limits.fetch:.2f} + decode {limits.decode:.2f} + encode {limits.encode:.2f} µs of CPU per row"
        sections.append(
            f"limit: {limits.rows_per_cpu_second:,.0f} rows/CPU s ({steps}); a consumer without Spark reads "
            f"{limits.read_rows_per_second:,.0f} rows/s, and decodes {limits.decoded_rows_per_second:,.0f} rows/s"
        )
    profiled = [way for way in result.ways if way.stages is not None]
    if profiled:
        sections.append(table(profiled, f"way {' '.join(f'stages.{stage}' for stage in STAGES)} idle"))
    sections.append(
        f"{result.records:,} records in {result.partitions} partitions; medians over the runs, without first batches. "
        "Ratios: medians over the rounds, of rows/CPU s."
    )
    return "\n\n".join(sections)
