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

from lakefeed.clients.sockets import connect
from lakefeed.config.trust import client_context, explain
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
        except ssl.SSLError as error:
            parts = urlsplit(url)
            raise explain(error, server=server, where=f"{parts.scheme}://{parts.netloc}") from None
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

    All of it, from the connection to the last byte, takes at most ``seconds``. Without a ``context`` it trusts
    what this process does: ``lakefeed.config.trust``. Raises TimeoutError, OSError or http.client.HTTPException, and
    ValueError for a wrong address.
    """
    parts = urlsplit(url)
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    until = time.monotonic() + seconds
    try:
        connection = _connect(parts.scheme, parts.hostname or "", parts.port, seconds, context)
        timer = threading.Timer(max(0.0, until - time.monotonic()), _shut_down, (connection.sock,))
        timer.daemon = True
        timer.start()
        try:
            if isinstance(connection.sock, ssl.SSLSocket):
                connection.sock.do_handshake()
            connection.request(method, path, body=body, headers=dict(headers))
            answer = connection.getresponse()
            text = answer.read(most_bytes + 1)
            if len(text) <= most_bytes and answer.length and method != "HEAD":
                raise http.client.IncompleteRead(text, answer.length)
        finally:
            timer.cancel()
            connection.close()
    except (OSError, http.client.HTTPException):
        if time.monotonic() < until:
            raise
    # What a server sends without a length looks whole when the time is over.
    if time.monotonic() >= until:
        raise TimeoutError(f"no whole answer within {seconds:g} s")
    if len(text) > most_bytes:
        raise http.client.HTTPException(f"the answer has more than {most_bytes} bytes")
    return Response(answer.status, text)


def _connect(
    scheme: str, host: str, port: int | None, seconds: float, context: ssl.SSLContext | None
) -> http.client.HTTPConnection:
    """Open a connection, whose TLS handshake is still to be done."""
    kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    connection = kind(host, port, timeout=seconds)
    sock = connect(connection.host, connection.port, seconds=seconds)
    try:
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if scheme == "https":
            trusting = context or client_context()
            sock = trusting.wrap_socket(sock, server_hostname=connection.host, do_handshake_on_connect=False)
    except BaseException:
        sock.close()
        raise
    connection.sock = sock
    return connection


def _shut_down(sock: socket.socket) -> None:
    """End every wait for a socket."""
    plain: Any = socket.socket.shutdown  # Not TLS's own: it would change the object under its reader.
    with suppress(OSError):
        plain(sock, socket.SHUT_RDWR)
