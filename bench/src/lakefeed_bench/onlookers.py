"""Watches a feed while its cost is measured: readers of its dashboard, and servers that take what it sends."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from lakefeed.clients.http_server import HttpAnswer, HttpRequest, serve_http
from lakefeed.monitor import drivers

EVERY_SECONDS = {"/api/feeds/{feed}/progress": 2.0, "/metrics": 5.0, "/health": 5.0}
"""``lakefeed status --watch``, a Prometheus in a hurry, and a probe."""
AT_OPENING = ("/api/feeds", "/api/feeds/{feed}/progress", "/api/feeds/{feed}/history", "/api/feeds/{feed}/events")
"""What a page reads before it follows the stream: not the table's files, which are read for one who opens that view."""
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
        self._threads = [threading.Thread(target=self._look, args=(look,)) for look in (self._poll, self._listen)]

    def __enter__(self) -> Onlookers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(_TIMEOUT_SECONDS + 1)

    def _look(self, look: Callable[[httpx.Client], None]) -> None:
        """Wait for the driver's file, then look at its server, on a connection that stays open, until it is over."""
        while not self._over.wait(0.2):
            for driver in drivers.all_drivers(folder=self._folder):
                if driver.feed == self._feed and driver.is_running and driver.url:
                    headers = {"Authorization": f"Bearer {driver.token}"}
                    with (
                        suppress(httpx.HTTPError),
                        httpx.Client(base_url=driver.url, headers=headers, timeout=_TIMEOUT_SECONDS) as client,
                    ):
                        look(client)

    def _poll(self, client: httpx.Client) -> None:
        due = dict.fromkeys(EVERY_SECONDS, time.monotonic())
        while True:
            path = min(due, key=due.__getitem__)
            if self._over.wait(max(0.0, due[path] - time.monotonic())):
                return
            self._read(client, path)
            due[path] += EVERY_SECONDS[path]

    def _listen(self, client: httpx.Client) -> None:
        for path in AT_OPENING:
            self._read(client, path)
        with client.stream("GET", f"/api/stream?feed={self._feed}") as response:
            for line in response.iter_lines():
                self.answers["stream"] += line.startswith("data:")
                if self._over.is_set():
                    return

    def _read(self, client: httpx.Client, path: str) -> None:
        self.answers[path] += client.get(path.format(feed=self._feed)).is_success
