"""The driver's endpoint: its progress as JSON over HTTP, on this machine only, to those who have the token.

``GET /progress`` is the feed (``FeedProgress.as_dict``), ``GET /history`` its batches as points, ``GET /health`` a
status for probes: 200, or 503 for a driver that hangs or has failed. Without the token each path is 401, and says
nothing. Python's own server is enough for a few local readers; a dashboard will bring ASGI, and take these functions.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import math
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR, socket
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from lakefeed.errors import ConfigError, PortTaken, Unreachable
from lakefeed.messages.redaction import remember
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.text import json_line

LOOPBACK = ("127.0.0.1", "localhost")
MOST_CONNECTIONS = 16
REQUEST_SECONDS = 5.0
"""For each read; ``CONNECTION_SECONDS`` for all of them, and the answer."""
CONNECTION_SECONDS = 10.0
MOST_POINTS = 2000


@dataclass(frozen=True)
class Endpoint:
    """A running endpoint; the token is no part of its text."""

    url: str
    token: str = field(repr=False)


def health(monitor: FeedMonitor) -> tuple[bool, dict[str, Any]]:
    """Return whether the driver works, and what a probe is shown."""
    progress = monitor.snapshot()
    is_live = not progress.hangs and progress.state != "failed"
    is_ready = is_live and progress.state not in ("starting", "ended")
    seconds = None if progress.last_commit_at is None else round(progress.taken_at - progress.last_commit_at, 1)
    return is_live, {
        "live": is_live,
        "ready": is_ready,
        "state": progress.state,
        "hangs": progress.hangs,
        "lag": progress.lag,
        "seconds_since_commit": seconds,
        "seconds_since_progress": round(progress.taken_at - progress.progress_at, 1),
    }


@contextmanager
def serving(monitor: FeedMonitor, *, host: str = "127.0.0.1", port: int = 0) -> Iterator[Endpoint]:
    """Serve a monitor within this block.

    Raises:
        ConfigError: the address is not of this machine alone: there is no login yet.
        PortTaken: another process listens there.
    """
    if host not in LOOPBACK:
        raise ConfigError(
            f"the endpoint has no login, and listens on this machine alone: not on {host}",
            hint="127.0.0.1; let a proxy with a login pass requests on",
        )
    token = secrets.token_urlsafe(32)
    remember([token])
    try:
        server = _Server((host, port), _handler(monitor, token))
    except OSError as error:
        raise PortTaken(f"the endpoint cannot listen: {error.strerror}", where=f"{host}:{port}") from None
    thread = threading.Thread(target=server.serve_forever, name="lakefeed-endpoint", daemon=True)
    thread.start()
    try:
        yield Endpoint(f"http://{host}:{server.server_address[1]}", token)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(REQUEST_SECONDS)


class _Server(ThreadingHTTPServer):
    """A server that takes few connections at a time, and closes the others."""

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        # HTTPServer's own asks DNS for the name of the address, which can take seconds.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        deadline = threading.Timer(CONNECTION_SECONDS, _shut, [request])
        deadline.daemon = True
        deadline.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            deadline.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that has gone is no news, and stderr is the feed's log."""


def _shut(connection: socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(SHUT_RDWR)


def _handler(monitor: FeedMonitor, token: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_SECONDS
        server_version = "lakefeed"
        sys_version = ""

        def do_GET(self) -> None:
            if not self._is_allowed():
                self._answer(401, {"error": "a token is required"})
                return
            parts = urlsplit(self.path)
            if parts.path == "/progress":
                self._answer(200, monitor.snapshot().as_dict())
            elif parts.path == "/history":
                query = parse_qs(parts.query)
                most = min(MOST_POINTS, max(1, int(_number(query.get("most"), 500))))
                self._answer(200, history(monitor, since=_number(query.get("since"), 0.0), most=most))
            elif parts.path == "/health":
                is_live, document = health(monitor)
                self._answer(200 if is_live else 503, document)
            else:
                self._answer(404, {"error": "there is no such page"})

        def _is_allowed(self) -> bool:
            # Another name for this machine comes from a page in a browser that was given it by its own DNS.
            name = urlsplit(f"//{self.headers.get('Host', '')}").hostname
            given = self.headers.get("Authorization", "")
            return name in LOOPBACK and hmac.compare_digest(given.encode(), f"Bearer {token}".encode())

        def _answer(self, status: int, document: Any) -> None:
            body = json_line(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Log nothing: stderr is the feed's log."""

    return Handler


def history(monitor: FeedMonitor, *, since: float = 0.0, most: int = 500) -> dict[str, Any]:
    """Return the history as points, and the newest batches whole."""
    return {
        "points": [point.as_dict() for point in monitor.points(since=since, most=most)],
        "batches": [batch.as_dict() for batch in monitor.batches()],
    }


def _number(given: list[str] | None, default: float) -> float:
    with contextlib.suppress(ValueError, IndexError):
        number = float((given or [])[0])
        return number if math.isfinite(number) else default
    return default


def ask(url: str, token: str, path: str = "/progress", *, seconds: float = 3.0) -> dict[str, Any]:
    """Ask a driver's endpoint; Unreachable if it does not answer in time, or not with such a document."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=seconds)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}", "Connection": "close"})
        answer = connection.getresponse()
        document = json.loads(answer.read())
        if answer.status not in (200, 503) or not isinstance(document, dict):
            raise Unreachable(f"the driver's endpoint answers with status {answer.status}", where=url)
        return document
    except (OSError, HTTPException, ValueError) as error:
        raise Unreachable(f"the driver's endpoint does not answer: {type(error).__name__}", where=url) from None
    finally:
        connection.close()
