"""Serve HTTP in a thread of this process, and forward requests to another server."""

import http.client
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from lakefeed_local.part import LOOPBACK
from tests.support.servers.tls_proxy import linger

JSON = {"content-type": "application/json"}
OF_A_CONNECTION = {"connection", "expect", "transfer-encoding", "keep-alive"}


def ask(
    address: str, method: str, path: str, headers: Mapping[str, str], body: bytes | None
) -> tuple[int, dict[str, str], bytes]:
    """Send a request to a server; return the status, the headers and the body of its answer."""
    connection = http.client.HTTPConnection(address, timeout=120)
    try:
        connection.request(method, path, body=body or None, headers=dict(headers))
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    finally:
        connection.close()


class Handler(BaseHTTPRequestHandler):
    """Answers all requests by ``answer``."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self, body: bytes) -> None:
        """Answer a request with this body."""
        raise NotImplementedError

    def do_GET(self) -> None:
        self.answer(self.rfile.read(int(self.headers.get("content-length") or 0)))

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 (names of the base class)

    def forward(
        self, address: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Send the request to a server, with new headers if given; return its answer as ``ask`` does."""
        given = dict(self.headers.items()) if headers is None else headers
        sent = {name: value for name, value in given.items() if name.lower() not in OF_A_CONNECTION}
        return ask(address, self.command, self.path, sent, body)

    def send(self, status: int, body: bytes, headers: Mapping[str, str] = JSON) -> None:
        """Send an answer; an answer to HEAD keeps the Content-Length of its headers."""
        given = {name: value for name, value in headers.items() if name not in OF_A_CONNECTION}
        if self.command != "HEAD" or "content-length" not in given:
            given["content-length"] = str(len(body))
        self.send_response_only(status)
        for name, value in given.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing, because tests kill clients, and use clients with wrong certificates or none."""
        linger(request)


@contextmanager
def serving(handler: type[Handler], context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serve until the block ends; yield the port."""
    server = _Server((LOOPBACK, 0), handler)
    if context is not None:
        # The handshake runs in the connection's thread, so that a slow client does not block the accepting thread.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
