"""Pushes metrics from a separate thread, so that no batch waits for the receiver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger(__name__)

LAST_SECONDS = 2.0
"""The longest time that the end of a run waits for the last push."""


@contextmanager
def pushing(
    name: str,
    push: Callable[[], bool],
    *,
    every: float,
    on_change: Callable[[bool], None] = lambda works: None,
    close: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Call ``push`` in a thread every ``every`` seconds within this block, and once at its end.

    Args:
        push: returns whether it succeeded; an error counts as a failure.
        on_change: called with False when pushes begin to fail, and with True when they succeed again.
        close: called after the last push, or when the end of the run no longer waits for the last push.
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
            _log.debug("%s: the receiver of metrics could not be closed", name, exc_info=True)
