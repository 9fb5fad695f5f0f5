"""Processes that outlive the command that starts them; a pid file identifies them later."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from lakefeed.clients.environment import process_start, write_whole
from lakefeed.errors import WorldError

_POLL_SECONDS = 0.05

# The shell starts the server in the background and ends at once, so init becomes the server's parent. The server
# then neither ends with us nor becomes a zombie of a long-lived Python process.
_DETACH = 'log=$1; shift; "$@" </dev/null >>"$log" 2>&1 & echo $!'


@dataclass(frozen=True, kw_only=True)
class Detached:
    """One process; its start time distinguishes it from a later process with the same pid."""

    pid: int
    began: str

    def alive(self) -> bool:
        return process_start(self.pid) == self.began

    def signal(self, number: signal.Signals) -> None:
        if self.alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, seconds: float) -> bool:
        """Wait for the process's end; return False if it has not ended in time."""
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def stop(self, *, grace_seconds: float) -> None:
        """Send SIGTERM, and SIGKILL when the grace period is over."""
        self.signal(signal.SIGTERM)
        if not self.wait(grace_seconds):
            self.signal(signal.SIGKILL)
            self.wait(10)


def start_detached(
    command: Sequence[str], *, log: Path, pid_file: Path, cwd: Path, environment: Mapping[str, str]
) -> Detached:
    """Start a process in its own session, and write the pid file.

    All users of the machine can read the command, so it must not contain secrets. The output is appended to the log.
    """
    done = subprocess.run(
        ["/bin/sh", "-c", _DETACH, "sh", str(log), *command],
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
    )
    pid = int(done.stdout)
    began = process_start(pid)
    if began is None:
        said = f": {done.stderr.strip()}" if done.stderr else ""
        raise WorldError(f"{Path(command[0]).name} ended as soon as it was started{said}", where=str(log))
    process = Detached(pid=pid, began=began)
    try:
        write_whole(pid_file, json.dumps(asdict(process)), overwrite=True)
    except OSError:
        # Without the pid file, no command would find the process to stop it.
        process.stop(grace_seconds=0)
        raise
    return process


def find_detached(pid_file: Path) -> Detached | None:
    """Return the process of a pid file, running or not; None if the file is missing or unreadable."""
    try:
        document = json.loads(pid_file.read_text())
        return Detached(pid=int(document["pid"]), began=str(document["began"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
