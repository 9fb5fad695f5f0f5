"""The reports of a run while it is at work: the protocol of who receives them, and what brings them of a query.

``QueryObserver`` joins Spark's report of a batch with what the writer has measured. PySpark's own listener takes each
event apart by dozens of calls into the JVM; the one here takes the report as JSON, by two. Spark calls it from a thread
of its own, apart from the query's: a slow listener delays no batch.
"""

from __future__ import annotations

import json
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from lakefeed.clients.spark.jvm import java
from lakefeed.errors import LakefeedError
from lakefeed.feed.control import FeedControl
from lakefeed.feed.progress import FinishedBatch, ends_of, phases_of, state_of
from lakefeed.lazy import SparkSession, StreamingQuery
from lakefeed.messages.text import one_line
from lakefeed.offsets.ranges import OffsetRange, Partition
from lakefeed.records.columns import RowColumn
from lakefeed.stopwatch import Stopwatch

_log = logging.getLogger(__name__)

KEPT_OUTCOMES = 8
MOST_REPORTS = 1000
"""So many reports wait to be read; Spark itself keeps 100."""


@dataclass(frozen=True)
class TaskCounts:
    """The tasks of the running batch: done, known, the records that they have read, and a server that they wait for."""

    done: int
    total: int
    records: int
    waits_for: str | None = None


class RunObserver(Protocol):
    """Receives the reports of a run from the run's own threads; ``lakefeed.monitor`` has the one that every view reads.

    Attributes:
        control: takes operators' requests from other threads.
        columns: of the rows that are written, as of the newest batch.
        batch_requests: to S3, of all batches so far.
    """

    control: FeedControl
    columns: tuple[RowColumn, ...]

    @property
    def batch_requests(self) -> int: ...

    def note_path(self, path: str) -> None:
        """Show who reads the records and encodes the rows."""

    def opens(self, *, sink: str) -> None:
        """Note where the feed writes, before it is open."""

    def begin(
        self,
        *,
        sink: str,
        fence: str | None,
        position: Iterable[OffsetRange] = (),
        start: Mapping[str, Any] | None = None,
    ) -> None:
        """Note that the feed is open: where it writes, its fence, the ranges that it continues after, and why there."""

    def count_tasks_by(self, count: Callable[[], TaskCounts | None]) -> None:
        """Ask this for the tasks of the running batch, once a second while a batch takes long."""

    def tick(self, *, stops: bool = False) -> None:
        """Note that the driver's loop turns; ``stops`` if the feed ends after the current batch."""

    def batch(self, batch_id: int, ranges: Iterable[OffsetRange] = ()) -> AbstractContextManager[Stopwatch]:
        """Note that a batch of these ranges is written in this block; with an error it is not committed."""

    def round(self, number: int) -> AbstractContextManager[None]:
        """Note that tables of many are written in this block; the caller notes which have committed or failed."""

    def finish(self, batch: FinishedBatch, *, ends: Mapping[Partition, int] | None = None) -> FinishedBatch:
        """Add a finished batch, with how far the topics reached when it was planned; return it with its lag's age."""

    def committed(self, ranges: Iterable[OffsetRange]) -> None:
        """Note that the sink has just committed these ranges; ``batch`` does so by itself."""

    def reached(self, ranges: Iterable[OffsetRange]) -> None:
        """Note that the sink has the records up to the ends of these ranges."""

    def starts_at(self, position: Mapping[Partition, int]) -> None:
        """Note where partitions begin of which no record was read yet."""

    def observe_ends(self, ends: Mapping[Partition, int]) -> None:
        """Note how far all topics reach now; one that is not among them was deleted."""

    def restarted(self, why: str) -> None:
        """Note that the query starts again within the run, as after a change of the schema."""

    def audited(self, message: str, *, is_published: bool) -> None:
        """Note that the branch of a table was published, or that it was not and the feed continues."""

    def waits_for(self, error: LakefeedError | None) -> None:
        """Note the server's answer that the feed waits after; None when all servers answer again."""

    def paused(self, sinks: Mapping[str, str]) -> None:
        """Note which sinks wait after a failure, and why."""

    def failed(self, error: LakefeedError) -> None:
        """Note an error that does not end the feed, as of one table of many."""

    def tables_failed(self, tables: Mapping[str, LakefeedError]) -> None:
        """Note which tables of many have failed, by topic; those that are not among them continue."""


class QueryObserver:
    """Reports the batches of one run's queries to its observer. Use it as a context manager around them.

    A report of Spark may be late, or never come: Spark's ``recentProgress`` has them all, and
    ``lakefeed.feed.run.watch`` reads that too, now and then and at the end of a query.
    """

    def __init__(self, monitor: RunObserver, spark: SparkSession, *, say: Callable[[str], None]) -> None:
        self.monitor = monitor
        self._say = say
        self._spark: Any = spark
        self._lock = threading.Lock()
        self._waiting: deque[Mapping[str, Any]] = deque(maxlen=MOST_REPORTS)
        self._listener: Any = None
        self._run_id = ""
        self._written: dict[int, tuple[Mapping[str, float], tuple[OffsetRange, ...]]] = {}
        self._triggered: float | None = None

    def __enter__(self) -> QueryObserver:
        from pyspark.java_gateway import ensure_callback_server_started

        try:
            gateway = self._spark.sparkContext._gateway
            streaming = gateway.jvm.org.apache.spark.sql.streaming
            ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
            listener = streaming.PythonStreamingQueryListenerWrapper(_Events(self))
            self._spark._jsparkSession.streams().addListener(listener)
        except Exception:  # Spark's own list of reports is read then.
            _log.debug("the listener could not be added", exc_info=True)
            return self
        self._listener = listener
        return self

    def __exit__(self, *error: object) -> None:
        listener, self._listener = self._listener, None
        if listener is None:
            return
        try:
            self._spark._jsparkSession.streams().removeListener(listener)
        except Exception:  # The JVM has ended, and the listener with it.
            _log.debug("the listener could not be removed", exc_info=True)

    @property
    def hears(self) -> bool:
        """Check that Spark reports by itself."""
        return self._listener is not None

    def take(self, text: str) -> None:
        """Keep a report, as Spark writes it."""
        report = json.loads(text)
        with self._lock:
            self._waiting.append(report)

    def follow(self, query: StreamingQuery) -> None:
        """Listen to this query from now on, and ask for its tasks."""
        self._run_id = str(query.runId)
        self.monitor.count_tasks_by(task_counter(self._spark, group=self._run_id, say=self._say))

    def reports(self, after: int) -> Iterator[Mapping[str, Any]]:
        """Yield Spark's reports of the query's batches that have ended after this one, each once."""
        with self._lock:
            reports = [report for report in self._waiting if report.get("runId") == self._run_id]
            self._waiting.clear()
        for report in reports:
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


class _Events:
    """Implements Spark's interface for listeners in Python."""

    def __init__(self, observer: QueryObserver) -> None:
        self._observer = observer

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Do nothing: Spark waits for this one."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._observer.take(str(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Do nothing: the run counts its own turns."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Do nothing: the query is waited for."""

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def task_counter(
    spark: SparkSession, *, group: str | None, say: Callable[[str], None]
) -> Callable[[], TaskCounts | None]:
    """Return what counts a query's tasks, by the group of its jobs (None for all), and says once that they wait."""
    waited = False

    def count() -> TaskCounts | None:
        nonlocal waited
        own: Any = spark
        try:
            text = str(java(spark).query.BatchTasks.of(own._jsc.sc(), group))
        except Exception:  # A count is no reason to stop a feed.
            _log.debug("the tasks could not be counted", exc_info=True)
            return None
        if not text:
            return None
        done, tasks, records, answer = text.split("\t", 3)
        if answer and not waited:
            say(f"waiting for a server: {one_line(answer)}")
        waited = bool(answer)
        return TaskCounts(int(done), int(tasks), int(records), one_line(answer) or None)

    return count
