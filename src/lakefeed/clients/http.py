"""Send HTTP requests with a deadline and a maximum size of the answer, using only the standard library.

A socket's timeout applies to a single read: a server that sends one byte a second would keep the caller waiting
forever, and a server that never stops sending would fill the memory.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import quote_plus, urlencode, urlsplit

from pydantic import SecretStr

from lakefeed.config.trust import client_context, explain
from lakefeed.errors import AccessDenied, ConfigError, Unreachable

MOST_BYTES = 1 << 20
TIMEOUT_SECONDS = 5.0
_PAUSES_SECONDS = (0.2, 0.5)
_TRANSIENT = (ConnectionResetError, http.client.RemoteDisconnected, http.client.IncompleteRead)


class Response(NamedTuple):
    status: int
    body: bytes


def ask(
    url: str, *, server: str, headers: Mapping[str, str], timeout: float = TIMEOUT_SECONDS, body: bytes | None = None
) -> Response:
    """Get a URL, or post a form to it; repeat a GET after a server error or a lost connection.

    Raises Unreachable, which names the ``server``, if the last attempt gets no complete answer within ``timeout``
    seconds.
    """
    pauses = iter(_PAUSES_SECONDS if body is None else ())
    while True:
        pause = next(pauses, None)
        try:
            response = exchange("GET" if body is None else "POST", url, seconds=timeout, headers=headers, body=body)
        except ssl.SSLError as error:
            raise explain(error, server=server, where=_origin(url)) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            if pause is None or not isinstance(error, _TRANSIENT):
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                hint = "check the address and that the server runs; for the local stack: lakefeed local status"
                raise Unreachable(f"{server} does not answer: {reason}", where=_origin(url), hint=hint) from None
        else:
            if pause is None or (response.status < 500 and response.status != 429):
                return response
        time.sleep(pause)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def exchange(
    method: str,
    url: str,
    *,
    seconds: float,
    headers: Mapping[str, str],
    body: bytes | None = None,
    most_bytes: int = MOST_BYTES,
    context: ssl.SSLContext | None = None,
) -> Response:
    """Send one request, and return the complete answer.

    Redirects are not followed, because their target would get the headers, which may contain a login. The exchange,
    from connecting to the last byte, takes at most ``seconds``. Without a ``context``, the certificate authorities of
    this process are trusted (``lakefeed.config.trust``). Raises TimeoutError, OSError or http.client.HTTPException, and
    ValueError for an invalid address.
    """
    parts = urlsplit(url)
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    until = time.monotonic() + seconds
    try:
        connection = _connect(parts.scheme, parts.hostname or "", parts.port, seconds, context)
        timer = threading.Timer(max(0.0, until - time.monotonic()), _shut_down, (connection.sock,))
        timer.daemon = True
        timer.start()
        try:
            if isinstance(connection.sock, ssl.SSLSocket):
                connection.sock.do_handshake()
            connection.request(method, path, body=body, headers=dict(headers))
            answer = connection.getresponse()
            text = answer.read(most_bytes + 1)
            if len(text) <= most_bytes and answer.length and method != "HEAD":
                raise http.client.IncompleteRead(text, answer.length)
        finally:
            timer.cancel()
            connection.close()
    except (OSError, http.client.HTTPException):
        if time.monotonic() < until:
            raise
    # At the deadline, the timer closes the socket. An answer without a length then looks complete even if it was cut.
    if time.monotonic() >= until:
        raise TimeoutError(f"no complete answer within {seconds:g} s")
    if len(text) > most_bytes:
        raise http.client.HTTPException(f"the answer has more than {most_bytes} bytes")
    return Response(answer.status, text)


def _connect(
    scheme: str, host: str, port: int | None, seconds: float, context: ssl.SSLContext | None
) -> http.client.HTTPConnection:
    """Return an open HTTP connection; with https, the caller does the TLS handshake."""
    kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    connection = kind(host, port, timeout=seconds)
    sock = connect(connection.host, connection.port, seconds=seconds)
    try:
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if scheme == "https":
            trusting = context or client_context()
            sock = trusting.wrap_socket(sock, server_hostname=connection.host, do_handshake_on_connect=False)
    except BaseException:
        sock.close()
        raise
    connection.sock = sock
    return connection


def _shut_down(sock: socket.socket) -> None:
    """Shut a socket down, so that a thread that waits for data from it continues."""
    plain: Any = socket.socket.shutdown  # SSLSocket.shutdown would disturb the reading thread.
    with suppress(OSError):
        plain(sock, socket.SHUT_RDWR)


_LEAST_SECONDS = 1.0
"""The least time for an attempt to connect to one of a host's addresses, unless the deadline comes earlier."""


def connect(host: str, port: int, *, seconds: float) -> socket.socket:
    """Return a socket that is connected to a host: its addresses are tried in order until one answers.

    The lookup and all attempts together take at most ``seconds``, which is also the timeout of each later read and
    write. Raises TimeoutError or OSError, and ValueError for an invalid host name.
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


def _addresses(host: str, port: int, *, seconds: float) -> list[tuple[Any, ...]]:
    """Return a host's addresses; a thread looks them up, and is left at the deadline: getaddrinfo has no timeout."""
    found: list[tuple[Any, ...]] = []
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


_SERVER = "the OAuth2 server"


def fetch_token(
    url: str, *, client_id: str | None, client_secret: SecretStr, scope: str | None, in_body: bool, setting: str
) -> str:
    """Fetch an OAuth2 token with client credentials from the token endpoint ``url``.

    Args:
        client_id: None for a server that identifies clients by the secret alone.
        in_body: send the credentials in the form, as Iceberg's clients do, instead of in a header.
        setting: the setting that an error names.

    Raises:
        AccessDenied: the server refuses the credentials.
        ConfigError: the address is not a token endpoint.
        Unreachable: the server does not answer.
    """
    secret = client_secret.get_secret_value()
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
    form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    if in_body:
        form |= {"client_secret": secret, **({} if client_id is None else {"client_id": client_id})}
    else:
        login = f"{quote_plus(client_id or '')}:{quote_plus(secret)}".encode()
        headers["authorization"] = f"Basic {base64.b64encode(login).decode()}"
    status, body = ask(url, server=_SERVER, headers=headers, body=urlencode(form).encode())
    refuse_outage(status, server=_SERVER, where=url)
    token = json_object(body).get("access_token")
    if status == 200 and isinstance(token, str):
        return token
    if status in (400, 401, 403):
        hint = f"check {setting}"
        raise AccessDenied(f"the OAuth2 server refuses the credential (HTTP status {status})", where=url, hint=hint)
    hint = "correct the address: it must be the token endpoint of the OAuth2 server"
    raise ConfigError(f"this address returns no OAuth2 token (HTTP status {status})", where=url, hint=hint)


def refuse_outage(status: int, *, server: str, where: str) -> None:
    """Raise Unreachable if an HTTP status means that the same request may succeed later."""
    if status == 429 or (status >= 500 and status != 501):
        hint = "try again later; if the status stays, look at the server's log"
        raise Unreachable(f"{server} answers with HTTP status {status}", where=where, hint=hint)


def json_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object; return an empty dictionary for any other text."""
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
