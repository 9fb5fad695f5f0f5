"""Writes the trace of a run from a thread of its own: each minute, soon after what matters, and at the end.

A folder that is full or cannot be written to costs the trace, never a batch.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed_observe.runs.store import LocalRuns
from lakefeed_observe.runs.trace import RunTrace

_log = logging.getLogger(__name__)

EVERY_SECONDS = 60.0
SOON_SECONDS = 5.0
"""After an event that matters the next write comes so soon, and not sooner."""
SHARE = 100
"""Writes take one part in so many of the time, at most: a day's history takes longer than a minute's."""
END_SECONDS = 5.0
TURN_SECONDS = 1.0

Upload = Callable[[Mapping[str, Any]], None]


@contextmanager
def tracing(runs: LocalRuns | None, monitor: FeedMonitor, *, upload: Upload | None = None) -> Iterator[None]:
    """Keep the trace of a run within this block.

    Args:
        runs: where it is kept on this machine; None for nowhere.
        upload: takes the whole trace once, at the end; its errors become a line of the log.
    """
    if runs is None:
        yield
        return
    follower = TraceFollower(runs, monitor, upload=upload)
    follower.start()
    try:
        yield
    finally:
        follower.close()


class TraceFollower:
    """Writes the trace of one run."""

    def __init__(self, runs: LocalRuns, monitor: FeedMonitor, *, upload: Upload | None = None) -> None:
        self._runs, self._monitor, self._upload = runs, monitor, upload
        self._trace = RunTrace(monitor)
        self._seen = 0
        self._stop = threading.Event()
        self._written_at = 0.0
        self._pause = 0.0
        self._is_reported = False
        self._thread = threading.Thread(target=self._run, name="lakefeed-trace", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Write the end; returns after a bounded time."""
        self._stop.set()
        self._thread.join(END_SECONDS + (END_SECONDS if self._upload is not None else 0.0))

    def _run(self) -> None:
        self._attempt(self._runs.prune)
        is_due = True
        while not self._stop.is_set():
            is_due = self._take(seconds=TURN_SECONDS) or is_due
            waited = time.monotonic() - self._written_at
            if waited >= max(self._pause, SOON_SECONDS if is_due else EVERY_SECONDS):
                is_due = not self._attempt(self._write)
            self._stop.wait(0.1)
        self._take(seconds=0.0)
        self._attempt(lambda: self._write(is_over=True))
        if (upload := self._upload) is not None:
            self._attempt(lambda: upload(self._trace.document(is_over=True)))
        self._attempt(self._runs.prune)

    def _take(self, *, seconds: float) -> bool:
        events = self._monitor.events.wait(self._seen, seconds=seconds)
        if events:
            self._seen = events[-1].number
        return self._trace.take(events)

    def _write(self, *, is_over: bool = False) -> None:
        began = time.monotonic()
        document = self._trace.document(is_over=is_over)
        try:
            self._runs.save(document)
        finally:
            self._written_at = time.monotonic()
            self._pause = SHARE * (self._written_at - began)

    def _attempt(self, work: Callable[[], object]) -> bool:
        """Do work whose failure is reported once, and costs no batch."""
        try:
            work()
        except Exception as error:
            if not self._is_reported:
                why = getattr(error, "strerror", None) or getattr(error, "what", None) or type(error).__name__
                self._monitor.note(f"the trace of this run cannot be kept: {why}")
                _log.debug("the trace of this run cannot be kept", exc_info=True)
            self._is_reported = True
            return False
        return True
