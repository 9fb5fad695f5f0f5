"""Receivers of notifications: an HTTP server that records requests, and a mail server with TLS and a login."""

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default as modern
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from lakefeed_testing.schemas import HttpAnswer, HttpRequest, serve_http
from tests.support.clock import until


@dataclass
class Hook:
    """The requests that a web server has received."""

    url: str = ""
    bodies: list[Any] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def wait(self, count: int, *, seconds: float = 20) -> list[Any]:
        """Wait for `count` requests, and return their bodies."""
        until(lambda: len(self.bodies) >= count, seconds=seconds)
        return self.bodies


@contextmanager
def web_hook(*statuses: int, answer: bytes = b"ok") -> Iterator[Hook]:
    """Run a web server that answers with these statuses in order, and then repeats the last status."""
    hook, left = Hook(), list(statuses) or [200]

    def take(request: HttpRequest) -> HttpAnswer:
        status = left.pop(0) if len(left) > 1 else left[0]
        hook.paths.append(request.path)
        hook.headers.append(dict(request.headers))
        hook.bodies.append(json.loads(request.body))
        return HttpAnswer(status, answer)

    with serve_http(take) as hook.url:
        yield hook


class Mailbox(Controller):
    """A mail server on this machine that records mails and successful logins."""

    def __init__(self, *, certificate: tuple[Path, Path] | None, security: str, password: str | None) -> None:
        self.mails: list[EmailMessage] = []
        self.recipients: list[list[str]] = []
        self.logins: list[str] = []
        self._password = password
        vars(self)["handle_DATA"] = self.keep  # aiosmtpd calls the handler of this name.
        context = None
        if certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*certificate)
        starttls = context if security == "starttls" else None
        super().__init__(
            self,
            hostname="127.0.0.1",
            port=0,
            ssl_context=context if security == "tls" else None,
            tls_context=starttls,
            require_starttls=starttls is not None,
            authenticator=self._log_in if password is not None else None,
            auth_required=password is not None and starttls is not None,
            # aiosmtpd cannot know that the connection is encrypted if TLS begins with the first byte.
            auth_require_tls=starttls is not None,
        )

    def _log_in(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        is_right = data.password.decode() == self._password
        if is_right:
            self.logins.append(data.login.decode())
        return AuthResult(success=is_right, handled=False)

    async def keep(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        mail = BytesParser(EmailMessage, policy=modern).parsebytes(envelope.content)
        self.recipients.append(list(envelope.rcpt_tos))
        self.mails.append(mail)
        return "250 taken"

    def _trigger_server(self) -> None:
        # The server listens on port 0, so only the socket knows the actual port.
        server: Any = self.server
        self.port = server.sockets[0].getsockname()[1]
        trigger: Any = super()._trigger_server
        trigger()


@contextmanager
def mailbox(
    *, certificate: tuple[Path, Path] | None = None, security: str = "none", password: str | None = None
) -> Iterator[Mailbox]:
    server = Mailbox(certificate=certificate, security=security, password=password)
    server.start()
    try:
        yield server
    finally:
        server.stop()
