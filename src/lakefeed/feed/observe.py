"""Brings a run's batches into the progress model: Spark's report, the counted requests and the writer's result as one.

``watch`` reports each finished batch to ``QueryObserver``, which is all that it has to know of the model.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

from lakefeed.feed.batch_writer import BatchResult
from lakefeed.feed.progress import BatchProgress, S3Requests
from lakefeed.lazy import SparkSession, StreamingQuery
from lakefeed.messages.redaction import redacted
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.listener import QueryReports, task_counter
from lakefeed.monitor.model import BatchRequests, DeadLetterReason, FinishedBatch
from lakefeed.monitor.report import ends_of, phases_of, state_of
from lakefeed.monitor.text import LONGEST, shortened
from lakefeed.offsets.ranges import OffsetRange

_log = logging.getLogger(__name__)

POLL_TURNS = 20
"""Each so many turns Spark itself is asked for its reports: a listener that was lost must not hide a batch."""
DATA = "data"
FILES_BY = ("PutObject", "CompleteMultipartUpload")
WRITES = ("Put", "Copy", "Post", "List", "Create", "Upload", "Complete")
"""How operations of S3 begin that stores charge as writes: PUT, COPY, POST and LIST."""
FREE = ("Delete", "Abort")
KEPT_OUTCOMES = 8


class QueryObserver:
    """Feeds a monitor from one run's queries. Use it as a context manager around them."""

    def __init__(self, monitor: FeedMonitor, spark: SparkSession) -> None:
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

    def finish(self, report: Mapping[str, Any], progress: BatchProgress, result: BatchResult | None) -> None:
        """Add a finished batch to the model; what it cannot take from the report is no reason to stop a feed."""
        try:
            phases, ranges = self._written.pop(progress.batch_id, ({}, ()))
            batch = batch_of(progress, result, report=report, phases=phases, ranges=ranges)
            batch = replace(batch, input_rate=self._input_rate(report, batch))
            if result is None:
                # Spark's own sink has written it, as in real time.
                reached = ends_of(report, "endOffset").items()
                self.monitor.committed(OffsetRange(*key, end, end) for key, end in reached)
            self.monitor.finish(batch, ends=ends_of(report, "latestOffset"))
        except Exception:
            _log.warning("the report of batch %s was not understood", progress.batch_id, exc_info=True)
            self.monitor.finish(batch_of(progress, result))

    def _input_rate(self, report: Mapping[str, Any], batch: FinishedBatch) -> float | None:
        """Return Spark's rate; or, where lakefeed has read the records itself, their number since the last trigger."""
        before = self._triggered
        began = self._triggered = (
            datetime.fromisoformat(report["timestamp"]).timestamp() if "timestamp" in report else None
        )
        if report.get("numInputRows") or not batch.records:
            return batch.input_rate
        return batch.records / (began - before) if began and before and began > before else None


def batch_of(
    progress: BatchProgress,
    result: BatchResult | None,
    *,
    report: Mapping[str, Any] | None = None,
    phases: Mapping[str, float] | None = None,
    ranges: tuple[OffsetRange, ...] = (),
) -> FinishedBatch:
    """Return a finished batch for the model; ``report`` is Spark's, ``phases`` are lakefeed's own."""
    rate = (report or {}).get("inputRowsPerSecond")
    return FinishedBatch(
        batch_id=progress.batch_id,
        finished_at=time.time(),
        seconds=progress.seconds,
        records=progress.records,
        rows=progress.rows,
        offsets=progress.offsets,
        input_rate=float(rate) if isinstance(rate, int | float) and math.isfinite(rate) else None,
        lag=progress.lag,
        dead_letters=progress.dead_letters,
        skipped=progress.skipped,
        left_out=progress.left_out,
        reasons=() if result is None else reasons_of(result),
        phases=phases_of(report or {}, phases),
        requests=None if progress.requests is None else requests_of(progress.requests, progress.request_budget),
        state=state_of(report or {}),
        schema_id=result.schema_id if result else None,
        replayed=result is not None and result.replayed,
        ranges=ranges,
        notes=progress.notes,
    )


def reasons_of(result: BatchResult) -> tuple[DeadLetterReason, ...]:
    """Return the kinds of a batch's dead letters, the most frequent first."""
    found = sorted(result.reasons, key=lambda reason: -reason.count)
    return tuple(DeadLetterReason(_safe(reason.text), reason.count, _safe(reason.sample)) for reason in found)


def _safe(text: str) -> str:
    return shortened(redacted(text), most=LONGEST)


def requests_of(requests: S3Requests, budget: int | None) -> BatchRequests:
    """Return a batch's requests for the model; its data files are those that were put."""
    files = sum(count.requests for count in requests.counts if count.key_class == DATA and count.operation in FILES_BY)
    return BatchRequests(
        total=requests.total,
        errors=requests.errors,
        bytes_out=requests.bytes_out,
        bytes_in=requests.bytes_in,
        data_files=files,
        writes=sum(count.requests for count in requests.counts if count.operation.startswith(WRITES)),
        reads=sum(count.requests for count in requests.counts if not count.operation.startswith((*WRITES, *FREE))),
        by_class=requests.by_key_class,
        budget=budget,
    )
