"""A clock that a test sets, and a wait for a condition."""

import time
from collections.abc import Callable


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def until(condition: Callable[[], object], *, seconds: float = 180) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
