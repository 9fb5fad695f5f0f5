"""Keeps the progress of one running feed for all views.

The feed's threads report events, as ``lakefeed.feed.observer`` defines them, and the views' threads read the progress.
All these threads use one lock, and hold it only for microseconds. No method sends a request to a server.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from lakefeed.clients.environment import process_start
from lakefeed.errors import LakefeedError
from lakefeed.feed.control import FeedControl
from lakefeed.feed.events import EventKind, EventLog
from lakefeed.feed.observer import RunObserver, TaskCounts
from lakefeed.feed.progress import FinishedBatch, RunningBatch
from lakefeed.ledger.pauses import Pause
from lakefeed.monitor.counters import EndTimes, RunCounters
from lakefeed.monitor.history import BatchHistory, Point, RunHistory, points_of
from lakefeed.monitor.model import Driver, Failure, FeedProgress, PartitionLag, State
from lakefeed.offsets.ranges import OffsetRange, Partition
from lakefeed.records.columns import RowColumn
from lakefeed.stopwatch import Stopwatch, timing

MOST_REASONS = 5
RATE_SECONDS = 60.0
TASKS_AFTER_SECONDS = 2.0
"""After this time in a batch, the monitor asks Spark for the tasks; a shorter batch ends before a view shows them."""
TASKS_EVERY_SECONDS = 1.0


class FeedMonitor(RunObserver):
    """The progress of one run of a feed; the run writes it, and ``snapshot`` reads it.

    Example:
        >>> monitor = FeedMonitor("taxi")
        >>> pipeline.run(monitor=monitor)  # in another thread
        >>> monitor.snapshot().lag
        0
    """

    def __init__(
        self, feed: str, *, clock: Callable[[], float] = time.time, steady: Callable[[], float] | None = None
    ) -> None:
        self.feed = feed
        self.history = BatchHistory()
        self.events = EventLog(clock=clock)
        self.control = FeedControl(self.events, show=self._show_pause, clock=clock)
        self.stopwatch = Stopwatch()
        self._clock = clock
        # Measure durations by a monotonic clock: when the system clock is set, no loop must seem to hang.
        self._steady = steady or (time.monotonic if clock is time.time else clock)
        self._alive: float | None = None
        self._began = 0.0
        self._lock = threading.Lock()
        now = clock()
        self._progress = FeedProgress(
            feed=feed,
            sink="",
            state="starting",
            driver=this_driver(),
            taken_at=now,
            started_at=now,
            alive_at=now,
            progress_at=now,
        )
        self._counters = RunCounters()
        self._ends: dict[Partition, EndTimes] = {}
        self._latest: dict[Partition, int] = {}
        self._read: dict[Partition, int] = {}
        self._committed: dict[Partition, int] = {}
        self._count_tasks: Callable[[], TaskCounts | None] = lambda: None
        self.show_path: Callable[[str], None] = lambda path: None
        """Called at the start with a text about the run's reader and encoder."""
        self.note_fence: Callable[[str | None], None] = lambda fence: None
        """Called with the driver's fence when the feed is open."""
        self._asked_at, self._tasks_wait = 0.0, False
        self.columns: tuple[RowColumn, ...] = ()
        self.documents: dict[str, Callable[[], dict[str, Any]]] = {}
        """Pages that plug-ins provide about the run at the driver's endpoint, by name."""

    @property
    def batch_requests(self) -> int:
        return self._counters.totals.requests

    def begin(
        self,
        *,
        sink: str,
        fence: str | None,
        position: Iterable[OffsetRange] = (),
        start: Mapping[str, Any] | None = None,
    ) -> None:
        self.reached(position)
        with self._lock:
            self._change(sink=sink, fence=fence, state="waiting")
        self.events.add("started", f"started into {sink}", fence=fence, start=dict(start or {}))
        self.note_fence(fence)

    def opens(self, *, sink: str) -> None:
        with self._lock:
            self._change(sink=sink)

    def note_path(self, path: str) -> None:
        self.show_path(path)

    def note_spark_ui(self, url: str | None) -> None:
        with self._lock:
            self._change(driver=self._progress.driver.model_copy(update={"spark_ui": url}))

    def count_tasks_by(self, count: Callable[[], TaskCounts | None]) -> None:
        self._count_tasks = count

    def observe_ends(self, ends: Mapping[Partition, int]) -> None:
        with self._lock:
            self._observe(ends)
            for gone in {*self._read, *self._committed} - ends.keys():
                self._read.pop(gone, None)
                self._committed.pop(gone, None)

    @contextmanager
    def batch(self, batch_id: int, ranges: Iterable[OffsetRange] = ()) -> Iterator[Stopwatch]:
        spans, now = tuple(ranges), self._clock()
        self.stopwatch = Stopwatch()
        with self._lock:
            for span in spans:
                self._read[span.topic, span.partition] = span.end
                if span.key in self._ends:
                    self._ends[span.key].reaches(span.end, at=now)
                # The batch starts at an unexpected offset if the feed was moved or the topic recreated.
                self._committed[span.topic, span.partition] = span.start
            offsets = sum(span.records for span in spans) if spans else None
            self._work_on(RunningBatch(batch_id=batch_id, began_at=now, offsets=offsets))
        try:
            with timing(self.stopwatch):
                yield self.stopwatch
        except BaseException:
            with self._lock:
                self._read.update({(span.topic, span.partition): span.start for span in spans})
                self._change(running=None, state=self._after_batch)
            raise
        now = self._clock()
        with self._lock:
            self._committed.update({(span.topic, span.partition): span.end for span in spans})
            self._change(running=None, state=self._after_batch, waits_for=None, last_commit_at=now, progress_at=now)

    @contextmanager
    def round(self, number: int) -> Iterator[None]:
        with self._lock:
            self._work_on(RunningBatch(batch_id=number, began_at=self._clock()))
        try:
            yield
        finally:
            with self._lock:
                over = {"waits_for": None} if self._tasks_wait else {}
                self._change(running=None, state=self._after_batch, **over)

    def finish(self, batch: FinishedBatch, *, ends: Mapping[Partition, int] | None = None) -> FinishedBatch:
        with self._lock:
            if ends:
                # Spark asks for the topics' end offsets while it plans a batch, so they are as old as the plan.
                planned = batch.finished_at - batch.seconds + batch.phases.get("plan", 0.0)
                self._observe(ends, at=max(0.0, planned))
            batch = batch.model_copy(update={"lag_seconds": self._age(batch)})
            before = self._progress.last_batch
            self.history.add(batch)
            self._counters = self._counters.plus(batch)
            reasons = batch.reasons[:MOST_REASONS] or self._progress.last_dead_letters
            self._change(
                last_batch=batch,
                last_dead_letters=reasons,
                totals=self._counters.totals,
                progress_at=self._clock(),
            )
        self.events.add_batch(batch, before)
        return batch

    def note(self, message: str) -> None:
        """Add a message for the user to the run's events, for example that a checkpoint was recreated."""
        self.events.add("note", message)

    def audited(self, message: str, *, is_published: bool) -> None:
        with self._lock:
            counted = self._counters
            if is_published:
                self._counters = replace(counted, published=counted.published + 1)
            else:
                self._counters = replace(counted, audits_failed=counted.audits_failed + 1)
        self.events.add("published" if is_published else "audit_failed", message)

    def committed(self, ranges: Iterable[OffsetRange]) -> None:
        self.reached(ranges)
        now = self._clock()
        with self._lock:
            self._change(last_commit_at=now, progress_at=now)

    def reached(self, ranges: Iterable[OffsetRange]) -> None:
        with self._lock:
            for span in ranges:
                self._read[span.topic, span.partition] = span.end
                self._committed[span.topic, span.partition] = span.end

    def starts_at(self, position: Mapping[Partition, int]) -> None:
        with self._lock:
            for partition, start in position.items():
                self._read.setdefault(partition, start)
                self._committed.setdefault(partition, start)

    def tick(self, *, stops: bool = False) -> None:
        now, steady = self._clock(), self._steady()
        with self._lock:
            running, self._alive = self._progress.running, steady
            self._change(alive_at=now, **({"state": "stopping"} if stops else {}))
            if running is None or steady - self._began < TASKS_AFTER_SECONDS:
                return
            if steady - self._asked_at < TASKS_EVERY_SECONDS:
                return
            self._asked_at = steady
        counts = self._count_tasks()
        with self._lock:
            if counts is None or self._progress.running != running:
                return
            moved = counts.done != running.tasks_done or counts.records != (running.records or 0)
            found = {
                "tasks_done": counts.done,
                "tasks": counts.total,
                # Each job of a batch counts its records from 0, so store the greatest number.
                "records": max(counts.records, running.records or 0) or None,
                "phase": self.stopwatch.current,
            }
            self._change(running=running.model_copy(update=found), **({"progress_at": now} if moved else {}))
            if counts.waits_for or self._tasks_wait:
                self._tasks_wait = bool(counts.waits_for)
                self._change(waits_for=counts.waits_for, state="retrying" if self._tasks_wait else "working")

    def restarted(self, why: str) -> None:
        with self._lock:
            self._change(restarts=self._progress.restarts + 1, running=None, state="waiting")
        self.events.add("restarted", why)

    def waits_for(self, error: LakefeedError | None) -> None:
        if self._progress.waits_for is None:
            if error is None:
                return
            self.failed(error)
        text = None if error is None else Failure.of(error, at=self._clock()).text
        with self._lock:
            self._change(waits_for=text, state=self._after_batch if text is None else "retrying")

    def paused(self, sinks: Mapping[str, str]) -> None:
        with self._lock:
            before = self._progress.paused_sinks
            self._change(paused_sinks=dict(sinks))
        for name in sorted(sinks.keys() - before.keys()):
            self.events.add("sink_paused", f"the sink '{name}' waits: {sinks[name]}", sink=name)
        for name in sorted(before.keys() - sinks.keys()):
            self.events.add("sink_resumed", f"the sink '{name}' resumes", sink=name)

    @contextmanager
    def until_end(self) -> Iterator[None]:
        """Record the end of the run when the ``with`` block ends, with the block's error, if any."""
        try:
            yield
        except BaseException as error:
            self.ended(error)
            raise
        self.ended()

    def ended(self, error: BaseException | None = None) -> None:
        """Record the end of the run, with the error that ended the run, if any."""
        self.control.close()
        if error is None:
            with self._lock:
                self._change(state="ended", running=None)
            self.events.add("ended", "the run has ended")
            return
        self._add_error("failed", error, state="failed", running=None)

    def failed(self, error: LakefeedError) -> None:
        self._add_error("error", error)

    def tables_failed(self, tables: Mapping[str, LakefeedError]) -> None:
        with self._lock:
            self._change(failed_tables={topic: error.what for topic, error in tables.items()})

    def snapshot(self) -> FeedProgress:
        """Return the present progress; the call takes microseconds."""
        return self.counted()[0]

    def counted(self) -> tuple[FeedProgress, RunCounters]:
        with self._lock:
            now, steady, shown = self._clock(), self._steady(), self._progress
            running, alive_at = shown.running, shown.alive_at
            if running is not None:
                seconds = max(0.0, steady - self._began)
                running = running.model_copy(update={"began_at": now - seconds, "seconds": seconds})
            if self._alive is not None:
                alive_at = now - (steady - self._alive)
            read = {
                "taken_at": now,
                "alive_at": alive_at,
                "running": running,
                "rate": self._rate(now),
                "partitions": tuple(self._partition(key, now) for key in sorted({*self._read, *self._latest})),
            }
            return shown.model_copy(update=read), self._counters

    def points(self, *, since: float = 0.0, most: int = 500) -> list[Point]:
        with self._lock:
            blocks = self.history.blocks(since=since)
        return points_of(blocks, since=since, most=most)

    def history_since(self, since: float, *, most: int) -> RunHistory:
        """Return the history as points, and the newest batches with all their values."""
        return RunHistory(points=tuple(self.points(since=since, most=most)), batches=self.batches())

    def batches(self) -> tuple[FinishedBatch, ...]:
        with self._lock:
            return tuple(self.history.newest)

    def _rate(self, now: float) -> float | None:
        """Return the records per second over the last minute; 0 if the feed is idle, None if the rate is unknown."""
        rate = self.history.rate(RATE_SECONDS, now=now)
        is_idle = self._progress.running is None and now - self._progress.started_at > RATE_SECONDS
        return 0.0 if rate is None and is_idle else rate

    def _add_error(self, event: EventKind, error: BaseException, **changes: object) -> None:
        failure = Failure.of(error, at=self._clock())
        with self._lock:
            self._counters = replace(self._counters, errors=self._counters.errors + 1)
            self._change(last_error=failure, **changes)
        self.events.add(event, failure.text, **failure.as_dict())

    @property
    def _after_batch(self) -> State:
        return "stopping" if self._progress.state == "stopping" else "waiting"

    def _show_pause(self, pause: Pause | None) -> None:
        with self._lock:
            stops = self._progress.state == "stopping"
            state: State = "stopping" if stops else "waiting" if pause is None else "paused"
            self._change(paused=pause, state=state, **({} if pause is None else {"running": None}))

    def _work_on(self, running: RunningBatch) -> None:
        self._began = self._asked_at = self._steady()
        self._tasks_wait = False
        # If the feed has waited for a server, this batch is its next attempt.
        state = "working" if self._progress.waits_for is None else "retrying"
        self._change(running=running, state=state, progress_at=running.began_at)

    def _change(self, **changes: object) -> None:
        self._progress = self._progress.model_copy(update=changes)

    def _observe(self, ends: Mapping[Partition, int], *, at: float | None = None) -> None:
        at = self._clock() if at is None else at
        for partition, end in ends.items():
            self._ends.setdefault(partition, EndTimes()).observe(end, at=at)
        self._latest = dict(ends)

    def _age(self, batch: FinishedBatch) -> float | None:
        """Return the age of the oldest record that the batch has left unread."""
        if not batch.lag:
            return None if batch.lag is None else 0.0
        now = self._clock()
        # Get the offsets that were read from the ranges of ``batch``, because the next batch may have begun already.
        read = {**self._read, **{span.key: span.end for span in batch.ranges}}
        ages = [
            self._ends[partition].age(read[partition], now=now)
            for partition, end in self._latest.items()
            if end > read.get(partition, end)
        ]
        return None if not ages or None in ages else max(age for age in ages if age is not None)

    def _partition(self, key: Partition, now: float) -> PartitionLag:
        read, committed, ends = self._read.get(key), self._committed.get(key), self._ends.get(key)
        end = self._latest.get(key)
        if end is not None and read is not None:
            end = max(end, read)
        return PartitionLag(
            topic=key[0],
            partition=key[1],
            end=end,
            read=read,
            committed=committed,
            unread_seconds=ends.age(read, now=now) if ends and read is not None else None,
            uncommitted_seconds=ends.age(committed, now=now) if ends and committed is not None else None,
        )


def this_driver() -> Driver:
    try:
        own = version("lakefeed")
    except PackageNotFoundError:
        own = ""
    return Driver(host=socket.gethostname(), pid=os.getpid(), started=process_start(os.getpid()), version=own)
