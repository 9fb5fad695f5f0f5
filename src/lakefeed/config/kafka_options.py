"""Check Kafka client settings, which have the prefix ``kafka.``, against the lists in ``kafka_options.toml``.

An allow-list of exact names: a misspelt setting, which Kafka would ignore with one line in a log, is an error
with the nearest name; so is one that Spark or lakefeed sets itself, or one that loads classes, runs commands
or fetches URLs.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from lakefeed.config.base import ConfigProblem, nearest

PREFIX = "kafka."

# Measured over 10 partitions on 2 cores: together +40 % rows/s against Kafka's own defaults.
CONSUMER_DEFAULTS: dict[str, str] = {
    # 500 by default: Spark polls in a loop, and a poll costs the same for 500 rows as for 10,000.
    "kafka.max.poll.records": "10000",
    # 500 by default: a batch that reaches the log's end waits for it once a partition, 3 s in all. More empty
    # fetches on an idle topic are bounded, since Spark polls inside a batch only.
    "kafka.fetch.max.wait.ms": "10",
    # 64 KiB by default, too small a TCP window for fetches of megabytes over a real network.
    "kafka.receive.buffer.bytes": "1048576",
    # 1 MiB by default: fewer round trips a partition. Memory: up to this for each partition read.
    "kafka.max.partition.fetch.bytes": "4194304",
    # read_uncommitted by default: rows of aborted transactions would land in the table.
    "kafka.isolation.level": "read_committed",
}

PRODUCER_DEFAULTS: dict[str, str] = {
    # none by default. lz4: the cheapest on the CPU of those that shrink rows well.
    "kafka.compression.type": "lz4",
    # 0 by default: nearly a request a row. 20 ms fill a batch and no user waits for a bulk load's single row.
    "kafka.linger.ms": "20",
    # 16 KiB by default, a hundred rows. Memory: up to this for each partition written to.
    "kafka.batch.size": "262144",
    # Kafka's own defaults since 3.0, written out because the promise "no row lost, none doubled by a retry"
    # rests on them.
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
}


@dataclass(frozen=True, kw_only=True)
class Option:
    """The values that a client setting takes: of a type, from ``words`` if given, and at least ``least``."""

    type: Literal["text", "int", "number", "bool"] = "text"
    words: tuple[str, ...] = ()
    least: int = 0

    def expected_value(self, value: object) -> str | None:
        """Describe the values that the setting takes if ``value`` is none of them; None if it is."""
        if not isinstance(value, str | int | float):
            return "a single value"
        text = str(value).strip()
        if self.type == "bool":
            return None if text.lower() in ("true", "false") else "true or false"
        if self.type == "text":
            if self.words:
                return None if text in self.words else f"one of {', '.join(self.words)}"
            return None if text else "a text"
        pattern, words = (r"[-+]?\d+", "a whole number") if self.type == "int" else (r"\d+(\.\d+)?", "a number")
        if not isinstance(value, bool) and re.fullmatch(pattern, text, re.ASCII) and float(text) >= self.least:
            return None
        return f"{words} of at least {self.least}"


def _option(value: Any) -> Option:
    if isinstance(value, list):
        return Option(words=tuple(value))
    return Option(**({"type": value} if isinstance(value, str) else value))


_LISTS: dict[str, Any] = tomllib.loads(files("lakefeed.config").joinpath("kafka_options.toml").read_text("utf-8"))
_OPTIONS = {role: {name: _option(value) for name, value in part.items()} for role, part in _LISTS["options"].items()}
_REFUSED: dict[str, dict[str, str]] = _LISTS["refused"]

CONSUMER: dict[str, Option] = _OPTIONS["client"] | _OPTIONS["consumer"]
PRODUCER: dict[str, Option] = _OPTIONS["client"] | _OPTIONS["producer"]
REFUSED_CONSUMER = _REFUSED["client"] | _REFUSED["consumer"]
REFUSED_PRODUCER = _REFUSED["client"] | _REFUSED["producer"]

# Login modules that only read the user's own credentials. Others reach for LDAP, JNDI or files
# (CVE-2023-25194, CVE-2025-27818, CVE-2025-27819).
_LOGIN_MODULES = (
    "org.apache.kafka.common.security.plain.PlainLoginModule",
    "org.apache.kafka.common.security.scram.ScramLoginModule",
    "com.sun.security.auth.module.Krb5LoginModule",
)


def consumer_problems(options: Mapping[str, object]) -> list[ConfigProblem]:
    """Return the mistakes in ``source.kafka.options``, at most one for each setting."""
    return list(_problems(options, "consumer", CONSUMER, REFUSED_CONSUMER))


def producer_problems(options: Mapping[str, object]) -> list[ConfigProblem]:
    """Return the mistakes in a producer's settings, given without ``PRODUCER_DEFAULTS``."""
    found = list(_problems(options, "producer", PRODUCER, REFUSED_PRODUCER))
    merged = {**PRODUCER_DEFAULTS, **{key: str(value).lower() for key, value in options.items()}}
    if merged["kafka.enable.idempotence"] == "true":
        if merged["kafka.acks"] not in ("all", "-1"):
            hint = "write kafka.acks: all, or add kafka.enable.idempotence: false and accept doubled rows"
            found.append(ConfigProblem("an idempotent producer requires acks=all", key="kafka.acks", hint=hint))
        key = "kafka.max.in.flight.requests.per.connection"
        in_flight = merged.get(key, "5")
        if in_flight.isdigit() and int(in_flight) > 5:
            found.append(ConfigProblem(f"'{key}': an idempotent producer allows at most 5", key=key))
    return found


def _problems(
    options: Mapping[str, object], role: str, allowed: Mapping[str, Option], refused: Mapping[str, str]
) -> Iterator[ConfigProblem]:
    for key, value in options.items():
        name = key.removeprefix(PREFIX)
        option = allowed.get(name)
        what, hint = None, None
        if key.lower() in _REFUSED["spark"] and not key.startswith(PREFIX):
            what, hint = f"'{key}' is not for options", _REFUSED["spark"][key.lower()]
        elif name in refused:
            what = f"'{key}' cannot be set: {refused[name]}"
        elif option is None:
            near = nearest(name, [*allowed, *refused], separator=".")
            what, hint = f"unknown Kafka {role} setting '{key}'", f"did you mean '{PREFIX}{near}'?"
            if name in CONSUMER or name in PRODUCER:
                hint = f"it is no {role} setting, but one of the other side"
            elif near is None:
                hint = "names and meanings: https://kafka.apache.org/documentation/#configuration"
        elif not key.startswith(PREFIX):
            what, hint = f"'{key}' lacks its prefix", f"write {PREFIX}{name}"
        elif expected := option.expected_value(value):
            what = f"'{key}' expects {expected}"
            if name == "sasl.mechanism":
                hint = "for OAUTHBEARER write login: {oauth: {token_url: https://…, client_id: …, client_secret: …}}"
        elif name == "sasl.jaas.config" and (mistake := _jaas_mistake(str(value))):
            what, hint = f"'{key}' {mistake}", f"one of {', '.join(_LOGIN_MODULES)}"
        if what is not None:
            yield ConfigProblem(what, key=key, hint=hint)


def _jaas_mistake(value: str) -> str | None:
    """Describe the mistake in a JAAS configuration without a word of it: it holds a password."""
    # One entry is 'class flag name="value" …;'. Quoted values may hold anything, so they go first.
    bare = re.sub(r'"(?:[^"\\\r\n]|\\.)*"', '""', value)
    # Kafka's tokenizer reads other quotes, comments and line ends differently, which could hide a second module.
    if re.search(r"'|//|/\*", bare) or '"' in bare.replace('""', ""):
        return "requires values in double quotes, each on one line, and no comments"
    entries = [entry.split() for entry in bare.split(";") if entry.strip()]
    if len(entries) != 1:
        return "requires one login module with its settings, ended by a semicolon"
    if entries[0][0] not in _LOGIN_MODULES:
        return "names a login module that is not allowed"
    return None
