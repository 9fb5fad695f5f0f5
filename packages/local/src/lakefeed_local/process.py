"""Start processes that outlive the command, and find them later by pid files."""

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

# The shell starts the server in the background and ends at once, so init becomes the server's parent. The server then
# does not end with this process, and does not become its zombie.
_DETACH = 'log=$1; shift; "$@" </dev/null >>"$log" 2>&1 & echo $!'


@dataclass(frozen=True, kw_only=True)
class Detached:
    """A process; its start time distinguishes it from a later process with the same pid."""

    pid: int
    began: str

    def alive(self) -> bool:
        return process_start(self.pid) == self.began

    def signal(self, number: signal.Signals) -> None:
        if self.alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, seconds: float) -> bool:
        """Wait for the process's end; return False if it still runs after ``seconds``."""
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def stop(self, *, grace_seconds: float) -> None:
        """Send SIGTERM, and SIGKILL after the grace period."""
        self.signal(signal.SIGTERM)
        if not self.wait(grace_seconds):
            self.signal(signal.SIGKILL)
            self.wait(10)


def start_detached(
    command: Sequence[str], *, log: Path, pid_file: Path, cwd: Path, environment: Mapping[str, str]
) -> Detached:
    """Start a process in its own session, append its output to the log, and write the pid file.

    The command must not contain secrets, because all users of the machine can read it.
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
        reason = f": {done.stderr.strip()}" if done.stderr else ""
        what = f"{Path(command[0]).name} ended during its start{reason}"
        raise WorldError(what, where=str(log), hint="read the log; lakefeed local doctor checks this machine")
    process = Detached(pid=pid, began=began)
    try:
        write_whole(pid_file, json.dumps(asdict(process)), overwrite=True)
    except OSError:
        # Stop the process, because without its pid file no later command could.
        process.stop(grace_seconds=0)
        raise
    return process


def find_detached(pid_file: Path) -> Detached | None:
    """Return the process in a pid file, which may have ended; None if the file is missing or unreadable."""
    try:
        document = json.loads(pid_file.read_text())
        return Detached(pid=int(document["pid"]), began=str(document["began"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
