"""All pages share one read a second for their server-sent events, resume streams, and may read slowly."""

import asyncio
import contextlib
import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any

import httpx
import pytest

from lakefeed.feed.progress import FinishedBatch
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.operations.endpoint import OwnFeed
from lakefeed_dashboard import server, stream
from packages.dashboard.tests.dashboards import address, dashboard, monitor_of, without_login

PAGES = 100


@contextmanager
def page(url: str, query: str = "", **headers: str) -> Iterator[Iterator[tuple[str, Any, str | None]]]:
    """Open a stream; yield kind, document and id of each message."""
    with (
        httpx.Client(trust_env=False, timeout=5) as client,
        client.stream("GET", f"{url}/api/stream{query}", headers=headers) as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield messages(answer.iter_lines())


def messages(lines: Iterator[str]) -> Iterator[tuple[str, Any, str | None]]:
    found: dict[str, str] = {}
    for line in lines:
        if line:
            key, _, value = line.partition(": ")
            found[key] = value
        elif "event" in found:
            yield found["event"], json.loads(found["data"]), found.get("id")
            found = {}


def until(found: Iterator[tuple[str, Any, str | None]], kind: str) -> tuple[Any, str | None]:
    return next((document, number) for is_kind, document, number in found if is_kind == kind)


def read_until(connection: socket.socket, part: bytes) -> None:
    text = b""
    while part not in text:
        more = connection.recv(65536)
        assert more
        text += more


def finish(monitor: FeedMonitor, batch: int) -> None:
    monitor.finish(FinishedBatch(batch_id=batch, finished_at=time.time(), seconds=1.0, records=5, lag=0))


def test_a_page_receives_feeds_progress_new_batches_and_events() -> None:
    monitor = monitor_of()
    with dashboard(monitor, without_login()) as served, page(served, "?feed=hidden-name") as found:
        assert next(found)[1]["feeds"][0]["feed"] == "hidden-name"
        assert until(found, "progress")[0]["feed"] == "hidden-name"
        time.sleep(1.2)  # The hub sends no batches and events before its second read.
        finish(monitor, 4)
        monitor.note("a <b>note</b>\n\ndata: forged")
        kinds: dict[str, Any] = {}
        while not {"batch", "event"} <= kinds.keys():
            kind, document, _ = next(found)
            kinds[kind] = document
        assert kinds["batch"]["batch"] == 4
        assert kinds["event"]["message"] == "a <b>note</b> data: forged"


def test_a_stream_resumes_after_the_last_event_received() -> None:
    monitor = monitor_of()
    for number in range(5):
        monitor.note(f"note {number}")
    with dashboard(monitor, without_login()) as served:
        with page(served, "?feed=hidden-name&after=2") as found:
            first = [until(found, "event") for _ in range(4)]
        assert [event["number"] for event, _ in first] == [3, 4, 5, 6]
        last = first[1][1] or ""
        with page(served, "?feed=hidden-name", **{"Last-Event-ID": last}) as found:
            assert [until(found, "event")[0]["number"] for _ in range(2)] == [5, 6]
        # No event of this run has one of these ids, so the page gets all events.
        for other in ("1-4", "x", "-", "9" * 400):
            with page(served, "?feed=hidden-name", **{"Last-Event-ID": other}) as found:
                assert until(found, "event")[0]["number"] == 1


@pytest.mark.waits
def test_a_hundred_pages_share_one_read_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[float] = []
    own_row = OwnFeed.row

    def row(self: OwnFeed) -> dict[str, Any]:
        reads.append(time.monotonic())
        return own_row(self)

    monitor = monitor_of()
    with dashboard(monitor, without_login()) as served, ExitStack() as stack:
        pages = []
        for _ in range(PAGES):
            connection = stack.enter_context(socket.create_connection(address(served), timeout=60))
            connection.sendall(b"GET /api/stream?feed=hidden-name HTTP/1.1\r\nHost: localhost\r\n\r\n")
            # The pages open one after the other, because a slow server refuses some of many simultaneous requests.
            read_until(connection, b"event: feeds")
            pages.append(connection)
        monkeypatch.setattr(OwnFeed, "row", row)
        while len(reads) < 3:
            time.sleep(0.1)
        assert all(after - before > 0.9 * stream.EVERY_SECONDS for before, after in pairwise(reads))
        finish(monitor, 4)
        for connection in pages:
            read_until(connection, b"event: batch")
        # The server still answers other requests.
        assert httpx.get(f"{served}/api/feeds", trust_env=False, timeout=60).status_code == 200


def test_a_page_receives_panels_only_when_the_rows_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "EVERY_SECONDS", 0.02)
    monkeypatch.setattr(stream, "PANELS_SECONDS", 0.01)
    asked = itertools.count()
    monitor = monitor_of()
    monitor.documents["panels"] = lambda: {"panels": [{"name": "a", "rows": [[next(asked) // 10]]}]}
    with dashboard(monitor, without_login()) as served, page(served, "?feed=hidden-name") as found:
        assert [until(found, "panels")[0]["panels"][0]["rows"] for _ in range(3)] == [[[0]], [[1]], [[2]]]


def test_the_number_of_open_pages_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MOST_CLIENTS", 2)
    with dashboard(monitor_of(), without_login()) as served, page(served) as one, page(served) as two:
        next(one), next(two)
        answer = httpx.get(f"{served}/api/stream", trust_env=False)
        assert (answer.status_code, answer.json()["hint"]) == (503, "close some of them")


@pytest.mark.waits
def test_a_page_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WRITE_SECONDS", 0.5)
    monkeypatch.setattr(stream, "EVERY_SECONDS", 0.02)
    monitor = monitor_of()
    big = {"feeds": [{"feed": "hidden-name", "text": ["x" * 1900] * 500}]}
    original = stream.message
    monkeypatch.setattr(
        stream, "message", lambda kind, document, **more: original(kind, {**big, "at": time.time()}, **more)
    )
    with dashboard(monitor, without_login()) as served:
        with socket.socket() as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            lazy.connect(address(served))
            lazy.sendall(b"GET /api/stream?feed=hidden-name HTTP/1.1\r\nHost: localhost\r\n\r\n")
            time.sleep(2.5)
            lazy.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                while lazy.recv(1 << 20):  # recv raises TimeoutError if the connection is still open.
                    pass
        monkeypatch.setattr(stream, "message", original)
        assert httpx.get(f"{served}/api/feeds", trust_env=False).status_code == 200


def test_the_queue_of_a_slow_page_is_limited() -> None:
    client = stream.Client(None)
    for _ in range(stream.MOST_QUEUED):
        client.send([b"x"])
    assert not client.is_dropped
    client.send([b"x"])
    assert (client.is_dropped, client.queue.qsize(), client.queue.get_nowait()) == (True, 1, None)


def test_the_queue_of_a_slow_page_is_limited_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MOST_QUEUED_BYTES", 10)

    async def read() -> None:
        client = stream.Client(None)
        # The first message may have any length, because a client takes it immediately.
        client.send([b"more than ten bytes"])
        assert await client.next() == b"more than ten bytes"
        for _ in range(5):  # Messages that a client has read no longer count towards the limit.
            client.send([b"12345", b"12345"])
            assert [await client.next(), await client.next()] == [b"12345"] * 2
        assert not client.is_dropped
        client.send([b"12345", b"12345", b"1"])
        assert (client.is_dropped, await client.next()) == (True, None)

    asyncio.run(read())


def test_a_stream_without_new_messages_sends_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr(stream, "EVERY_SECONDS", 60.0)
    with (
        dashboard(monitor_of(), without_login()) as served,
        socket.create_connection(address(served), timeout=5) as connection,
    ):
        connection.sendall(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        read_until(connection, b": still here")


def test_the_server_ends_within_two_seconds_although_streams_are_open() -> None:
    before = set(threading.enumerate())
    with ExitStack() as stack:
        with dashboard(monitor_of(), without_login()) as served:
            for _ in range(20):
                connection = stack.enter_context(socket.create_connection(address(served), timeout=5))
                connection.sendall(b"GET /api/stream?feed=hidden-name HTTP/1.1\r\nHost: localhost\r\n\r\n")
                connection.recv(100)
            stack.enter_context(socket.create_connection(address(served)))
            began = time.monotonic()
        assert time.monotonic() - began < 2
    assert not [each for each in {*threading.enumerate()} - before if each.name == "lakefeed-server"]
