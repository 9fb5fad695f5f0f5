"""Java client settings, as a pipeline has them, in the words of librdkafka, which Python's clients are made of."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakefeed.config.kafka_options import PREFIX
from lakefeed.errors import ConfigError

# What reaches the cluster and proves who one is. The rest tunes reading and writing, which an admin does not do.
_NAMES = {
    "client.dns.lookup": "client.dns.lookup",
    "client.id": "client.id",
    "security.protocol": "security.protocol",
    "sasl.mechanism": "sasl.mechanisms",
    "sasl.kerberos.service.name": "sasl.kerberos.service.name",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.key.password": "ssl.key.password",
}


def librdkafka_settings(options: Mapping[str, object]) -> dict[str, str]:
    """The settings among ``options`` that say how to reach a cluster, for librdkafka.

    Args:
        options: Java client settings with the prefix ``kafka.``; others are taken for librdkafka's own.

    Raises:
        ConfigError: a trust or key store in a form that librdkafka cannot read, or a login it cannot do.
    """
    settings: dict[str, str] = {}
    java: dict[str, str] = {}
    for key, value in options.items():
        if key.startswith(PREFIX):
            java[key.removeprefix(PREFIX)] = str(value)
        else:
            settings[key] = str(value)
    settings |= {_NAMES[key]: value for key, value in java.items() if key in _NAMES}
    settings |= _stores(java)
    if jaas := java.get("sasl.jaas.config"):
        settings |= _login(jaas)
    return settings


def _stores(java: Mapping[str, str]) -> dict[str, str]:
    settings = {}
    if trust := java.get("ssl.truststore.location"):
        if java.get("ssl.truststore.type", "JKS").upper() != "PEM":
            raise _unreadable("ssl.truststore.location", "PEM")
        settings["ssl.ca.location"] = trust
    if keys := java.get("ssl.keystore.location"):
        kind = java.get("ssl.keystore.type", "JKS").upper()
        if kind == "PEM":
            settings |= {"ssl.certificate.location": keys, "ssl.key.location": keys}
        elif kind == "PKCS12":
            settings |= {
                "ssl.keystore.location": keys,
                "ssl.keystore.password": java.get("ssl.keystore.password", ""),
            }
        else:
            raise _unreadable("ssl.keystore.location", "PEM or PKCS12")
    return settings


def _login(jaas: str) -> dict[str, str]:
    """User name and password of a PlainLoginModule or ScramLoginModule entry."""
    if "Krb5LoginModule" in jaas:
        return {}  # librdkafka takes the ticket cache of the process.
    found = dict(re.findall(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"', jaas))
    if found.keys() != {"username", "password"}:
        raise ConfigError(
            'kafka.sasl.jaas.config has no username="…" and password="…"', where="the Kafka client's settings"
        )
    return {f"sasl.{name}": re.sub(r"\\(.)", r"\1", value) for name, value in found.items()}


def _unreadable(key: str, kinds: str) -> ConfigError:
    kind_key = key.replace("location", "type")
    return ConfigError(
        f"'{PREFIX}{key}' names a Java key store, which topics cannot be looked up with",
        where="the Kafka client's settings",
        hint=f"convert it, and say so with '{PREFIX}{kind_key}': {kinds}",
    )
