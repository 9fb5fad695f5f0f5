"""Add TLS to a server that has none, as an ingress does: a proxy that forwards bytes in both directions."""

import contextlib
import os
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lakefeed_local.part import LOOPBACK


@dataclass
class TlsProxy:
    """A running proxy.

    Attributes:
        port: the port that the proxy listens on.
        accepts: whether a request with this header ``Authorization`` may pass; None forwards all bytes unread.
        refused: the number of requests answered with 401.
    """

    port: int
    accepts: Callable[[str], bool] | None = None
    refused: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def tls_proxy(
    behind: int, context: ssl.SSLContext, *, accepts: Callable[[str], bool] | None = None
) -> Iterator[TlsProxy]:
    """Run a proxy in front of a port of the loopback interface until the block ends."""
    listener = socket.create_server((LOOPBACK, 0), backlog=128)
    proxy = TlsProxy(port=listener.getsockname()[1], accepts=accepts)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=_serve, args=(proxy, client, context, behind), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield proxy
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _serve(proxy: TlsProxy, client: socket.socket, context: ssl.SSLContext, behind: int) -> None:
    with contextlib.suppress(OSError), client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with (
            context.wrap_socket(client, server_side=True, do_handshake_on_connect=False) as tls,
            shaken_hands(tls),
            socket.create_connection((LOOPBACK, behind)) as server,
        ):
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            first = b"" if proxy.accepts is None else _head(tls)
            if proxy.accepts is not None:
                if not proxy.accepts(_authorization(first)):
                    with proxy.lock:
                        proxy.refused += 1
                    tls.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    return
                # Allow one request per connection, so that the proxy checks all of them.
                first = re.sub(rb"\r\n(?i:connection):[^\r]*", b"", first)
                first = first.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
            server.sendall(first)
            back = threading.Thread(target=_copy, args=(server, tls), daemon=True)
            back.start()
            _copy(tls, server)
            back.join()


@contextmanager
def shaken_hands(tls: ssl.SSLSocket) -> Iterator[None]:
    """Do the TLS handshake; if it is refused, wait until the client disconnects, so that it receives the alert."""
    try:
        tls.do_handshake()
    except ssl.SSLError:
        linger(tls)
        raise
    yield


def linger(connection: socket.socket) -> None:
    """Read the remaining bytes, because closing a socket with unread bytes would lose the alert to the client."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as plain:
        plain.settimeout(5)
        plain.shutdown(socket.SHUT_WR)
        while plain.recv(1 << 16):
            pass


def _head(tls: ssl.SSLSocket) -> bytes:
    text = b""
    while b"\r\n\r\n" not in text:
        received = tls.recv(65536)
        if not received:
            raise ConnectionResetError
        text += received
    return text


def _authorization(head: bytes) -> str:
    found = re.search(rb"\r\n(?i:authorization): *([^\r]*)", head)
    return found[1].decode() if found else ""


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):
        while received := source.recv(1 << 18):
            target.sendall(received)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
