"""No name and no address holds a caller longer than its time."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from lakefeed.clients.sockets import connect


def test_a_name_that_is_not_looked_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(30) and [])
    began = time.monotonic()
    try:
        with pytest.raises(TimeoutError, match="the name broken was not looked up"):
            connect("broken", 80, seconds=0.2)
    finally:
        over.set()
    assert time.monotonic() - began < 10


def test_all_addresses_of_a_name_have_the_time_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that is full does not answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        held = [socket.socket() for _ in range(4)]
        for each in held:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        silent = (socket.AF_INET, socket.SOCK_STREAM, 0, "", full.getsockname())
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [silent] * 30)
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            connect("many", 80, seconds=1.5)
        assert time.monotonic() - began < 10
        for each in held:
            each.close()


def test_the_next_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        refusing = gone.getsockname()
    with socket.create_server(("127.0.0.1", 0)) as server:
        found: list[Any] = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in (refusing, server.getsockname())
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with connect("two", 80, seconds=5) as sock:
            assert (sock.getpeername(), sock.gettimeout()) == (server.getsockname(), 5)


@pytest.mark.parametrize(("host", "error"), [("a" * 70 + ".example", ValueError), ("no.such.invalid", OSError)])
def test_a_name_that_is_none(host: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        connect(host, 80, seconds=20)
