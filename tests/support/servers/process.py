"""Run a server as a child of this process, on the loopback interface, until the tests end."""

import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support import guardian

START_SECONDS = 120


def wait_for(what: str, holds: Callable[[], object], *, logs: Callable[[], str], seconds: float) -> None:
    """Wait until the condition holds; at the timeout, fail with the logs. An OSError counts as a condition not met."""
    deadline = time.monotonic() + seconds
    while True:
        with suppress(OSError):
            if holds():
                return
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s\n{logs()}"
        time.sleep(0.2)


def answers(url: str) -> bool:
    """Check that a server answers this URL with status 200."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@contextmanager
def running(
    command: Sequence[str | Path],
    *,
    log: Path,
    ready: Callable[[], bool],
    environment: Mapping[str, str] | None = None,
    user: int | None = None,
    stop: signal.Signals = signal.SIGTERM,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends.

    Args:
        command: the program and its arguments.
        log: the file for its output.
        ready: a function that is called until the server answers.
        environment: the server's variables; None for those of this process.
        user: the id of the user who runs the server.
        stop: the signal that ends the server.
    """
    with restartable(command, log=log, ready=ready, environment=environment, user=user, stop=stop) as server:
        yield server.process


@dataclass
class Restartable:
    """A server that can be killed and started again, with the same data and address."""

    start: Callable[[], subprocess.Popen[bytes]]
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """Send SIGKILL, so that the server cannot write anything more."""
        self.process.kill()
        self.process.wait(30)

    def start_again(self) -> None:
        """Start the server until it answers; retry, since children of a killed PostgreSQL still hold its memory."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.process = self.start()
                return
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


@contextmanager
def restartable(
    command: Sequence[str | Path],
    *,
    log: Path,
    ready: Callable[[], bool],
    environment: Mapping[str, str] | None = None,
    user: int | None = None,
    stop: signal.Signals = signal.SIGTERM,
) -> Iterator[Restartable]:
    """Run a server as ``running`` does, for a test that kills it and starts it again."""

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            server = subprocess.Popen(
                [str(each) for each in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**(os.environ if environment is None else environment), **guardian.mark()},
                user=user,
                group=user,
                extra_groups=None if user is None else [],
                cwd="/",
            )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not ready():
                assert server.poll() is None, log.read_text(errors="replace")[-3000:]
                assert time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
                time.sleep(0.05)
        except BaseException:
            _end(server, stop)
            raise
        return server

    server = Restartable(start, start())
    try:
        yield server
    finally:
        _end(server.process, stop)


def _end(server: subprocess.Popen[bytes], stop: signal.Signals) -> None:
    server.send_signal(stop)
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait(30)
