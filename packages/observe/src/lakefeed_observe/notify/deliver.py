"""Delivers one message to one target, within a time: by HTTP, by SMTP, or by starting a program."""

from __future__ import annotations

import http.client
import smtplib
import ssl
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lakefeed.clients.http import Response, exchange
from lakefeed.config import trust
from lakefeed.config.values import seconds_of
from lakefeed.errors import ConfigError
from lakefeed.messages.redaction import HIDDEN, SHORTEST_OF_FREE
from lakefeed.monitor.text import json_line, one_line
from lakefeed_observe.notify.formats import ALERTS_PATH, body_of, mail_of
from lakefeed_observe.notify.mail import send_mail
from lakefeed_observe.notify.message import Message
from lakefeed_observe.notify.program import NotDelivered, run_program
from lakefeed_observe.notify.settings import Mail, NotifyTarget, Webhook

ATTEMPT_SECONDS = 5.0
"""One attempt over the network takes no longer, whatever the server does."""
MOST_BYTES = 64 * 1024
_TRY_LATER = (408, 425, 429)
_MOST_SAID = 8192


def deliver(
    target: NotifyTarget,
    message: Message,
    *,
    seconds: float | None = None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> str:
    """Deliver a message; return what the target has answered.

    Args:
        seconds: the most that it may take, if less than the target's own time.
        is_cancelled: asked while a program runs, which is killed then.

    Raises NotDelivered; no text of it has the address of a webhook, a password or a header.
    """
    if target.webhook is not None:
        return _post(target.webhook, message, seconds=min(ATTEMPT_SECONDS, seconds or ATTEMPT_SECONDS))
    if target.mail is not None:
        return _send_mail(target.mail, message, seconds=min(ATTEMPT_SECONDS, seconds or ATTEMPT_SECONDS))
    assert target.command is not None  # a target is one of three kinds
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
        return f"HTTP status {answer.status}{_said(answer, url)}"
    is_transient = answer.status >= 500 or answer.status in _TRY_LATER
    hint = "; a redirect is not followed, it would take the headers along" if 300 <= answer.status < 400 else ""
    raise NotDelivered(f"HTTP status {answer.status}{_said(answer, url)}{hint}", is_transient=is_transient)


def _said(answer: Response, url: str) -> str:
    said = answer.body[:_MOST_SAID].decode("utf-8", "replace")
    # An answer that repeats what was asked for has the secret part of the address alone.
    parts = urlsplit(url)
    for part in (*parts.path.split("/"), *parts.query.split("&")):
        if len(part) >= SHORTEST_OF_FREE:
            said = said.replace(part, HIDDEN).replace(unquote(part), HIDDEN)
    text = one_line(said[:400], most=200)
    return f": {text}" if text else ""


def _send_mail(settings: Mail, message: Message, *, seconds: float) -> str:
    context = None if settings.security == "none" else _context(settings.ca_file)
    try:
        refused = send_mail(mail_of(message, settings), settings, context=context, seconds=seconds)
    except (OSError, smtplib.SMTPException, ValueError, ConfigError) as error:
        raise NotDelivered(_reason(error), is_transient=_is_transient(error)) from None
    accepted = len(settings.to) - refused
    return f"accepted for {accepted} of {len(settings.to)} recipients"


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
    """Return why a message did not arrive; secrets that this process knows are hidden in it."""
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
    said = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return one_line(f"SMTP status {code}: {said}", most=200)
