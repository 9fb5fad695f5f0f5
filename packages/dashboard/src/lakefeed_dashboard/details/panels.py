"""Keeps the results of a feed's query panels: queried while a user looks, each one never twice at a time."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from lakefeed.config.values import seconds_of
from lakefeed.json_model import iso
from lakefeed.lazy import SparkSession
from lakefeed_dashboard.details.panel_query import PanelSession, cancel, reason_of
from lakefeed_dashboard.panel_settings import QueryPanel

AT_ONCE = 2
"""So many panels are queried at the same time: a slow one does not hold up all others."""
IDLE_SECONDS = 60.0
"""Threads that no panel needs end after so long."""


class Queries(Protocol):
    """Runs panels' queries; made by and used in one thread."""

    def query(self, panel: QueryPanel, *, group: str) -> dict[str, Any]:
        """Return columns and rows of a panel."""


@dataclass
class _State:
    panel: QueryPanel
    found: dict[str, Any] = field(default_factory=lambda: {"columns": [], "rows": [], "truncated": False})
    taken_at: float | None = None
    error: str | None = None
    began: float | None = None
    is_queued: bool = False
    group: str | None = None
    is_cancelled: bool = False


class Panels:
    """The panels of one feed; ``document`` may be called from any thread, and never waits for a query.

    Args:
        open_queries: opens what runs the queries, in the thread that will use it.
        cancel_group: ends the jobs of a query.
    """

    def __init__(
        self,
        panels: Sequence[QueryPanel],
        *,
        open_queries: Callable[[], Queries],
        cancel_group: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._states = [_State(panel) for panel in panels]
        self._open = open_queries
        self._cancel_group = cancel_group
        self._clock = clock
        self._lock = threading.Lock()
        self._due: queue.SimpleQueue[_State | None] = queue.SimpleQueue()
        self._threads = 0
        self._idle = 0
        self._numbers = itertools.count()
        self._closed = False

    @classmethod
    def of(cls, panels: Sequence[QueryPanel], spark: SparkSession) -> Panels:
        """Return panels that query the driver's Spark."""
        return cls(panels, open_queries=lambda: PanelSession(spark), cancel_group=lambda group: cancel(spark, group))

    def document(self) -> dict[str, Any]:
        """Return the newest results, and have those queried that are due."""
        with self._lock:
            self._start_due()
            return {"panels": [self._shown(state) for state in self._states]}

    def close(self) -> None:
        """Cancel the queries that run, and start no more."""
        with self._lock:
            self._closed = True
            groups = [state.group for state in self._states if state.group is not None]
            for _ in range(self._threads):
                self._due.put(None)
        for group in groups:
            with suppress(Exception):  # Spark may have stopped.
                self._cancel_group(group)

    def _start_due(self) -> None:
        now = self._clock()
        for state in self._states:
            every = seconds_of(state.panel.every)
            if self._closed or state.is_queued or (state.began is not None and now - state.began < every):
                continue
            state.is_queued, state.began = True, now
            self._due.put(state)
            if self._idle == 0 and self._threads < AT_ONCE:
                self._threads += 1
                threading.Thread(target=self._work, name="lakefeed-panels", daemon=True).start()

    def _work(self) -> None:
        queries: Queries | None = None
        while True:
            with self._lock:
                self._idle += 1
            try:
                state = self._due.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                state = None
            with self._lock:
                self._idle -= 1
                if state is None or self._closed:
                    self._threads -= 1
                    return
                state.began, state.is_cancelled = self._clock(), False
                state.group = f"lakefeed-panel-{state.panel.name}-{next(self._numbers)}"
            found, error = None, None
            limit = seconds_of(state.panel.time_limit)
            watch = threading.Timer(limit, self._cancel, [state, state.group])
            watch.daemon = True
            watch.start()
            try:
                queries = queries or self._open()
                found = queries.query(state.panel, group=state.group)
            except BaseException as failure:  # A thread of the driver has no one above it.
                error = reason_of(failure)
            finally:
                watch.cancel()
            self._note(state, found, error)

    def _note(self, state: _State, found: dict[str, Any] | None, error: str | None) -> None:
        with self._lock:
            if state.is_cancelled:
                found, error = (
                    None,
                    f"the query was cancelled after {state.panel.time_limit}; shorten it, or time_limit",
                )
            state.error = error
            if found is not None:
                state.found, state.taken_at = found, self._clock()
            state.group, state.is_queued = None, False

    def _cancel(self, state: _State, group: str) -> None:
        with self._lock:
            if state.group != group:
                return
            state.is_cancelled = True
            state.error = f"the query takes longer than {state.panel.time_limit} and is being cancelled"
        with suppress(Exception):
            self._cancel_group(group)

    def _shown(self, state: _State) -> dict[str, Any]:
        panel = state.panel
        return {
            "name": panel.name,
            "title": panel.title or panel.name,
            "chart": panel.chart,
            "x": panel.x,
            "y": panel.series,
            "label": panel.label,
            "lat": panel.lat,
            "lon": panel.lon,
            "every_seconds": seconds_of(panel.every),
            **state.found,
            "taken_at": iso(state.taken_at),
            "running": state.group is not None,
            "error": state.error,
        }
