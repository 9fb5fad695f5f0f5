"""Errors for a broker that refuses: its certificate, the client's certificate, or the login."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from lakefeed.clients.kafka.librdkafka import refusal_of
from lakefeed.config import trust
from lakefeed.config.trust import Tls
from lakefeed.errors import AccessDenied
from tests.support.servers.authority import Authority

ALERT = "ssl://broker:9093/bootstrap: Receive failed: error:0A000412:SSL routines::ssl/tls alert bad certificate"


@pytest.fixture(autouse=True)
def _nothing_declared() -> Iterator[None]:
    yield
    trust.forget()


@contextmanager
def listening(context: ssl.SSLContext) -> Iterator[str]:
    """Accept connections and close them after the TLS handshake; yield the address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client, contextlib.suppress(OSError), context.wrap_socket(client, server_side=True):
                    pass

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"localhost:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_the_reason_is_asked_of_the_broker(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    here, elsewhere = authority.sign("here", "localhost"), authority.sign("elsewhere", "elsewhere.example")
    old = authority.sign("old", "localhost", days=-1)
    said = [KafkaError(KafkaError._SSL, "ssl://b/bootstrap: SSL handshake failed: certificate verify failed")]
    with listening(here.server_context()) as servers:
        found = refusal_of(said, servers=servers)
        assert found is not None
        assert "signed by an authority that is not trusted" in found.what
    trust.declare(Tls(ca_file=authority.file))
    cases = {
        "is for another host": elsewhere.server_context(),
        "has expired": old.server_context(),
        "asks for a certificate": here.server_context(clients=authority.file),
    }
    for message, context in cases.items():
        with listening(context) as servers:
            found = refusal_of([KafkaError(KafkaError._TRANSPORT, ALERT)], servers=servers)
            assert found is not None
            assert message in found.what
    with listening(here.server_context()) as servers:
        found = refusal_of(said, servers=servers)
        assert found is not None
        assert "no TLS connection to Kafka: SSL handshake failed" in found.what


def test_a_refused_login_differs_from_a_broker_that_is_away() -> None:
    away = KafkaError(KafkaError._TRANSPORT, "sasl_ssl://b:9093/bootstrap: Connect failed: Connection refused")
    assert refusal_of([away], servers="b:9093") is None
    denied = KafkaError(KafkaError._AUTHENTICATION, "sasl_ssl://b:9093/bootstrap: SASL authentication error: invalid")
    found = refusal_of([away, denied], servers="b:9093")
    assert isinstance(found, AccessDenied)
    assert found.what == "Kafka refuses the login: SASL authentication error: invalid"
