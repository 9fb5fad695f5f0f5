"""Python's clients use TLS as the JDBC URL requires, or do not connect."""

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from pydantic import SecretStr

from lakefeed.errors import ConfigError, Unreachable
from lakefeed_jdbc import settings
from lakefeed_jdbc.definition import problems
from lakefeed_jdbc.session import PythonDatabase
from lakefeed_jdbc.settings import Address, JdbcSinkConfig

# MariaDB Connector/J 3.5 reads these TLS modes from the parameters of a URL (Configuration.parse).
MARIADB = {
    "": "disable",
    "sslMode=trust": "trust",
    "sslMode=REQUIRED": "trust",
    "sslmode=trust": "trust",
    "sslMode=VERIFY_CA": "verify-ca",
    "sslMode=verify-ca": "verify-ca",
    "sslMode=VERIFY_IDENTITY": "verify-full",
    "sslMode=1": "verify-full",
    "sslMode=0": "disable",
    "sslMode=disabled": "disable",
    "useSsl=true": "verify-full",
    "useSSL=1": "verify-full",
    "useSsl": "verify-full",
    "useSsl=false": "disable",
    "useSsl=true&trustServerCertificate=true": "trust",
    "useSsl=true&disableSslHostnameVerification=true": "verify-ca",
    "trustServerCertificate=true": "disable",
    "sslMode=verify-full&trustServerCertificate=true": "verify-full",
    "useSsl=false&sslMode=trust": "trust",
}
CONTEXTS = {
    "trust": (ssl.CERT_NONE, False),
    "verify-ca": (ssl.CERT_REQUIRED, False),
    "verify-full": (ssl.CERT_REQUIRED, True),
}


@pytest.mark.parametrize("parameters", MARIADB)
def test_pythons_client_uses_the_tls_mode_of_the_java_driver(parameters: str) -> None:
    address = Address.of(f"jdbc:mysql://h/d?{parameters}")
    settings.check(address.kind, address.options)
    context = settings.mariadb_context(address.options, where="h")
    if context is None:
        assert MARIADB[parameters] == "disable"
    else:
        assert (context.verify_mode, context.check_hostname) == CONTEXTS[MARIADB[parameters]]


@pytest.mark.parametrize(
    ("url", "required"),
    [
        *((f"jdbc:mysql://h/d?{parameters}", mode != "disable") for parameters, mode in MARIADB.items()),
        ("jdbc:postgresql://h/d", False),
        ("jdbc:postgresql://h/d?sslmode=require", True),
    ],
)
def test_a_url_requires_tls_or_allows_plain_text(url: str, required: bool) -> None:
    sink = JdbcSinkConfig(url=url, user="u", password=SecretStr("p"), table="t")
    assert (not list(sink.plain_text_logins(brokers=""))) is required


@pytest.mark.parametrize("parameter", ["trustStore=/a.jks", "keyStore=/a.p12", "serverSslCert=/nowhere.pem"])
def test_parameters_that_only_the_java_driver_supports_are_refused(parameter: str) -> None:
    options = Address.of(f"jdbc:mariadb://h/d?sslMode=verify-full&{parameter}").options
    with pytest.raises(ConfigError, match=r"only Java's driver supports|cannot be read"):
        settings.mariadb_context(options, where="h")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("jdbc:mariadb://h/d?ssl=true", "connect as plain text"),
        ("jdbc:mysql://h/d?requireSSL=true", "connect as plain text"),
        ("jdbc:mariadb://h/d?sslMode=preferred", "not an sslMode"),
        ("jdbc:postgresql://h/d?sslmode=verify", "not an sslmode"),
    ],
)
def test_parameters_that_the_java_driver_ignores_are_refused(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        JdbcSinkConfig.model_validate({"url": url, "user": "u", "password": "p", "table": "t"})


@pytest.fixture
def plain_server() -> Iterator[tuple[int, list[bytes]]]:
    """Run a MariaDB server without TLS that records what clients send."""
    body = b"\x0a10.11.0\0" + struct.pack("<I", 1) + b"12345678\0" + struct.pack("<H", 0xF7FF & ~0x0800) + b"\x21\x02\0"
    body += struct.pack("<H", 0x000F | 0x0008) + b"\x15" + bytes(10) + b"123456789012\0" + b"mysql_native_password\0"
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                # A client that only checks whether the port is open has disconnected already.
                with connection, suppress(OSError):
                    connection.sendall(struct.pack("<I", len(body))[:3] + b"\0" + body)
                    connection.settimeout(5)
                    heard.append(connection.recv(4096))

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], heard
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_no_login_is_sent_to_a_server_without_tls(plain_server: tuple[int, list[bytes]]) -> None:
    port, heard = plain_server
    url = f"jdbc:mariadb://127.0.0.1:{port}/d?sslMode=trust"
    sink = JdbcSinkConfig(url=url, user="canary", password=SecretStr("p"), table="t")
    with pytest.raises((Unreachable, ConfigError)), PythonDatabase(sink).session():
        pass
    assert not any(b"canary" in each for each in heard)
    control = JdbcSinkConfig(url=url.partition("?")[0], user="canary", password=SecretStr("p"), table="t")
    with pytest.raises(Unreachable), PythonDatabase(control).session():
        pass
    assert any(b"canary" in each for each in heard)


def test_the_check_does_not_try_a_login_with_parameters_that_only_java_supports(
    plain_server: tuple[int, list[bytes]],
) -> None:
    port, heard = plain_server
    url = f"jdbc:mariadb://127.0.0.1:{port}/d?sslMode=verify-full&trustStore=/a.jks"
    sink = JdbcSinkConfig(url=url, user="canary", password=SecretStr("p"), table="t")
    found = list(problems(sink, key="sink.jdbc", feed="f", rows_of=lambda: None))
    assert [(each.key, each.severity) for each in found] == [("sink.jdbc", "warning")]
    assert "the login was not tried" in found[0].what
    assert not any(b"canary" in each for each in heard)
