"""Serve HTTP in a thread of this process, on the loopback interface."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """A request; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class HttpAnswer:
    """An answer; the server adds ``Content-Length``."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def serve_http(answer: Callable[[HttpRequest], HttpAnswer], *, port: int = 0) -> Iterator[str]:
    """Answer requests with a function until the block ends; yield the URL without a final slash.

    The server calls ``answer`` in one thread per request. Port 0 stands for a free port.
    """

    class Handler(BaseHTTPRequestHandler):
        wbufsize = -1  # Send an answer as one packet, because Nagle's algorithm would delay a second one.

        def handle_one_request(self) -> None:
            # Accept any method; the base class would require a function per method, such as do_GET.
            self.raw_requestline = self.rfile.readline(65537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            given = answer(
                HttpRequest(
                    method=self.command,
                    path=self.path,
                    headers={name.lower(): value for name, value in self.headers.items()},
                    body=self.rfile.read(int(self.headers.get("Content-Length", 0))),
                )
            )
            self.send_response(given.status)
            for name, value in {"Content-Length": str(len(given.body)), **given.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(given.body)
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the name of the base class)
            """Write no line per request to stderr."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
