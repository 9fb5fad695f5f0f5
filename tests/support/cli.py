"""Run ``lakefeed`` as a user does: in a separate process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

COMMAND = (sys.executable, "-m", "lakefeed.cli")


def lakefeed(
    *arguments: str | Path,
    environment: Mapping[str, str] | None = None,
    timeout: float = 300,
    cwd: Path | None = None,
    command: Sequence[str] = COMMAND,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*command, *map(str, arguments)],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=cwd,
    )


@dataclass
class Running:
    """A running command, with its JVM in the same process group."""

    arguments: Sequence[str | Path]
    environment: Mapping[str, str]
    log: Path
    command: Sequence[str] = COMMAND
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, *map(str, self.arguments)],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def said(self) -> str:
        return self.log.read_text("utf-8")

    def wait_until_it_says(self, text: str, *, times: int = 1, timeout: float = 180) -> None:
        """Wait until the output has ``text`` ``times`` times."""
        deadline = time.monotonic() + timeout
        while self.said().count(text) < times:
            assert self.process.poll() is None, f"ended before it said {text!r} {times} times:\n{self.said()}"
            assert time.monotonic() < deadline, f"did not say {text!r} {times} times:\n{self.said()}"
            time.sleep(0.05)

    def kill(self) -> None:
        """Send SIGKILL to Python and its JVM at the same moment."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def ask_to_stop(self, number: signal.Signals, *, timeout: float = 120) -> int:
        """Signal all its processes, as a terminal, ``timeout`` and service managers do; return its exit status."""
        os.killpg(self.process.pid, number)
        return self.process.wait(timeout)
