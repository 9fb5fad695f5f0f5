"""The driver's endpoint: on this machine, with the token, and bounded."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from lakefeed.errors import ConfigError, PortTaken, Unreachable
from lakefeed.messages.redaction import redacted
from lakefeed.monitor.endpoint import MOST_CONNECTIONS, Endpoint, ask, serving
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.model import FinishedBatch


@pytest.fixture
def monitor() -> FeedMonitor:
    found = FeedMonitor("hidden-name")
    found.begin(sink="iceberg a.b.c", fence=None)
    found.finish(FinishedBatch(batch_id=3, finished_at=time.time(), seconds=1.0, records=5))
    return found


@pytest.fixture
def endpoint(monitor: FeedMonitor) -> Iterator[Endpoint]:
    with serving(monitor) as running:
        yield running


def get(endpoint: Endpoint, path: str, **headers: str) -> tuple[int, str]:
    parts = urlsplit(endpoint.url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=5)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_progress_history_and_health_with_the_token(endpoint: Endpoint) -> None:
    progress = ask(endpoint.url, endpoint.token)
    assert (progress["feed"], progress["last_batch"]["batch"]) == ("hidden-name", 3)
    history = ask(endpoint.url, endpoint.token, "/history?most=10&since=nan")
    assert [point["batch"] for point in history["points"]] == [3]
    assert ask(endpoint.url, endpoint.token, "/health")["live"] is True


def test_a_failed_driver_is_not_healthy(endpoint: Endpoint, monitor: FeedMonitor) -> None:
    monitor.ended(ValueError())
    status, text = get(endpoint, "/health", Authorization=f"Bearer {endpoint.token}")
    assert (status, json.loads(text)["live"]) == (503, False)


@pytest.mark.parametrize("path", ["/", "/progress", "/health", "/history", "/no-such-page"])
@pytest.mark.parametrize("header", ["", "Bearer ", "Bearer wrong", "Bearer ü", "Basic eDp5"])
def test_without_the_token_nothing_is_said(endpoint: Endpoint, path: str, header: str) -> None:
    headers = {"Authorization": header.encode().decode("latin-1")} if header else {}
    status, text = get(endpoint, path, **headers)
    assert status == 401
    assert "hidden-name" not in text


def test_another_name_for_this_machine_is_refused(endpoint: Endpoint) -> None:
    status, text = get(endpoint, "/progress", Authorization=f"Bearer {endpoint.token}", Host="evil.example:80")
    assert (status, "hidden-name" in text) == (401, False)


def test_only_get_is_answered(endpoint: Endpoint) -> None:
    parts = urlsplit(endpoint.url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=5)
    connection.request("POST", "/progress", body=b"x", headers={"Authorization": f"Bearer {endpoint.token}"})
    assert connection.getresponse().status == 501
    connection.close()


def test_many_silent_connections_are_bounded(endpoint: Endpoint) -> None:
    parts = urlsplit(endpoint.url)
    address = (parts.hostname or "", parts.port or 0)
    silent = [socket.create_connection(address) for _ in range(MOST_CONNECTIONS + 4)]
    try:
        # The last ones are closed at once, the first ones after their time.
        silent[-1].settimeout(5)
        assert silent[-1].recv(10) == b""
    finally:
        for connection in silent:
            connection.close()
    until = time.monotonic() + 10
    while True:
        try:
            assert ask(endpoint.url, endpoint.token)["feed"] == "hidden-name"
            return
        except Unreachable:
            assert time.monotonic() < until


def test_clients_that_send_a_byte_at_a_time_are_cut_off(monkeypatch: pytest.MonkeyPatch, monitor: FeedMonitor) -> None:
    monkeypatch.setattr("lakefeed.monitor.endpoint.CONNECTION_SECONDS", 0.5)
    with serving(monitor) as endpoint:
        parts = urlsplit(endpoint.url)
        with socket.create_connection((parts.hostname or "", parts.port or 0)) as dripping:
            dripping.settimeout(0.05)
            end = time.monotonic() + 4  # Below the time for one read.
            while time.monotonic() < end:
                try:
                    dripping.sendall(b"x")
                    if dripping.recv(1) == b"":
                        return
                except TimeoutError:
                    continue
                except OSError:
                    return
    pytest.fail("the connection is still open")


def test_garbage_is_no_harm(endpoint: Endpoint) -> None:
    parts = urlsplit(endpoint.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0)) as connection:
        connection.sendall(b"\x16\x03\x01\x00\xff\x00" * 50 + b"\r\n\r\n")
        connection.settimeout(6)
        connection.recv(1000)
    assert ask(endpoint.url, endpoint.token)["feed"] == "hidden-name"


def test_the_token_is_a_secret(endpoint: Endpoint) -> None:
    assert endpoint.token not in repr(endpoint)
    assert endpoint.token not in redacted(f"token={endpoint.token}")


def test_other_addresses_are_refused_until_there_is_a_login(monitor: FeedMonitor) -> None:
    for host in ("0.0.0.0", "::1"):
        with pytest.raises(ConfigError, match="this machine alone"), serving(monitor, host=host):
            pass


def test_a_taken_port_is_named(monitor: FeedMonitor, endpoint: Endpoint) -> None:
    with pytest.raises(PortTaken), serving(monitor, port=urlsplit(endpoint.url).port or 0):
        pass


def test_an_endpoint_that_has_gone_is_unreachable(monitor: FeedMonitor) -> None:
    with serving(monitor) as gone:
        pass
    with pytest.raises(Unreachable):
        ask(gone.url, gone.token, seconds=1)
    with pytest.raises(Unreachable):
        ask("http://127.0.0.1:1", "x", seconds=1)
