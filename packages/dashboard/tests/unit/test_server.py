"""The dashboard's server limits the number of connections, and the time in which a request must arrive."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from lakefeed_dashboard import server
from packages.dashboard.tests.dashboards import address, dashboard, monitor_of, without_login


@pytest.fixture
def served() -> Iterator[str]:
    with dashboard(monitor_of(), without_login()) as url:
        yield url


def test_silent_connections_are_closed_to_make_room_for_requests(monkeypatch: pytest.MonkeyPatch, served: str) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 20)
    silent = [socket.create_connection(address(served)) for _ in range(24)]
    try:
        for connection in silent[:4]:
            connection.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(10) == b""
        # The server closes a silent connection to accept a request, such as that of a liveness probe.
        assert httpx.get(f"{served}/health/live", trust_env=False).status_code == 200
    finally:
        for connection in silent:
            connection.close()


@pytest.mark.parametrize("begin", [b"", b"GET / HTTP/1.1\r\n", b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\nG"])
def test_a_client_that_sends_single_bytes_is_disconnected(monkeypatch: pytest.MonkeyPatch, begin: bytes) -> None:
    monkeypatch.setattr(server, "ARRIVAL_SECONDS", 0.3)
    with dashboard(monitor_of(), without_login()) as url, socket.create_connection(address(url)) as dripping:
        dripping.sendall(begin)
        dripping.settimeout(0.05)
        end = time.monotonic() + 4
        while time.monotonic() < end:
            try:
                dripping.sendall(b"x")
                if dripping.recv(1000) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return
    pytest.fail("the connection is still open")


def test_a_server_that_ends_unexpectedly_logs_the_error_and_refuses_connections(
    served: str, caplog: pytest.LogCaptureFixture
) -> None:
    [*_, thread] = [thread for thread in threading.enumerate() if isinstance(thread, server._ServerThread)]

    def fail() -> None:
        [accepting] = [task for task in asyncio.all_tasks() if "_accept" in repr(task)]
        accepting.cancel()

    assert thread._loop is not None
    thread._loop.call_soon_threadsafe(fail)
    thread.join(10)
    assert not thread.is_alive()
    with pytest.raises(httpx.ConnectError):
        httpx.get(served, trust_env=False)
    assert "the dashboard's server has ended: CancelledError; the feed continues" in caplog.text
