"""Run a server of OAuth 2.0 tokens over https, with the keys by which brokers check them."""

import base64
import json
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.support.servers.authority import Signed
from tests.support.servers.gate import Handler, serving


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _number(value: int) -> str:
    return _b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


@dataclass
class TokenServer:
    """A running token server.

    Attributes:
        url: the server's address; it serves tokens at ``/token`` and keys at ``/jwks``.
        seconds: how long a token is valid; a negative value issues expired tokens.
        given: the time and the subject of each issued token.
    """

    url: str = ""
    seconds: float = 300
    clients: dict[str, str] = field(default_factory=lambda: {"lakefeed": 'se"c\\ret'})
    given: list[tuple[float, str]] = field(default_factory=list)
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    def token(self, subject: str, *, seconds: float | None = None) -> str:
        """Sign a token (RFC 7519)."""
        now = time.time()
        claims = {"iss": self.url, "sub": subject, "aud": "kafka", "scope": "kafka", "iat": int(now) - 600}
        claims["exp"] = int(now + (self.seconds if seconds is None else seconds))
        head = _b64(json.dumps({"alg": "RS256", "kid": "k1", "typ": "JWT"}).encode())
        text = f"{head}.{_b64(json.dumps(claims).encode())}"
        return f"{text}.{_b64(self.key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def accepts(self, authorization: str) -> bool:
        """Check a bearer token as a server does: its signature and its expiry."""
        text, _, signature = authorization.removeprefix("Bearer ").rpartition(".")
        padded = {part: base64.urlsafe_b64decode(part + "==") for part in (signature, text.rpartition(".")[2]) if part}
        if not authorization.startswith("Bearer ") or len(padded) != 2:
            return False
        try:
            self.key.public_key().verify(padded[signature], text.encode(), padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            return False
        return bool(json.loads(padded[text.rpartition(".")[2]])["exp"] > time.time())

    def answer(self, path: str, authorization: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Return the status and the document of the answer to a request."""
        if path == "/jwks":
            public = self.key.public_key().public_numbers()
            known = {"kty": "RSA", "kid": "k1", "alg": "RS256", "use": "sig"}
            return 200, {"keys": [{**known, "n": _number(public.n), "e": _number(public.e)}]}
        name, secret = form.get("client_id", ""), form.get("client_secret", "")
        if authorization.startswith("Basic "):
            name, _, secret = base64.b64decode(authorization[6:]).decode().partition(":")
            # Kafka's clients send id and secret without URL-encoding; other clients encode them, as the specification
            # requires.
            if self.clients.get(name) != secret:
                name, secret = urllib.parse.unquote_plus(name), urllib.parse.unquote_plus(secret)
        if path != "/token" or not name or self.clients.get(name) != secret:
            return 401, {"error": "invalid_client"}
        self.given.append((time.time(), name))
        answer = {"access_token": self.token(name), "token_type": "Bearer", "expires_in": int(self.seconds)}
        return 200, answer


@contextmanager
def token_server(certificate: Signed) -> Iterator[TokenServer]:
    """Run a token server until the block ends."""
    made = TokenServer()

    class Tokens(Handler):
        def answer(self, body: bytes) -> None:
            form = dict(urllib.parse.parse_qsl(body.decode()))
            status, document = made.answer(self.path, self.headers.get("authorization", ""), form)
            self.send(status, json.dumps(document).encode())

    with serving(Tokens, certificate.server_context()) as port:
        made.url = f"https://localhost:{port}"
        yield made
