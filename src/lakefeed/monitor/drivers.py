"""The files by which the drivers on this machine are found.

When a driver begins, it writes its process and its endpoint into ``drivers/<digest>.json``, which only its user can
read. When the driver ends, it adds how the run ended. A driver was killed if its file lacks this and its process does
not exist.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlsplit

from pydantic import Field

from lakefeed.clients.environment import (
    boot_id,
    default_home,
    pid_namespace,
    process_start,
    read_own_file,
    write_own_file,
)
from lakefeed.clients.http import exchange
from lakefeed.errors import ConfigError, LakefeedError, ResourceMissing, Unreachable
from lakefeed.feed.events import Event
from lakefeed.json_model import JsonModel
from lakefeed.messages.text import LONGEST_IN_LOG, one_line
from lakefeed.monitor.history import RunHistory
from lakefeed.monitor.model import Driver, Failure, FeedProgress

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
        boot: an id that changes when the machine boots; ``pid`` is valid only in this boot and in ``pid_namespace``.
        alive_at: the file's modification time, at most ``TOUCH_SECONDS`` before the end of the process.
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
    """Update the driver's file during the ``with`` block; yield a function that writes the driver's fence into it.

    ``say`` gets a message if the folder is not writable; if the user has no home, no file is written. If an earlier
    driver still runs at the end of the block, for example because this start was refused, the earlier driver's file is
    restored.
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
        # If another driver has taken over the feed, the file is that driver's: do not change it.
        present = read(path)
        if present is not None and (present.pid, present.since) == (own.pid, own.since):
            others = earlier is not None and (earlier.pid, earlier.since) != (own.pid, own.since)
            if earlier is not None and others and earlier.host == own.host and earlier.is_running:
                _write(path, earlier)
            else:
                over = {"url": None, "token": None, "ended": end, "ended_at": time.time(), "error": why}
                _write(path, present.model_copy(update=over))


def _failure_of(error: BaseException) -> Failure:
    """Return an error for the driver's file: on one line and without secrets, as in the endpoint's answers."""
    failure = Failure.of(error, at=time.time())
    words = {name: value and one_line(value, most=LONGEST_IN_LOG) for name, value in failure if isinstance(value, str)}
    return failure.model_copy(update=words)


def _touch(path: Path, own: DriverFile, ends: threading.Event) -> None:
    """Update the file's time regularly, so that it shows until when a killed process existed."""
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


ASK_SECONDS = 3.0
MOST_BYTES = 16 << 20
"""The largest accepted answer; the progress of a feed with 10,000 partitions takes 3 MB."""
LONGEST_NUMBER = 19

D = TypeVar("D", bound=JsonModel)


class Events(JsonModel):
    """Events of a run, oldest first."""

    events: tuple[Event, ...]


@dataclass(frozen=True)
class FeedServer:
    """A driver's endpoint or a dashboard, its token, and the timeout for a complete answer.

    A dashboard has many feeds, so callers name one with ``feed``. A driver has only one feed.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    seconds: float = ASK_SECONDS

    def progress(self, feed: str | None = None) -> FeedProgress:
        """Return the feed's progress; raise the errors of ``get``."""
        return self.read(FeedProgress, "/progress" if feed is None else feed_path(feed, "progress"))

    def history(self, feed: str | None = None, *, most: int) -> RunHistory:
        """Return the feed's history as at most ``most`` points; raise the errors of ``get``."""
        page = f"history?most={most}"
        return self.read(RunHistory, f"/{page}" if feed is None else feed_path(feed, page))

    def events(self, feed: str, *, after: int) -> tuple[Event, ...]:
        """Return the run's events after the event with the number ``after``; raise the errors of ``get``."""
        return self.read(Events, feed_path(feed, f"events?after={after}")).events

    def read(self, kind: type[D], path: str) -> D:
        """Return the document at a path; raise the errors of ``get``."""
        document = self.get(path)
        try:
            return kind.model_validate(document)
        except ValueError:
            raise not_lakefeed(self._where) from None

    def feeds(self) -> list[dict[str, Any]]:
        found = self.get("/api/feeds").get("feeds")
        return [feed for feed in found if isinstance(feed, dict)] if isinstance(found, list) else []

    def get(self, path: str) -> dict[str, Any]:
        """Return the JSON object at a path.

        Raises:
            Unreachable: there is no answer in time, or the answer is not a JSON object.
            ConfigError: the server refuses the token, or requires one.
            ResourceMissing: there is no page at this path.
        """
        status, document = self.exchange(path)
        if status != 200:
            raise _refusal(status, document, self._where)
        return document

    def exchange(
        self, path: str, *, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Get a path, or post a body to it; return the status and the JSON object of the answer.

        Raises Unreachable if no JSON object comes in time.
        """
        sent = {"Connection": "close", **(headers or {})}
        if self.token:
            sent["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            sent["Content-Type"] = "application/json"
        try:
            answer = exchange(
                "GET" if body is None else "POST",
                self.url.rstrip("/") + path,
                seconds=self.seconds,
                headers=sent,
                body=None if body is None else json.dumps(body).encode(),
                most_bytes=MOST_BYTES,
            )
            document = json.loads(answer.body, parse_int=_whole)
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            what = f"the server does not answer: {type(error).__name__}"
            raise Unreachable(what, where=self._where, hint="check the address, and whether the driver runs") from None
        if not isinstance(document, dict):
            raise not_lakefeed(self._where)
        return answer.status, document

    @property
    def _where(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


def _whole(digits: str) -> int:
    """Convert digits to a number; refuse a long number, which would take minutes: any program may have answered."""
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"a number has {len(digits):,} digits")
    return int(digits)


def not_lakefeed(where: str) -> Unreachable:
    """Return the error for an answer that is not a document of lakefeed."""
    hint = "another program may listen at this address: give the address of a lakefeed dashboard, or check its version"
    return Unreachable("the server does not answer like lakefeed", where=where, hint=hint)


def ask(url: str, token: str) -> FeedProgress:
    """Return the progress from a driver's endpoint; raise Unreachable for a refused token or a late answer."""
    try:
        return FeedServer(url, token).progress()
    except (ConfigError, ResourceMissing) as error:
        raise Unreachable(error.what, where=url) from None


def feed_path(feed: str, page: str) -> str:
    return f"/api/feeds/{quote(feed, safe='')}/{page}"


def _refusal(status: int, document: Mapping[str, Any], where: str) -> LakefeedError:
    if status in (401, 403):
        return ConfigError(
            "the server refuses the token" if status == 403 else "the server requires a valid token",
            where=where,
            hint="set LAKEFEED_TOKEN, or name a file with the token by --token-file",
        )
    if status == 404:
        hint = "the feed may have ended; lakefeed status --url lists the feeds"
        return ResourceMissing("the server has no such page or feed", where=where, hint=hint)
    # A dashboard answers with such a status if the driver was killed or hangs.
    why = document.get("error")
    reason = f": {one_line(why)}" if isinstance(why, str) else ""
    hint = "read the driver's log, and check that its process runs"
    return Unreachable(f"the server answers with status {status}{reason}", where=where, hint=hint)
