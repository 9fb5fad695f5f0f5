"""Measure the cost of monitoring a feed, by paired runs: ``lakefeed-bench monitor``.

The two runs of a pair land the same topic in new tables, in one warm JVM: one run with all monitoring, one without. The
figure is the CPU time of the driver's JVM and Python process, without the clients that read the monitoring. Between
runs, the CPU time of tasks, JVM compilers and garbage collector varies by more than monitoring costs. So the loss is
the CPU time that monitoring adds outside these three, divided by all CPU time. The store's trace counts requests.
"""

from __future__ import annotations

import math
import os
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx

from lakefeed.clients.spark.session import session
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import JobFailed
from lakefeed.monitor import drivers
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.pipeline import Pipeline
from lakefeed_bench import jobs
from lakefeed_bench.harness import Bench, Outcome, in_turns, measurement, number, table
from lakefeed_bench.jobs import Work
from lakefeed_bench.minio import Minio
from lakefeed_bench.processes import KEEP_COMPILERS, CpuTimes, without_compilers
from lakefeed_testing.schemas import HttpAnswer, HttpRequest, serve_http

EVERY_SECONDS = {"/api/feeds/{feed}/progress": 2.0, "/metrics": 5.0, "/health": 5.0}
"""The polled paths with their intervals, those of ``lakefeed status --watch``, a frequent Prometheus and a probe."""
AT_OPENING = ("/api/feeds", "/api/feeds/{feed}/progress", "/api/feeds/{feed}/history", "/api/feeds/{feed}/events")
"""The paths that the dashboard's page reads before the page opens its stream of events."""
_TIMEOUT_SECONDS = 10.0


@contextmanager
def receiving() -> Iterator[tuple[str, Counter[str]]]:
    """Run a server that accepts lineage events and webhooks; yield its address, and its request counts by path."""
    received: Counter[str] = Counter()

    def receive(request: HttpRequest) -> HttpAnswer:
        received[request.path] += 1
        return HttpAnswer()

    with serve_http(receive) as address:
        yield address, received


class Onlookers:
    """Requests a driver's documents as its usual clients do: an open page, a terminal, Prometheus and a probe.

    Attributes:
        answers: the number of successful answers by path; under ``stream``, the number of messages.
    """

    def __init__(self, feed: str, *, folder: Path) -> None:
        self.answers: Counter[str] = Counter()
        self._feed = feed
        self._folder = folder
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._look, args=(look,)) for look in (self._poll, self._listen)]

    def __enter__(self) -> Onlookers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(_TIMEOUT_SECONDS + 1)

    def _look(self, look: Callable[[httpx.Client], None]) -> None:
        """Wait for the driver's server, and call ``look`` with an HTTP client for it, until the run ends."""
        while not self._over.wait(0.2):
            for driver in drivers.all_drivers(folder=self._folder):
                if driver.feed == self._feed and driver.is_running and driver.url:
                    headers = {"Authorization": f"Bearer {driver.token}"}
                    with (
                        suppress(httpx.HTTPError),
                        httpx.Client(base_url=driver.url, headers=headers, timeout=_TIMEOUT_SECONDS) as client,
                    ):
                        look(client)

    def _poll(self, client: httpx.Client) -> None:
        due = dict.fromkeys(EVERY_SECONDS, time.monotonic())
        while True:
            path = min(due, key=due.__getitem__)
            if self._over.wait(max(0.0, due[path] - time.monotonic())):
                return
            self._read(client, path)
            due[path] += EVERY_SECONDS[path]

    def _listen(self, client: httpx.Client) -> None:
        for path in AT_OPENING:
            self._read(client, path)
        with client.stream("GET", f"/api/stream?feed={self._feed}") as response:
            for line in response.iter_lines():
                self.answers["stream"] += line.startswith("data:")
                if self._over.is_set():
                    return

    def _read(self, client: httpx.Client, path: str) -> None:
        self.answers[path] += client.get(path.format(feed=self._feed)).is_success


Mode = Literal["on", "off"]
MODES: tuple[Mode, ...] = ("on", "off")

MOST_LOSS = 0.02
WARM_UP_PAIRS = 2


@dataclass(frozen=True, kw_only=True)
class CostRun:
    """One run: the driver's CPU seconds by type of thread, the run's duration, and the number of S3 requests."""

    mode: Mode
    rows: int
    batches: int
    cpu: dict[str, float]
    """By type of thread: ``tasks``, ``compilers``, ``collector``, ``python`` and ``other``."""
    seconds: float
    s3_requests: int = 0
    answers: dict[str, int] = field(default_factory=dict)

    @property
    def cpu_seconds(self) -> float:
        return without_compilers(self.cpu)

    @property
    def rest(self) -> float:
        """CPU seconds outside tasks, compilers and garbage collector."""
        return self.cpu["python"] + self.cpu["other"]

    @property
    def rows_per_cpu_second(self) -> float:
        return self.rows / self.cpu_seconds

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds

    def __str__(self) -> str:
        outside = f"{self.cpu['other']:.2f} outside the tasks and {self.cpu['python']:.2f} in Python"
        total = f"{self.rows_per_cpu_second:,.0f} rows/CPU s, {self.cpu_seconds:.1f} CPU s in {self.seconds:.1f} s"
        return f"{total}: {outside}; {self.s3_requests} S3 requests"


@dataclass(frozen=True, kw_only=True)
class Loss:
    """The share by which monitoring lowers a figure, and the 95 % confidence interval of the share."""

    share: float
    low: float
    high: float

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]]) -> Loss:
        """Return the loss from pairs of figures, with and without monitoring; a larger figure is better."""
        from scipy import stats

        ratios = [math.log(on / off) for on, off in pairs]
        mean = statistics.fmean(ratios)
        if len(ratios) < 2:
            return cls(share=1 - math.exp(mean), low=-math.inf, high=math.inf)
        margin = float(stats.t.ppf(0.975, len(ratios) - 1) * stats.sem(ratios))
        return cls(share=1 - math.exp(mean), low=1 - math.exp(mean + margin), high=1 - math.exp(mean - margin))

    @property
    def verdict(self) -> Literal["below", "above", "unclear"]:
        """The verdict on the interval: below or above ``MOST_LOSS``, or "unclear" if the interval contains it."""
        if self.high < MOST_LOSS:
            return "below"
        return "above" if self.low > MOST_LOSS else "unclear"

    def __str__(self) -> str:
        if not math.isfinite(self.high):
            return f"{self.share:.1%} less; one pair gives no confidence interval"
        verdict = "unclear whether below" if self.verdict == "unclear" else self.verdict
        return f"{self.share:.1%} less (95 %: {self.low:.1%} to {self.high:.1%}): {verdict} {MOST_LOSS:.0%}"


@dataclass(frozen=True, kw_only=True)
class Pair:
    on: CostRun
    off: CostRun


@dataclass(frozen=True, kw_only=True)
class MonitorCost:
    pairs: tuple[Pair, ...]
    bound: float = MOST_LOSS

    @property
    def added(self) -> Loss:
        """The loss of rows per CPU second that is caused by the CPU time of monitoring outside tasks."""
        usual = statistics.fmean(run.cpu_seconds for pair in self.pairs for run in (pair.on, pair.off))
        return Loss.of([(usual / (usual + pair.on.rest - pair.off.rest), 1.0) for pair in self.pairs])

    @property
    def cpu(self) -> Loss:
        return Loss.of([(pair.on.rows_per_cpu_second, pair.off.rows_per_cpu_second) for pair in self.pairs])

    @property
    def wall(self) -> Loss:
        return Loss.of([(pair.on.rows_per_second, pair.off.rows_per_second) for pair in self.pairs])

    @property
    def further_s3_requests(self) -> float:
        """The number of S3 requests that monitoring adds, as a median over the pairs."""
        return statistics.median(pair.on.s3_requests - pair.off.s3_requests for pair in self.pairs)

    @property
    def holds(self) -> bool:
        """Return False if a loss is above ``MOST_LOSS`` with 95 % confidence, or if monitoring adds requests."""
        return "above" not in (self.added.verdict, self.cpu.verdict) and self.further_s3_requests <= 0


def pipeline_of(mode: Mode, at: int, work: Work, bench: Bench, *, address: str) -> dict[str, Any]:
    """Return the pipeline of one run; with monitoring, it sends events and notifications to ``address``."""
    name = f"monitor_{at + WARM_UP_PAIRS}_{mode}"
    blocks: dict[str, Any] = {"runs": {"keep": "no"}}
    if mode == "on":
        blocks = {
            "runs": {"keep": "local"},
            "lineage": {"url": address, "every": "5 seconds"},
            "notify": {"targets": {"hook": {"webhook": {"url": f"{address}/notify"}}}},
            "dashboard": {"port": 0},
        }
    document = jobs.pipeline_document(
        name,
        [work.topic],
        bench.endpoints,
        sink={"iceberg": {"table": f"lake.bench.{name}"}},
        most=work.records_a_batch,
        checkpoint=f"s3a://{bench.endpoints.bucket}/checkpoints/{name}",
        **blocks,
    )
    if mode == "on":
        document["source"]["kafka"]["monitoring_group"] = name
    return document


def run_case(mode: Mode, document: dict[str, Any], rows: int) -> dict[str, Any]:
    """Run a pipeline in this process's session; return the fields of a ``CostRun`` that this process measures."""
    pipeline = Pipeline(PipelineConfig.model_validate(document), environment=dict(os.environ))
    # Do not call pipeline.session(): its preflight would add S3 requests from Python.
    spark = session("bench-monitor", connections=pipeline.connections)
    jvm: Any = spark.sparkContext._jvm
    jvm.java.lang.System.gc()
    monitor = FeedMonitor(pipeline.config.name)
    with pipeline.serve(monitor) if mode == "on" else nullcontext():
        before = CpuTimes.now()
        summary = pipeline.run(spark=spark, once=True, monitor=monitor)
        cpu = CpuTimes.now().since(before)
    if summary.rows != rows:
        what = f"the pipeline wrote {summary.rows:,} rows of a topic with {rows:,} records"
        raise JobFailed(what, where=document["name"], hint="read monitor.log in the bench's folder of logs")
    return {"mode": mode, "rows": summary.rows, "batches": summary.batches, "cpu": cpu, "seconds": summary.seconds}


@measurement(
    "monitor",
    number("--rows", 6_000_000, "Trips in the topic."),
    number("--batches", 10, "Micro-batches per run.", least=2),
    number("--partitions", 2, "Partitions of the topic."),
    number("--pairs", 12, "Measured pairs of runs."),
)
def monitor(bench: Bench, pairs: int, **sizes: int) -> Outcome:
    """Measure the cost of monitoring a feed.

    Compares CPU time and S3 requests of runs with and without monitoring: an open dashboard, frequent requests for
    progress, metrics and health, a monitoring group, lineage, notifications and the run's trace. Status 1 if the loss
    exceeds 2 %, or monitoring adds S3 requests. The first use builds MinIO from source, which needs Go.
    """
    work = Work(name="monitor", **sizes)
    jobs.fill_topic(bench, work)
    minio, home = Minio(bench), bench.logs / "driver"
    variables = {**KEEP_COMPILERS, "LAKEFEED_HOME": str(home)}
    with receiving() as (address, received), bench.processes("monitor", **variables) as processes:

        def run(mode: Mode, at: int) -> CostRun:
            document = pipeline_of(mode, at, work, bench, address=address)
            name = document["name"]
            looking = Onlookers(name, folder=home / "run" / "drivers") if mode == "on" else None
            with minio.trace(name) as finish_trace, looking or nullcontext():
                figures = processes["monitor"](run_case, mode, document, work.rows)
                requests = len(finish_trace())
            answers = dict(looking.answers + received) if looking else {}
            received.clear()
            return CostRun(**figures, s3_requests=requests, answers=answers)

        runs = in_turns(MODES, run, rounds=pairs, warm_up=WARM_UP_PAIRS)
    cost = MonitorCost(pairs=tuple(Pair(on=on, off=off) for on, off in zip(runs["on"], runs["off"], strict=True)))
    return Outcome(results=cost, text=report(cost), holds=cost.holds)


def report(cost: MonitorCost) -> str:
    kinds = " ".join(f"cpu.{kind}" for kind in ("tasks", "collector", "other", "python"))
    runs = [run for pair in cost.pairs for run in (pair.on, pair.off)]
    first = cost.pairs[0].on
    return (
        f"{table(runs, f'mode rows_per_cpu_second rows_per_second cpu_seconds {kinds} seconds s3_requests')}\n\n"
        f"{first.rows:,} rows in {first.batches} batches, {len(cost.pairs)} pairs; with all monitoring:\n"
        f"rows per CPU second of the driver, by the CPU time added outside the tasks: {cost.added}\n"
        f"rows per CPU second of the driver, as measured: {cost.cpu}\n"
        f"rows per second: {cost.wall}\n"
        f"S3 requests per run: {cost.further_s3_requests:+g} (median)"
    )
