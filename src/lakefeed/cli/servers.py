"""Options that several commands share: which servers, and ``KEY=VALUE`` pairs."""

from __future__ import annotations

from collections.abc import Iterable

import click

from lakefeed.errors import ConfigError

bootstrap_option = click.option(
    "--bootstrap-servers",
    metavar="HOST:PORT,…",
    help="Kafka brokers.  [default: KAFKA_BOOTSTRAP_SERVERS, else the running local stack]",
)


def bootstrap_servers_of(given: str | None) -> str:
    """The brokers: as given, from the environment, or the local stack's.

    Raises:
        ConfigError: none of these names any.
    """
    if found := given or _environment().get("KAFKA_BOOTSTRAP_SERVERS"):
        return found
    raise ConfigError(
        "no Kafka broker is named",
        hint="give --bootstrap-servers, set KAFKA_BOOTSTRAP_SERVERS, or start one: lakefeed local up",
    )


def registry_url_of(given: str | None) -> str:
    """The Schema Registry: as given, from the environment, or the local stack's.

    Raises:
        ConfigError: none of these names one.
    """
    if found := given or _environment().get("SCHEMA_REGISTRY_URL"):
        return found
    raise ConfigError(
        "no schema registry is named",
        hint="give --registry, set SCHEMA_REGISTRY_URL, or encode without one: --encode avro or json",
    )


def pairs(given: Iterable[str], *, option: str) -> dict[str, str]:
    """``KEY=VALUE`` options as a mapping.

    Raises:
        ConfigError: one has no ``=``.
    """
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise ConfigError(f"'{text}' is not KEY=VALUE", where=option)
        found[key] = value
    return found


def _environment() -> dict[str, str]:
    from lakefeed.clients.environment import default_environment

    return default_environment()
