"""The reports of a running feed; their receiver implements the protocol ``RunObserver``.

``QueryObserver`` joins Spark's report of a batch with the writer's measurements. Its listener reads a report as JSON,
by two calls into the JVM; PySpark's own listener makes dozens of calls. Spark calls the listener from a separate
thread, so a slow listener does not delay the query's batches.
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
"""The most unread reports in memory; Spark itself stores 100."""


@dataclass(frozen=True)
class TaskCounts:
    """The tasks of the running batch; ``waits_for`` is the last error of a server that the tasks wait for."""

    done: int
    total: int
    records: int
    waits_for: str | None = None


class RunObserver(Protocol):
    """Receives the reports of a run from the run's own threads; ``lakefeed.monitor`` implements it for all views.

    Attributes:
        control: accepts operators' requests from other threads.
        columns: the columns of the rows, as of the newest batch.
        batch_requests: the number of S3 requests of all batches so far.
    """

    control: FeedControl
    columns: tuple[RowColumn, ...]

    @property
    def batch_requests(self) -> int: ...

    def note_path(self, path: str) -> None:
        """Record the text of ``FeedPath``."""

    def opens(self, *, sink: str) -> None:
        """Record that the feed with this sink is about to open."""

    def begin(
        self,
        *,
        sink: str,
        fence: str | None,
        position: Iterable[OffsetRange] = (),
        start: Mapping[str, Any] | None = None,
    ) -> None:
        """Record that the feed is open; ``position`` has its last committed ranges, ``start`` how it starts and why."""

    def count_tasks_by(self, count: Callable[[], TaskCounts | None]) -> None:
        """Set the function that counts the running batch's tasks; it is called once a second during a long batch."""

    def tick(self, *, stops: bool = False) -> None:
        """Record that the driver's loop is alive; with ``stops``, the feed ends after the current batch."""

    def batch(self, batch_id: int, ranges: Iterable[OffsetRange] = ()) -> AbstractContextManager[Stopwatch]:
        """Report the batch that the ``with`` block writes. Unless the block fails, these ranges are committed."""

    def round(self, number: int) -> AbstractContextManager[None]:
        """Report the round that the ``with`` block writes; the caller reports which tables committed or failed."""

    def finish(self, batch: FinishedBatch, *, ends: Mapping[Partition, int] | None = None) -> FinishedBatch:
        """Record a finished batch, and the topics' end offsets when Spark planned it; return the batch with its lag."""

    def committed(self, ranges: Iterable[OffsetRange]) -> None:
        """Record that the sink has just committed these ranges; not needed within the block of ``batch``."""

    def reached(self, ranges: Iterable[OffsetRange]) -> None:
        """Record that the sink has the records up to the ends of these ranges."""

    def starts_at(self, position: Mapping[Partition, int]) -> None:
        """Record the start offsets of partitions that the feed has not read yet."""

    def observe_ends(self, ends: Mapping[Partition, int]) -> None:
        """Record the current end offsets of all topics; a partition that is not in ``ends`` was deleted."""

    def restarted(self, why: str) -> None:
        """Record that the query restarts within the run, for example after a change of the schema."""

    def audited(self, message: str, *, is_published: bool) -> None:
        """Record that a table's branch was published, or that its audit failed and the feed continues."""

    def waits_for(self, error: LakefeedError | None) -> None:
        """Record the error of a server that does not answer, or with None that all servers answer again."""

    def paused(self, sinks: Mapping[str, str]) -> None:
        """Record which sinks lag after a failure: by name, the error."""

    def failed(self, error: LakefeedError) -> None:
        """Record an error that does not end the feed, for example of one table of many."""

    def tables_failed(self, tables: Mapping[str, LakefeedError]) -> None:
        """Record which of many tables have failed, by topic; all other tables continue."""


class QueryObserver:
    """Reports the batches of a run's queries to the run's observer. Use it as a context manager around a query.

    The listener may get a report late or never. Spark's ``recentProgress`` has all reports, so
    ``lakefeed.feed.run.watch`` reads ``recentProgress``, too: regularly, and at the end of a query.
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
        except Exception:  # Without a listener, the run reads only ``recentProgress``.
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
        except Exception:  # The JVM has ended, so the listener needs no removal.
            _log.debug("the listener could not be removed", exc_info=True)

    @property
    def hears(self) -> bool:
        """Return whether Spark sends its reports to this observer."""
        return self._listener is not None

    def take(self, text: str) -> None:
        """Store a report of Spark, given as JSON."""
        report = json.loads(text)
        with self._lock:
            self._waiting.append(report)

    def follow(self, query: StreamingQuery) -> None:
        """Observe this query from now on, and count its tasks."""
        self._run_id = str(query.runId)
        self.monitor.count_tasks_by(task_counter(self._spark, group=self._run_id, say=self._say))

    def reports(self, after: int) -> Iterator[Mapping[str, Any]]:
        """Yield the stored reports of the query's batches after batch ``after``, and remove all stored reports."""
        with self._lock:
            reports = [report for report in self._waiting if report.get("runId") == self._run_id]
            self._waiting.clear()
        for report in reports:
            # Spark also reports a trigger without new records; that report has the next batch's id.
            if "addBatch" in report.get("durationMs", {}) and (batch_id := int(report["batchId"])) > after:
                after = batch_id
                yield report

    def observe_idle(self, query: StreamingQuery) -> None:
        """Report the topics' end offsets after a trigger without new records; Spark's listeners get no such report."""
        report = query.lastProgress
        if report is None or "addBatch" in report["durationMs"]:
            return
        if reached := ends_of(json.loads(report.json), "latestOffset"):
            self.monitor.observe_ends(reached)

    @contextmanager
    def batch(self, batch_id: int, ranges: tuple[OffsetRange, ...]) -> Iterator[None]:
        """Report the batch that the ``with`` block writes, and store the block's measurements for ``finish``."""
        with self.monitor.batch(batch_id, ranges) as stopwatch:
            yield
        self._written[batch_id] = stopwatch.seconds, ranges
        for old in list(self._written)[:-KEPT_OUTCOMES]:
            self._written.pop(old, None)

    def finish(self, report: Mapping[str, Any], batch: FinishedBatch, *, is_ours: bool) -> FinishedBatch:
        """Report a finished batch, and add its phases, ranges, state and input rate.

        ``is_ours`` says whether lakefeed has written the batch; in real time, one of Spark's own sinks writes it. If
        Spark's ``report`` has an unexpected form, log a warning: that must not stop the feed.
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
            _log.warning("Spark's report of batch %s has an unexpected form", batch.batch_id, exc_info=True)
            return self.monitor.finish(batch)

    def _input_rate(self, report: Mapping[str, Any], batch: FinishedBatch) -> float | None:
        """Return Spark's input rate, or the rate since the last trigger if lakefeed itself has read the records."""
        before, at = self._triggered, report.get("timestamp")
        began = self._triggered = datetime.fromisoformat(at).timestamp() if at else None
        if report.get("numInputRows") or not batch.records:
            rate = report.get("inputRowsPerSecond")
            return float(rate) if isinstance(rate, int | float) and math.isfinite(rate) else None
        return batch.records / (began - before) if began and before and began > before else None


class _Events:
    """Implements Spark's interface for listeners in Python."""

    def __init__(self, observer: QueryObserver) -> None:
        self._observer = observer

    def onQueryStarted(self, event: Any) -> None: ...  # noqa: N802

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._observer.take(str(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None: ...  # noqa: N802

    def onQueryTerminated(self, event: Any) -> None: ...  # noqa: N802

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def task_counter(
    spark: SparkSession, *, group: str | None, say: Callable[[str], None]
) -> Callable[[], TaskCounts | None]:
    """Return a function that counts the tasks of a job group, or of all jobs; ``say`` gets an outage's first error."""
    waited = False

    def count() -> TaskCounts | None:
        nonlocal waited
        own: Any = spark
        try:
            text = str(java(spark).query.BatchTasks.of(own._jsc.sc(), group))
        except Exception:  # If the tasks cannot be counted, the feed continues.
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
