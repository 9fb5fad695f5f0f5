"""End all processes of a test run that was killed before its fixtures could end them.

Ctrl-C, SIGTERM and SIGKILL leave pytest and the workers of pytest-xdist no time for fixtures. A small process waits for
the end of a pipe from this process; then it ends all processes that have inherited the mark of this run.

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
GRACE_SECONDS = 5.0  # A JVM whose Python process has ended needs this time to remove its temporary files.


def watch(grace_seconds: float = GRACE_SECONDS) -> None:
    """Mark all processes that this process starts from now on; start a guardian that waits for this process's end."""
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
    os.dup(guardian.stdin.fileno())  # This end of the pipe stays open until this process ends.
    guardian.stdin.close()
    guardian.returncode = 0  # Set the return code to prevent a ResourceWarning, because no code waits for the guardian.


def mark() -> dict[str, str]:
    """Return the environment variable by which a guardian finds the processes of this run."""
    return {VARIABLE: os.environ[VARIABLE]} if VARIABLE in os.environ else {}


def marked(name: str) -> list[int]:
    """Return the processes that have inherited the mark `name`."""
    expected = f"{VARIABLE}={name}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if expected in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def main(name: str, grace_seconds: float) -> None:
    """Wait for the end of standard input; give the marked processes time to end, then kill them."""
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
