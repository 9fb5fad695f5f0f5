"""Watches a feed while its cost is measured: readers of its dashboard, and servers that take what it sends."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from lakefeed.clients.http_server import HttpAnswer, HttpRequest, serve_http
from lakefeed.monitor import drivers
from lakefeed.monitor.drivers import DriverFile

EVERY_SECONDS = {"/api/feeds/{feed}/progress": 2.0, "/metrics": 5.0, "/health": 5.0}
"""``lakefeed status --watch``, a Prometheus in a hurry, and a probe."""
AT_OPENING = ("/api/feeds", "/api/feeds/{feed}/progress", "/api/feeds/{feed}/history", "/api/feeds/{feed}/events")
"""What a page reads before it follows the stream."""
_TIMEOUT_SECONDS = 10.0


@contextmanager
def receiving() -> Iterator[tuple[str, Counter[str]]]:
    """Accept each POST, as a lineage server or a webhook does; yield the address, and the count by path."""
    got: Counter[str] = Counter()

    def receive(request: HttpRequest) -> HttpAnswer:
        got[request.path] += 1
        return HttpAnswer()

    with serve_http(receive) as address:
        yield address, got


class Onlookers:
    """Reads what a driver's followers read: an open page with its stream, a terminal, a scraper and a probe.

    Attributes:
        answers: how many answers came, by path; ``stream`` counts its messages.
    """

    def __init__(self, feed: str, *, folder: Path) -> None:
        self.answers: Counter[str] = Counter()
        self._feed = feed
        self._folder = folder
        self._over = threading.Event()
        self._threads = [threading.Thread(target=read, daemon=True) for read in (self._poll, self._listen)]

    def __enter__(self) -> Onlookers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(_TIMEOUT_SECONDS + 1)

    def _driver(self) -> DriverFile | None:
        """Wait for the driver's file."""
        while not self._over.wait(0.1):
            for driver in drivers.all_drivers(folder=self._folder):
                if driver.feed == self._feed and driver.is_running and driver.url:
                    return driver
        return None

    def _poll(self) -> None:
        driver = self._driver()
        connection = _connect(driver) if driver is not None else None
        due = dict.fromkeys(EVERY_SECONDS, time.monotonic())
        while driver is not None and connection is not None and not self._over.is_set():
            path = min(due, key=due.__getitem__)
            if self._over.wait(max(0.0, due[path] - time.monotonic())):
                break
            self._read(connection, driver, path)
            due[path] += EVERY_SECONDS[path]

    def _listen(self) -> None:
        driver = self._driver()
        while driver is not None and not self._over.wait(0.2):
            try:
                connection = _connect(driver)
                # Without the table's files: those are read for one who opens that view.
                for path in AT_OPENING:
                    self._read(connection, driver, path)
                connection.request("GET", f"/api/stream?feed={self._feed}", headers=_headers(driver))
                answer = connection.getresponse()
                while not self._over.is_set() and (line := answer.readline()):
                    self._count("stream", answer.status if line.startswith(b"data:") else 0)
                connection.close()
            except (OSError, http.client.HTTPException):
                continue

    def _read(self, connection: http.client.HTTPConnection, driver: DriverFile, path: str) -> None:
        """Ask on a connection that stays open, as browsers and Prometheus do."""
        try:
            connection.request("GET", path.format(feed=self._feed), headers=_headers(driver))
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            return
        self._count(path, answer.status)

    def _count(self, path: str, status: int) -> None:
        if status == http.client.OK:
            self.answers[path] += 1


def _connect(driver: DriverFile) -> http.client.HTTPConnection:
    parts = urlsplit(driver.url or "")
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_SECONDS)


def _headers(driver: DriverFile) -> dict[str, str]:
    return {"Authorization": f"Bearer {driver.token}"}
