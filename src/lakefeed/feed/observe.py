"""Brings a run's batches to the run's observer, with what Spark's listener reports and the writer has measured."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from lakefeed.feed.listener import QueryReports, task_counter
from lakefeed.feed.observer import RunObserver
from lakefeed.feed.progress import FinishedBatch, ends_of, phases_of, state_of
from lakefeed.lazy import SparkSession, StreamingQuery
from lakefeed.offsets.ranges import OffsetRange

_log = logging.getLogger(__name__)

KEPT_OUTCOMES = 8


class QueryObserver:
    """Reports the batches of one run's queries to its observer. Use it as a context manager around them."""

    def __init__(self, monitor: RunObserver, spark: SparkSession) -> None:
        self.monitor = monitor
        self._spark = spark
        self._reports = QueryReports(spark)
        self._run_id = ""
        self._written: dict[int, tuple[Mapping[str, float], tuple[OffsetRange, ...]]] = {}
        self._triggered: float | None = None

    def __enter__(self) -> QueryObserver:
        self._reports.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._reports.__exit__(*error)

    @property
    def hears(self) -> bool:
        """Check that Spark reports by itself."""
        return self._reports.is_open

    def follow(self, query: StreamingQuery) -> None:
        """Listen to this query from now on, and ask for its tasks."""
        self._run_id = str(query.runId)
        self.monitor.count_tasks_by(task_counter(self._spark, group=self._run_id))

    def reports(self, after: int) -> Iterator[Mapping[str, Any]]:
        """Yield Spark's reports of the query's batches that have ended after this one, each once."""
        for report in self._reports.of_run(self._run_id):
            # A trigger without data is reported too, under the id of the batch to come.
            if "addBatch" in report.get("durationMs", {}) and (batch_id := int(report["batchId"])) > after:
                after = batch_id
                yield report

    def observe_idle(self, query: StreamingQuery) -> None:
        """Take the topics' ends from Spark's report of a trigger without data, which no listener gets."""
        report = query.lastProgress
        if report is None or "addBatch" in report["durationMs"]:
            return
        if reached := ends_of(json.loads(report.json), "latestOffset"):
            self.monitor.observe_ends(reached)

    @contextmanager
    def batch(self, batch_id: int, ranges: tuple[OffsetRange, ...]) -> Iterator[None]:
        """Observe a batch that is written within this block."""
        with self.monitor.batch(batch_id, ranges) as stopwatch:
            yield
        self._written[batch_id] = stopwatch.seconds, ranges
        for old in list(self._written)[:-KEPT_OUTCOMES]:
            self._written.pop(old, None)

    def finish(self, report: Mapping[str, Any], batch: FinishedBatch, *, is_ours: bool) -> FinishedBatch:
        """Report a finished batch with its details; what Spark's report lacks of them is no reason to stop a feed.

        Args:
            report: Spark's of the batch.
            batch: without phases, ranges, state and input rate.
            is_ours: whether lakefeed has written it, and not a sink of Spark's own, as in real time.
        """
        try:
            phases, ranges = self._written.pop(batch.batch_id, ({}, ()))
            details = {
                "phases": phases_of(report, phases),
                "ranges": ranges,
                "state": state_of(report),
                "input_rate": self._input_rate(report, batch),
            }
            if not is_ours:
                reached = ends_of(report, "endOffset").items()
                self.monitor.committed(OffsetRange(*key, end, end) for key, end in reached)
            return self.monitor.finish(batch.model_copy(update=details), ends=ends_of(report, "latestOffset"))
        except Exception:
            _log.warning("the report of batch %s was not understood", batch.batch_id, exc_info=True)
            return self.monitor.finish(batch)

    def _input_rate(self, report: Mapping[str, Any], batch: FinishedBatch) -> float | None:
        """Return Spark's rate; or, where lakefeed has read the records itself, their number since the last trigger."""
        before = self._triggered
        began = self._triggered = (
            datetime.fromisoformat(report["timestamp"]).timestamp() if "timestamp" in report else None
        )
        if report.get("numInputRows") or not batch.records:
            rate = report.get("inputRowsPerSecond")
            return float(rate) if isinstance(rate, int | float) and math.isfinite(rate) else None
        return batch.records / (began - before) if began and before and began > before else None
