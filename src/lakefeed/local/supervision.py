"""Starting one part and waiting until it serves; stopping it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from lakefeed.errors import Unreachable
from lakefeed.local.part import NotReady, Part
from lakefeed.local.process import Detached, find_detached, start_detached
from lakefeed.local.report import PartStatus, Progress, StartStep

_READY_WITHIN_SECONDS = 120  # A broker that was killed takes 15 s on two idle cores; a busy machine several times that.
_POLL_SECONDS = 0.2
_SETTLE_SECONDS = 20  # Rather wait for a busy server than end it under the job that keeps it busy.
_TAIL_LINES = 12
_LOG_KEPT_BYTES = 10 << 20


def start(part: Part, *, progress: Progress, cancelled: threading.Event) -> None:
    """Starts a part and waits until it serves.

    Raises:
        Unreachable: it ended, or does not serve in time. The message has the end of its log.
    """
    begun = time.monotonic()
    home = part.around.home
    progress(StartStep(part=part.name, state="starting"))
    part.prepare()
    log = home.log_of(part.name)
    _rotate(log)
    log_begins = log.stat().st_size if log.exists() else 0
    if cancelled.is_set():
        return
    process = start_detached(
        part.command(),
        log=log,
        pid_file=home.pid_file_of(part.name),
        cwd=home.root,
        environment=part.environment(),
    )
    reason = "it was not asked yet"
    while process.alive() and time.monotonic() - begun < _READY_WITHIN_SECONDS and not cancelled.is_set():
        try:
            part.check()
            part.finish()
        except NotReady as error:
            reason = str(error)
            time.sleep(_POLL_SECONDS)
        else:
            seconds = time.monotonic() - begun
            progress(StartStep(part=part.name, state="ready", detail=part.address, seconds=seconds))
            return
    if cancelled.is_set():
        return
    what = f"it is not ready after {_READY_WITHIN_SECONDS} s ({reason})" if process.alive() else "it ended"
    progress(StartStep(part=part.name, state="failed", detail=what, seconds=time.monotonic() - begun))
    raise Unreachable(
        f"{part.name} did not start: {what}; its log ends with:\n{_tail(log, log_begins)}",
        where=str(log),
        hint="read the log; fix the cause, then: lakefeed local up",
    )


def serves(part: Part) -> bool:
    """Whether a part runs and answers. One that was started a moment ago is given time."""
    process = find_detached(part.around.home.pid_file_of(part.name))
    deadline = time.monotonic() + _SETTLE_SECONDS
    while process is not None and process.alive():
        try:
            part.check()
            part.finish()
        except NotReady:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        else:
            return True
    return False


def stop(part: Part) -> Detached | None:
    """Stops a part, gently if it lets us. The process that was running, if one was."""
    pid_file = part.around.home.pid_file_of(part.name)
    process = find_detached(pid_file)
    running = process if process is not None and process.alive() else None
    if running is not None:
        running.stop(grace_seconds=part.grace_seconds)
    pid_file.unlink(missing_ok=True)
    return running


def status_of(part: Part) -> PartStatus:
    """How a part is, asked once."""
    home = part.around.home
    log = home.log_of(part.name)
    process = find_detached(home.pid_file_of(part.name))
    if process is None:
        return PartStatus(part=part.name, state="down", address=part.address, pid=None, log=log)
    if not process.alive():
        detail = f"process {process.pid} is gone and was not stopped by lakefeed"
        return PartStatus(part=part.name, state="died", address=part.address, pid=None, log=log, detail=detail)
    try:
        part.check()
    except NotReady as error:
        return PartStatus(
            part=part.name,
            state="not answering",
            address=part.address,
            pid=process.pid,
            log=log,
            detail=str(error),
        )
    return PartStatus(part=part.name, state="up", address=part.address, pid=process.pid, log=log)


def _rotate(log: Path) -> None:
    """Keeps one older log, so that a stack that is used for months does not fill the disk."""
    if log.exists() and log.stat().st_size > _LOG_KEPT_BYTES:
        log.replace(log.with_suffix(".log.1"))


def _tail(log: Path, begins: int) -> str:
    """The last lines of this run."""
    try:
        with log.open("rb") as file:
            file.seek(begins)
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        lines = []
    return "\n".join(f"  | {line[:300]}" for line in lines[-_TAIL_LINES:]) or "  | (nothing)"
