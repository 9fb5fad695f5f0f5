"""One HTTP exchange that ends: within a deadline, and a size. With the standard library alone.

The timeout of a socket is one of each read: a server that sends a byte a second would hold the caller for ever, and one
that never ends would fill the memory.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Response:
    """What a server has answered.

    Attributes:
        status: of HTTP.
        body: all of it.
    """

    status: int
    body: bytes


def exchange(
    method: str,
    url: str,
    *,
    seconds: float,
    headers: Mapping[str, str],
    body: bytes | None = None,
    most_bytes: int = MOST_BYTES,
    context: ssl.SSLContext | None = None,
) -> Response:
    """Asks, and waits for the whole answer. Redirects are not followed: they would take headers along.

    Args:
        method: of HTTP.
        url: with ``http://`` or ``https://``.
        seconds: for all of it, from the connection to the last byte.
        headers: of the request.
        body: of the request.
        most_bytes: of the answer's body.
        context: for ``https://``. Default: trusts what the system trusts.

    Raises:
        TimeoutError: the answer is not whole in time.
        OSError: no server answers, or the connection breaks.
        http.client.HTTPException: what answers is no HTTP, or too large.
        ValueError: the address cannot be used.
    """
    parts = urlsplit(url)
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    with _Deadline(seconds) as deadline:
        try:
            connection = _connected(parts.scheme, parts.hostname or "", parts.port, deadline, context)
            try:
                connection.request(method, path, body=body, headers=dict(headers))
                answer = connection.getresponse()
                text = answer.read(most_bytes + 1)
                if len(text) <= most_bytes and answer.length and method != "HEAD":
                    raise http.client.IncompleteRead(text, answer.length)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException):
            deadline.check()
            raise
        deadline.check()
    if len(text) > most_bytes:
        raise http.client.HTTPException(f"the answer has more than {most_bytes} bytes")
    return Response(answer.status, text)


def _connected(
    scheme: str, host: str, port: int | None, deadline: _Deadline, context: ssl.SSLContext | None
) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    connection = kind(host, port, timeout=deadline.seconds)
    sock = socket.create_connection((connection.host, connection.port), timeout=deadline.seconds)
    try:
        deadline.watch(sock)
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if scheme == "https":
            trusting = context or ssl.create_default_context()
            wrapped = trusting.wrap_socket(sock, server_hostname=connection.host, do_handshake_on_connect=False)
            sock = wrapped
            deadline.watch(wrapped)
            wrapped.do_handshake()
    except BaseException:
        sock.close()
        raise
    connection.sock = sock
    return connection


class _Deadline:
    """Shuts a socket down when the time is over, which ends every wait for it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._over = False
        self._sock: socket.socket | None = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> _Deadline:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()

    def watch(self, sock: socket.socket) -> None:
        """Makes it the socket that is shut down; at once, if the time is over."""
        with self._lock:
            self._sock = sock
        if self._over:
            self._end()

    def check(self) -> None:
        """Raises TimeoutError if the time is over."""
        if self._over:
            raise TimeoutError(f"no whole answer within {self.seconds:g} s")

    def _end(self) -> None:
        with self._lock:
            self._over = True
            if self._sock is not None:
                plain: Any = socket.socket.shutdown  # Not TLS's own: it would change the object under its reader.
                with suppress(OSError):
                    plain(self._sock, socket.SHUT_RDWR)
