"""Retry requests, so that a server's restart delays a batch instead of ending the feed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_SECONDS = 300
PAUSE_SECONDS = 1
Done = TypeVar("Done")


def retry_until(
    attempt: Callable[[], Done],
    *,
    is_transient: Callable[[Exception], bool],
    seconds: float = PATIENCE_SECONDS,
    pause: float = PAUSE_SECONDS,
) -> Done:
    """Return the result of ``attempt``; repeat it while its errors are transient, for at most ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return attempt()
        except Exception as error:
            if not is_transient(error) or time.monotonic() > deadline:
                raise
        time.sleep(pause)
