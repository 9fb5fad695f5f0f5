"""Measure the time from a record's producer to a reader of the table, or of the topic: ``lakefeed bench latency``.

The pipeline runs in this process as ``lakefeed run`` runs it; what sends and what reads is another process.
"""

from __future__ import annotations

import statistics
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from lakefeed.bench import jobs
from lakefeed.bench.batch_times import PHASES, BatchTime, Overhead, noting_batches
from lakefeed.bench.charts import Chart, write_charts
from lakefeed.bench.latency_load import (
    CATALOG,
    DRAIN_SECONDS,
    NAMESPACE,
    POLL_SECONDS,
    Load,
    Observed,
    observe_table,
    observe_topic,
)
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.models import PipelineConfig
from lakefeed.config.values import interval_of, trigger_seconds
from lakefeed.errors import JobFailed
from lakefeed.feed.progress import BatchProgress
from lakefeed.lazy import SparkSession
from lakefeed.local import Endpoints
from lakefeed.messages.printable import aligned
from lakefeed.pipeline import Pipeline

Target = Literal["table", "topic"]

SQL = "SELECT id, sent, upper(zip) AS zip, kafka_topic, kafka_partition, kafka_offset FROM {name} WHERE zip IS NOT NULL"
COLUMNS = "id BIGINT, sent BIGINT, zip STRING"
TRIGGERS: dict[Target, tuple[str, ...]] = {
    "table": ("100 milliseconds", "1 second", "10 seconds", "1 minute"),
    "topic": ("1 second", "real-time"),
}
LEAST_BATCHES = 5
"""So many triggers are measured at least, however long they are."""


@dataclass(frozen=True, kw_only=True)
class Latency:
    """The result of one trigger, by one clock for both ends.

    Attributes:
        copies: records that came more than once.
        batches: those that began while it was measured; None in real time.
        files_per_hour, requests_per_hour: data files of the table, and the feed's requests to S3, at this rate.
        requests_per_batch: the mean.
        overhead: what batches took beside their tasks.
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
        """Check that no record is missing, and that none came twice where the guarantee says so."""
        return not self.missing and not (self.copies and self.guarantee == "exactly-once")


@dataclass(frozen=True, kw_only=True)
class LatencyBench:
    """The bench on one running stack; what the load's process prints goes to ``home``.

    Attributes:
        keeps_checkpoint: whether a pipeline into a table has one, beside the table's ledger.
    """

    spark: SparkSession
    endpoints: Endpoints
    home: Path
    say: Callable[[str], None]
    keeps_checkpoint: bool = True

    def measure(self, trigger: str, target: Target, load: Load) -> Latency:
        """Run a pipeline under a load, and measure each record.

        Spark needs a task slot for each partition. Raises LakefeedError if the pipeline failed or no record came
        through.
        """
        name = f"latency_{uuid.uuid4().hex[:8]}"
        topics = Topics(self.endpoints.bootstrap_servers)
        topics.create(name, partitions=load.partitions)
        is_table, seconds = target == "table", 0.0 if interval_of(trigger) else trigger_seconds(trigger)
        if not is_table:
            topics.create(f"{name}_out", partitions=1)
        load = _long_enough(load, seconds)
        self.say(f"{trigger}: {load.warm_up} s warm-up, {load.seconds} s measured")
        observe = (observe_table, name, self.endpoints, load, DRAIN_SECONDS + 2 * seconds)
        observed, progress, times = self._run(
            self._config(name, trigger, target), observe if is_table else (observe_topic, name, self.endpoints, load)
        )
        if not observed.took:
            raise JobFailed(f"no record came through with trigger: {trigger}", where=name)
        times = [each for each in times if observed.began <= each.at / 1000 < observed.ended]
        counted = [each for at, each in progress if observed.began <= at < observed.ended and each.requests]
        requests = statistics.fmean(each.requests.total for each in counted if each.requests) if counted else None
        a_second = _frequency(times)
        return Latency(
            trigger=trigger,
            target=target,
            guarantee="exactly-once" if is_table else "at-least-once",
            records=observed.records,
            missing=observed.missing,
            copies=observed.copies,
            p50_ms=_milliseconds(observed.took, 0.5),
            p99_ms=_milliseconds(observed.took, 0.99),
            max_ms=_milliseconds(observed.took, 1.0),
            batches=len(times) if seconds else None,
            files_per_hour=round(3600 * a_second * observed.files / len(times)) if observed.files and times else None,
            requests_per_hour=round(3600 * a_second * requests) if is_table and requests and times else None,
            requests_per_batch=round(requests, 1) if is_table and requests else None,
            overhead=Overhead.of(times) if seconds and times else None,
        )

    def _run(
        self, config: PipelineConfig, observe: tuple[Any, ...]
    ) -> tuple[Observed, list[tuple[float, BatchProgress]], list[BatchTime]]:
        """Run a pipeline until the load's process has observed enough; return that, and the batches."""
        from pyspark import inheritable_thread_target

        pipeline = Pipeline(config, environment=self.endpoints.as_environment())
        stop, progress = threading.Event(), list[tuple[float, BatchProgress]]()

        def note(batch: BatchProgress) -> None:
            progress.append((time.time() - batch.seconds, batch))

        with ExitStack() as stack:
            times = stack.enter_context(noting_batches(self.spark))
            pool = stack.enter_context(ThreadPoolExecutor(2))
            # Ends before the pool: if the pipeline has failed, the other process has nothing to wait for.
            run = stack.enter_context(jobs.job_process(environment={}, log=self.home / f"{config.name}.log"))
            stack.callback(stop.set)
            target = inheritable_thread_target(self.spark)(pipeline.run)
            running = pool.submit(target, spark=self.spark, stop=stop, on_batch=note)
            observing = pool.submit(run, *observe)
            wait((running, observing), return_when=FIRST_COMPLETED)
            if running.done():
                running.result()
                raise JobFailed("the pipeline has ended by itself", where=config.name)
            observed: Observed = observing.result()
            stop.set()
            running.result()
        return observed, progress, times

    def _config(self, name: str, trigger: str, target: Target) -> PipelineConfig:
        kafka = {"bootstrap_servers": self.endpoints.bootstrap_servers, "topics": [name]}
        config: dict[str, Any] = {
            "name": name,
            "source": {"kafka": kafka},
            "decode": {"json": {"schema_ddl": COLUMNS}},
            "sink": {"iceberg": {"table": f"{CATALOG}.{NAMESPACE}.{name}"}},
            "trigger": trigger,
        }
        if target == "topic":
            config["transform"] = {"sql": SQL.format(name=name)}
            config["sink"] = {"kafka": {"topic": f"{name}_out", "key": "zip", "options": {"kafka.linger.ms": 0}}}
        if target == "topic" or self.keeps_checkpoint:
            config["checkpoint"] = f"s3a://{self.endpoints.bucket}/checkpoints/{name}"
        return PipelineConfig.model_validate(config)


def table(measured: Sequence[Latency], load: Load) -> str:
    """Show the results in columns."""
    lines: list[tuple[str, ...]] = [
        ("trigger", "records", "missing", "copies", "p50", "p99", "max", "files/h", "S3 requests/h")
    ]
    for result in measured:
        counts = (f"{count:,}" for count in (result.records, result.missing, result.copies))
        times = (f"{time_ms:,.1f} ms" for time_ms in (result.p50_ms, result.p99_ms, result.max_ms))
        costs = ("-" if each is None else f"{each:,}" for each in (result.files_per_hour, result.requests_per_hour))
        lines.append((result.trigger, *counts, *times, *costs))
    overheads = [result for result in measured if result.overhead is not None]
    partitions = f"{load.partitions} partition{'s' if load.partitions > 1 else ''}"
    text = f"{load.rate} records a second after {load.warm_up} s of warm-up, {partitions}"
    ends = {
        "table": f"a reader that has loaded the table; its catalog is asked each {POLL_SECONDS * 1000:.0f} ms",
        "topic": "a reader of the sink's topic",
    }
    note = "; ".join(f"from the producer's call to {ends[each]}" for each in dict.fromkeys(r.target for r in measured))
    note = f"{note[0].upper()}{note[1:]}. {text}. {', '.join(dict.fromkeys(r.guarantee for r in measured))}."
    return "\n".join([*aligned(lines, left=0), "", *_overheads(overheads), note])


def _overheads(measured: Sequence[Latency]) -> list[str]:
    lines: list[tuple[str, ...]] = [("trigger", "batches", "jobs", "tasks", "overhead", "p99", *PHASES)]
    for result in measured:
        if (found := result.overhead) is not None:
            times = (found.tasks_ms, found.p50_ms, found.p99_ms, *(found.phases[name] for name in PHASES))
            lines.append(
                (result.trigger, f"{found.batches}", f"{found.jobs:.1f}", *(f"{time_ms:,.0f}" for time_ms in times))
            )
    title = "A batch in milliseconds, medians: its tasks, and the overhead beside them by phase"
    return [title, *aligned(lines, left=0), ""] if len(lines) > 1 else []


def write_latency_chart(file: Path, measured: Sequence[Latency]) -> None:
    """Draw latency and cost by the trigger; of triggers that are a time."""
    shown = sorted(
        ((trigger_seconds(each.trigger), each) for each in measured if not interval_of(each.trigger)),
        key=lambda pair: pair[0],
    )

    def line(value: Callable[[Latency], float | None]) -> list[tuple[float, float]]:
        return [(seconds, y) for seconds, each in shown if (y := value(each)) is not None]

    ticks = sorted({seconds for seconds, _ in shown if seconds})
    times = Chart(
        title=f"From produce to visible in the {measured[0].target}",
        x="trigger",
        x_unit="s",
        y="latency",
        y_unit="s",
        x_ticks=ticks,
        lines={"p50": line(lambda each: each.p50_ms / 1000), "p99": line(lambda each: each.p99_ms / 1000)},
    )
    costs = Chart(
        title="Cost of an hour",
        x="trigger",
        x_unit="s",
        y="in an hour",
        x_ticks=ticks,
        lines={
            "S3 requests": line(lambda each: each.requests_per_hour),
            "data files": line(lambda each: each.files_per_hour),
        },
    )
    write_charts(file, [times, costs], title="Latency and cost by the trigger")


def _long_enough(load: Load, seconds: float) -> Load:
    """Return the load for as many triggers as are measured at least."""
    least = round(LEAST_BATCHES * seconds)
    return replace(load, seconds=max(load.seconds, least), warm_up=max(load.warm_up, round(seconds)))


def _frequency(times: Sequence[BatchTime]) -> float:
    """Return the batches a second."""
    if len(times) < 2:
        return 0.0
    return (len(times) - 1) * 1000 / (times[-1].at - times[0].at)


def _milliseconds(took: Sequence[int], share: float) -> float:
    """Return the nearest rank, of nanoseconds in order."""
    return round(took[max(0, -(-int(len(took) * share * 1000) // 1000) - 1)] / 1e6, 3)
