"""The files by which the drivers on this machine are found.

When a driver begins, it writes ``drivers/<digest>.json``, which only its user can read, with its process and its
endpoint. When the driver ends, it adds how the run ended. The file of a killed driver lacks this, and its process does
not exist.
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
        identity: the text that identifies a feed: see ``identity_of`` in ``operations/live_status.py``.
        url: the address of the driver's endpoint; None without an endpoint.
        fence: the driver's fence in the ledger, after it ``has_begun`` to write; None if the sink has no fences.
        ended: how the run ended; None while the driver runs, or if its process was killed.
        error: the error that ended the run.
        boot: the id of the machine's boot; ``pid`` identifies the driver only in this boot and in ``pid_namespace``.
        alive_at: the file's time, which is at most ``TOUCH_SECONDS`` before the end of the process.
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
        """Return whether the process that wrote the file exists, and has not ended its run."""
        if self.ended is not None or self.started is None or self.boot not in (None, boot_id()):
            return False
        return process_start(self.pid) == self.started

    @property
    def is_here(self) -> bool:
        """Return whether this process can see the driver's process; another container has other process ids."""
        is_same_boot = self.boot in (None, boot_id())
        is_visible = not is_same_boot or self.pid_namespace in (None, pid_namespace())
        return self.host == socket.gethostname() and is_visible


def drivers_folder() -> Path:
    return default_home() / "run" / "drivers"


def path_of(identity: str, *, folder: Path | None = None) -> Path:
    """Return the path of a feed's file; the file's name reveals nothing about the feed."""
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
    say: Callable[[str], None] = _log.warning,
) -> Iterator[Callable[[str | None], None]]:
    """Keep the driver's file up to date within this block; yield a function that writes the driver's fence into it.

    ``say`` reports a folder that is not writable; without a home, nothing happens. If an earlier driver still runs at
    the end of the block, for example because this start was refused, the earlier driver's file is restored.
    """
    try:
        path = path_of(identity)
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
            "let this user write there, or set LAKEFEED_HOME to another folder"
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
        # If another driver has taken over the feed, the file belongs to that driver and stays unchanged.
        present = read(path)
        if present is not None and (present.pid, present.since) == (own.pid, own.since):
            others = earlier is not None and (earlier.pid, earlier.since) != (own.pid, own.since)
            if earlier is not None and others and earlier.host == own.host and earlier.is_running:
                _write(path, earlier)
            else:
                over = {"url": None, "token": None, "ended": end, "ended_at": time.time(), "error": why}
                _write(path, present.model_copy(update=over))


def _failure_of(error: BaseException) -> Failure:
    """Return an error as the driver's file stores it: on one line and without secrets, as in the endpoint's answers."""
    failure = Failure.of(error, at=time.time())
    words = {name: value and one_line(value, most=LONGEST_IN_LOG) for name, value in failure if isinstance(value, str)}
    return failure.model_copy(update=words)


def _touch(path: Path, own: DriverFile, ends: threading.Event) -> None:
    """Update the file's time regularly, so that after a kill the file shows how long the process existed."""
    while not ends.wait(TOUCH_SECONDS):
        present = read(path)
        if present is not None and (present.pid, present.since, present.ended) == (own.pid, own.since, None):
            with contextlib.suppress(OSError):
                os.utime(path)


def _write(path: Path, driver: DriverFile) -> OSError | None:
    try:
        write_own_file(path, driver.model_dump_json())
    except OSError as error:
        return error
    return None


def read(path: Path) -> DriverFile | None:
    """Read one driver's file; return None if it does not exist, or if other users can read it."""
    try:
        text = read_own_file(path)
        driver = None if text is None else DriverFile.model_validate_json(text)
        return driver and driver.model_copy(update={"alive_at": path.stat().st_mtime})
    except (OSError, ValueError):
        return None


def find(identity: str) -> DriverFile | None:
    """Return the file of the driver that runs a feed on this machine, or that ran it last."""
    try:
        return read(path_of(identity))
    except RuntimeError:  # The user has no home.
        return None


def all_drivers(*, folder: Path | None = None) -> list[DriverFile]:
    """Return this user's drivers on this machine that run, were killed or have failed, sorted by feed."""
    try:
        files = [read(path) for path in sorted((folder or drivers_folder()).glob("*.json"))]
    except RuntimeError:  # The user has no home.
        return []
    shown = (driver for driver in files if driver is not None and driver.is_here and driver.ended != "ended")
    return sorted(shown, key=lambda driver: driver.feed)
