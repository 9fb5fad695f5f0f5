"""The errors after the client or the broker has refused a certificate or a login."""

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
def _forget_certificates() -> Iterator[None]:
    yield
    trust.forget()


@contextmanager
def listening(context: ssl.SSLContext) -> Iterator[str]:
    """Accept connections, and close each after the TLS handshake; yield the address."""
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


def what_of(context: ssl.SSLContext, error: KafkaError) -> str:
    """Run a broker with this TLS context; return the text of lakefeed's error for a client's error."""
    with listening(context) as servers:
        refusal = refusal_of([error], servers=servers)
    assert refusal is not None
    return refusal.what


def test_a_handshake_in_python_finds_the_cause_of_a_tls_error(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    here, elsewhere = authority.sign("here", "localhost"), authority.sign("elsewhere", "elsewhere.example")
    old = authority.sign("old", "localhost", days=-1)
    failed = KafkaError(KafkaError._SSL, "ssl://b/bootstrap: SSL handshake failed: certificate verify failed")
    alert = KafkaError(KafkaError._TRANSPORT, ALERT)
    assert "signed by an authority that is not trusted" in what_of(here.server_context(), failed)
    trust.declare(Tls(ca_file=authority.file))
    assert "is for another host" in what_of(elsewhere.server_context(), alert)
    assert "has expired" in what_of(old.server_context(), alert)
    assert "requests a client certificate" in what_of(here.server_context(clients=authority.file), alert)
    assert "no TLS connection to Kafka: SSL handshake failed" in what_of(here.server_context(), failed)


def test_only_a_refused_login_is_reported_as_a_refusal() -> None:
    away = KafkaError(KafkaError._TRANSPORT, "sasl_ssl://b:9093/bootstrap: Connect failed: Connection refused")
    assert refusal_of([away], servers="b:9093") is None
    denied = KafkaError(KafkaError._AUTHENTICATION, "sasl_ssl://b:9093/bootstrap: SASL authentication error: invalid")
    refusal = refusal_of([away, denied], servers="b:9093")
    assert isinstance(refusal, AccessDenied)
    assert refusal.what == "Kafka refuses the login: SASL authentication error: invalid"
