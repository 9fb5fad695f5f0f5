"""Measure what being watched costs a feed, by paired runs: ``lakefeed bench monitor``.

The runs of a pair read the same topic into new tables, one with everything on and one with everything off, in one
warm JVM and in turns. What is counted is the CPU time of the driver, of its JVM and its Python process, not of the
onlookers. Being watched adds to it outside the tasks; the time of the tasks, of the JVM's compilers and of its garbage
collector changes by more from run to run than all that is added. So the loss is what everything on adds to the rest, as
a share of the whole; rows for each CPU second are shown beside it. The store's own trace counts the requests.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from lakefeed.bench import jobs
from lakefeed.bench.cases import Workload
from lakefeed.bench.minio import MinioClient, by_api
from lakefeed.bench.onlookers import Onlookers, receiving
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import JobFailed
from lakefeed.local import Endpoints
from lakefeed.messages.printable import aligned

Mode = Literal["on", "off"]

MOST_LOSS = 0.02
WARM_UP_PAIRS = 2
_THREADS = {"Executor task l": "tasks", "C1 CompilerThre": "compilers", "C2 CompilerThre": "compilers"}
"""What the JVM's threads do, by their names as Linux cuts them; those of the garbage collector begin with G1 or GC."""
KEEP_COMPILERS = {"JAVA_TOOL_OPTIONS": "-XX:-UseDynamicNumberOfCompilerThreads"}
"""A thread that has ended takes its CPU time with it."""


@dataclass(frozen=True, kw_only=True)
class CostRun:
    """One run: CPU seconds of the driver by what they were spent on, the run's own seconds, the store's requests."""

    mode: Mode
    rows: int
    batches: int
    cpu: dict[str, float]
    """``tasks``, ``compilers``, ``collector``, ``python`` and ``other``."""
    seconds: float
    s3_requests: int = 0
    answers: dict[str, int] = field(default_factory=dict)

    @property
    def cpu_seconds(self) -> float:
        """All but the compilers, which work more in an early run than in a late one, whatever the feed does."""
        return sum(seconds for name, seconds in self.cpu.items() if name != "compilers")

    @property
    def rest(self) -> float:
        """Outside the tasks and the JVM's own work for them."""
        return self.cpu["python"] + self.cpu["other"]

    @property
    def rows_per_cpu_second(self) -> float:
        return self.rows / self.cpu_seconds


@dataclass(frozen=True, kw_only=True)
class Loss:
    """The share by which a figure falls with everything on, with its interval of 95 % confidence."""

    share: float
    low: float
    high: float

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]]) -> Loss:
        """Compare pairs of a figure, with everything on and off; more is better."""
        from scipy import stats

        ratios = [math.log(on / off) for on, off in pairs]
        mean = statistics.fmean(ratios)
        if len(ratios) < 2:
            return cls(share=1 - math.exp(mean), low=-math.inf, high=math.inf)
        margin = float(stats.t.ppf(0.975, len(ratios) - 1) * stats.sem(ratios))
        return cls(share=1 - math.exp(mean), low=1 - math.exp(mean + margin), high=1 - math.exp(mean - margin))

    @property
    def verdict(self) -> Literal["below", "above", "unclear"]:
        """Say whether the loss is below ``MOST_LOSS``, as far as the runs can tell."""
        if self.high < MOST_LOSS:
            return "below"
        return "above" if self.low > MOST_LOSS else "unclear"

    def as_dict(self) -> dict[str, Any]:
        numbers = {"share": self.share, "low": self.low, "high": self.high}
        known = {name: round(number, 5) if math.isfinite(number) else None for name, number in numbers.items()}
        return {**known, "verdict": self.verdict}


@dataclass(frozen=True, kw_only=True)
class MonitorCost:
    """The result of all pairs."""

    pairs: tuple[tuple[CostRun, CostRun], ...]
    """With everything on, with everything off."""

    @property
    def added(self) -> Loss:
        """CPU time that everything on adds outside the tasks, as the share by which it lowers rows per CPU second."""
        usual = statistics.fmean(run.cpu_seconds for pair in self.pairs for run in pair)
        return Loss.of([(usual / (usual + on.rest - off.rest), 1.0) for on, off in self.pairs])

    @property
    def cpu(self) -> Loss:
        return Loss.of([(on.rows_per_cpu_second, off.rows_per_cpu_second) for on, off in self.pairs])

    @property
    def wall(self) -> Loss:
        return Loss.of([(on.rows / on.seconds, off.rows / off.seconds) for on, off in self.pairs])

    @property
    def further_requests(self) -> float:
        """The median over the pairs of the requests that everything on has added."""
        return statistics.median(on.s3_requests - off.s3_requests for on, off in self.pairs)

    @property
    def holds(self) -> bool:
        """Check that no loss above the bound was shown, and no request was added."""
        return "above" not in (self.added.verdict, self.cpu.verdict) and self.further_requests <= 0

    def as_dict(self) -> dict[str, Any]:
        return {
            "pairs": [{"on": asdict(on), "off": asdict(off)} for on, off in self.pairs],
            "added": self.added.as_dict(),
            "cpu": self.cpu.as_dict(),
            "wall": self.wall.as_dict(),
            "further_s3_requests": self.further_requests,
            "bound": MOST_LOSS,
            "holds": self.holds,
        }


def measure(work: Workload, endpoints: Endpoints, *, pairs: int, home: Path, say: Callable[[str], None]) -> MonitorCost:
    """Run the pairs after two that do not count; the topic is filled already."""
    minio = MinioClient(endpoints, home=home)
    driver_home = home / "driver"
    environment = {**endpoints.as_environment(), **KEEP_COMPILERS, "LAKEFEED_HOME": str(driver_home)}
    found: list[tuple[CostRun, CostRun]] = []
    with ExitStack() as stack:
        address, got = stack.enter_context(receiving())
        run = stack.enter_context(jobs.job_process(environment=environment, log=home / "monitor.log"))
        for number in range(WARM_UP_PAIRS + pairs):
            order: tuple[Mode, Mode] = ("on", "off") if number % 2 else ("off", "on")
            runs: dict[Mode, CostRun] = {}
            for mode in order:
                config = pipeline_of(mode, number, work, endpoints, address=address)
                name = str(config["name"])
                looking = Onlookers(name, folder=driver_home / "run" / "drivers") if mode == "on" else None
                with minio.trace(name) as finish_trace, looking or nullcontext():
                    figures = run(run_case, mode, config, work.rows)
                    requests = sum(api.calls for api in by_api(finish_trace()))
                answers = dict(looking.answers + got) if looking else {}
                got.clear()
                runs[mode] = CostRun(**figures, s3_requests=requests, answers=answers)
                say(f"{_title(number, pairs)}, {mode}: {_line(runs[mode])}")
            if number >= WARM_UP_PAIRS:
                found.append((runs["on"], runs["off"]))
    return MonitorCost(pairs=tuple(found))


def pipeline_of(mode: Mode, number: int, work: Workload, endpoints: Endpoints, *, address: str) -> dict[str, Any]:
    """Return the pipeline of one run; ``address`` takes lineage events and notifications."""
    name = f"monitor_{number}_{mode}"
    kafka: dict[str, Any] = {
        "bootstrap_servers": endpoints.bootstrap_servers,
        "topics": [work.topic],
        "max_records_per_batch": work.records_a_batch,
    }
    blocks: dict[str, Any] = {"runs": {"keep": "no"}}
    if mode == "on":
        kafka["monitoring_group"] = name
        blocks = {
            "runs": {"keep": "local"},
            "lineage": {"url": address, "every": "5 seconds"},
            "notify": {"targets": {"hook": {"webhook": {"url": f"{address}/notify"}}}},
            "dashboard": {"port": 0},
        }
    return {
        "name": name,
        "source": {"kafka": kafka},
        "decode": {"avro": {"registry": endpoints.schema_registry_url}},
        "sink": {"iceberg": {"table": f"lake.bench.{name}"}},
        "checkpoint": f"s3a://{endpoints.bucket}/checkpoints/{name}",
        **blocks,
    }


def run_case(mode: Mode, document: dict[str, Any], rows: int) -> dict[str, Any]:
    """Run a pipeline in this process's session; called in the process of the jobs."""
    from lakefeed.clients.spark.session import session
    from lakefeed.monitor.feed_monitor import FeedMonitor
    from lakefeed.pipeline import Pipeline

    pipeline = Pipeline(PipelineConfig.model_validate(document), environment=dict(os.environ))
    # Not pipeline.session(): its preflight asks S3 from Python.
    spark = session("bench-monitor", connections=pipeline.connections)
    jvm: Any = spark.sparkContext._jvm
    jvm.java.lang.System.gc()
    monitor = FeedMonitor(pipeline.config.name)
    with pipeline.serve(monitor) if mode == "on" else nullcontext():
        before = CpuTimes.now()
        summary = pipeline.run(spark=spark, once=True, monitor=monitor)
        cpu = CpuTimes.now().since(before)
    if summary.rows != rows:
        raise JobFailed(
            f"the topic has {rows:,} records, and {summary.rows:,} rows were written", where=document["name"]
        )
    return {
        "mode": mode,
        "rows": summary.rows,
        "batches": summary.batches,
        "cpu": cpu,
        "seconds": summary.seconds,
    }


@dataclass(frozen=True)
class CpuTimes:
    """The CPU time so far of the driver's JVM, of each of its threads, and of this process, in seconds."""

    jvm: float
    python: float
    threads: dict[str, tuple[str, float]]
    """By thread id: name and seconds."""

    @classmethod
    def now(cls) -> CpuTimes:
        process = Path(f"/proc/{jobs.jvm_pid()}")
        threads = {thread.name: jobs.cpu_time(thread / "stat") for thread in (process / "task").iterdir()}
        return cls(jvm=jobs.cpu_time(process / "stat")[1], python=time.process_time(), threads=threads)

    def since(self, before: CpuTimes) -> dict[str, float]:
        """Sum what was spent since, by kind of thread; ``other`` has the threads that have ended, too."""
        spent = dict.fromkeys(("tasks", "compilers", "collector"), 0.0)
        for thread, (name, seconds) in self.threads.items():
            kind = _THREADS.get(name, "collector" if name.startswith(("G1", "GC")) else "")
            if kind:
                spent[kind] += seconds - before.threads.get(thread, ("", 0.0))[1]
        other = self.jvm - before.jvm - sum(spent.values())
        return {**spent, "python": self.python - before.python, "other": other}


def table(cost: MonitorCost, work: Workload) -> str:
    """Show each run, and what can be said of the loss."""
    kinds = ("tasks", "collector", "other", "python")
    rows: list[tuple[str, ...]] = [("pair", "", "rows/CPU s", "rows/s", "CPU s", *kinds, "s", "S3 requests")]
    for number, pair in enumerate(cost.pairs, 1):
        for run in pair:
            figures = (f"{run.rows_per_cpu_second:,.0f}", f"{run.rows / run.seconds:,.0f}")
            times = (f"{run.cpu_seconds:.1f}", *(f"{run.cpu[kind]:.2f}" for kind in kinds), f"{run.seconds:.1f}")
            rows.append((str(number), run.mode, *figures, *times, str(run.s3_requests)))
    return "\n".join(
        [
            *aligned(rows, left=2),
            "",
            f"{work.rows:,} rows in {cost.pairs[0][0].batches} batches, {len(cost.pairs)} pairs; with everything on:",
            f"CPU time outside the tasks lowers rows for each CPU second of the driver: {_sentence(cost.added)}",
            f"rows for each CPU second of the driver, all counted: {_sentence(cost.cpu)}",
            f"rows a second: {_sentence(cost.wall)}",
            f"S3 requests of a run: {cost.further_requests:+g} in the median",
        ]
    )


def _sentence(loss: Loss) -> str:
    if not math.isfinite(loss.high):
        return f"{loss.share:.1%} less; one pair says nothing of its error"
    bound = f"{MOST_LOSS:.0%}"
    verdict = {"below": f"below {bound}", "above": f"above {bound}", "unclear": f"unclear whether below {bound}"}
    return f"{loss.share:.1%} less (95 %: {loss.low:.1%} to {loss.high:.1%}): {verdict[loss.verdict]}"


def _title(number: int, pairs: int) -> str:
    done = number - WARM_UP_PAIRS + 1
    return f"pair {done} of {pairs}" if done > 0 else f"warm-up {number + 1} of {WARM_UP_PAIRS}"


def _line(run: CostRun) -> str:
    outside = f"{run.cpu['other']:.2f} outside the tasks and {run.cpu['python']:.2f} in Python"
    total = f"{run.rows_per_cpu_second:,.0f} rows/CPU s, {run.cpu_seconds:.1f} CPU s in {run.seconds:.1f} s"
    return f"{total}: {outside}; {run.s3_requests} S3 requests"
