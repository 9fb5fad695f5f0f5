"""A server that accepts connections and misbehaves: it sends nothing, nonsense, or bytes without end."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Literal

Manner = Literal["silent", "drip", "drip_headers", "endless", "huge", "cut", "garbage", "redirect", "error", "busy"]

_OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_NOTHING = b"Content-Length: 2\r\n\r\n{}"
_WHOLE: dict[str, bytes] = {
    "cut": _OK + b'Content-Length: 1000\r\n\r\n{"schema": "',
    "garbage": bytes(range(256)) * 16,
    "redirect": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n" + _NOTHING,
    "error": b"HTTP/1.1 500 Internal Server Error\r\n" + _NOTHING,
    "busy": b"HTTP/1.1 429 Too Many Requests\r\n" + _NOTHING,
}


@contextmanager
def misbehaving(manner: Manner) -> Iterator[str]:
    """Run a server with this misbehaviour; yield its ``host:port``."""
    stop = threading.Event()
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        listening.settimeout(0.1)
        running = threading.Thread(target=_serve, args=(listening, manner, stop), daemon=True)
        running.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            stop.set()
            running.join()


def _serve(listening: socket.socket, manner: Manner, stop: threading.Event) -> None:
    while not stop.is_set():
        with suppress(TimeoutError):
            connection, _ = listening.accept()
            threading.Thread(target=_answer, args=(connection, manner, stop), daemon=True).start()


def _answer(connection: socket.socket, manner: Manner, stop: threading.Event) -> None:
    with connection, suppress(OSError):
        connection.settimeout(0.1)
        if manner == "silent":
            stop.wait()
            return
        with suppress(TimeoutError):
            while b"\r\n\r\n" not in connection.recv(1 << 16):
                pass
        for piece in _pieces(manner):
            if stop.is_set():
                return
            _send(connection, piece, stop)


def _send(connection: socket.socket, piece: bytes, stop: threading.Event) -> None:
    """Send the whole piece, although the client may stop reading."""
    left = memoryview(piece)
    while left and not stop.is_set():
        with suppress(TimeoutError):
            left = left[connection.send(left) :]


def _pieces(manner: Manner) -> Iterator[bytes]:
    if manner in _WHOLE:
        yield _WHOLE[manner]
    elif manner == "drip":
        yield _OK + b"Content-Length: 100000\r\n\r\n"
        while True:
            yield b" "
            time.sleep(0.02)
    elif manner == "drip_headers":
        yield _OK
        while True:
            yield b"X: y\r\n"
            time.sleep(0.02)
    elif manner == "endless":
        yield _OK + b"Transfer-Encoding: chunked\r\n\r\n"
        while True:
            yield b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    else:
        yield _OK + b"Content-Length: 1000000000\r\n\r\n"
        while True:
            yield b" " * 0x10000
