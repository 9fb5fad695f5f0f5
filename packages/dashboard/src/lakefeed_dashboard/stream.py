"""Send new data to all open pages, by server-sent events.

While pages are open, one task reads the feeds once a second for all pages together. Each page has a queue of limited
length; if a page reads too slowly, its stream is closed, and the page reconnects by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lakefeed.messages.text import json_line
from lakefeed.operations.endpoint import Document, Refused
from lakefeed_dashboard.workers import Feeds, FeedView, Workers

_log = logging.getLogger(__name__)

MOST_CLIENTS = 200
MOST_QUEUED = 100
MOST_QUEUED_BYTES = 16 << 20
"""The limit of a page's queue: five times the progress of a job with 10,000 partitions."""
EVERY_SECONDS = 1.0
HEARTBEAT_SECONDS = 15.0
PANELS_SECONDS = 1.0
"""The least time between two requests for the panels."""
HEARTBEAT = b": still here\n\n"


@dataclass(eq=False)
class Client:
    """One open page, and the feed whose details the page shows."""

    feed: str | None
    queue: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(MOST_QUEUED))
    is_dropped: bool = False
    _bytes: int = 0

    async def next(self) -> bytes | None:
        """Wait for the next message; return None at the end of the stream."""
        queued = await self.queue.get()
        self._bytes -= len(queued or b"")
        return queued

    def send(self, messages: Iterable[bytes]) -> None:
        """Queue messages; end the stream if the page reads too slowly."""
        try:
            for queued in messages:
                if self._bytes and self._bytes + len(queued) > MOST_QUEUED_BYTES:
                    raise asyncio.QueueFull
                self.queue.put_nowait(queued)
                self._bytes += len(queued)
        except asyncio.QueueFull:
            self.drop()

    def drop(self) -> None:
        """End the page's stream, and discard the messages in its queue."""
        self.is_dropped = True
        with contextlib.suppress(asyncio.QueueEmpty):
            while True:
                self.queue.get_nowait()
        self.queue.put_nowait(None)


@dataclass
class _Watched:
    """The newest data that the hub has sent to the pages of one feed."""

    run: str | None = None
    event: int = 0
    batch: str | None = None
    panels_at: float = 0.0
    panels: asyncio.Task[None] | None = None
    newest_panels: Document | None = None


class Hub:
    """Reads new data of the feeds, and sends them to the pages. All methods run in the server's event loop."""

    def __init__(self, feeds: Feeds, workers: Workers) -> None:
        self._feeds = feeds
        self._workers = workers
        self._clients: set[Client] = set()
        self._watched: dict[str, _Watched] = {}
        self._rows: bytes | None = None
        self._pulse: asyncio.Task[None] | None = None
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._is_closed = False

    async def stream(self, feed: str | None, *, last: str | None, after: int | None) -> AsyncIterator[bytes]:
        """Yield a page's messages until its stream ends.

        Args:
            feed: the feed whose details the page shows.
            last: the id of the last event that the page received before its connection broke.
            after: the number of the last event that the page has loaded from /events.
        """
        client = self.open(feed)
        try:
            for first in await self._first(feed, last=last, after=after):
                yield first
            while True:
                try:
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        queued = await client.next()
                except TimeoutError:
                    queued = HEARTBEAT
                if queued is None:
                    return
                yield queued
        finally:
            self._clients.discard(client)
            if client.feed is not None and not any(other.feed == client.feed for other in self._clients):
                self._watched.pop(client.feed, None)

    def open(self, feed: str | None) -> Client:
        """Add a page; raise Refused if too many pages are open."""
        if self._is_closed or len(self._clients) >= MOST_CLIENTS:
            raise Refused(503, "too many pages are open", "close some of them", retry_after=15)
        client = Client(feed)
        self._clients.add(client)
        if self._pulse is None or self._pulse.done():
            self._pulse = asyncio.get_running_loop().create_task(self._beat())
        return client

    def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        for client in self._clients:
            client.drop()
        for task in (self._pulse, *self._asking.values()):
            if task is not None:
                task.cancel()

    async def _first(self, feed: str | None, *, last: str | None, after: int | None) -> list[bytes]:
        """Return a page's first messages: the list of feeds, the events that the page has missed, and the progress."""
        found = [message("feeds", {"feeds": await self._workers.read(self._feeds.rows)})]
        view = None if feed is None else await self._workers.read(self._feeds.find, feed)
        if view is None:
            return found
        progress = await self._workers.read(view.progress)
        run, number = run_of(progress), after
        if last is not None:
            of_run, _, text = last.rpartition("-")
            # A new run numbers its events from 1, so the page has received none of them.
            number = int(text) if of_run == run and text.isdecimal() and len(text) < 18 else 0
        if number is not None:
            found += _events(run, (await self._workers.read(view.events, after=number))["events"])
        return [*found, message("progress", progress)]

    async def _beat(self) -> None:
        while self._clients:
            self._begin("", self._send_rows)
            for name in {client.feed for client in self._clients if client.feed is not None}:
                self._begin(f"/{name}", partial(self._send_feed, name))
            await asyncio.sleep(EVERY_SECONDS)
        self._rows = None

    def _begin(self, key: str, send: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start the task of this key unless the key's previous task still runs. So a slow feed delays no other feed."""
        before = self._asking.get(key)
        if before is None or before.done():
            self._asking[key] = asyncio.get_running_loop().create_task(send())
            self._asking = {name: task for name, task in self._asking.items() if not task.done()}

    async def _send_rows(self) -> None:
        with _unanswered():
            rows = message("feeds", {"feeds": await self._workers.read(self._feeds.rows)})
            if rows != self._rows:
                self._rows = rows
                self._send(list(self._clients), [rows])

    async def _send_feed(self, name: str) -> None:
        with _unanswered():
            view = await self._workers.read(self._feeds.find, name)
            if view is None:
                return
            found = await self._news(view, self._watched.setdefault(name, _Watched()))
            self._send([client for client in self._clients if client.feed == name], found)

    async def _news(self, view: FeedView, sent: _Watched) -> list[bytes]:
        progress = await self._workers.read(view.progress)
        found, run = [message("progress", progress)], run_of(progress)
        is_first = sent.run is None
        if sent.run != run:
            sent.run, sent.event, sent.batch = run, 0, None
        events = (await self._workers.read(view.events, after=sent.event))["events"]
        if events:
            sent.event = events[-1]["number"]
        found += [] if is_first else _events(run, events)
        newest = (progress.get("last_batch") or {}).get("finished_at")
        if newest is not None and newest != sent.batch:
            # With `since` set to now, no points of the history are read: the page needs only the batches, and reading a
            # day of points would take far longer.
            batches = (await self._workers.read(view.history, since=time.time(), most=1))["batches"]
            if not is_first:
                found += [message("batch", each) for each in batches if each["finished_at"] > (sent.batch or "")]
            sent.batch = newest
        self._ask_panels(view, sent)
        return found

    def _ask_panels(self, view: FeedView, sent: _Watched) -> None:
        now = asyncio.get_running_loop().time()
        if now - sent.panels_at < PANELS_SECONDS or (sent.panels is not None and not sent.panels.done()):
            return
        sent.panels_at = now
        sent.panels = asyncio.get_running_loop().create_task(self._send_panels(view, sent))

    async def _send_panels(self, view: FeedView, sent: _Watched) -> None:
        with _unanswered():
            panels = await self._workers.slow(view.detail, "panels")
            if panels.get("panels") and panels != sent.newest_panels:
                sent.newest_panels = panels
                clients = [client for client in self._clients if client.feed == view.name]
                self._send(clients, [message("panels", panels)])

    def _send(self, clients: Iterable[Client], messages: list[bytes]) -> None:
        for client in clients:
            if not client.is_dropped:
                client.send(messages)


def message(kind: str, document: Document, *, number: str | None = None) -> bytes:
    """Format a server-sent event; JSON has no line breaks, so no value can end the event."""
    name = f"id: {number}\n" if number is not None else ""
    return f"{name}event: {kind}\ndata: {json_line(document)}\n\n".encode()


def run_of(progress: Document) -> str:
    """Return the digits of the run's start time, which distinguish equal event numbers of different runs."""
    return "".join(letter for letter in str(progress.get("started_at")) if letter.isdecimal())


def _events(run: str, events: list[Document]) -> list[bytes]:
    return [message("event", event, number=f"{run}-{event['number']}") for event in events]


@contextlib.contextmanager
def _unanswered() -> Any:
    """Log the class of an error, except Refused: the list of feeds already shows that a feed does not answer."""
    try:
        yield
    except Refused:
        return
    except Exception as error:
        _log.warning("the dashboard's stream could not send an update: %s", type(error).__name__)
        _log.debug("details", exc_info=True)
