"""Receives Spark's reports of streaming queries as they are made, and counts the tasks of a running batch.

PySpark's own listener takes each event apart by dozens of calls into the JVM. This one takes the report as JSON, by
two. Spark calls it from a thread of its own, apart from the query's: a slow listener delays no batch.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from lakefeed.clients.spark.jvm import java
from lakefeed.messages.text import one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

MOST_REPORTS = 1000
"""So many reports wait to be read; Spark itself keeps 100."""


@dataclass(frozen=True)
class TaskCounts:
    """The tasks of the running batch: done, known, the records that they have read, and a server that they wait for."""

    done: int
    total: int
    records: int
    waits_for: str | None = None


class QueryReports:
    """The reports of the queries of one session. Use it as a context manager around them.

    A report may be late, or never come: Spark's ``recentProgress`` has them all, and ``lakefeed.feed.run.watch`` reads
    that too, now and then and at the end of a query.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Any = spark
        self._lock = threading.Lock()
        self._waiting: deque[Mapping[str, Any]] = deque(maxlen=MOST_REPORTS)
        self._wrapper: Any = None

    def __enter__(self) -> Self:
        from pyspark.java_gateway import ensure_callback_server_started

        try:
            gateway = self._spark.sparkContext._gateway
            streaming = gateway.jvm.org.apache.spark.sql.streaming
            ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
            wrapper = streaming.PythonStreamingQueryListenerWrapper(_Events(self))
            self._spark._jsparkSession.streams().addListener(wrapper)
        except Exception:  # Spark's own list of reports is read then.
            _log.debug("the listener could not be added", exc_info=True)
            return self
        self._wrapper = wrapper
        return self

    @property
    def is_open(self) -> bool:
        """Check that Spark reports to this listener."""
        return self._wrapper is not None

    def __exit__(self, *error: object) -> None:
        wrapper, self._wrapper = self._wrapper, None
        if wrapper is None:
            return
        try:
            self._spark._jsparkSession.streams().removeListener(wrapper)
        except Exception:  # The JVM has ended, and the listener with it.
            _log.debug("the listener could not be removed", exc_info=True)

    def of_run(self, run_id: str) -> Iterator[Mapping[str, Any]]:
        """Yield the new reports of a query's triggers."""
        with self._lock:
            reports = list(self._waiting)
            self._waiting.clear()
        for report in reports:
            if report.get("runId") == run_id:
                yield report

    def take(self, text: str) -> None:
        """Keep a report, as Spark writes it."""
        report = json.loads(text)
        with self._lock:
            self._waiting.append(report)


class _Events:
    """Implements Spark's interface for listeners in Python."""

    def __init__(self, reports: QueryReports) -> None:
        self._reports = reports

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Do nothing: Spark waits for this one."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._reports.take(str(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Do nothing: the run counts its own turns."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Do nothing: the query is waited for."""

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def task_counter(spark: SparkSession, *, group: str | None) -> Callable[[], TaskCounts | None]:
    """Return what counts the tasks that a query runs now, by the group of its jobs: its run id; None for all jobs."""

    def count() -> TaskCounts | None:
        own: Any = spark
        try:
            text = str(java(spark).query.BatchTasks.of(own._jsc.sc(), group))
        except Exception:  # A count is no reason to stop a feed.
            _log.debug("the tasks could not be counted", exc_info=True)
            return None
        if not text:
            return None
        done, tasks, records, waits_for = text.split("\t", 3)
        return TaskCounts(int(done), int(tasks), int(records), one_line(waits_for) or None)

    return count
