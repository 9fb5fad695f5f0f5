"""The drivers on this machine, from files in the user's own folder: their processes, and their endpoints.

When a driver begins, it writes ``drivers/<digest of feed and checkpoint>.json``, readable only by its user. When it
ends, it writes how. If a driver was killed, its file has no end, and its process no longer exists.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import Field

from lakefeed.clients.environment import (
    boot_id,
    default_home,
    pid_namespace,
    process_start,
    read_own_file,
    write_own_file,
)
from lakefeed.json_model import JsonModel
from lakefeed.messages.text import LONGEST_IN_LOG, one_line
from lakefeed.monitor.model import Driver, Failure

_log = logging.getLogger(__name__)

TOUCH_SECONDS = 5.0


class DriverFile(JsonModel):
    """One driver's file.

    Attributes:
        identity: the text that identifies a feed: its name and where its position is stored.
        url: of the driver's endpoint, and ``token`` for it; None without an endpoint.
        fence: the driver's fence in the ledger, once it ``has_begun`` to write; None if the sink has no fences.
        ended: how the run ended, at ``ended_at``; None while it runs, or if it was killed.
        error: the error that ended the run, if it failed.
        boot: id of the machine's boot; with ``pid_namespace`` it says where ``pid`` is valid: a container has its own.
        alive_at: when the process last existed, from the file's time: at most ``TOUCH_SECONDS`` before its end.
    """

    feed: str
    identity: str
    host: str
    pid: int
    started: str | None
    since: float
    url: str | None = None
    token: str | None = Field(None, repr=False)
    fence: str | None = None
    has_begun: bool = False
    ended: Literal["ended", "failed"] | None = None
    ended_at: float | None = None
    error: Failure | None = None
    boot: str | None = None
    pid_namespace: str | None = None
    alive_at: float | None = Field(None, exclude=True)

    @property
    def is_running(self) -> bool:
        """Check that the process that wrote the file still runs, and has not ended its run."""
        if self.ended is not None or self.started is None or self.boot not in (None, boot_id()):
            return False
        return process_start(self.pid) == self.started

    @property
    def is_here(self) -> bool:
        """Check that this process could see the driver's process, if it runs.

        Two containers may share a host name and a home, and may each have a process with this id.
        """
        is_same_boot = self.boot in (None, boot_id())
        is_visible = not is_same_boot or self.pid_namespace in (None, pid_namespace())
        return self.host == socket.gethostname() and is_visible


def drivers_folder() -> Path:
    return default_home() / "run" / "drivers"


def path_of(identity: str, *, folder: Path | None = None) -> Path:
    """Return the file of a feed; its name reveals nothing about the feed."""
    digest = hashlib.sha256(identity.encode()).hexdigest()[:24]
    return (folder or drivers_folder()) / f"{digest}.json"


@contextmanager
def announced(
    driver: Driver,
    *,
    feed: str,
    identity: str,
    since: float,
    url: str | None = None,
    token: str | None = None,
    folder: Path | None = None,
    say: Callable[[str], None] = _log.warning,
) -> Iterator[Callable[[str | None], None]]:
    """Keep the driver's file within this block; yield a function that writes the driver's fence into it.

    If the folder is not writable, this does not fail but reports it; without a home it does nothing. If an earlier
    driver still runs when this one ends, for example because the start was refused, the earlier one's file is restored.
    """
    try:
        path = path_of(identity, folder=folder)
    except RuntimeError:  # The user has no home.
        yield lambda fence: None
        return
    own = DriverFile(
        feed=feed,
        identity=identity,
        host=driver.host,
        pid=driver.pid,
        started=driver.started,
        since=since,
        url=url,
        token=token,
        boot=boot_id(),
        pid_namespace=pid_namespace(),
    )

    def note(fence: str | None) -> None:
        _write(path, own.model_copy(update={"fence": fence, "has_begun": True}))

    earlier = read(path)
    if (refused := _write(path, own)) is not None:
        say(
            f"lakefeed status and pause do not find this driver: {path.parent} cannot be written: {refused.strerror}; "
            "let this user write there, or name another folder by LAKEFEED_HOME"
        )
    end: Literal["ended", "failed"] = "failed"
    ends = threading.Event()
    threading.Thread(target=_touch, args=(path, own, ends), name="lakefeed-alive", daemon=True).start()
    why: Failure | None = None
    try:
        yield note
        end = "ended"
    except BaseException as error:
        why = _failure_of(error)
        raise
    finally:
        ends.set()
        # If another driver has taken over the feed, the file is that driver's.
        found = read(path)
        if found is not None and (found.pid, found.since) == (own.pid, own.since):
            others = earlier is not None and (earlier.pid, earlier.since) != (own.pid, own.since)
            if earlier is not None and others and earlier.host == own.host and earlier.is_running:
                _write(path, earlier)
            else:
                over = {"url": None, "token": None, "ended": end, "ended_at": time.time(), "error": why}
                _write(path, found.model_copy(update=over))


def _failure_of(error: BaseException) -> Failure:
    """Return the error for readers of the file after the driver's end: as its endpoint shows it, without secrets."""
    found = Failure.of(error, at=time.time())
    words = {name: value and one_line(value, most=LONGEST_IN_LOG) for name, value in found if isinstance(value, str)}
    return found.model_copy(update=words)


def _touch(path: Path, own: DriverFile, ends: threading.Event) -> None:
    """Touch the file regularly: after a kill its time shows how long the process existed."""
    while not ends.wait(TOUCH_SECONDS):
        found = read(path)
        if found is not None and (found.pid, found.since, found.ended) == (own.pid, own.since, None):
            with contextlib.suppress(OSError):
                os.utime(path)


def _write(path: Path, driver: DriverFile) -> OSError | None:
    """Write a driver's file; return the error if that fails."""
    try:
        write_own_file(path, driver.model_dump_json())
    except OSError as error:
        return error
    return None


def read(path: Path) -> DriverFile | None:
    """Read one driver's file; return None if it does not exist, or if others can read it."""
    try:
        text = read_own_file(path)
        found = None if text is None else DriverFile.model_validate_json(text)
        return found and found.model_copy(update={"alive_at": path.stat().st_mtime})
    except (OSError, ValueError):
        return None


def find(identity: str, *, folder: Path | None = None) -> DriverFile | None:
    """Return the driver that runs a feed on this machine, or the one that ran it last."""
    try:
        return read(path_of(identity, folder=folder))
    except RuntimeError:  # The user has no home.
        return None


def all_drivers(*, folder: Path | None = None) -> list[DriverFile]:
    """Return this user's drivers on this machine, sorted by feed, including killed and failed ones.

    A failed driver is listed until its feed runs again. Drivers that ended without error are left out, and drivers of
    other machines that share this home.
    """
    try:
        found = [read(path) for path in sorted((folder or drivers_folder()).glob("*.json"))]
    except RuntimeError:  # The user has no home.
        return []
    shown = (driver for driver in found if driver is not None and driver.is_here and driver.ended != "ended")
    return sorted(shown, key=lambda driver: driver.feed)
