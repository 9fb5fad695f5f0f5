"""Translate settings and errors between Kafka's Java client, librdkafka and lakefeed."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from lakefeed.clients.kafka.librdkafka import error_of, librdkafka_settings
from lakefeed.errors import ConfigError, Unreachable

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def test_only_settings_of_the_connection_are_translated() -> None:
    assert librdkafka_settings(
        {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{PLAIN} username="me" password="a\\"b";',
            "kafka.ssl.truststore.location": "/ca.pem",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.max.poll.records": 10000,
            "socket.timeout.ms": 1000,
        }
    ) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "me",
        "sasl.password": 'a"b',
        "ssl.ca.location": "/ca.pem",
        "socket.timeout.ms": "1000",
    }


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("PEM", {"ssl.certificate.location": "/k", "ssl.key.location": "/k"}),
        ("PKCS12", {"ssl.keystore.location": "/k", "ssl.keystore.password": "p"}),
    ],
)
def test_key_stores_are_translated(kind: str, settings: dict[str, str]) -> None:
    keystore = {"location": "/k", "type": kind, "password": "p"}
    assert librdkafka_settings({f"kafka.ssl.keystore.{name}": text for name, text in keystore.items()}) == settings


@pytest.mark.parametrize("key", ["kafka.ssl.truststore.location", "kafka.ssl.keystore.location"])
def test_a_java_key_store_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="names a Java key store"):
        librdkafka_settings({key: "/store.jks"})


def test_the_error_for_an_incomplete_login_hides_the_password() -> None:
    with pytest.raises(ConfigError) as raised:
        librdkafka_settings({"kafka.sasl.jaas.config": f'{PLAIN} password="hush";'})
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    ("code", "topic", "what", "where"),
    [
        (KafkaError.NOT_LEADER_FOR_PARTITION, "trips", "has no leader that answers", "topic trips at b:9092"),
        (KafkaError.NOT_COORDINATOR, None, "no coordinator yet", "b:9092"),
    ],
)
def test_a_missing_leader_or_coordinator_is_unreachable(code: int, topic: str | None, what: str, where: str) -> None:
    error = error_of(KafkaException(KafkaError(code)), servers="b:9092", topic=topic)
    assert isinstance(error, Unreachable)
    assert what in error.what
    assert error.where == where
