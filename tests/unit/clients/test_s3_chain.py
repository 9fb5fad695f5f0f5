"""S3 keys of AWS's default chain, where a pipeline declares none: as Spark finds them, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from lakefeed.clients.s3 import configured_keys
from lakefeed.config.connections import S3
from lakefeed.errors import AccessDenied


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "ROLE_ARN"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


class _Sts(BaseHTTPRequestHandler):
    """Answers AssumeRoleWithWebIdentity as AWS's service does."""

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
        ends = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        token = form["WebIdentityToken"][0]
        status, text = (
            200,
            (
                '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
                "<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>given</AccessKeyId>"
                f"<SecretAccessKey>secret</SecretAccessKey><SessionToken>for-{token}</SessionToken>"
                f"<Expiration>{ends}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>"
                "</AssumeRoleWithWebIdentityResponse>"
            ),
        )
        if token == "expired":  # a word, and no secret
            status, text = (
                400,
                (
                    '<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>'
                    "<Code>ExpiredTokenException</Code><Message>Token expired</Message></Error></ErrorResponse>"
                ),
            )
        self.send_response(status)
        self.send_header("content-type", "text/xml")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def sts() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Sts) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_keys_of_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials").write_text("[feeds]\naws_access_key_id = one\naws_secret_access_key = two\n")
    monkeypatch.setenv("AWS_PROFILE", "feeds")
    keys = configured_keys(S3())
    assert (keys.access_key, keys.secret_key.get_secret_value(), keys.session_token) == ("one", "two", None)


def test_keys_for_a_web_identity(sts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("token-1")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/feed")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    keys = configured_keys(S3())
    assert keys.access_key == "given"
    assert keys.session_token is not None
    assert keys.session_token.get_secret_value() == "for-token-1"
    # The file is read again: Kubernetes replaces it.
    token.write_text("expired")
    with pytest.raises(AccessDenied, match="Token expired"):
        configured_keys(S3())


def test_no_keys_and_a_profile_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AccessDenied, match="no S3 keys were found"):
        configured_keys(S3())
    monkeypatch.setenv("AWS_PROFILE", "nowhere")
    with pytest.raises(AccessDenied, match="nowhere"):
        configured_keys(S3())
