"""Measures how long the phases of a batch take, in the thread that writes the batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass
class Stopwatch:
    seconds: dict[str, float] = field(default_factory=dict)
    current: str | None = None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        before, self.current = self.current, name
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began
            self.current = before


_stopwatch: ContextVar[Stopwatch | None] = ContextVar("lakefeed_stopwatch", default=None)


@contextmanager
def timed(phase: str) -> Iterator[None]:
    """Add the time of a ``with`` block to a phase of the batch that this thread writes; without a batch do nothing."""
    stopwatch = _stopwatch.get()
    if stopwatch is None:
        yield
        return
    with stopwatch.phase(phase):
        yield


def add_time(phase: str, seconds: float) -> None:
    """Add seconds to a phase of the batch that this thread writes; without a batch do nothing."""
    if (stopwatch := _stopwatch.get()) is not None:
        stopwatch.seconds[phase] = stopwatch.seconds.get(phase, 0.0) + seconds


@contextmanager
def timing(stopwatch: Stopwatch) -> Iterator[None]:
    """Let ``timed`` and ``add_time`` add to this stopwatch within the ``with`` block."""
    token = _stopwatch.set(stopwatch)
    try:
        yield
    finally:
        _stopwatch.reset(token)
