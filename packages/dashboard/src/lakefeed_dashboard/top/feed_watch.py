"""Find feeds in this user's driver files, in pipeline files and on dashboards, and read their status repeatedly.

A thread per feed reads its status, so that a driver that hangs delays no other feed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias

from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import LakefeedError, Unreachable
from lakefeed.feed.events import Event
from lakefeed.monitor import drivers
from lakefeed.monitor.drivers import DriverFile, FeedServer
from lakefeed.monitor.model import FeedProgress
from lakefeed.operations.live_status import identity_of, live_status
from lakefeed_dashboard.top.table import MOST_POINTS, SeenFeed, Trend, answered

FIND_SECONDS = 2.0
LEDGER_SECONDS = 5.0
"""The least seconds between two reads of a ledger; each read sends requests to catalog, store and broker."""
ASKING = "asking"
"""The state of a feed before its first answer."""


class WatchedFeed(Protocol):
    """A feed whose state can be read, from its driver, a dashboard or the ledger."""

    key: str
    name: str

    def look(self, *, is_open: bool) -> SeenFeed:
        """Read the feed's state; if the user has opened the feed, also its events."""

    def pause(self, every: float) -> float:
        """Return the seconds until the next read of the state, at least ``every``."""


FeedFinder: TypeAlias = Callable[[], Sequence[WatchedFeed]]
"""Returns the feeds that this machine, a pipeline file or a dashboard has now."""


class WatchedDriver:
    """A feed that is found by the file that its driver has written on this machine."""

    def __init__(self, found: DriverFile) -> None:
        self.key, self.name = found.identity, found.feed
        self._file = found
        self._asked = _Asked()

    def pause(self, every: float) -> float:
        return every

    def look(self, *, is_open: bool) -> SeenFeed:
        # Read the file again, because the feed's driver may have ended since the last read, or a new driver started.
        file = self._file = drivers.find(self._file.identity) or self._file
        if not file.is_running:
            return self._without(file, file.ended or "killed", "" if file.ended else "its process has gone")
        if file.url is None or file.token is None:
            return self._without(file, "probably running", "it was started without an endpoint")
        try:
            server = FeedServer(file.url, file.token)
            return self._asked.look(server, key=self.key, feed=None, is_open=is_open)
        except LakefeedError as error:
            return self._without(file, "hangs", f"its process runs, and {error.what}")

    def _without(self, file: DriverFile, state: str, note: str) -> SeenFeed:
        return self._asked.last(
            SeenFeed(
                key=self.key,
                name=file.feed,
                state=state,
                note=note,
                driver=f"process {file.pid} on {file.host}",
                since=file.since,
                last_error=file.error.text if file.error else None,
            )
        )


class WatchedRemote:
    """A feed on a dashboard."""

    def __init__(self, server: FeedServer, listed: Mapping[str, Any]) -> None:
        self.name = str(listed.get("feed"))
        self.key = f"{server.url}\n{self.name}"
        self._server = server
        self._asked = _Asked()

    def pause(self, every: float) -> float:
        return max(every, FIND_SECONDS)

    def look(self, *, is_open: bool) -> SeenFeed:
        try:
            return self._asked.look(self._server, key=self.key, feed=self.name, is_open=is_open)
        except LakefeedError as error:
            return self._asked.last(SeenFeed(key=self.key, name=self.name, state="no answer", note=error.what))


class WatchedLedger:
    """A feed of a pipeline file that has no driver on this machine; the ledger shows the feed's likely state."""

    def __init__(self, config: PipelineConfig, connections: Connections, folder: Path | None, identity: str) -> None:
        self.key, self.name = f"{identity}\n{config.name}", config.name
        self._status = partial(live_status, config, connections=connections, folder=folder, identity=identity)

    def pause(self, every: float) -> float:
        return max(every, LEDGER_SECONDS)

    def look(self, *, is_open: bool) -> SeenFeed:
        try:
            status = self._status()
        except LakefeedError as error:
            return SeenFeed(key=self.key, name=self.name, state="unknown", note=error.what)
        return SeenFeed(
            key=self.key,
            name=self.name,
            state=status.state,
            sink=status.sink,
            note="; ".join(status.evidence),
            driver=f"process {status.driver.pid} on {status.driver.host}" if status.driver else None,
            since=status.driver.since if status.driver else None,
            rate=status.rate,
            lag=status.lag.records if status.lag else None,
            lag_seconds=status.lag.seconds if status.lag else None,
            batch=status.last_batch,
            last_commit_at=status.last_commit_at,
            last_error=status.last_error.text if status.last_error else None,
            partitions=status.lag.partitions if status.lag else (),
        )


class _Asked:
    """Asks a server about one feed, and remembers its newest progress, trend and events."""

    def __init__(self) -> None:
        self._trend = Trend()
        self._progress: FeedProgress | None = None
        self._run: float | None = None
        self._events: tuple[Event, ...] = ()

    def look(self, server: FeedServer, *, key: str, feed: str | None, is_open: bool) -> SeenFeed:
        progress = server.progress(feed)
        if progress.started_at != self._run or not self._trend.has_history:
            self._run, self._trend, self._events = progress.started_at, Trend(), ()
            self._trend.add_history(server.history(feed, most=MOST_POINTS))
        if is_open:
            after = self._events[-1].number if self._events else 0
            with suppress(Unreachable):
                self._events = (*self._events, *server.events(progress.feed, after=after))[-MOST_POINTS:]
        self._progress = progress
        return answered(progress, key=key, trend=self._trend, events=self._events)

    def last(self, seen: SeenFeed) -> SeenFeed:
        """Return the state of a feed that does not answer, with the figures of its newest answer."""
        if self._progress is None:
            return seen
        before = answered(self._progress, key=seen.key, trend=self._trend, events=self._events)
        error = seen.last_error or before.last_error
        return before.model_copy(update={"state": seen.state, "note": seen.note, "rate": None, "last_error": error})


class LocalDrivers:
    """This user's drivers on this machine, including killed drivers and drivers that ended after the command began."""

    def __init__(self, *, named: Collection[str] = ()) -> None:
        self._named = named
        self._found: dict[str, DriverFile] = {}

    def find(self) -> Sequence[WatchedFeed]:
        self._found.update({found.identity: found for found in drivers.all_drivers()})
        return [WatchedDriver(found) for found in self._found.values() if found.identity not in self._named]


class PipelineFeeds:
    """The feeds of one pipeline file: the driver's feed if a driver runs on this machine, otherwise a feed per table.

    Args: parts: configuration, connections and folder, per table of the feed.
    """

    def __init__(
        self, config: PipelineConfig, parts: Sequence[tuple[PipelineConfig, Connections, Path | None]]
    ) -> None:
        self.identity = identity_of(config)
        self._parts = [WatchedLedger(*part, self.identity) for part in parts]

    def find(self) -> Sequence[WatchedFeed]:
        driver = drivers.find(self.identity)
        if driver is not None and driver.is_running:
            return [WatchedDriver(driver)]
        return self._parts


class FeedWatch:
    """Reads the state of all feeds repeatedly while the block runs.

    Args:
        finders: functions that list feeds, by the name of a machine, file or dashboard; it is shown if one fails.
        every: seconds between two reads of a feed.
    """

    def __init__(self, finders: Mapping[str, FeedFinder], *, every: float) -> None:
        self._finders = finders
        self._every = every
        self._lock = threading.Lock()
        self._sources: dict[str, dict[str, WatchedFeed]] = {}
        self._seen: dict[str, SeenFeed] = {}
        self._failures: dict[str, LakefeedError] = {}
        self._ends = threading.Event()
        self._opened = ""

    def __enter__(self) -> Self:
        for name, finder in self._finders.items():
            self._start(partial(self._find, name, finder))
        return self

    def __exit__(self, *error: object) -> None:
        # The threads are not joined: each one ends by itself when the answer that it waits for arrives.
        self._ends.set()

    def open(self, key: str) -> None:
        """Read also the events of the feed with this key from now on; with an empty key, read no events."""
        self._opened = key

    def feeds(self) -> list[SeenFeed]:
        """Return the newest state of all feeds; a machine, file or dashboard that cannot be read is shown as a feed."""
        with self._lock:
            sources = [source for found in self._sources.values() for source in found.values()]
            shown = [
                self._seen.get(source.key) or SeenFeed(key=source.key, name=source.name, state=ASKING)
                for source in sources
            ]
            failed = dict(self._failures)
        unique = {seen.key: seen for seen in shown}
        places = [SeenFeed(key=name, name=name, state="no answer", note=why.what) for name, why in failed.items()]
        return [*unique.values(), *places]

    def failures(self) -> dict[str, LakefeedError]:
        """Return the errors of pipeline files and dashboards that could not be read, by name."""
        with self._lock:
            return dict(self._failures)

    def settle(self, seconds: float) -> None:
        """Wait until all finders and feeds have been read once, or the time is over."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._is_settled():
            time.sleep(0.01)

    def _is_settled(self) -> bool:
        with self._lock:
            looked = self._finders.keys() <= {*self._sources, *self._failures}
            return looked and all(key in self._seen for found in self._sources.values() for key in found)

    def _find(self, name: str, finder: FeedFinder) -> None:
        while not self._ends.is_set():
            try:
                found = finder()
            except LakefeedError as error:
                with self._lock:
                    self._failures[name] = error
            else:
                self._note_found(name, found)
            self._ends.wait(FIND_SECONDS)

    def _note_found(self, name: str, found: Sequence[WatchedFeed]) -> None:
        with self._lock:
            self._failures.pop(name, None)
            known = self._sources.setdefault(name, {})
            taken = {key for other in self._sources.values() for key in other}
            new = [source for source in found if source.key not in taken]
            gone = known.keys() - {source.key for source in found}
            for key in gone:
                del known[key]
                self._seen.pop(key, None)
            known.update((source.key, source) for source in new)
        for source in new:
            self._start(partial(self._look, name, source))

    def _look(self, name: str, source: WatchedFeed) -> None:
        while not self._ends.is_set():
            try:
                seen = source.look(is_open=self._opened == source.key)
            except Exception as error:  # A bug with one feed must not end its thread or the screen.
                seen = SeenFeed(key=source.key, name=source.name, state="unknown", note=type(error).__name__)
            with self._lock:
                if self._sources[name].get(source.key) is not source:
                    return
                self._seen[source.key] = seen
            self._ends.wait(source.pause(self._every))

    def _start(self, run: Callable[[], None]) -> None:
        threading.Thread(target=run, name="lakefeed-watch", daemon=True).start()


def finders_of(
    pipelines: Mapping[str, PipelineFeeds], servers: Sequence[FeedServer]
) -> Iterator[tuple[str, FeedFinder]]:
    """Yield a finder for each pipeline file and dashboard; for this machine, too, if there are no dashboards."""
    yield from ((name, pipeline.find) for name, pipeline in pipelines.items())
    yield from ((server.url, partial(_feeds_of, server)) for server in servers)
    if not servers:
        yield "this machine", LocalDrivers(named={pipeline.identity for pipeline in pipelines.values()}).find


def _feeds_of(server: FeedServer) -> Sequence[WatchedFeed]:
    return [WatchedRemote(server, listed) for listed in server.feeds()]
