"""Run ``lakefeed`` as a user does: in a separate process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

COMMAND = (sys.executable, "-m", "lakefeed.cli")


def lakefeed(
    *arguments: str | Path,
    environment: Mapping[str, str] | None = None,
    timeout: float = 300,
    cwd: Path | None = None,
    command: Sequence[str] = COMMAND,
    status: int | None = 0,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; fail if it ends with another exit status, unless `status` is None."""
    done = subprocess.run(
        [*command, *map(str, arguments)],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=cwd,
    )
    assert status in (None, done.returncode), done.stdout + done.stderr
    return done


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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()

    def said(self) -> str:
        return self.log.read_text("utf-8")

    def wait_until_it_says(self, text: str, *, times: int = 1, timeout: float = 180) -> None:
        """Wait until the output has ``text`` ``times`` times."""
        self.wait_until(lambda: self.said().count(text) >= times, timeout=timeout)

    def wait_until(self, condition: Callable[[], object], *, timeout: float = 180) -> None:
        """Wait until the condition holds; fail with the output if the command ends first."""
        deadline = time.monotonic() + timeout
        while not condition():
            assert self.process.poll() is None, f"ended early:\n{self.said()}"
            assert time.monotonic() < deadline, f"is late:\n{self.said()}"
            time.sleep(0.02)

    def kill(self) -> None:
        """Send SIGKILL to Python and its JVM at the same moment."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def ask_to_stop(self, number: signal.Signals, *, timeout: float = 120) -> int:
        """Signal all processes of the command, as a terminal or a service manager does; return the exit status."""
        os.killpg(self.process.pid, number)
        return self.process.wait(timeout)
