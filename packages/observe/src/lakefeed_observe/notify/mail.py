"""Sends one mail within a time. smtplib has a timeout for each read alone: a slow server would hold it for ever."""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.message import EmailMessage

from lakefeed.clients.sockets import connect
from lakefeed_observe.notify.settings import Mail

_OWN_NAME = "localhost"
"""The name that the server is greeted with; smtplib's default asks DNS for this machine's."""


def send_mail(mail: EmailMessage, settings: Mail, *, context: ssl.SSLContext | None, seconds: float) -> int:
    """Send a mail; return how many recipients the server has refused, if not all.

    Raises OSError, SMTPException or ValueError; TimeoutError if the server takes longer than ``seconds`` in all.
    """
    with _deadline(seconds) as deadline:
        client = smtplib.SMTP(local_hostname=_OWN_NAME, timeout=seconds)
        try:
            client.sock = deadline.watch(connect(settings.host, settings.server_port, seconds=seconds))
            if context is not None and settings.security == "tls":
                _encrypt(client, settings.host, context, deadline)
            _require(220, *client.getreply())
            client.ehlo_or_helo_if_needed()
            if context is not None and settings.security == "starttls":
                if not client.has_extn("starttls"):
                    raise smtplib.SMTPNotSupportedError("the server has no STARTTLS")
                _require(220, *client.docmd("STARTTLS"))
                _encrypt(client, settings.host, context, deadline)
                client.ehlo()
            if settings.user is not None and settings.password is not None:
                client.login(settings.user, settings.password.get_secret_value())
            refused = client.send_message(mail)
            with suppress(OSError, smtplib.SMTPException):
                client.quit()
            return len(refused)
        finally:
            client.close()


class _Deadline:
    """Ends every wait for the watched sockets once the time is over."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.is_over = False

    def watch(self, sock: socket.socket) -> socket.socket:
        with self._lock:
            self._sockets.append(sock)
            is_over = self.is_over
        if is_over:
            self.end()
        return sock

    def end(self) -> None:
        with self._lock:
            self.is_over = True
            sockets = tuple(self._sockets)
        for each in sockets:
            with suppress(OSError):
                # Not TLS's own: it would change the object under its reader.
                socket.socket.shutdown(each, socket.SHUT_RDWR)


@contextmanager
def _deadline(seconds: float) -> Iterator[_Deadline]:
    deadline = _Deadline()
    timer = threading.Timer(seconds, deadline.end)
    timer.daemon = True
    timer.start()
    try:
        yield deadline
    except (OSError, smtplib.SMTPException):
        if deadline.is_over:
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()


def _encrypt(client: smtplib.SMTP, host: str, context: ssl.SSLContext, deadline: _Deadline) -> None:
    """Begin TLS, and forget all that the server has said without it."""
    assert client.sock is not None  # it is connected
    encrypted = context.wrap_socket(client.sock, server_hostname=host, do_handshake_on_connect=False)
    client.sock = deadline.watch(encrypted)
    encrypted.do_handshake()
    client.file = None
    client.helo_resp = client.ehlo_resp = None
    client.esmtp_features = {}
    client.does_esmtp = False


def _require(expected: int, code: int, text: bytes) -> None:
    if code != expected:
        raise smtplib.SMTPResponseException(code, text)
