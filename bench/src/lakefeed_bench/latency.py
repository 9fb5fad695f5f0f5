"""Measure the time from a record's producer to a reader of the table or topic: ``lakefeed-bench latency``.

The pipeline runs in this process. The producer and the reader run in another process.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import click

from lakefeed.cli.options import FILE
from lakefeed.clients.spark.jvm import java
from lakefeed.clients.spark.session import log_path, session
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.config.values import interval_of, require_trigger, trigger_seconds
from lakefeed.errors import JobFailed
from lakefeed.feed.progress import FinishedBatch
from lakefeed.lazy import SparkSession
from lakefeed.pipeline import Pipeline
from lakefeed_bench import jobs
from lakefeed_bench.charts import Chart, write_charts
from lakefeed_bench.harness import Bench, Outcome, job_process, measurement, number, say, store_option, table
from lakefeed_bench.latency_load import CATALOG, DRAIN_SECONDS, NAMESPACE, POLL_SECONDS, Load, Observed, observe

PHASES = ("ends", "plan", "offsets_entry", "before_jobs", "jobs", "after_jobs", "commits_entry", "rest")
"""The phases of a batch's overhead, in order. Their sum is the batch's duration without the time in tasks.

``ends``           Spark asks the broker for the topics' end offsets
``plan``           Spark plans the query of the stream
``offsets_entry``  Spark writes the batch's offsets to the checkpoint
``before_jobs``    lakefeed queries the broker and the ledger, and plans the write
``jobs``           Spark schedules tasks and collects their results: the jobs' time without the tasks' time
``after_jobs``     lakefeed commits to the sink, until Python returns
``commits_entry``  Spark records in the checkpoint that the batch is complete
``rest``           the remaining time, such as Spark's progress report
"""


@dataclass(frozen=True, kw_only=True)
class BatchTime:
    """One batch: its start ``at``, and the time ``tasks`` during which at least one task ran, both in milliseconds."""

    batch_id: int
    at: float
    duration: float
    tasks: float
    jobs: int
    phases: Mapping[str, float] = field(default_factory=dict)

    @property
    def overhead(self) -> float:
        return self.duration - self.tasks

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> BatchTime:
        """Read an entry of the Java class ``BatchTimes``: Spark's own phases, and ``addBatch`` split by its jobs."""
        report = entry["report"]
        took: dict[str, float] = {name: float(value) for name, value in report["durationMs"].items()}
        at = datetime.fromisoformat(report["timestamp"]).timestamp() * 1000
        total, add, tasks = took.get("triggerExecution", 0.0), took.get("addBatch", 0.0), covered(entry["tasks"])
        before = {
            "ends": took.get("latestOffset", 0.0),
            "plan": took.get("queryPlanning", 0.0) + took.get("getBatch", 0.0),
            "offsets_entry": took.get("walCommit", 0.0),
        }
        commits = took.get("commitOffsets", 0.0) + took.get("commitBatch", 0.0)
        began = at + sum(before.values())
        first = min((start for start, _ in entry["jobs"]), default=began + add)
        last = max((end for _, end in entry["jobs"]), default=began + add)
        phases = {
            **before,
            "before_jobs": first - began,
            "jobs": last - first - tasks,
            "after_jobs": began + add - last,
            "commits_entry": commits,
            "rest": total - sum(before.values()) - add - commits,
        }
        jobs = len(entry["jobs"])
        return cls(batch_id=int(report["batchId"]), at=at, duration=total, tasks=tasks, jobs=jobs, phases=phases)


def covered(spans: Iterable[Sequence[float]]) -> float:
    """Return the total length of the spans; a time in several spans counts once."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(map(tuple, spans)):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


@dataclass(frozen=True, kw_only=True)
class Overhead:
    """Medians over batches: time outside tasks (and its 99th percentile) and in tasks; and the mean number of jobs."""

    batches: int
    p50_ms: float
    p99_ms: float
    tasks_ms: float
    jobs: float
    phases: Mapping[str, float]

    @classmethod
    def of(cls, times: Sequence[BatchTime]) -> Overhead:
        overheads = sorted(time.overhead for time in times)
        return cls(
            batches=len(times),
            p50_ms=statistics.median(overheads),
            p99_ms=overheads[max(0, -(-len(overheads) * 99 // 100) - 1)],
            tasks_ms=statistics.median(time.tasks for time in times),
            jobs=statistics.fmean(time.jobs for time in times),
            phases={name: statistics.median(time.phases[name] for time in times) for name in PHASES},
        )


@contextmanager
def noting_batches(spark: SparkSession) -> Iterator[list[BatchTime]]:
    """Yield a list, which has the times of the block's batches when the block has ended."""
    batches: list[BatchTime] = []
    context: Any = spark.sparkContext._jsc
    times = java(spark).bench.BatchTimes.begin(context.sc())
    try:
        yield batches
    finally:
        context.sc().listenerBus().waitUntilEmpty()
        batches += map(BatchTime.of, json.loads(str(times.end())))


Target = Literal["table", "topic"]

SQL = "SELECT id, sent, upper(zip) AS zip, kafka_topic, kafka_partition, kafka_offset FROM {name} WHERE zip IS NOT NULL"
COLUMNS = "id BIGINT, sent BIGINT, zip STRING"
TRIGGERS: dict[Target, tuple[str, ...]] = {
    "table": ("100 milliseconds", "1 second", "10 seconds", "1 minute"),
    "topic": ("1 second", "real-time"),
}
LEAST_BATCHES = 5
"""The least number of batches to measure; a long trigger thus makes the measurement longer."""


@dataclass(frozen=True, kw_only=True)
class Latency:
    """The result for one trigger. Producer and reader use the same clock.

    Attributes:
        copies: how often a record arrived again.
        batches: the number of batches that began during the measurement; None in real-time mode.
        files_per_hour, requests_per_hour: new data files and S3 requests, extrapolated from the measured batches.
        requests_per_batch: the mean number of S3 requests.
    """

    trigger: str
    target: Target
    guarantee: str
    records: int
    missing: int
    copies: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    batches: int | None = None
    files_per_hour: int | None = None
    requests_per_hour: int | None = None
    requests_per_batch: float | None = None
    overhead: Overhead | None = None

    @property
    def holds(self) -> bool:
        """Return True if no record is missing and, under exactly-once, no record arrived twice."""
        return not self.missing and not (self.copies and self.guarantee == "exactly-once")


def _checked_trigger(text: str) -> str:
    try:
        require_trigger(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--trigger") from None
    return text


@measurement(
    "latency",
    click.option(
        "--sink",
        "target",
        type=click.Choice(["table", "topic"]),
        default="table",
        show_default=True,
        help="Write into an Iceberg table, or into a topic.",
    ),
    number("--rate", 1_000, "Records to produce per second."),
    number("--seconds", 60, "Duration of the measurement; at least 5 triggers."),
    number("--warm-up", 30, "Seconds before the measurement.", least=0),
    number("--partitions", 1, "Partitions of the source topic."),
    click.option(
        "--trigger",
        "triggers",
        multiple=True,
        callback=lambda context, option, values: tuple(map(_checked_trigger, values)),
        help="Measure only this trigger, as in a pipeline file; repeatable.  [default: table: 100 milliseconds, 1 "
        "second, 10 seconds, 1 minute; topic: 1 second, real-time]",
    ),
    click.option(
        "--checkpoint/--no-checkpoint",
        default=True,
        show_default=True,
        help="With a table: keep a checkpoint in addition to the ledger.",
    ),
    click.option("--chart", type=FILE, help="Draw latency and cost by trigger into this SVG file."),
    store_option(),
)
def latency(
    bench: Bench,
    target: Target,
    triggers: Sequence[str],
    checkpoint: bool,
    chart: Path | None,
    **options: int,
) -> Outcome:
    """Measure the latency from the producer to a reader.

    Measures for each trigger: p50, p99 and the slowest record; data files and S3 requests per hour; a batch's time
    outside its tasks. With --sink topic, the reader consumes the topic that the pipeline writes to. Status 1 if a
    record is missing, or is in the table twice. The first use builds MinIO from source, which needs Go.
    """
    chosen, load = triggers or TRIGGERS[target], Load(**options)
    connections, log_file = Connections.from_environment(bench.endpoints.as_environment()), log_path("bench-latency")
    # In real-time mode each partition occupies a task slot; one more slot is for the other tasks.
    master = f"local[{load.partitions + 1}]"
    conf = jobs.own_classes()
    with session("bench-latency", connections=connections, master=master, log_file=log_file, conf=conf) as spark:
        measured = [measure(bench, spark, trigger, target, load, checkpoint=checkpoint) for trigger in chosen]
    if chart is not None:
        write_chart(chart, measured)
    return Outcome(results=measured, text=report(measured, load), holds=all(result.holds for result in measured))


def measure(
    bench: Bench, spark: SparkSession, trigger: str, target: Target, load: Load, *, checkpoint: bool
) -> Latency:
    """Run a pipeline under a load, and measure every record's latency."""
    name, is_table = f"latency_{uuid.uuid4().hex[:8]}", target == "table"
    bench.topics.create(name, partitions=load.partitions)
    if not is_table:
        bench.topics.create(f"{name}_out", partitions=1)
    seconds = 0.0 if interval_of(trigger) else trigger_seconds(trigger)
    least = round(LEAST_BATCHES * seconds)
    load = replace(load, seconds=max(load.seconds, least), warm_up=max(load.warm_up, round(seconds)))
    say(f"{trigger}: {load.warm_up} s warm-up, {load.seconds} s measured")
    config = config_of(bench, name, trigger, target, checkpoint=checkpoint)
    watch = (observe, target, name, bench.endpoints, load, DRAIN_SECONDS + 2 * seconds)
    observed, progress, times = _run(bench, spark, config, watch)
    if not observed.took:
        what = f"with trigger '{trigger}', no record of the measurement reached the reader"
        raise JobFailed(what, where=name, hint=f"read {bench.logs / name}.log, or measure longer with --seconds")
    times = [each for each in times if observed.began <= each.at / 1000 < observed.ended]
    counted = [
        batch.requests.total
        for at, batch in progress
        if observed.began <= at < observed.ended and batch.requests and is_table
    ]
    requests = statistics.fmean(counted) if counted else None
    hourly = 3600 * (len(times) - 1) * 1000 / (times[-1].at - times[0].at) if len(times) > 1 else None
    ranks = [round(observed.took[max(0, -(-len(observed.took) * share // 100) - 1)] / 1e6, 3) for share in (50, 99)]
    return Latency(
        trigger=trigger,
        target=target,
        guarantee="exactly-once" if is_table else "at-least-once",
        records=observed.records,
        missing=observed.missing,
        copies=observed.copies,
        p50_ms=ranks[0],
        p99_ms=ranks[1],
        max_ms=round(observed.took[-1] / 1e6, 3),
        batches=len(times) if seconds else None,
        files_per_hour=round(hourly * observed.files / len(times)) if hourly and observed.files else None,
        requests_per_hour=round(hourly * requests) if hourly and requests else None,
        requests_per_batch=round(requests, 1) if requests else None,
        overhead=Overhead.of(times) if seconds and times else None,
    )


def _run(
    bench: Bench, spark: SparkSession, config: PipelineConfig, watch: tuple[Any, ...]
) -> tuple[Observed, list[tuple[float, FinishedBatch]], list[BatchTime]]:
    """Run a pipeline until the reader ends; return the reader's observations, the batches and their times."""
    from pyspark import inheritable_thread_target

    pipeline = Pipeline(config, environment=bench.endpoints.as_environment())
    stop, progress = threading.Event(), list[tuple[float, FinishedBatch]]()

    def note(batch: FinishedBatch) -> None:
        progress.append((time.time() - batch.seconds, batch))

    with ExitStack() as stack:
        times = stack.enter_context(noting_batches(spark))
        pool = stack.enter_context(ThreadPoolExecutor(2))
        # The exit stack must end the reader before the pool: the pool would wait for the reader if the pipeline fails.
        run = stack.enter_context(job_process({}, log=bench.logs / f"{config.name}.log"))
        stack.callback(stop.set)
        running = pool.submit(inheritable_thread_target(spark)(pipeline.run), spark=spark, stop=stop, on_batch=note)
        observing = pool.submit(run, *watch)
        wait((running, observing), return_when=FIRST_COMPLETED)
        if running.done():
            running.result()
            hint = f"read Spark's log: {log_path('bench-latency')}"
            raise JobFailed("the pipeline ended before the measurement did", where=config.name, hint=hint)
        observed: Observed = observing.result()
        stop.set()
        running.result()
    return observed, progress, times


def config_of(bench: Bench, name: str, trigger: str, target: Target, *, checkpoint: bool) -> PipelineConfig:
    config: dict[str, Any] = {
        "name": name,
        "source": {"kafka": {"bootstrap_servers": bench.endpoints.bootstrap_servers, "topics": [name]}},
        "decode": {"json": {"schema_ddl": COLUMNS}},
        "sink": {"iceberg": {"table": f"{CATALOG}.{NAMESPACE}.{name}"}},
        "trigger": trigger,
    }
    if target == "topic":
        config["transform"] = {"sql": SQL.format(name=name)}
        config["sink"] = {"kafka": {"topic": f"{name}_out", "key": "zip", "options": {"kafka.linger.ms": 0}}}
    if target == "topic" or checkpoint:
        config["checkpoint"] = f"s3a://{bench.endpoints.bucket}/checkpoints/{name}"
    return PipelineConfig.model_validate(config)


def report(measured: Sequence[Latency], load: Load) -> str:
    columns = "trigger records missing copies p50_ms p99_ms max_ms files_per_hour requests_per_hour"
    names = ("batches", "jobs", "tasks_ms", "p50_ms", "p99_ms", *(f"phases.{phase}" for phase in PHASES))
    phases = f"trigger {' '.join(f'overhead.{name}' for name in names)}"
    end = "a consumer of the sink's topic"
    if measured[0].target == "table":
        end = f"a reader that has loaded the table and polls its catalog every {POLL_SECONDS * 1000:.0f} ms"
    note = f"{load.rate} records per second after {load.warm_up} s of warm-up; partitions: {load.partitions}"
    note = f"Latency from the producer's call to {end}. {note}. {measured[0].guarantee}."
    overheads = [result for result in measured if result.overhead is not None]
    return "\n\n".join([table(measured, columns), *([table(overheads, phases)] if overheads else []), note])


def write_chart(file: Path, measured: Sequence[Latency]) -> None:
    """Draw latency and cost over the trigger's interval; real-time triggers have no interval and are omitted."""
    shown = {trigger_seconds(each.trigger): each for each in measured if not interval_of(each.trigger)}
    ticks = sorted(seconds for seconds in shown if seconds)

    def line(value: Callable[[Latency], float | None]) -> list[tuple[float, float]]:
        return [(seconds, y) for seconds in sorted(shown) if (y := value(shown[seconds])) is not None]

    times = {"p50": line(lambda each: each.p50_ms / 1000), "p99": line(lambda each: each.p99_ms / 1000)}
    costs = {
        "S3 requests": line(lambda each: each.requests_per_hour),
        "data files": line(lambda each: each.files_per_hour),
    }
    title = f"From produce to visible in the {measured[0].target}"
    charts = [
        Chart(title=title, x="trigger", x_unit="s", x_ticks=ticks, y="latency", y_unit="s", lines=times),
        Chart(title="Cost per hour", x="trigger", x_unit="s", x_ticks=ticks, y="per hour", lines=costs),
    ]
    write_charts(file, charts, title="Latency and cost by trigger")
