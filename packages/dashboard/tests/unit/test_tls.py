"""The dashboard serves HTTPS; the certificate is self-signed."""

import datetime
import socket
import ssl
import time
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lakefeed.errors import ConfigError
from lakefeed_dashboard import server
from lakefeed_dashboard.settings import Dashboard
from packages.dashboard.tests.dashboards import (
    OPERATOR_TOKEN,
    address,
    bearer,
    browser,
    dashboard,
    log_in,
    monitor_of,
    with_login,
)


def certificate(folder: Path, name: str = "server") -> dict[str, str]:
    """Write a self-signed certificate for 127.0.0.1 and its key; return the settings that name both files."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / f"{name}.pem", folder / f"{name}.key"
    paths[0].write_bytes(built.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return {"certificate": str(paths[0]), "key": str(paths[1])}


@pytest.fixture
def settings(tmp_path: Path) -> Dashboard:
    return with_login(tls=certificate(tmp_path))


def test_a_browser_that_trusts_the_certificate_logs_in(settings: Dashboard) -> None:
    assert settings.tls is not None
    trusting = ssl.create_default_context(cafile=settings.tls.certificate)
    with dashboard(monitor_of(), settings) as served:
        assert served.startswith("https://127.0.0.1:")
        with browser(served, verify=trusting) as client:
            log_in(client)
            [cookie] = [name for name in client.cookies if name.startswith("__Host-") and "device" not in name]
            assert client.get("/api/feeds").status_code == 200
            assert next(found for found in client.cookies.jar if found.name == cookie).secure
        with pytest.raises(httpx.ConnectError), browser(served) as stranger:
            stranger.get("/")


def test_a_request_without_tls_is_refused(settings: Dashboard) -> None:
    assert settings.tls is not None
    with dashboard(monitor_of(), settings) as served:
        with socket.create_connection(address(served), timeout=5) as plain:
            plain.sendall(
                f"GET /api/feeds HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {OPERATOR_TOKEN}\r\n\r\n".encode()
            )
            assert b"hidden-name" not in plain.recv(4096)
        trusting = ssl.create_default_context(cafile=settings.tls.certificate)
        good = httpx.get(f"{served}/api/feeds", headers=bearer(OPERATOR_TOKEN), verify=trusting, trust_env=False)
        assert good.status_code == 200


def test_a_client_without_a_tls_handshake_is_disconnected(settings: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HANDSHAKE_SECONDS", 0.3)
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 5)
    assert settings.tls is not None
    trusting = ssl.create_default_context(cafile=settings.tls.certificate)
    with dashboard(monitor_of(), settings) as served:
        silent = [socket.create_connection(address(served), timeout=5) for _ in range(8)]
        assert all(connection.recv(10) == b"" for connection in silent)
        for connection in silent:
            connection.close()
        until = time.monotonic() + 5
        while True:
            try:
                with browser(served, verify=trusting) as client:
                    assert client.get("/login").status_code == 200
                break
            except httpx.TransportError:
                assert time.monotonic() < until


def test_the_error_names_an_unusable_certificate(tmp_path: Path) -> None:
    one, other = certificate(tmp_path, "one"), certificate(tmp_path, "other")
    (tmp_path / "text").write_text("no certificate")
    for tls in (
        {**one, "key": other["key"]},
        {**one, "certificate": str(tmp_path / "text")},
        {**one, "key": str(tmp_path / "none")},
    ):
        with pytest.raises(ConfigError) as wrong, dashboard(monitor_of(), with_login(tls=tls)):
            pass
        assert tls["key"] in str(wrong.value.where)
