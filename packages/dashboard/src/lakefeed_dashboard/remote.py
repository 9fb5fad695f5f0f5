"""The feeds of other drivers, for a dashboard over many drivers.

While a page is open, threads ask every driver once a second, and the page gets the newest answers. So a driver that
hangs delays neither the page nor other drivers. A driver that has not answered a request gets no further request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from lakefeed.clients.http import exchange
from lakefeed.errors import LakefeedError, Unreachable
from lakefeed.monitor.drivers import MOST_BYTES, DriverFile, FeedServer, all_drivers, feed_path
from lakefeed.monitor.metrics.exposition import MetricsText
from lakefeed.operations.endpoint import ON_BEHALF_OF, Document, Refused
from lakefeed_dashboard.merged_metrics import merged_text
from lakefeed_dashboard.workers import DaemonThreads, FeedView

MOST_DRIVERS = 500
THREADS = 8
PATIENT_THREADS = 64
"""How many threads send requests to drivers that did not answer the last one; such a thread may wait for a timeout."""
EVERY_SECONDS = 1.0
FIND_SECONDS = 2.0
FIRST_SECONDS = 0.05
"""A page waits at most this long for the first answers of new drivers."""
METRICS_SECONDS = 2.0
DETAIL_SECONDS = 15.0
AT_ONCE = 3
"""The most concurrent requests to one driver, besides the request for its list of feeds."""


@dataclass(frozen=True, kw_only=True)
class WatchedServer:
    """A driver, or a dashboard of several drivers.

    Attributes:
        server: the server to ask for its feeds; None for a driver without an endpoint.
        row: the row to show for the driver's feed until the driver answers; None for a dashboard.
    """

    key: str
    server: FeedServer | None
    row: Document | None = None


def _source(driver: DriverFile) -> WatchedServer:
    runs = driver.is_running
    server = FeedServer(driver.url, driver.token) if runs and driver.url and driver.token else None
    state = (driver.ended or "killed") if not runs else "unknown" if server is not None else "probably running"
    row = {
        "feed": driver.feed,
        "sink": "",
        "state": state,
        "hangs": False,
        "reachable": False,
        **dict.fromkeys(("lag", "lag_seconds", "rate", "processing_rate", "last_commit_at", "paused")),
        "last_error": driver.error.as_dict() if driver.error else None,
        "driver": {"host": driver.host, "pid": driver.pid, "version": ""},
    }
    return WatchedServer(key=f"{driver.identity}\n{driver.pid}", server=server, row=row)


def sources_of(servers: Sequence[FeedServer]) -> Callable[[], list[WatchedServer]]:
    """Return a function that lists this user's drivers on this machine, and the given servers."""
    named = [WatchedServer(key=server.url, server=server) for server in servers]
    return lambda: [*map(_source, all_drivers()[:MOST_DRIVERS]), *named]


@dataclass
class _Known:
    """A server and its newest answer; ``answers`` is None before the first request."""

    source: WatchedServer
    rows: list[Document] = field(default_factory=list)
    answers: bool | None = None
    asked_at: float = 0.0
    asking: Future[None] | None = None
    free: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(AT_ONCE))

    @property
    def shown(self) -> list[Document]:
        """The newest rows of the server's feeds, marked as unreachable if the server does not answer now."""
        if self.answers:
            return self.rows
        stale = self.rows or ([self.source.row] if self.source.row else [])
        hangs = self.answers is False and self.source.server is not None
        return [{**row, "reachable": False, "hangs": hangs or row["hangs"]} for row in stale]


class RemoteFeeds:
    """All feeds of the watched servers; see ``Feeds``.

    Args:
        find: returns the current servers.
        note: writes a line of the audit log; called with the message, and details by name.
    """

    def __init__(self, find: Callable[[], Iterable[WatchedServer]], *, note: Callable[..., None]) -> None:
        self._find = find
        self._note = note
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._found_at = 0.0
        self._threads = DaemonThreads(THREADS, name="lakefeed-ask")
        self._patient = DaemonThreads(PATIENT_THREADS, name="lakefeed-ask-again")

    def close(self) -> None:
        """Send no more requests; a request that hangs is abandoned."""
        for threads in (self._threads, self._patient):
            threads.shutdown()

    def rows(self) -> Sequence[Document]:
        return [row for _, row, _ in self._entries()]

    def find(self, name: str) -> FeedView | None:
        for known, row, own_name in self._entries():
            if row["feed"] == name:
                return RemoteFeed(name, own_name, known)
        return None

    def metrics(self, *, accept: str) -> MetricsText:
        self._refresh()
        with self._lock:
            known = list(self._known.values())
        asked = [self._threads.submit(_metrics, each.source.server, accept) for each in known if each.answers]
        wait(asked, timeout=METRICS_SECONDS)
        texts = [future.result() for future in asked if future.done() and future.exception() is None]
        # A driver without an endpoint cannot answer, but may run: do not count its feed as down.
        rows = [row for each in known if not each.answers for row in each.shown]
        down = [row["feed"] for row in rows if row["state"] != "probably running"]
        return merged_text(texts, down=down, accept=accept)

    def health(self) -> tuple[bool, Document]:
        rows = self.rows()
        ill = [row["feed"] for row in rows if not row["reachable"] or row["hangs"] or row["state"] == "failed"]
        return not ill, {"live": True, "ready": True, "feeds": len(rows), "not_well": ill}

    def note(self, message: str, **details: Any) -> None:
        self._note(message, **details)

    def _entries(self) -> list[tuple[_Known, Document, str]]:
        """Return each feed's server, its row with a unique name, and its name at the server."""
        self._refresh()
        with self._lock:
            found = [(known, row) for known in self._known.values() for row in known.shown]
        found.sort(key=lambda pair: (str(pair[1]["feed"]), pair[0].source.key))
        names: set[str] = set()
        entries = []
        for known, row in found:
            own_name = str(row["feed"])
            name = own_name if own_name not in names else _other_name(own_name, row, known, names)
            names.add(name)
            entries.append((known, {**row, "feed": name}, own_name))
        return entries

    def _refresh(self) -> None:
        """Ask the servers whose answers are older than a second; wait briefly for the answers of new servers."""
        now = time.monotonic()
        with self._lock:
            if now - self._found_at >= FIND_SECONDS:
                self._found_at = now
                self._take(list(self._find()))
            for known in self._known.values():
                is_due = now - known.asked_at >= EVERY_SECONDS and (known.asking is None or known.asking.done())
                if known.source.server is not None and is_due:
                    known.asked_at = now
                    threads = self._patient if known.answers is False else self._threads
                    known.asking = threads.submit(self._ask, known, known.source.server)
            first = [known.asking for known in self._known.values() if known.answers is None and known.asking]
        if first and now - self._found_at < FIRST_SECONDS:
            wait(first, timeout=FIRST_SECONDS)

    def _take(self, sources: list[WatchedServer]) -> None:
        before, self._known = self._known, {}
        for source in sources[:MOST_DRIVERS]:
            known = before.get(source.key) or _Known(source)
            if known.source.server is not None and source.server is None:
                known.answers, known.rows = None, []
            known.source = source
            self._known[source.key] = known

    def _ask(self, known: _Known, server: FeedServer) -> None:
        try:
            rows = [row for listed in server.feeds() if (row := _row(listed)) is not None]
        except LakefeedError:
            known.answers = False
        else:
            known.rows, known.answers = rows, True


class RemoteFeed:
    """One feed of another driver; see ``FeedView``."""

    def __init__(self, name: str, own_name: str, known: _Known) -> None:
        self._name = name
        self._own_name = own_name
        self._known = known

    @property
    def name(self) -> str:
        return self._name

    def progress(self) -> Document:
        return self._get("progress")

    def history(self, *, since: float, most: int) -> Document:
        return self._get("history", since=since, most=most)

    def events(self, *, after: int) -> Document:
        return self._get("events", after=after)

    def detail(self, what: str) -> Document:
        return self._get(what, seconds=DETAIL_SECONDS)

    def act(self, request: Mapping[str, Any], *, by: str) -> Document:
        answer = self._exchange("actions", body=dict(request), headers={ON_BEHALF_OF: quote(by)})
        event = answer.get("event")
        if not isinstance(event, dict):
            raise Refused(502, "the driver's answer has no event", "run drivers and dashboard in the same version")
        return event

    def _get(self, page: str, *, seconds: float | None = None, **query: float) -> Document:
        return self._exchange(f"{page}?{urlencode(query)}" if query else page, seconds=seconds)

    def _exchange(
        self,
        page: str,
        *,
        body: Document | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> Document:
        server = self._known.source.server
        if server is None or not self._known.answers:
            raise Refused(503, "the driver does not answer", "check that its process runs")
        if not self._known.free.acquire(blocking=False):
            raise Refused(503, "the driver is slow to answer", "try again in some seconds")
        try:
            asked = server if seconds is None else replace(server, seconds=seconds)
            path, _, query = page.partition("?")
            path = feed_path(self._own_name, path) + (f"?{query}" if query else "")
            status, document = asked.exchange(path, body=body, headers=headers)
        except Unreachable as error:
            raise Refused(504, error.what) from None
        finally:
            self._known.free.release()
        if status < 400:
            return document
        if status == 401:
            raise Refused(502, "the driver refuses the token of this dashboard", "give the dashboard another token")
        hint = document.get("hint")
        raise Refused(status, str(document.get("error", status)), None if hint is None else str(hint))


def _row(listed: Document) -> Document | None:
    if not isinstance(listed.get("feed"), str):
        return None
    keys = ("sink", "state", "lag", "lag_seconds", "rate", "processing_rate", "last_commit_at", "last_error")
    found = {name: listed.get(name) for name in ("feed", *keys, "paused", "driver")}
    return {**found, "hangs": listed.get("hangs") is True, "reachable": listed.get("reachable") is not False}


def _other_name(name: str, row: Document, known: _Known, taken: set[str]) -> str:
    """Return a unique name for a feed: if the name is taken, append the driver's address or process id."""
    driver = row.get("driver")
    process = driver.get("pid") if isinstance(driver, Mapping) else None
    where = urlsplit(known.source.server.url).netloc if known.source.row is None and known.source.server else process
    found, number = f"{name}~{where}", 2
    while found in taken:
        found, number = f"{name}~{where}~{number}", number + 1
    return found


def _metrics(server: FeedServer | None, accept: str) -> str:
    if server is None:
        return ""
    headers = {"Accept": accept, "Connection": "close"}
    if server.token:
        headers["Authorization"] = f"Bearer {server.token}"
    url = f"{server.url.rstrip('/')}/metrics"
    answer = exchange("GET", url, seconds=METRICS_SECONDS, headers=headers, most_bytes=MOST_BYTES)
    return answer.body.decode("utf-8", "replace") if answer.status == 200 else ""
