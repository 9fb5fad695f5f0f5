"""Deliver one message to one target, within a time limit: by HTTP, by SMTP, or by starting a program."""

from __future__ import annotations

import http.client
import os
import signal
import smtplib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from lakefeed.clients.http import Response, connect, exchange
from lakefeed.config import trust
from lakefeed.config.values import seconds_of
from lakefeed.errors import ConfigError
from lakefeed.messages.redaction import HIDDEN, SHORTEST_OF_FREE
from lakefeed.messages.text import json_line, one_line
from lakefeed_observe.notify.message import ALERTS_PATH, Message, body_of, mail_of
from lakefeed_observe.notify.settings import Mail, NotifyTarget, Webhook

ATTEMPT_SECONDS = 5.0
"""The time limit of one delivery over the network, also for a server that answers byte by byte."""
MOST_BYTES = 64 * 1024
_RETRIED_STATUSES = (408, 425, 429)


def deliver(
    target: NotifyTarget,
    message: Message,
    *,
    seconds: float | None = None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> str:
    """Deliver a message; return the target's answer.

    Args:
        seconds: a time limit that may shorten the target's own limit.
        is_cancelled: called while a program runs; if it returns True, the program is killed.

    Raises NotDelivered, whose text never contains a webhook's address, a password or a header.
    """
    network_seconds = min(ATTEMPT_SECONDS, seconds or ATTEMPT_SECONDS)
    if target.webhook is not None:
        return _post(target.webhook, message, seconds=network_seconds)
    if target.mail is not None:
        return _send_mail(target.mail, message, seconds=network_seconds)
    assert target.command is not None  # A target is a webhook, a mail or a command.
    command = target.command
    own = float(seconds_of(command.timeout))
    return run_program(
        command.run,
        stdin=json_line(message.as_dict()).encode(),
        variables={
            **{name: str(value) for name, value in command.environment.items()},
            "LAKEFEED_FEED": message.feed,
            "LAKEFEED_TRIGGER": message.trigger,
            "LAKEFEED_STATUS": message.status,
        },
        seconds=own if seconds is None else min(own, seconds),
        is_cancelled=is_cancelled,
    )


def _post(webhook: Webhook, message: Message, *, seconds: float) -> str:
    url = webhook.url.get_secret_value()
    if webhook.format == "alertmanager":
        parts = urlsplit(url)
        if not parts.path.endswith(ALERTS_PATH):
            url = parts._replace(path=parts.path.rstrip("/") + ALERTS_PATH).geturl()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "lakefeed",
        "Connection": "close",
        **{name: str(value) for name, value in webhook.headers.items()},
    }
    body = body_of(message, webhook.format)
    try:
        context = _context(webhook.ca_file) if url.startswith("https:") else None
        answer = exchange(
            "POST", url, seconds=seconds, headers=headers, body=body, most_bytes=MOST_BYTES, context=context
        )
    except (OSError, http.client.HTTPException, ValueError, ConfigError) as error:
        raise NotDelivered(_reason(error), is_transient=_is_transient(error)) from None
    if 200 <= answer.status < 300:
        return f"HTTP status {answer.status}{_answer_text(answer, url)}"
    is_transient = answer.status >= 500 or answer.status in _RETRIED_STATUSES
    hint = "; redirects are not followed, because another server would get the headers"
    reason = f"HTTP status {answer.status}{_answer_text(answer, url)}{hint if 300 <= answer.status < 400 else ''}"
    raise NotDelivered(reason, is_transient=is_transient)


def _answer_text(answer: Response, url: str) -> str:
    text = answer.body[:8192].decode("utf-8", "replace")
    # The answer may repeat the path, which is a secret for Slack's webhooks.
    parts = urlsplit(url)
    for part in (*parts.path.split("/"), *parts.query.split("&")):
        if len(part) >= SHORTEST_OF_FREE:
            text = text.replace(part, HIDDEN).replace(unquote(part), HIDDEN)
    line = one_line(text[:400], most=200)
    return f": {line}" if line else ""


def _send_mail(settings: Mail, message: Message, *, seconds: float) -> str:
    context = None if settings.security == "none" else _context(settings.ca_file)
    try:
        refused = send_mail(mail_of(message, settings), settings, context=context, seconds=seconds)
    except (OSError, smtplib.SMTPException, ValueError, ConfigError) as error:
        raise NotDelivered(_reason(error), is_transient=_is_transient(error)) from None
    return f"accepted for {len(settings.to) - refused} of {len(settings.to)} recipients"


def _context(ca_file: Path | None) -> ssl.SSLContext:
    return trust.client_context() if ca_file is None else ssl.create_default_context(cafile=str(ca_file))


def _is_transient(error: Exception) -> bool:
    if isinstance(error, ssl.SSLCertVerificationError | FileNotFoundError | smtplib.SMTPNotSupportedError):
        return False
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return all(400 <= code < 500 for code, _ in error.recipients.values())
    if isinstance(error, smtplib.SMTPResponseException):
        return not 500 <= error.smtp_code < 600
    return not isinstance(error, ValueError | ConfigError)


def _reason(error: Exception) -> str:
    """Return the reason as one line, without the secrets that this process knows."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return _smtp_text(*next(iter(error.recipients.values())))
    if isinstance(error, smtplib.SMTPResponseException):
        return _smtp_text(error.smtp_code, error.smtp_error)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return one_line(f"its certificate is not trusted: {error.verify_message}", most=200)
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return one_line(str(text), most=200)


def _smtp_text(code: int, text: bytes | str) -> str:
    answer = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return one_line(f"SMTP status {code}: {answer}", most=200)


_PASSED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME")
_EX_TEMPFAIL = 75
"""With this exit status of sysexits.h, a program requests another attempt."""
_TAIL_BYTES = 2000


class NotDelivered(Exception):
    """The target did not accept a message; if ``is_transient``, another attempt may succeed."""

    def __init__(self, reason: str, *, is_transient: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_transient = is_transient


def run_program(
    arguments: Sequence[str],
    *,
    stdin: bytes,
    variables: Mapping[str, str],
    seconds: float,
    is_cancelled: Callable[[], bool],
) -> str:
    """Run a program to its end, and return a sentence about its exit status.

    The program gets ``variables`` and ``_PASSED_VARIABLES`` only, because the driver's environment contains the keys of
    the object store. The program is killed after ``seconds``, or if ``is_cancelled`` returns True.

    Raises NotDelivered if the program cannot be started, exits with another status than 0, or must be killed.
    """
    own = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    try:
        process = subprocess.Popen(
            list(arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**own, **variables},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise NotDelivered(f"the program cannot be started: {reason}", is_transient=False) from None
    tail = bytearray()
    assert process.stdin is not None  # Popen has opened the streams as pipes.
    assert process.stderr is not None
    threads = [
        threading.Thread(target=_write, args=(process.stdin, stdin), daemon=True),
        threading.Thread(target=_read, args=(process.stderr, tail), daemon=True),
    ]
    for thread in threads:
        thread.start()
    is_over = _wait(process.pid, seconds, is_cancelled)
    # The process is not reaped yet, so its process group's id is not reused, and the kill hits no other process.
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    status = process.wait()
    for thread in threads:
        thread.join(0.5)
    if not is_over:
        raise NotDelivered("the program exceeded its timeout and was killed", is_transient=False)
    if status != 0:
        text = one_line(bytes(tail).decode("utf-8", "replace"), most=200)
        reason = f"the program exited with status {status}{f': {text}' if text else ''}"
        raise NotDelivered(reason, is_transient=status == _EX_TEMPFAIL)
    return "the program exited with status 0"


def _wait(pid: int, seconds: float, is_cancelled: Callable[[], bool]) -> bool:
    """Wait until a child exits, without reaping it; return False if the time is over or the wait is cancelled."""
    until = time.monotonic() + seconds
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() >= until or is_cancelled():
            return False
        time.sleep(0.02)
    return True


def _write(pipe: IO[bytes], content: bytes) -> None:
    with suppress(OSError), pipe:
        pipe.write(content)


def _read(pipe: IO[bytes], tail: bytearray) -> None:
    """Read all output, because a full pipe would block the program; keep the last bytes in ``tail``."""
    with suppress(OSError, ValueError), pipe:
        while part := os.read(pipe.fileno(), 65536):
            tail += part
            del tail[:-_TAIL_BYTES]


def send_mail(mail: EmailMessage, settings: Mail, *, context: ssl.SSLContext | None, seconds: float) -> int:
    """Send a mail; return the number of recipients that the server refuses.

    Raises OSError, SMTPException or ValueError; TimeoutError if the server takes longer than ``seconds`` in total.
    """
    with _deadline(seconds) as deadline:
        # Without local_hostname, smtplib asks DNS for this machine's name.
        client = smtplib.SMTP(local_hostname="localhost", timeout=seconds)
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
    """Shuts the watched sockets down when the time is over, which ends all reads from the sockets."""

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
                # Not the TLS socket's method: it would change the object while another thread reads from it.
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
    """Begin TLS; discard bytes that arrived before it, because an attacker may have inserted them."""
    assert client.sock is not None  # The client is connected, so it has a socket.
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
