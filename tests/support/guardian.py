"""Ends what a run of the tests has started, when the run is gone and its fixtures could not do it.

Ctrl-C, SIGTERM and SIGKILL leave pytest, or the workers of pytest-xdist, no time for fixtures. A small process waits
for the end of a pipe from this one; then it ends all processes that have inherited the mark of this run.

As a program: ``python guardian.py MARK SECONDS``, with the pipe as standard input.
"""

import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

VARIABLE = "LAKEFEED_TEST_RUN"
GRACE_SECONDS = 5.0  # A JVM whose Python is gone removes its temporary files.


def watch(grace_seconds: float = GRACE_SECONDS) -> None:
    """Mark all that this process starts from now on, and let a guardian wait for the end of this process."""
    name = uuid.uuid4().hex
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    guardian = subprocess.Popen(
        [sys.executable, "-S", "-E", __file__, name, str(grace_seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd="/",
        start_new_session=True,
    )
    os.environ[VARIABLE] = name
    assert guardian.stdin is not None
    os.dup(guardian.stdin.fileno())  # Stays open until this process is gone.
    guardian.stdin.close()
    guardian.returncode = 0  # No one waits for it.


def mark() -> dict[str, str]:
    """Return the environment variable by which a guardian finds what this process starts."""
    return {VARIABLE: os.environ[VARIABLE]} if VARIABLE in os.environ else {}


def marked(name: str) -> list[int]:
    """Return the processes that have inherited the mark of this name."""
    expected = f"{VARIABLE}={name}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if expected in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def main(name: str, grace_seconds: float) -> None:
    """Wait for the end of standard input, then for the processes to end by themselves, then end them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()
    deadline = time.monotonic() + grace_seconds
    while marked(name) and time.monotonic() < deadline:
        time.sleep(0.2)
    while found := marked(name):
        for each in found:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        time.sleep(0.2)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
