"""The drivers that run on this machine, by files in the user's own folder: who they are, and where they answer.

A driver writes ``drivers/<digest of feed and checkpoint>.json`` when it begins, readable by its user alone, and notes
there how it ends. The file of one that was killed has no end, and its process has gone.
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
        identity: what makes a feed this one: its name and where its position is kept.
        url: of the driver's endpoint, ``token`` what opens it; None without an endpoint.
        fence: the driver's in the ledger, once it ``has_begun`` to write; None where the sink has no fences.
        ended: how its run has ended, at ``ended_at``; None while it runs, and if it was killed.
        error: what has ended its run, if it has failed.
        boot: of the machine, and ``pid_namespace``, in which ``pid`` counts: a container has its own.
        alive_at: when the process was there last, by the time of the file: at most ``TOUCH_SECONDS`` before its end.
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
        """Check that the process still runs, is the one that has written the file, and has not ended its run."""
        if self.ended is not None or self.started is None or self.boot not in (None, boot_id()):
            return False
        return process_start(self.pid) == self.started

    @property
    def is_here(self) -> bool:
        """Check that its process, if it runs, is one of those that this process can see.

        Two containers may have one name and one home, and each a process of this id.
        """
        is_same_boot = self.boot in (None, boot_id())
        is_visible = not is_same_boot or self.pid_namespace in (None, pid_namespace())
        return self.host == socket.gethostname() and is_visible


def drivers_folder() -> Path:
    return default_home() / "run" / "drivers"


def path_of(identity: str, *, folder: Path | None = None) -> Path:
    """Return the file of a feed; its name says nothing of the feed's."""
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
    """Keep the driver's file within this block; gives what notes the driver's fence there.

    A folder that cannot be written to is no reason to fail, and is said; nor is a user without a home. A driver that
    ends while an earlier one still runs, as one whose start was refused, gives the file back.
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
        # A driver that has taken the feed over has a file of its own there.
        found = read(path)
        if found is not None and (found.pid, found.since) == (own.pid, own.since):
            others = earlier is not None and (earlier.pid, earlier.since) != (own.pid, own.since)
            if earlier is not None and others and earlier.host == own.host and earlier.is_running:
                _write(path, earlier)
            else:
                over = {"url": None, "token": None, "ended": end, "ended_at": time.time(), "error": why}
                _write(path, found.model_copy(update=over))


def _failure_of(error: BaseException) -> Failure:
    """Return an error for those who ask when the driver has gone, as its endpoint had it, without secrets."""
    found = Failure.of(error, at=time.time())
    words = {name: value and one_line(value, most=LONGEST_IN_LOG) for name, value in found if isinstance(value, str)}
    return found.model_copy(update=words)


def _touch(path: Path, own: DriverFile, ends: threading.Event) -> None:
    """Keep the time of the file: after a kill it shows until when the process was there."""
    while not ends.wait(TOUCH_SECONDS):
        found = read(path)
        if found is not None and (found.pid, found.since, found.ended) == (own.pid, own.since, None):
            with contextlib.suppress(OSError):
                os.utime(path)


def _write(path: Path, driver: DriverFile) -> OSError | None:
    """Write a driver's file; return the error that kept it from being written."""
    try:
        write_own_file(path, driver.model_dump_json())
    except OSError as error:
        return error
    return None


def read(path: Path) -> DriverFile | None:
    """Read one driver's file; None if there is none, or if it is not this user's own."""
    try:
        text = read_own_file(path)
        found = None if text is None else DriverFile.model_validate_json(text)
        return found and found.model_copy(update={"alive_at": path.stat().st_mtime})
    except (OSError, ValueError):
        return None


def find(identity: str, *, folder: Path | None = None) -> DriverFile | None:
    """Return the driver that runs a feed on this machine, or that ran it last."""
    try:
        return read(path_of(identity, folder=folder))
    except RuntimeError:  # The user has no home.
        return None


def all_drivers(*, folder: Path | None = None) -> list[DriverFile]:
    """Return all drivers of this user on this machine, by name of the feed; killed ones and failed ones too.

    Those that have failed are there until they run again. Those that have ended are left out, and those of other
    machines, whose home is shared with this one.
    """
    try:
        found = [read(path) for path in sorted((folder or drivers_folder()).glob("*.json"))]
    except RuntimeError:  # The user has no home.
        return []
    shown = (driver for driver in found if driver is not None and driver.is_here and driver.ended != "ended")
    return sorted(shown, key=lambda driver: driver.feed)
