"""Waits for a server that rows go to: a restart of it is to delay a batch, not to end the feed."""

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
    """Return what a repeatable attempt returns; retry while its error is transient, for ``seconds`` at most."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return attempt()
        except Exception as error:
            if not is_transient(error) or time.monotonic() > deadline:
                raise
        time.sleep(pause)
