"""Measure what a micro-batch takes beside its tasks, and where: ``io.lakefeed_bench.BatchTimes`` notes the times."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lakefeed.clients.spark.jvm import java
from lakefeed.lazy import SparkSession

PHASES = ("ends", "plan", "offsets entry", "before jobs", "jobs", "after jobs", "commits entry", "rest")
"""The overhead of a batch in its order; the sum is the batch's duration less the time in tasks.

``ends``           ask the broker for the ends of the topics
``plan``           plan the stream's own query
``offsets entry``  write the checkpoint's entry of the batch
``before jobs``    call Python, ask the broker and the ledger, plan the write
``jobs``           schedule tasks and collect their results: a job's time less that of its tasks
``after jobs``     commit to the sink, and what follows until Python has returned
``commits entry``  write the checkpoint's entry that the batch is done
``rest``           what no other phase has, such as Spark's report
"""


@dataclass(frozen=True, kw_only=True)
class BatchTime:
    """One batch with its times in milliseconds: ``at`` is its begin, ``tasks`` the time that a task ran at least."""

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
    def of(cls, noted: Mapping[str, Any]) -> BatchTime:
        """Read one of ``BatchTimes``; Spark measures its own phases, the jobs divide the time of ``addBatch``."""
        report = noted["report"]
        took: dict[str, float] = {name: float(value) for name, value in report["durationMs"].items()}
        at = datetime.fromisoformat(report["timestamp"]).timestamp() * 1000
        total, add, tasks = took.get("triggerExecution", 0.0), took.get("addBatch", 0.0), covered(noted["tasks"])
        before = {
            "ends": took.get("latestOffset", 0.0),
            "plan": took.get("queryPlanning", 0.0) + took.get("getBatch", 0.0),
            "offsets entry": took.get("walCommit", 0.0),
        }
        commits = took.get("commitOffsets", 0.0) + took.get("commitBatch", 0.0)
        began = at + sum(before.values())
        first = min((start for start, _ in noted["jobs"]), default=began + add)
        last = max((end for _, end in noted["jobs"]), default=began + add)
        phases = {
            **before,
            "before jobs": first - began,
            "jobs": last - first - tasks,
            "after jobs": began + add - last,
            "commits entry": commits,
            "rest": total - sum(before.values()) - add - commits,
        }
        jobs = len(noted["jobs"])
        return cls(batch_id=int(report["batchId"]), at=at, duration=total, tasks=tasks, jobs=jobs, phases=phases)


def covered(spans: Iterable[Sequence[float]]) -> float:
    """Return how much time the spans cover together."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(map(tuple, spans)):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


@dataclass(frozen=True, kw_only=True)
class Overhead:
    """Medians over batches, in milliseconds; ``p99_ms`` is of the overhead."""

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
    """Note the batches of the query that runs in this block; the list has them after it."""
    found: list[BatchTime] = []
    context: Any = spark.sparkContext._jsc
    times = java(spark).bench.BatchTimes.begin(context.sc())
    try:
        yield found
    finally:
        context.sc().listenerBus().waitUntilEmpty()
        found += map(BatchTime.of, json.loads(str(times.end())))
