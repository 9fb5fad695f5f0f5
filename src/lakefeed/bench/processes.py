"""Run a command to its end, and count the CPU time of all its processes."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lakefeed.errors import JobFailed

_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, kw_only=True)
class FinishedCommand:
    """A command that has ended: seconds until its own process ended, and the CPU seconds of all of its processes."""

    seconds: float
    cpu_seconds: float
    output: str


def lakefeed_command(*arguments: str) -> list[str]:
    """Return the command line of this installation's ``lakefeed``."""
    return [sys.executable, "-m", "lakefeed.cli", *arguments]


def run_command(command: Sequence[str], *, environment: Mapping[str, str], log: Path) -> FinishedCommand:
    """Run a command and wait for all of its processes; its errors go to the log.

    A driver's JVM ends after the command itself, and its last CPU seconds count too. So this process becomes the parent
    of what a command leaves behind, which Linux alone offers. Raises JobFailed if the status is not 0.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as errors:
        began = time.monotonic()
        process = subprocess.Popen(
            command,
            # Python's compiled modules belong to a warm cache.
            env={**os.environ, **environment, "PYTHONDONTWRITEBYTECODE": ""},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    try:
        output = process.stdout.read().decode() if process.stdout is not None else ""
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        cpu_seconds = usage.ru_utime + usage.ru_stime
        with suppress(ChildProcessError):
            while True:
                _, _, usage = os.wait4(-process.pid, 0)
                cpu_seconds += usage.ru_utime + usage.ru_stime
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        if process.stdout is not None:
            process.stdout.close()
    if process.returncode != 0:
        what = f"lakefeed {' '.join(command[3:])} ended with status {process.returncode}"
        raise JobFailed(what, where=str(log), hint="read the log")
    return FinishedCommand(seconds=seconds, cpu_seconds=cpu_seconds, output=output)
