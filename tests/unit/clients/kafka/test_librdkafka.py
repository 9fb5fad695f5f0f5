"""Translate settings of Kafka's Java client to librdkafka's."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from lakefeed.clients.kafka.librdkafka import error_of, librdkafka_settings
from lakefeed.errors import ConfigError, Unreachable

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def test_what_reaches_the_cluster_is_kept_and_what_tunes_it_is_not() -> None:
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


def test_key_stores() -> None:
    pem = {"kafka.ssl.keystore.location": "/k.pem", "kafka.ssl.keystore.type": "PEM"}
    assert librdkafka_settings(pem) == {"ssl.certificate.location": "/k.pem", "ssl.key.location": "/k.pem"}
    p12 = {
        "kafka.ssl.keystore.location": "/k.p12",
        "kafka.ssl.keystore.type": "PKCS12",
        "kafka.ssl.keystore.password": "p",
    }
    assert librdkafka_settings(p12) == {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "p"}


@pytest.mark.parametrize("key", ["kafka.ssl.truststore.location", "kafka.ssl.keystore.location"])
def test_a_java_key_store_cannot_be_read(key: str) -> None:
    with pytest.raises(ConfigError, match="names a Java key store"):
        librdkafka_settings({key: "/store.jks"})


def test_a_login_without_a_password_is_not_shown() -> None:
    with pytest.raises(ConfigError) as raised:
        librdkafka_settings({"kafka.sasl.jaas.config": f'{PLAIN} password="hush";'})
    assert "hush" not in str(raised.value)


def test_a_partition_without_a_leader_is_not_the_users_mistake() -> None:
    found = error_of(KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)), servers="b:9092", topic="trips")
    assert isinstance(found, Unreachable)
    assert "no broker that answers for it" in str(found)
    assert found.where == "topic trips at b:9092"


def test_a_group_without_a_coordinator_is_the_worlds_error() -> None:
    found = error_of(KafkaException(KafkaError(KafkaError.NOT_COORDINATOR)), servers="b:9092", topic=None)
    assert isinstance(found, Unreachable)
    assert "no coordinator yet" in found.what
