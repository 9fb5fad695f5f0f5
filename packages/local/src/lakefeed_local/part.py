"""One server of the local stack: its settings, its process and its health."""

from __future__ import annotations

import http.client
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from lakefeed.clients.http import exchange
from lakefeed.clients.s3 import Keys
from lakefeed.errors import Unreachable
from lakefeed_local.home import Home
from lakefeed_local.ports import LOOPBACK
from lakefeed_local.process import Detached, find_detached, start_detached

ANSWER_SECONDS = 3
"""The timeout of one request of a health check."""

# A broker that was killed needs 15 s to start on two idle cores, and much more on busy ones.
_READY_WITHIN_SECONDS = 120
_POLL_SECONDS = 0.2
_SETTLE_SECONDS = 20  # A busy server may answer late, and restarting it would abort the job that keeps it busy.
_TAIL_LINES = 12
_MOST_BYTES = 64 << 20  # The maximum size of an answer: the registry's health check lists all subjects.
_LOG_KEPT_BYTES = 10 << 20


class NotReady(Exception):
    """Raised while a part does not serve requests yet; the text is the reason."""


@dataclass(frozen=True, kw_only=True)
class StartStep:
    """A change of a part's state during ``up`` or ``down``; ``detail`` is an address, a log file or a reason."""

    part: str
    state: Literal["building", "starting", "ready", "already up", "restarting", "moved", "failed", "stopped"]
    detail: str = ""
    seconds: float = 0


Progress = Callable[[StartStep], None]
"""A function that is called with every step, from any thread."""


State = Literal["up", "not answering", "died", "down"]
"""``not answering``: the process runs. ``died``: it has ended by itself. ``down``: it was stopped or never started."""


@dataclass(frozen=True, kw_only=True)
class PartStatus:
    """The state of a part. A part that is down has its last address and no pid."""

    part: str
    state: State
    address: str | None
    pid: int | None
    log: Path
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Part(ABC):
    """A server of the stack; the first of its ``port_names`` is for clients."""

    home: Home
    ports: Mapping[str, int]
    credentials: Keys
    cluster_id: str

    name: ClassVar[str]
    port_names: ClassVar[tuple[str, ...]]
    jar_groups: ClassVar[tuple[str, ...]] = ()
    grace_seconds: ClassVar[float] = 10

    def build(self, report: Progress) -> None:  # noqa: B027 (most parts need none)
        """Build the program if the program comes as source code. ``up`` builds all parts before it starts one."""

    @abstractmethod
    def prepare(self) -> None:
        """Write the settings, and create the data directory at the first start."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return program and arguments, without secrets, because ``ps`` shows them to all users."""

    def environment(self) -> dict[str, str]:
        """Return further variables for the process; they may be secret, because only the same user can read them."""
        return {}

    @abstractmethod
    def check(self) -> None:
        """Raise ``NotReady`` unless the part serves requests."""

    def finish(self) -> None:  # noqa: B027 (most parts need none)
        """Complete the start when the part serves requests; after ``NotReady``, the caller calls ``finish`` again."""

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.ports[self.port_names[0]]}"

    @property
    def data(self) -> Path:
        return self.home.data / self.name

    @property
    def log(self) -> Path:
        return self.home.log_of(self.name)

    def process(self) -> Detached | None:
        """Return the process in the part's pid file, which may have ended; None without a pid file."""
        return find_detached(self.home.pid_file_of(self.name))

    def start(self, *, progress: Progress, cancelled: threading.Event) -> None:
        """Start the part, and wait until it serves requests.

        Raises:
            Unreachable: the process ended, or does not serve in time. The message has the end of its log.
        """
        begun = time.monotonic()
        progress(StartStep(part=self.name, state="starting"))
        self.prepare()
        # Keep only one older log, so that the logs do not fill the disk.
        if self.log.exists() and self.log.stat().st_size > _LOG_KEPT_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        log_begins = self.log.stat().st_size if self.log.exists() else 0
        if cancelled.is_set():
            return
        process = start_detached(
            self.command(),
            log=self.log,
            pid_file=self.home.pid_file_of(self.name),
            cwd=self.home.root,
            environment=self.environment(),
        )
        reason = self._wait(process, until=begun + _READY_WITHIN_SECONDS, cancelled=cancelled)
        seconds = time.monotonic() - begun
        if reason is None:
            progress(StartStep(part=self.name, state="ready", detail=self.address, seconds=seconds))
            return
        if cancelled.is_set():
            return
        what = f"it is not ready after {_READY_WITHIN_SECONDS} s ({reason})" if process.alive() else "it ended"
        progress(StartStep(part=self.name, state="failed", detail=what, seconds=seconds))
        raise Unreachable(
            f"{self.name} did not start: {what}; its log ends with:\n{_tail(self.log, log_begins)}",
            where=str(self.log),
            hint="read the log, remove the cause, then: lakefeed local up",
        )

    def serves(self) -> bool:
        """Return whether the part runs and answers; a part that was started a moment ago is given time."""
        process = self.process()
        return process is not None and self._wait(process, until=time.monotonic() + _SETTLE_SECONDS) is None

    def _wait(self, process: Detached, *, until: float, cancelled: threading.Event | None = None) -> str | None:
        """Wait until the part serves requests; if the process ends or ``until`` passes before, return the reason."""
        reason = "it got no request yet"
        while process.alive() and time.monotonic() < until and not (cancelled and cancelled.is_set()):
            try:
                self.check()
                self.finish()
            except NotReady as error:
                reason = str(error)
                time.sleep(_POLL_SECONDS)
            else:
                return None
        return reason

    def stop(self) -> bool:
        """Stop the part, gracefully if possible; return False if it did not run."""
        process = self.process()
        was_running = process is not None and process.alive()
        if process is not None:
            process.stop(grace_seconds=self.grace_seconds)
        self.home.pid_file_of(self.name).unlink(missing_ok=True)
        return was_running

    def status(self) -> PartStatus:
        """Return the part's state, after one health check."""
        process = self.process()
        state: State = "up"
        pid, detail = None, ""
        if process is None:
            state = "down"
        elif not process.alive():
            state, detail = "died", f"process {process.pid} is gone and was not stopped by lakefeed"
        else:
            pid = process.pid
            try:
                self.check()
            except NotReady as error:
                state, detail = "not answering", str(error)
        return PartStatus(part=self.name, state=state, address=self.address, pid=pid, log=self.log, detail=detail)


def ask(url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes | None = None) -> bytes:
    """Return the body of a server's answer; raise NotReady unless the status is 2xx. HTTP_PROXY has no effect."""
    sent = headers or {}
    try:
        answer = exchange(method, url, seconds=ANSWER_SECONDS, headers=sent, body=body, most_bytes=_MOST_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise NotReady(f"it does not answer: {error}") from error
    if not 200 <= answer.status < 300:
        raise NotReady(f"it answers HTTP {answer.status}: {answer.body[:200].decode(errors='replace')}")
    return answer.body


def _tail(log: Path, begins: int) -> str:
    """Return the last lines that were written to the log after the position ``begins``."""
    try:
        with log.open("rb") as file:
            file.seek(begins)
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        lines = []
    return "\n".join(f"  | {line[:300]}" for line in lines[-_TAIL_LINES:]) or "  | (nothing)"
