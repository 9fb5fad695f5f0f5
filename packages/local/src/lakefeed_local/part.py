"""One server of the local stack: its settings, its process and its health check."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, Literal

from lakefeed.clients.environment import process_start, write_whole
from lakefeed.clients.http import exchange
from lakefeed.clients.s3 import Keys
from lakefeed.errors import PortTaken, Unreachable, WorldError
from lakefeed_local.home import Home

ANSWER_SECONDS = 3
"""The timeout of one request of a health check."""

# A broker that was killed needs 15 s to start on two idle cores, and much more on busy ones.
_READY_WITHIN_SECONDS = 120
_POLL_SECONDS = 0.2
_SETTLE_SECONDS = 20  # A busy server may answer late; a restart would abort the job that keeps it busy.
_TAIL_LINES = 12
_MOST_BYTES = 64 << 20  # The most bytes of an answer: the registry's health check lists all subjects.
_LOG_KEPT_BYTES = 10 << 20


class NotReady(Exception):
    """A server of the stack does not serve requests yet; the text is the reason."""


@dataclass(frozen=True, kw_only=True)
class StartStep:
    """A change of a server's state during ``up`` or ``down``; ``detail`` is an address, a log file or a reason."""

    part: str
    state: Literal["building", "starting", "ready", "already up", "restarting", "moved", "failed", "stopped"]
    detail: str = ""
    seconds: float = 0


Progress = Callable[[StartStep], None]
"""A function that is called with every step, from any thread."""


State = Literal["up", "not answering", "died", "down"]
"""``not answering``: the process runs. ``died``: it ended by itself. ``down``: it was stopped or never started."""


@dataclass(frozen=True, kw_only=True)
class PartStatus:
    """The state of a server. A server that is down has the address of its last start, and no pid."""

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
        """Build the server's program if it comes as source code. ``up`` builds all programs before it starts any."""

    @abstractmethod
    def prepare(self) -> None:
        """Write the settings, and create the data directory at the first start."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return the program and its arguments, which contain no secrets, because ``ps`` shows them to all users."""

    def environment(self) -> dict[str, str]:
        """Return further variables for the process; they may be secret, because no other user can read them."""
        return {}

    @abstractmethod
    def check(self) -> None:
        """Raise ``NotReady`` unless the server serves requests."""

    def finish(self) -> None:  # noqa: B027 (most parts need none)
        """Complete the start, once the server serves requests; after ``NotReady``, the caller calls this again."""

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
        """Return the process that the server's pid file names, which may have ended; None without a pid file."""
        return find_detached(self.home.pid_file_of(self.name))

    def start(self, *, progress: Progress, cancelled: threading.Event) -> None:
        """Start the server, and wait until it serves requests.

        Raises:
            Unreachable: the process ended, or does not serve in time. The message has the end of its log.
        """
        begun = time.monotonic()
        progress(StartStep(part=self.name, state="starting"))
        self.prepare()
        # Keep only one older log, so that logs do not fill the disk.
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
        """Return True if the server runs and answers; wait for an answer if it was started a moment ago."""
        process = self.process()
        return process is not None and self._wait(process, until=time.monotonic() + _SETTLE_SECONDS) is None

    def _wait(self, process: Detached, *, until: float, cancelled: threading.Event | None = None) -> str | None:
        """Wait until the server serves requests; return the reason if its process ends, or ``until`` comes, before."""
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
        """Stop the server, gracefully if possible; return False if it did not run."""
        process = self.process()
        was_running = process is not None and process.alive()
        if process is not None:
            process.stop(grace_seconds=self.grace_seconds)
        self.home.pid_file_of(self.name).unlink(missing_ok=True)
        return was_running

    def status(self) -> PartStatus:
        """Return the server's state, after one health check."""
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
    """Return the body of a server's answer, without a proxy; raise NotReady unless the status is 2xx."""
    sent = headers or {}
    try:
        answer = exchange(method, url, seconds=ANSWER_SECONDS, headers=sent, body=body, most_bytes=_MOST_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise NotReady(f"it does not answer: {error}") from error
    if not 200 <= answer.status < 300:
        raise NotReady(f"it answers HTTP {answer.status}: {answer.body[:200].decode(errors='replace')}")
    return answer.body


def _tail(log: Path, begins: int) -> str:
    """Return the last lines of the log after the position ``begins`` in the file."""
    try:
        with log.open("rb") as file:
            file.seek(begins)
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        lines = []
    return "\n".join(f"  | {line[:300]}" for line in lines[-_TAIL_LINES:]) or "  | (nothing)"


LOOPBACK = "127.0.0.1"

# Ports are chosen below Linux's range for outgoing connections (32768 and up), so that no client's connection uses a
# remembered port between `down` and `up`.
_FIRST, _LAST = 20000, 31999
_ATTEMPTS = 200


def is_free(port: int) -> bool:
    """Return True if a server could listen on the port now."""
    with socket.socket() as probe:
        # Servers set this option, too. Without it, old connections in TIME_WAIT would block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def choose_free(*, avoid: Collection[int]) -> int:
    for _ in range(_ATTEMPTS):
        port = random.randint(_FIRST, _LAST)  # noqa: S311 (not a secret)
        if port not in avoid and is_free(port):
            return port
    what = f"no free port was found in {_ATTEMPTS} attempts between {_FIRST} and {_LAST}"
    raise PortTaken(
        what, where=LOOPBACK, hint="end programs that listen there, or choose ports: lakefeed local up --help"
    )


def owner_of(port: int) -> str | None:
    """Return name and pid of the process listening on a port; None if this user may not see it or there is no /proc."""
    sockets = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:  # The socket state LISTEN
                sockets.add(f"socket:[{fields[9]}]")
    if not sockets:
        return None
    for folder in Path("/proc").glob("[0-9]*"):
        if _open_files_of(folder) & sockets:
            with suppress(OSError):
                return f"{(folder / 'comm').read_text().strip()} (pid {folder.name})"
    return None


def _open_files_of(process: Path) -> set[str]:
    """Return the open files of a process, with sockets as ``socket:[INODE]``; empty if this user may not see them."""
    links = set()
    with suppress(OSError):
        for link in (process / "fd").iterdir():
            with suppress(OSError):  # The process may have just closed this file.
                links.add(str(link.readlink()))
    return links


def taken(port: int, *, part: str) -> PortTaken:
    owner = owner_of(port)
    return PortTaken(
        f"port {port} for {part} is taken" + (f" by {owner}" if owner else ""),
        where=f"{LOOPBACK}:{port}",
        hint=f"stop the process at this port, choose another port with --port-{part}, or leave the option out",
    )


_POLL_EXIT = 0.05

# The shell starts the server in the background and ends at once, so that init becomes the server's parent. The server
# then outlives this process, and becomes no zombie of it.
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
            time.sleep(_POLL_EXIT)
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
        # Without its pid file no later command could stop the process, so stop it now.
        process.stop(grace_seconds=0)
        raise
    return process


def find_detached(pid_file: Path) -> Detached | None:
    """Return the process that a pid file names, which may have ended; None if the file is missing or unreadable."""
    try:
        document = json.loads(pid_file.read_text())
        return Detached(pid=int(document["pid"]), began=str(document["began"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
