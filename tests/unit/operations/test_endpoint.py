"""The driver's endpoint listens only on this machine, requires the token, and limits connections."""

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from lakefeed.errors import PortTaken, Unreachable
from lakefeed.feed.progress import FinishedBatch
from lakefeed.messages.redaction import redacted
from lakefeed.monitor.drivers import FeedServer, ask
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.metrics.table import MetricSettings
from lakefeed.operations import endpoint as server
from lakefeed.operations.endpoint import OwnFeed, Served, serve


@pytest.fixture
def monitor() -> FeedMonitor:
    found = FeedMonitor("hidden-name")
    found.begin(sink="iceberg a.b.c", fence=None)
    found.finish(FinishedBatch(batch_id=3, finished_at=time.time(), seconds=1.0, records=5))
    return found


@pytest.fixture
def endpoint(monitor: FeedMonitor) -> Iterator[Served]:
    with serve(OwnFeed(monitor), port=0) as running:
        yield running


def address(endpoint: Served) -> tuple[str, int]:
    parts = urlsplit(endpoint.url or "")
    return parts.hostname or "", parts.port or 0


def query(endpoint: Served, path: str = "/progress") -> dict[str, Any]:
    return FeedServer(endpoint.url or "", endpoint.token, seconds=2).get(path)


def get(endpoint: Served, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection = HTTPConnection(*address(endpoint), timeout=5)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_the_endpoint_answers_progress_history_and_health_with_the_token(endpoint: Served) -> None:
    progress = ask(endpoint.url or "", endpoint.token or "")
    assert progress.last_batch is not None
    assert (progress.feed, progress.last_batch.batch_id) == ("hidden-name", 3)
    history = query(endpoint, "/history?most=10&since=nan")
    assert [point["batch"] for point in history["points"]] == [3]
    assert query(endpoint, "/health")["live"] is True
    assert query(endpoint, "/api/feeds/hidden-name/progress")["feed"] == "hidden-name"


def test_the_health_of_a_failed_driver_has_the_status_503(endpoint: Served, monitor: FeedMonitor) -> None:
    monitor.ended(ValueError())
    status, text = get(endpoint, "/health", Authorization=f"Bearer {endpoint.token}")
    assert (status, json.loads(text)["live"]) == (503, False)


@pytest.mark.parametrize(
    "path", ["/", "/progress", "/health", "/metrics", "/api/feeds", "/login", "/static/x", "/none"]
)
@pytest.mark.parametrize("header", ["", "Bearer ", "Bearer wrong", "Bearer ü", "Basic eDp5"])
def test_all_paths_have_the_same_answer_without_the_token(endpoint: Served, path: str, header: str) -> None:
    headers = {"Authorization": header.encode().decode("latin-1")} if header else {}
    status, text = get(endpoint, path, **headers)
    assert (status, text) == (401, '{"error":"a login is required"}')


def test_a_request_with_another_host_name_is_refused(endpoint: Served) -> None:
    status, text = get(endpoint, "/progress", Authorization=f"Bearer {endpoint.token}", Host="evil.example:80")
    assert (status, "hidden-name" in text) == (421, False)


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_only_get_and_post_are_answered(endpoint: Served, method: str) -> None:
    assert get(endpoint, "/progress", method)[0] == 401
    status, text = get(endpoint, "/progress", method, Authorization=f"Bearer {endpoint.token}")
    assert (status, "hidden-name" in text) == (405, False)
    assert get(endpoint, "/progress", "POST", Authorization=f"Bearer {endpoint.token}")[0] == 405


def test_silent_connections_cannot_block_a_request(monkeypatch: pytest.MonkeyPatch, endpoint: Served) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 20)
    silent = [socket.create_connection(address(endpoint)) for _ in range(24)]
    try:
        for connection in silent[:4]:
            connection.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(10) == b""
        # The server closes a silent connection to accept a request, such as that of a liveness probe.
        assert query(endpoint)["feed"] == "hidden-name"
        silent[-1].settimeout(0.1)
        with pytest.raises(TimeoutError):
            silent[-1].recv(10)
    finally:
        for connection in silent:
            connection.close()


@pytest.mark.parametrize(
    "begin", [b"", b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"]
)
def test_a_connection_whose_request_arrives_too_slowly_is_closed(
    monkeypatch: pytest.MonkeyPatch, monitor: FeedMonitor, begin: bytes
) -> None:
    monkeypatch.setattr(server, "ARRIVAL_SECONDS", 0.3)
    with serve(OwnFeed(monitor), port=0) as endpoint, socket.create_connection(address(endpoint)) as dripping:
        dripping.sendall(begin)
        dripping.settimeout(0.05)
        end = time.monotonic() + 4
        while time.monotonic() < end:
            try:
                if not begin.startswith(b"POST"):
                    dripping.sendall(b"x")
                if dripping.recv(1000) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return
    pytest.fail("the connection is still open")


SMUGGLED = b"GET /api/feeds HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 4\r\nContent-Length: 44",
        b"Content-Length: 4\r\nTransfer-Encoding: xchunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        b"Transfer-Encoding : chunked",
        b"Content-Length: +4",
        b"Content-Length: 4\r\nHost: other",
    ],
)
def test_a_request_of_ambiguous_length_ends_the_connection(endpoint: Served, head: bytes) -> None:
    with socket.create_connection(address(endpoint), timeout=10) as connection:
        connection.sendall(b"POST /progress HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n\r\n" + SMUGGLED)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith((b"HTTP/1.0 401 ", b"HTTP/1.0 421 ")), answer
    assert answer.count(b"HTTP/1") == 1


@pytest.mark.parametrize(
    "target", ["//api/feeds", "/api//feeds", "http://evil.example/api/feeds", "/%61pi/feeds", "/api/feeds/", "/login/"]
)
@pytest.mark.parametrize("upgrade", ["", "Connection: Upgrade\r\nUpgrade: websocket\r\n"])
def test_an_unusual_path_also_requires_the_token(endpoint: Served, target: str, upgrade: str) -> None:
    with socket.create_connection(address(endpoint), timeout=10) as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{upgrade}\r\n".encode())
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(65536).startswith(b"HTTP/1.0 401 ")


def test_the_endpoint_survives_bytes_that_are_not_http(endpoint: Served) -> None:
    with socket.create_connection(address(endpoint)) as connection:
        connection.sendall(b"\x16\x03\x01\x00\xff\x00" * 50 + b"\r\n\r\n")
        connection.settimeout(6)
        connection.recv(1000)
    with socket.create_connection(address(endpoint)) as connection:
        connection.settimeout(6)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000)
        assert connection.recv(1000).startswith(b"HTTP/1.0 400")
    assert query(endpoint)["feed"] == "hidden-name"


def test_the_token_is_hidden_in_repr_and_messages(endpoint: Served) -> None:
    assert str(endpoint.token) not in repr(endpoint)
    assert str(endpoint.token) not in redacted(f"token={endpoint.token}")


def test_a_port_in_use_is_an_error(monitor: FeedMonitor, endpoint: Served) -> None:
    with pytest.raises(PortTaken), serve(OwnFeed(monitor), port=address(endpoint)[1]):
        pass


def test_a_closed_endpoint_is_unreachable(monitor: FeedMonitor) -> None:
    with serve(OwnFeed(monitor), port=0) as gone:
        pass
    with pytest.raises(Unreachable):
        ask(gone.url or "", gone.token or "")
    with pytest.raises(Unreachable):
        ask("http://127.0.0.1:1", "x")


def test_the_probe_port_answers_only_probes_and_scrapes_without_the_token() -> None:
    monitor = FeedMonitor("taxi")
    monitor.begin(sink="iceberg lake.nyc.trips", fence=None)
    feed = OwnFeed(monitor, settings=MetricSettings(no_commit_seconds=600.0))
    with serve(feed, probe_port=0) as served:
        assert served.probe_port
        with httpx.Client(base_url=f"http://127.0.0.1:{served.probe_port}") as asking:
            # A kubelet sends the pod's address as the host.
            for host in (f"127.0.0.1:{served.probe_port}", "10.1.2.3:8081", "localhost"):
                for path in ("/health/live", "/health/ready", "/health", "/metrics"):
                    assert asking.get(path, headers={"Host": host}).status_code == 200
            assert asking.get("/health/live", headers={"Host": "evil.example"}).status_code == 421
            for path in ("/", "/api/feeds", "/progress", "/history", "/login", "/static/app.js"):
                assert asking.get(path).status_code == 401
            for path in ("/health/live", "/metrics", "/api/feeds/taxi/actions"):
                assert asking.post(path, json={"action": "stop"}).status_code == 401
            assert "lakefeed_feed_up" in asking.get("/metrics").text
    monitor.ended(ValueError())
    with serve(feed, probe_port=0) as served:
        assert httpx.get(f"http://127.0.0.1:{served.probe_port}/health/live").status_code == 503
