"""HTTP exchanges that end: within a deadline, and a size. With the standard library alone.

The timeout of a socket is one of each read: a server that sends a byte a second would hold the caller for ever, and one
that never ends would fill the memory.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from lakefeed.errors import Unreachable

MOST_BYTES = 1 << 20
TIMEOUT_SECONDS = 5.0
_PAUSES_SECONDS = (0.2, 0.5)
_TRANSIENT = (ConnectionResetError, http.client.RemoteDisconnected, http.client.IncompleteRead)


class Response(NamedTuple):
    """A server's whole answer."""

    status: int
    body: bytes


def ask(
    url: str, *, server: str, headers: Mapping[str, str], timeout: float = TIMEOUT_SECONDS, body: bytes | None = None
) -> Response:
    """Get a URL, or post a form to it; retry a GET after an error of the server, or a connection that it cuts.

    Raises Unreachable, which names the ``server``, without a whole answer within ``timeout`` seconds for each attempt.
    """
    pauses = iter(_PAUSES_SECONDS if body is None else ())
    while True:
        pause = next(pauses, None)
        try:
            response = exchange("GET" if body is None else "POST", url, seconds=timeout, headers=headers, body=body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if pause is None or not isinstance(error, _TRANSIENT):
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                parts = urlsplit(url)
                raise Unreachable(
                    f"{server} does not answer: {reason}",
                    where=f"{parts.scheme}://{parts.netloc}",
                    hint="check the address and that the server runs; for the local stack: lakefeed local status",
                ) from None
        else:
            if pause is None or (response.status < 500 and response.status != 429):
                return response
        time.sleep(pause)


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
    """Send one request, and wait for the whole answer. Redirects are not followed: they would take headers along.

    All of it, from the connection to the last byte, takes at most ``seconds``. Without a ``context`` it trusts what the
    system trusts. Raises TimeoutError, OSError or http.client.HTTPException, and ValueError for a wrong address.
    """
    parts = urlsplit(url)
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    deadline = _Deadline(seconds)
    try:
        connection = _connect(parts.scheme, parts.hostname or "", parts.port, deadline, context)
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
    finally:
        deadline.cancel()
    deadline.check()
    if len(text) > most_bytes:
        raise http.client.HTTPException(f"the answer has more than {most_bytes} bytes")
    return Response(answer.status, text)


def _connect(
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
        self._timer.start()

    def watch(self, sock: socket.socket) -> None:
        """Make it the socket that is shut down; at once, if the time is over."""
        with self._lock:
            self._sock = sock
        if self._over:
            self._end()

    def check(self) -> None:
        """Raise TimeoutError if the time is over."""
        if self._over:
            raise TimeoutError(f"no whole answer within {self.seconds:g} s")

    def cancel(self) -> None:
        """End the watch."""
        self._timer.cancel()

    def _end(self) -> None:
        with self._lock:
            self._over = True
            if self._sock is not None:
                plain: Any = socket.socket.shutdown  # Not TLS's own: it would change the object under its reader.
                with suppress(OSError):
                    plain(self._sock, socket.SHUT_RDWR)
