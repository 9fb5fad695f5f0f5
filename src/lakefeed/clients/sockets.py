"""Connections that are open within a time in all: for looking up a name Python has no limit of its own."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

_LEAST_SECONDS = 1.0
"""So long each address of a host is tried at least, while there is time."""

_Address = tuple[Any, ...]


def connect(host: str, port: int, *, seconds: float) -> socket.socket:
    """Connect to the first address of a host that answers; the socket waits ``seconds`` for each answer from then on.

    The name, and all its addresses, have so many seconds together. Raises TimeoutError or OSError, and ValueError for
    a host that is no name.
    """
    until = time.monotonic() + seconds
    addresses = _addresses(host, port, seconds=seconds)
    reason: OSError = TimeoutError(f"{host} does not answer within {seconds:g} s")
    for number, (family, kind, protocol, _, address) in enumerate(addresses):
        left = until - time.monotonic()
        if left <= 0:
            break
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(min(left, max(_LEAST_SECONDS, left / (len(addresses) - number))))
            sock.connect(address)
            sock.settimeout(seconds)
        except OSError as error:
            sock.close()
            reason = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise reason


def _addresses(host: str, port: int, *, seconds: float) -> list[_Address]:
    """Look up a name in a thread of its own, which is left behind when the time is over."""
    found: list[_Address] = []
    failed: list[Exception] = []

    def look_up() -> None:
        try:
            found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, ValueError) as error:
            failed.append(error)

    thread = threading.Thread(target=look_up, name="lakefeed-look-up", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError(f"the name {host} was not looked up within {seconds:g} s")
    if failed:
        raise failed[0]
    return found
