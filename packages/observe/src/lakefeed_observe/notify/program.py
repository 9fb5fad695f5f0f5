"""Runs a program with a message on its standard input, within a time, and ends it with all that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from lakefeed.monitor.text import one_line

PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME")
TRY_LATER = 75
"""EX_TEMPFAIL of sysexits.h: the program asks for another attempt."""
_TAIL = 2000
_TURN_SECONDS = 0.02


class NotDelivered(Exception):
    """A message did not arrive.

    Attributes:
        is_transient: whether another attempt may succeed.
    """

    def __init__(self, reason: str, *, is_transient: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_transient = is_transient


def run_program(
    arguments: Sequence[str],
    *,
    stdin: bytes,
    variables: Mapping[str, str],
    seconds: float,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> str:
    """Run a program to its end, and say how it ended.

    It has the ``variables``, and few of this process's: the driver's have the keys of the store. It is killed after so
    many ``seconds``, or once ``is_cancelled``.

    Raises NotDelivered if it cannot be started, ends with another status than 0, or has to be killed.
    """
    own = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    try:
        process = subprocess.Popen(
            list(arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**own, **variables},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise NotDelivered(f"the program cannot be started: {reason}", is_transient=False) from None
    tail = bytearray()
    assert process.stdin is not None  # pipes
    assert process.stderr is not None
    threads = [
        threading.Thread(target=_write, args=(process.stdin, stdin), daemon=True),
        threading.Thread(target=_read, args=(process.stderr, tail), daemon=True),
    ]
    for thread in threads:
        thread.start()
    is_over = _wait(process.pid, seconds, is_cancelled)
    # While the first process is not reaped, its number is that of its group, and of no other.
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    status = process.wait()
    for thread in threads:
        thread.join(0.5)
    if not is_over:
        raise NotDelivered("the program has not ended in its time, and was killed", is_transient=False)
    if status != 0:
        said = one_line(bytes(tail).decode("utf-8", "replace"), most=200)
        reason = f"the program has ended with status {status}{f': {said}' if said else ''}"
        raise NotDelivered(reason, is_transient=status == TRY_LATER)
    return "the program has ended with status 0"


def _wait(pid: int, seconds: float, is_cancelled: Callable[[], bool]) -> bool:
    """Wait for the end of a child without reaping it; False if it has not ended in time."""
    until = time.monotonic() + seconds
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() >= until or is_cancelled():
            return False
        time.sleep(_TURN_SECONDS)
    return True


def _write(pipe: IO[bytes], content: bytes) -> None:
    with suppress(OSError), pipe:
        pipe.write(content)


def _read(pipe: IO[bytes], tail: bytearray) -> None:
    """Read all, so that the program never waits, and keep the end."""
    with suppress(OSError, ValueError), pipe:
        while part := os.read(pipe.fileno(), 65536):
            tail += part
            del tail[:-_TAIL]
