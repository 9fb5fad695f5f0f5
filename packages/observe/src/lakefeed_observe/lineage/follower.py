"""Sends the OpenLineage events of a run from a thread of its own, in bounded time.

START is sent when the run begins, RUNNING while batches are committed, and COMPLETE, FAIL or ABORT at its end. A server
that does not answer costs the events, never a batch: START is sent again before the next event, RUNNING is left out.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from lakefeed.clients.http import exchange
from lakefeed.config.values import AVAILABLE_NOW, seconds_of
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.text import json_line
from lakefeed.operations.followers import FollowedRun
from lakefeed_observe.lineage.events import LineageRun, end_of
from lakefeed_observe.lineage.settings import Lineage

Post = Callable[[bytes, float], int]
"""Sends a document within so many seconds, and returns the status of the answer."""

_ACCEPTED = range(200, 300)


@contextmanager
def reporting(run: LineageRun, monitor: FeedMonitor, *, post: Post | None = None) -> Iterator[None]:
    """Report the run of a monitor within this block, and how it has ended after it."""
    follower = LineageFollower(run, monitor, post=post or poster(run.lineage))
    thread = threading.Thread(target=follower.follow, name="lakefeed-lineage", daemon=True)
    thread.start()
    try:
        yield
    finally:
        follower.finish()
        thread.join(run.lineage.timeout_seconds + 1)


def follow(run: FollowedRun) -> AbstractContextManager[None]:
    """Report a run as its pipeline file says; one that never began has nothing to report."""
    config, lineage = run.config, run.config.block(Lineage)
    if lineage is None or run.is_failed_start:
        return nullcontext()
    stays = not run.once and config.trigger != AVAILABLE_NOW
    return reporting(LineageRun(config=config, connections=run.connections, lineage=lineage, stays=stays), run.monitor)


def poster(lineage: Lineage) -> Post:
    """Return what posts a document to the server."""
    headers = {"Content-Type": "application/json; charset=utf-8", "Connection": "close"}
    if lineage.api_key is not None:
        headers["Authorization"] = f"Bearer {lineage.api_key.get_secret_value()}"

    def post(body: bytes, seconds: float) -> int:
        return exchange("POST", f"{lineage.url}{lineage.endpoint}", seconds=seconds, headers=headers, body=body).status

    return post


class LineageFollower:
    """Follows one run; ``follow`` returns when it has reported the end."""

    def __init__(self, run: LineageRun, monitor: FeedMonitor, *, post: Post) -> None:
        self._run = run
        self._monitor = monitor
        self._post = post
        self._over = threading.Event()
        self._until = 0.0
        self._start: dict[str, Any] | None = None
        self._failing = False
        self._seen: tuple[object, ...] = ()

    def finish(self) -> None:
        """End: what is to be reported has ``timeout_seconds`` from now on."""
        self._until = time.monotonic() + self._run.lineage.timeout_seconds
        self._over.set()

    def follow(self) -> None:
        """Send events until ``finish`` is called."""
        self._start = self._run.event("START", self._monitor.snapshot())
        self._send_start()
        every = seconds_of(self._run.lineage.every)
        while not self._over.wait(every):
            progress = self._monitor.snapshot()
            state = (progress.totals, self._monitor.columns)
            if progress.totals.batches and state != self._seen and self._send_start():
                self._send(self._event("RUNNING"))
                self._seen = state
        self._send_start()
        # The run is over without a word if the process ends by more than an exception.
        self._send(self._event(end_of(self._monitor.snapshot()) or "ABORT"))

    def _event(self, kind: Any) -> dict[str, Any]:
        progress, counters = self._monitor.counted()
        return self._run.event(kind, progress, columns=self._monitor.columns, bytes_out=counters.bytes_out or None)

    def _send_start(self) -> bool:
        if self._start is not None and self._send(self._start):
            self._start = None
        return self._start is None

    def _send(self, event: dict[str, Any]) -> bool:
        seconds = self._run.lineage.timeout_seconds
        if self._over.is_set():
            seconds = min(seconds, self._until - time.monotonic())
            if seconds <= 0:
                return False
        why = self._failure(json_line(event).encode(), seconds)
        if why is not None and not self._failing:
            self._monitor.note(f"lineage events do not arrive at {self._run.lineage.url}: {why}")
        self._failing = why is not None
        return why is None

    def _failure(self, body: bytes, seconds: float) -> str | None:
        try:
            status = self._post(body, seconds)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return getattr(error, "strerror", None) or str(error) or type(error).__name__
        return None if status in _ACCEPTED else f"it answers with status {status}"
