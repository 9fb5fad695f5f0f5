"""Pushes metrics from a thread of its own: whatever the receiver does, no batch waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger(__name__)

LAST_SECONDS = 2.0
"""So long the end of a run waits for the last push."""


@contextmanager
def pushing(
    name: str,
    push: Callable[[], bool],
    *,
    every: float,
    on_change: Callable[[bool], None] = lambda works: None,
    close: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Call ``push`` in a thread, each so many seconds within this block, and once at its end.

    Args:
        push: returns whether it has worked; an error means that it has not.
        on_change: called with whether pushes work, when that has changed; before the first push they are taken to.
        close: called when the last push is over, or has been waited for long enough.
    """
    stop = threading.Event()

    def attempt() -> bool:
        try:
            return push()
        except Exception:
            _log.debug("%s: a push of metrics has failed", name, exc_info=True)
            return False

    def run() -> None:
        works = True
        while not stop.wait(every):
            if (now := attempt()) != works:
                works = now
                on_change(works)
        attempt()

    thread = threading.Thread(target=run, name=f"lakefeed-metrics-{name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(LAST_SECONDS)
        try:
            close()
        except Exception:
            _log.debug("%s: the pushes of metrics were not closed", name, exc_info=True)
