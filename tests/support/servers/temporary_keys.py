"""Temporary AWS keys: a service that issues them, and a gate of a store that accepts only keys that are valid now.

The gate checks requests as AWS does (Signature Version 4: access key, session token, signature, age), signs them with
the keys of the store behind it, and forwards them.
"""

import hashlib
import hmac
import json
import re
import secrets
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from lakefeed_local.part import LOOPBACK
from lakefeed_local.stack import Endpoints
from lakefeed_testing.schemas import HttpAnswer, HttpRequest, serve_http
from tests.support.servers.gate import Handler, serving

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?SignedHeaders=([^,]+), ?Signature=(\w+)"
)


@dataclass(frozen=True)
class Issued:
    """Keys, and the time at which they expire."""

    access_key: str
    secret_key: str
    token: str
    until: float

    def document(self) -> dict[str, str]:
        """Return the keys in the JSON of AWS's credential services."""
        return {
            "AccessKeyId": self.access_key,
            "SecretAccessKey": self.secret_key,
            "Token": self.token,
            "SessionToken": self.token,
            "Expiration": datetime.fromtimestamp(self.until, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }


@dataclass
class KeyService:
    """Issues keys in the ways of AWS: metadata services of instances and containers, STS, and a credential process.

    Attributes:
        seconds: how long keys are valid.
        url: the service's address.
        web_token: the token that STS accepts.
        issued: all issued keys, by access key.
    """

    seconds: int
    url: str = ""
    web_token: str = ""
    container_token: str = field(default_factory=lambda: secrets.token_hex(8))
    issued: dict[str, Issued] = field(default_factory=dict)
    _session: str = field(default_factory=lambda: secrets.token_hex(8))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def issue(self) -> Issued:
        """Return the newest keys; replace them after half of their time."""
        with self._lock:
            newest = next(reversed(self.issued.values()), None)
            if newest is None or newest.until - time.time() < self.seconds / 2:
                name = f"ASIA{secrets.token_hex(8).upper()}"
                until = float(int(time.time()) + self.seconds)
                newest = Issued(name, secrets.token_hex(20), secrets.token_hex(20), until)
                self.issued[name] = newest
            return newest

    def answer(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request to one of the services."""
        path = request.path.rstrip("/")
        if path == "/latest/api/token" and request.method == "PUT":
            lives = {"x-aws-ec2-metadata-token-ttl-seconds": "21600"}
            return HttpAnswer(200, self._session.encode(), lives)
        if path.startswith("/latest/meta-data/iam/security-credentials"):
            if request.headers.get("x-aws-ec2-metadata-token") != self._session:
                return HttpAnswer(401)
            if path.endswith("security-credentials"):
                return HttpAnswer(200, b"feed-role")
            if not path.endswith("/security-credentials/feed-role"):
                return HttpAnswer(404)
            known = {"Code": "Success", "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z"}
            return HttpAnswer(200, json.dumps(known | self.issue().document()).encode())
        if path == "/container":
            if request.headers.get("authorization") != self.container_token:
                return HttpAnswer(401)
            return HttpAnswer(200, json.dumps(self.issue().document()).encode())
        if path == "/process":
            return HttpAnswer(200, json.dumps({"Version": 1} | self.issue().document()).encode())
        if path == "" and request.method == "POST":
            return self._assume_role(dict(urllib.parse.parse_qsl(request.body.decode())))
        return HttpAnswer(404)

    def _assume_role(self, form: Mapping[str, str]) -> HttpAnswer:
        if form.get("Action") != "AssumeRoleWithWebIdentity" or form.get("WebIdentityToken") != self.web_token:
            refusal = "<Error><Type>Sender</Type><Code>InvalidIdentityToken</Code><Message>no</Message></Error>"
            return HttpAnswer(400, f"<ErrorResponse>{refusal}</ErrorResponse>".encode(), _XML)
        given = self.issue().document()
        names = ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")
        keys = "".join(f"<{name}>{given[name]}</{name}>" for name in names)
        role = "<AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/feed/x</Arn><AssumedRoleId>x</AssumedRoleId>"
        text = f"<Credentials>{keys}</Credentials>{role}</AssumedRoleUser>"
        text = f"<AssumeRoleWithWebIdentityResult>{text}</AssumeRoleWithWebIdentityResult>"
        space = 'xmlns="https://sts.amazonaws.com/doc/2011-06-15/"'
        text = f"<AssumeRoleWithWebIdentityResponse {space}>{text}</AssumeRoleWithWebIdentityResponse>"
        return HttpAnswer(200, text.encode(), _XML)


_CHECKSUM = "x-amz-sdk-checksum-algorithm"
_XML = {"Content-Type": "text/xml"}


@dataclass
class KeyGate:
    """A proxy of the store, which clients use as if the proxy were the store.

    Attributes:
        keys: the service whose keys the gate accepts.
        store: the store behind the gate.
        used: the access keys of accepted requests, in the order of first use.
        refused: the error codes of refused requests.
    """

    keys: KeyService
    store: Endpoints
    url: str = ""
    used: dict[str, None] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def refusal(self, method: str, target: str, headers: Mapping[str, str]) -> str | None:
        """Return AWS's error code if the request must be refused; None for a valid request."""
        found = _AUTHORIZATION.fullmatch(headers.get("authorization", ""))
        if found is None:
            return "AccessDenied"
        issued = self.keys.issued.get(found[1])
        if issued is None or headers.get("x-amz-security-token") != issued.token:
            return "InvalidAccessKeyId"
        # Accept a request that was on its way when its key expired.
        if time.time() > issued.until + 2:
            return "ExpiredToken"
        if _signature(method, target, headers, found, issued.secret_key) != found[5]:
            return "SignatureDoesNotMatch"
        self.used[issued.access_key] = None
        return None

    def sign(self, method: str, target: str, headers: dict[str, str], body: bytes) -> bytes:
        """Replace the signature of a request by one with the store's keys; return the request's body."""
        found = _AUTHORIZATION.fullmatch(headers["authorization"])
        assert found is not None
        del headers["x-amz-security-token"]
        if headers["x-amz-content-sha256"].startswith("STREAMING-"):
            # The client's keys sign the chunks, so join them before the body is sent to the store.
            for name in ("content-encoding", "x-amz-decoded-content-length", "x-amz-trailer", _CHECKSUM):
                headers.pop(name, None)
            body = _joined(body)
            headers["content-length"] = str(len(body))
            headers["x-amz-content-sha256"] = hashlib.sha256(body).hexdigest()
        names = ";".join(name for name in found[4].split(";") if name in headers)
        scope = f"{self.store.access_key}/{found[2]}/{found[3]}/s3/aws4_request"
        written = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={names}, Signature="
        again = _AUTHORIZATION.fullmatch(f"{written}x")
        assert again is not None
        secret = self.store.secret_key.get_secret_value()
        headers["authorization"] = written + _signature(method, target, headers, again, secret)
        return body


def _joined(body: bytes) -> bytes:
    """Return the content of a chunked body (aws-chunked), without signatures and trailers."""
    content, rest = b"", body
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size.partition(b";")[0], 16)
        if not length:
            break
        content, rest = content + rest[:length], rest[length + 2 :]
    return content


def _signature(method: str, target: str, headers: Mapping[str, str], found: re.Match[str], secret_key: str) -> str:
    """Compute a request's signature (Signature Version 4) over the headers that the request lists as signed."""
    path, _, query = target.partition("?")
    pairs = sorted(part if "=" in part else f"{part}=" for part in query.split("&") if part)
    names = found[4].split(";")
    lines = "".join(f"{name}:{' '.join(headers.get(name, '').split())}\n" for name in names)
    canonical = "\n".join([method, path, "&".join(pairs), lines, found[4], headers["x-amz-content-sha256"]])
    scope = f"{found[2]}/{found[3]}/s3/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = b"AWS4" + secret_key.encode()
    for word in (found[2], found[3], "s3", "aws4_request"):
        key = hmac.digest(key, word.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{digest}"
    return hmac.digest(key, text.encode(), "sha256").hex()


class _Handler(Handler):
    gate: KeyGate

    def answer(self, body: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        code = self.gate.refusal(self.command, self.path, headers)
        if code is not None:
            self.gate.refused.append(code)
            text = f"<Error><Code>{code}</Code><Message>refused by the gate</Message></Error>".encode()
            self.send(400 if code == "ExpiredToken" else 403, text, {"content-type": "application/xml"})
            return
        body = self.gate.sign(self.command, self.path, headers, body)
        status, given, answer = self.forward(urllib.parse.urlsplit(self.gate.store.s3_endpoint).netloc, body, headers)
        self.send(status, answer, given)


@contextmanager
def key_gate(store: Endpoints, *, seconds: int) -> Iterator[KeyGate]:
    """Run a key service, and a gate of the store that accepts its keys, until the block ends."""
    service = KeyService(seconds)
    gate = KeyGate(service, store)
    with serve_http(service.answer) as address:
        service.url = address
        with serving(type("Handler", (_Handler,), {"gate": gate})) as port:
            gate.url = f"http://{LOOPBACK}:{port}"
            yield gate
