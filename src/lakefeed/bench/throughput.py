"""Measure how fast a topic becomes a table, beside the ways to compare with: ``lakefeed bench throughput``.

Each way has a process of its own, whose JVM stays warm; runs take turns, each into a table and a checkpoint of its own.
A ratio is the median over the rounds of what two ways did in the same round. The figure is rows for each second of the
client's CPU time: rows a second say little on a machine that has other work.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lakefeed.bench import jobs
from lakefeed.bench.cases import LIMIT, Way, Workload
from lakefeed.bench.limits import Limits, measure_limits
from lakefeed.bench.stages import Stage
from lakefeed.bench.throughput_jobs import (
    Filled,
    RunFigures,
    TimedRun,
    fill_topic,
    remove,
    run_once,
)
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.connections import Connections
from lakefeed.local import Endpoints
from lakefeed.messages.printable import aligned
from lakefeed.operations.produce.taxi import Totals
from lakefeed.operations.produce.trips import table_totals

WARM_UP = 1


@dataclass(frozen=True, kw_only=True)
class Landed:
    """One run, with what was checked: its rows, their sums, the offsets of each partition."""

    figures: RunFigures
    server_cpu_seconds: dict[str, float]
    rows_equal: bool

    @property
    def rows_per_second(self) -> float:
        return self.figures.steady_rows / self.figures.steady_seconds

    @property
    def rows_per_cpu_second(self) -> float:
        return self.figures.steady_rows / self.figures.steady_cpu_seconds


@dataclass(frozen=True, kw_only=True)
class WayResult:
    """All timed runs of one way, and the shares of the stages in a further one; equal are the rows of all runs."""

    way: Way
    runs: tuple[Landed, ...]
    rows_equal: bool
    stages: Mapping[Stage, float] | None
    idle: float | None

    @property
    def rows_per_second(self) -> float:
        return statistics.median(run.rows_per_second for run in self.runs)

    @property
    def rows_per_cpu_second(self) -> float:
        return statistics.median(run.rows_per_cpu_second for run in self.runs)

    @property
    def peak_rss_mb(self) -> int:
        return max(run.figures.peak_rss_mb for run in self.runs)

    def ratio_to(self, other: WayResult | None) -> float | None:
        """Return the median over the rounds of the ratio of rows for each CPU second."""
        if other is None:
            return None
        rounds = zip(self.runs, other.runs, strict=True)
        return statistics.median(mine.rows_per_cpu_second / theirs.rows_per_cpu_second for mine, theirs in rounds)


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """The result of the bench."""

    records: int
    record_bytes: float
    partitions: int
    cores: int
    ways: tuple[WayResult, ...]
    limits: Limits | None = None
    settings: Mapping[str, int] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        return all(way.rows_equal for way in self.ways)

    def way(self, name: Way) -> WayResult | None:
        return next((way for way in self.ways if way.way == name), None)

    def ratio_to_off(self, way: WayResult) -> float | None:
        """Compare a way with ``fast_path: off`` into the same sink."""
        return way.ratio_to(self.way("lakefeed-parquet-off" if "parquet" in way.way else "lakefeed-iceberg-off"))

    def ratio_to_limit(self, way: WayResult) -> float | None:
        return way.rows_per_cpu_second / self.limits.rows_per_cpu_second if self.limits is not None else None

    def as_dict(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "record_bytes": self.record_bytes,
            "partitions": self.partitions,
            "cores": self.cores,
            **self.settings,
            "limits": self.limits.as_dict() if self.limits is not None else None,
            "ways": [self._way(way) for way in self.ways],
        }

    def _way(self, way: WayResult) -> dict[str, Any]:
        return {
            "way": way.way,
            "rows_per_second": round(way.rows_per_second),
            "rows_per_cpu_second": round(way.rows_per_cpu_second),
            "ratio_to_spark": _rounded(way.ratio_to(self.way("spark-iceberg"))),
            "ratio_to_seed": _rounded(way.ratio_to(self.way("seed"))),
            "ratio_to_limit": _rounded(self.ratio_to_limit(way)),
            "ratio_to_off": _rounded(self.ratio_to_off(way)),
            "peak_rss_mb": way.peak_rss_mb,
            "rows_equal": way.rows_equal,
            "stages": dict(way.stages) if way.stages is not None else None,
            "idle": way.idle,
            "runs": [
                {
                    **{name: value for name, value in asdict(run.figures).items() if name not in ("totals", "stages")},
                    "rows_per_second": round(run.rows_per_second),
                    "rows_per_cpu_second": round(run.rows_per_cpu_second),
                    "server_cpu_seconds": run.server_cpu_seconds,
                    "rows_equal": run.rows_equal,
                }
                for run in way.runs
            ],
        }


@dataclass(frozen=True, kw_only=True)
class ThroughputBench:
    """Ways on one running stack; ``servers`` are the processes whose CPU time is noted beside the client's."""

    endpoints: Endpoints
    servers: Mapping[str, int]
    home: Path
    say: Callable[[str], None]

    def measure(
        self,
        work: Workload,
        *,
        ways: Sequence[Way],
        limit: bool,
        runs: int,
        profile: bool,
        csv: Path | None = None,
    ) -> Throughput:
        """Fill the topic, then run the ways in turns."""
        topic = self._fill(work, csv)
        limits = self._limits(work, topic.records, runs) if limit else None
        found: dict[Way, list[Landed]] = {way: [] for way in ways}
        profiled: dict[Way, Landed] = {}
        equal = dict.fromkeys(ways, True)
        with ExitStack() as stack:
            processes = {way: stack.enter_context(self._process(way)) for way in ways}
            for number in range(WARM_UP + runs + profile):
                for way in ways if number % 2 else reversed(ways):
                    is_profiled = number == WARM_UP + runs
                    case = TimedRun.of(way, number, bucket=self.endpoints.bucket)
                    landed = self._run(processes[way], case, work, topic.totals, profile=is_profiled)
                    self.say(f"{_round(number, runs)}, {way}: {_line(landed)}")
                    equal[way] &= landed.rows_equal
                    if is_profiled:
                        profiled[way] = landed
                    elif number >= WARM_UP:
                        found[way].append(landed)
        return Throughput(
            records=topic.records,
            record_bytes=topic.record_bytes,
            partitions=work.partitions,
            cores=os.cpu_count() or 1,
            limits=limits,
            ways=tuple(_result(way, found[way], profiled.get(way), equal=equal[way]) for way in ways),
            settings={"batches": work.batches, "runs": runs},
        )

    def _process(self, name: str) -> Any:
        return jobs.job_process(environment=self.endpoints.as_environment(), log=self.home / f"{name}.log")

    def _fill(self, work: Workload, csv: Path | None) -> Filled:
        self.say(
            f"producing {'the trips of a file' if csv else f'{work.rows:,} trips'} into {work.partitions} partitions"
        )
        Topics(self.endpoints.bootstrap_servers).create(work.topic, partitions=work.partitions)
        with self._process("produce") as run:
            filled: Filled = run(fill_topic, work, self.endpoints, csv)
        return filled

    def _limits(self, work: Workload, records: int, rounds: int) -> Limits:
        with self._process(LIMIT) as run:
            limits: Limits = run(measure_limits, work, self.endpoints, records, rounds)
        self.say(f"limit: {limits.rows_per_cpu_second:,.0f} rows/CPU s")
        return limits

    def _run(
        self, run: Callable[..., Any], case: TimedRun, work: Workload, expected: Totals, *, profile: bool
    ) -> Landed:
        before = {name: jobs.cpu_seconds_of(pid) for name, pid in self.servers.items()}
        figures: RunFigures = run(run_once, case, work, self.endpoints, profile)
        servers = {name: round(jobs.cpu_seconds_of(pid) - before[name], 2) for name, pid in self.servers.items()}
        totals = figures.totals
        if totals is None:
            connections = Connections.from_environment(self.endpoints.as_environment())
            totals = table_totals(case.table, connections, key=None)
        ends = Topics(self.endpoints.bootstrap_servers).end_offsets(work.topic)
        equal = totals == expected and figures.ends == ends and figures.rows == expected.records
        run(remove, case, work, self.endpoints)
        return Landed(figures=figures, server_cpu_seconds=servers, rows_equal=equal)


def _result(way: Way, runs: Sequence[Landed], profiled: Landed | None, *, equal: bool) -> WayResult:
    idle = None
    if profiled is not None:
        figures = profiled.figures
        idle = round(max(0.0, 1 - figures.cpu_seconds / figures.seconds / (os.cpu_count() or 1)), 4)
    stages = profiled.figures.stages if profiled is not None else None
    return WayResult(way=way, runs=tuple(runs), rows_equal=equal, stages=stages, idle=idle)


def table(found: Throughput) -> str:
    """Show the ways, the limits and the stages."""
    return "\n\n".join(_sections(found))


def _sections(found: Throughput) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [
        ("way", "rows/CPU s", "to spark", "to seed", "to limit", "to off", "rows/s", "peak MB", "S3 requests", "rows")
    ]
    for way in found.ways:
        ratios = (
            way.ratio_to(found.way("spark-iceberg")),
            way.ratio_to(found.way("seed")),
            found.ratio_to_limit(way),
            found.ratio_to_off(way),
        )
        requests = statistics.median(run.figures.s3_requests for run in way.runs)
        rows.append(
            (
                *(
                    way.way,
                    f"{way.rows_per_cpu_second:,.0f}",
                    *("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
                ),
                *(f"{way.rows_per_second:,.0f}", f"{way.peak_rss_mb:,}", f"{requests:,.0f}"),
                "equal" if way.rows_equal else "DIFFER",
            )
        )
    yield "\n".join(aligned(rows, left=1))
    if (limits := found.limits) is not None:
        steps = f"fetch {limits.fetch:.2f} + decode {limits.decode:.2f} + encode {limits.encode:.2f} µs of CPU a row"
        yield (
            f"limit: {limits.rows_per_cpu_second:,.0f} rows/CPU s ({steps}); a consumer without Spark reads "
            f"{limits.read_rows_per_second:,.0f} rows/s, and decodes {limits.decoded_rows_per_second:,.0f} rows/s"
        )
    profiled = [way for way in found.ways if way.stages is not None]
    if profiled:
        names = list(profiled[0].stages or ())
        shares = [("stage", *(way.way for way in profiled))]
        shares += [(name, *(f"{(way.stages or {})[name]:.1%}" for way in profiled)) for name in names]
        shares.append(("idle cores", *(f"{way.idle or 0:.1%}" for way in profiled)))
        yield "\n".join(aligned(shares, left=1))
    yield (
        f"{found.records:,} records in {found.partitions} partitions; medians of the runs after the first batch. "
        "Ratios: medians of rows/CPU s in the same round."
    )


def _line(run: Landed) -> str:
    figures = run.figures
    return (
        f"{run.rows_per_cpu_second:,.0f} rows/CPU s, {run.rows_per_second:,.0f} rows/s, "
        f"{figures.cpu_seconds:.1f} CPU s in {figures.seconds:.1f} s" + ("" if run.rows_equal else "; ROWS DIFFER")
    )


def _round(number: int, runs: int) -> str:
    if number < WARM_UP:
        return "warm-up"
    return f"run {number} of {runs}" if number < WARM_UP + runs else "profile"


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 3)
