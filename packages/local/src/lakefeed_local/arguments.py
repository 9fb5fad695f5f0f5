"""Converts the arguments that ``produce`` and ``topics`` share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakefeed.clients.environment import default_environment
from lakefeed.errors import ConfigError


def kafka_options(settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return Kafka client settings, with the login from the environment."""
    from lakefeed.config.kafka_client import KafkaLogin, client_options

    return client_options(KafkaLogin.from_environment(default_environment()), settings or {})


def pairs(given: Iterable[str], *, option: str) -> dict[str, str]:
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise ConfigError(f"'{text}' is not KEY=VALUE", where=option, hint=f"write {option} KEY=VALUE")
        found[key] = value
    return found
