"""Kafka's client: the login, for the clients of Spark and Python, and the settings that users may give."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr

from lakefeed.config import trust
from lakefeed.config.addresses import PlainTextLogin, is_loopback
from lakefeed.config.base import ConfigProblem, Model, OneOf, checked, nearest, validated
from lakefeed.config.connections import refuse_credentials
from lakefeed.config.secrets import Scalar, SecretText, plain

_MODULES = "org.apache.kafka.common.security"
_OAUTH = f"{_MODULES}.oauthbearer"
_MSK = "software.amazon.msk.auth.iam"
MSK_IAM = "AWS_MSK_IAM"
"""The SASL mechanism that Amazon's jar implements."""
MSK_JAR = "software.amazon.msk:aws-msk-iam-auth"


def _require_token_url(url: str) -> None:
    refuse_credentials(url, instead="client_id and client_secret")
    parts = urlsplit(url)
    # Kafka's client would also read file: URLs, and send the secret as plain text to http: URLs (CVE-2025-27817).
    if parts.scheme != "https" or not parts.hostname:
        raise ValueError("token_url is an address that begins with https://")


def _require_one_line(text: str | SecretStr) -> None:
    if re.search(r"[\x00-\x1f]", plain(text)):
        raise ValueError("Kafka's client accepts no line breaks and no tabs here")


def _require_region(text: str) -> None:
    if not re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d", text):
        raise ValueError("a region of AWS is written as eu-west-1")


OneLine = Annotated[SecretStr, checked(_require_one_line)]
TokenUrl = Annotated[str, checked(_require_token_url)]
"""The URL at which an OAuth 2.0 server issues tokens."""


class PlainLogin(Model):
    """SASL PLAIN: the client sends the password to the broker."""

    username: Annotated[str, checked(_require_one_line)] = Field(min_length=1, description="The user's name.")
    password: OneLine = Field(description="The user's password; give it as ${NAME}.")

    def settings(self) -> dict[str, str]:
        return {"sasl.mechanism": "PLAIN", "sasl.jaas.config": self._jaas("plain.PlainLoginModule")}

    def _jaas(self, module: str) -> str:
        return _jaas(f"{_MODULES}.{module}", username=self.username, password=self.password.get_secret_value())


class ScramLogin(PlainLogin):
    """SASL SCRAM: the client proves the password without sending it."""

    hash: Literal["SHA-256", "SHA-512"] = Field("SHA-512", description="The hash of the user's password in the broker.")

    def settings(self) -> dict[str, str]:
        return {"sasl.mechanism": f"SCRAM-{self.hash}", "sasl.jaas.config": self._jaas("scram.ScramLoginModule")}


class OAuthLogin(Model):
    """SASL OAUTHBEARER by the client credentials grant; the client renews tokens before they expire."""

    token_url: TokenUrl = Field(description="https://… at which the OAuth 2.0 server issues tokens.")
    client_id: Annotated[str, checked(_require_one_line)] = Field(min_length=1, description="The client's name.")
    client_secret: OneLine = Field(description="The client's secret; give it as ${NAME}.")
    scope: str | None = Field(None, description="The OAuth scope to request.")
    extensions: dict[str, str] = Field(default_factory=dict)
    """SASL extensions, such as Confluent Cloud's logicalCluster and identityPoolId."""

    def settings(self) -> dict[str, str]:
        extensions = {f"extension_{name}": value for name, value in self.extensions.items()}
        jaas = _jaas(
            f"{_OAUTH}.OAuthBearerLoginModule",
            clientId=self.client_id,
            clientSecret=self.client_secret.get_secret_value(),
            **({"scope": self.scope} if self.scope else {}),
            **extensions,
        )
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": jaas,
            "sasl.login.callback.handler.class": f"{_OAUTH}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": self.token_url,
        }


class MskIamLogin(Model):
    """Amazon MSK's login by IAM, with keys from AWS's default chain. Spark needs Amazon's jar for this login."""

    region: Annotated[str, checked(_require_region)] = Field(description="Region of the cluster.")
    profile: Annotated[str, checked(_require_one_line)] | None = None
    """A profile in ~/.aws. Default: the keys that AWS's default chain finds."""

    def settings(self) -> dict[str, str]:
        own = {"awsProfileName": self.profile} if self.profile else {}
        return {
            "sasl.mechanism": MSK_IAM,
            # Only Python's client reads this region; Java's client takes the region from the broker's name.
            "sasl.jaas.config": _jaas(f"{_MSK}.IAMLoginModule", awsStsRegion=self.region, **own),
            "sasl.client.callback.handler.class": f"{_MSK}.IAMClientCallbackHandler",
        }


class KafkaLogin(OneOf):
    """The login: exactly one of the kinds."""

    plain: PlainLogin | None = None
    scram: ScramLogin | None = None
    oauth: OAuthLogin | None = None
    msk_iam: MskIamLogin | None = None

    def settings(self) -> dict[str, str]:
        """Return the settings of Kafka's client for this login, over TLS."""
        chosen: PlainLogin | OAuthLogin | MskIamLogin = getattr(self, self.kind)
        return {"security.protocol": "SASL_SSL", **chosen.settings()}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self | None:
        """Return the login from the variables ``KAFKA_SASL_…`` and ``KAFKA_OAUTH_…``; None if none of them is set."""
        names = {name: environment.get(f"KAFKA_OAUTH_{name.upper()}") for name in ("token_url", "client_id", "scope")}
        names["client_secret"] = environment.get("KAFKA_OAUTH_CLIENT_SECRET")
        user, password = environment.get("KAFKA_SASL_USERNAME"), environment.get("KAFKA_SASL_PASSWORD")
        block: dict[str, Any] = {}
        if environment.get("KAFKA_SASL_MECHANISM") == MSK_IAM:
            region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or ""
            block = {"msk_iam": {"region": region}}
        elif names["token_url"]:
            block = {"oauth": {name: value for name, value in names.items() if value}}
        elif user:
            mechanism = environment.get("KAFKA_SASL_MECHANISM", "SCRAM-SHA-512")
            login = {"username": user, "password": password or ""}
            plain = {"plain": login}
            block = plain if mechanism == "PLAIN" else {"scram": {**login, "hash": mechanism.removeprefix("SCRAM-")}}
        return validated(cls, "the KAFKA_ variables of the environment", **block) if block else None


class KafkaClient(Model):
    """The connection to a Kafka cluster."""

    login: KafkaLogin | None = None
    """The login, over TLS: plain, scram, oauth or msk_iam. Default: the security settings in options."""
    options: dict[str, Scalar] = Field(default_factory=dict)

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        if self.login is None:
            return
        for key in self.options:
            if key.startswith(f"{PREFIX}sasl.") and key.removeprefix(PREFIX) in ("sasl.mechanism", "sasl.jaas.config"):
                yield ConfigProblem(f"login and options both set {key}", key="login", hint=f"remove options.{key}")

    @property
    def client_options(self) -> dict[str, Any]:
        """The settings of Kafka's client: ``options``, the login's settings and TLS."""
        return client_options(self.login, self.options)

    @property
    def producer_options(self) -> dict[str, str]:
        """The settings of ``client_options`` that a producer accepts as well; their values are texts."""
        given = {key.removeprefix(PREFIX): option_text(value) for key, value in self.client_options.items()}
        # A setting in neither list comes from the block ``login``, because users cannot write it.
        return {f"{PREFIX}{key}": text for key, text in given.items() if key in PRODUCER or key not in CONSUMER}


def option_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def client_options(login: KafkaLogin | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the client settings of a login, of this process's certificate and of ``options``, with the prefix."""
    settings = {} if login is None else login.settings()
    found = {**{f"{PREFIX}{key}": value for key, value in settings.items()}, **options}
    is_tls = str(found.get(f"{PREFIX}security.protocol", "")).strip() in ("SSL", "SASL_SSL")
    own = trust.current() if is_tls and not any(key.startswith(f"{PREFIX}ssl.keystore.") for key in found) else None
    if own is not None and own.certificate:
        found |= {
            f"{PREFIX}ssl.keystore.type": "PEM",
            f"{PREFIX}ssl.keystore.certificate.chain": own.certificate,
            f"{PREFIX}ssl.keystore.key": SecretText(own.key.get_secret_value()),
        }
    return found


def over_plain_sasl(servers: str, options: Mapping[str, Any]) -> Iterator[PlainTextLogin]:
    """Yield a ``PlainTextLogin`` for brokers on other machines if the protocol is SASL_PLAINTEXT, which has no TLS."""
    key = f"{PREFIX}security.protocol"
    hosts = [urlsplit(f"//{server.strip().rpartition('//')[2]}").hostname for server in servers.split(",")]
    if str(options.get(key, "")).strip() == "SASL_PLAINTEXT" and not all(is_loopback(host) for host in hosts):
        why = "goes over the network as plain text, since the protocol is SASL_PLAINTEXT"
        yield PlainTextLogin(f"options.{key}", servers, why, "use SASL_SSL")


def _jaas(module: str, **settings: str) -> str:
    escaped = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in settings.items()}
    return SecretText(" ".join([module, "required", *(f'{name}="{value}"' for name, value in escaped.items())]) + ";")


PREFIX = "kafka."

# With all these settings, a feed reads 40 % more rows/s than with Kafka's defaults (10 partitions, 2 cores).
CONSUMER_DEFAULTS: dict[str, str] = {
    # Kafka's default is 500 records; a poll for 10,000 records takes as long.
    "kafka.max.poll.records": "10000",
    # With Kafka's default of 500 ms, a batch that reaches the end of the log would wait that long for each partition. A
    # short wait causes few empty fetches on an idle topic, since Spark polls only inside a batch.
    "kafka.fetch.max.wait.ms": "10",
    # Kafka's default is 64 KiB. This TCP window is too small for fetches of megabytes over a real network.
    "kafka.receive.buffer.bytes": "1048576",
    # Kafka's default is 1 MiB. Larger fetches need fewer round trips, and this much memory for each partition.
    "kafka.max.partition.fetch.bytes": "4194304",
    # Kafka's default is read_uncommitted, with which records of aborted transactions would land in the table.
    "kafka.isolation.level": "read_committed",
}

PRODUCER_DEFAULTS: dict[str, str] = {
    # Kafka's default is none. lz4 takes the least CPU of the codecs that compress rows well.
    "kafka.compression.type": "lz4",
    # With Kafka's default of 0, nearly every record is a request of its own. A producer's batch is full within 20 ms.
    "kafka.linger.ms": "20",
    # Kafka's default is 16 KiB, about a hundred rows. A producer needs this much memory for each partition.
    "kafka.batch.size": "262144",
    # Kafka's defaults since 3.0, repeated because with other values rows can be lost, or written twice by a retry.
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
}


@dataclass(frozen=True, kw_only=True)
class Option:
    """The values that a client setting accepts: values of ``type``, one of ``words`` if there are any, and not below
    ``least``."""

    type: Literal["text", "int", "number", "bool"] = "text"
    words: tuple[str, ...] = ()
    least: int = 0

    def expected_value(self, value: object) -> str | None:
        """Describe the accepted values if ``value`` is not one of them; else return None."""
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

# These login modules only read the user's own credentials. Settings of other modules can open LDAP or JNDI connections
# or read files (CVE-2023-25194, CVE-2025-27818, CVE-2025-27819).
_LOGIN_MODULES = (
    "org.apache.kafka.common.security.plain.PlainLoginModule",
    "org.apache.kafka.common.security.scram.ScramLoginModule",
    "com.sun.security.auth.module.Krb5LoginModule",
)


def consumer_problems(options: Mapping[str, object]) -> list[ConfigProblem]:
    """Return the mistakes in ``source.kafka.options``, at most one for each setting."""
    return list(_problems(options, "consumer", CONSUMER, REFUSED_CONSUMER))


def producer_problems(options: Mapping[str, object]) -> list[ConfigProblem]:
    """Return the mistakes in a user's producer settings; ``options`` must not include ``PRODUCER_DEFAULTS``."""
    found = list(_problems(options, "producer", PRODUCER, REFUSED_PRODUCER))
    merged = {**PRODUCER_DEFAULTS, **{key: str(value).lower() for key, value in options.items()}}
    if merged["kafka.enable.idempotence"] == "true":
        if merged["kafka.acks"] not in ("all", "-1"):
            hint = "write kafka.acks: all; or kafka.enable.idempotence: false, with which a retry may double rows"
            found.append(ConfigProblem("an idempotent producer requires acks=all", key="kafka.acks", hint=hint))
        key = "kafka.max.in.flight.requests.per.connection"
        in_flight = merged.get(key, "5")
        if in_flight.isdigit() and int(in_flight) > 5:
            what = f"'{key}': an idempotent producer allows at most 5"
            found.append(ConfigProblem(what, key=key, hint="write 5 or less, or remove the setting"))
    return found


def _problems(
    options: Mapping[str, object], role: str, allowed: Mapping[str, Option], refused: Mapping[str, str]
) -> Iterator[ConfigProblem]:
    for key, value in options.items():
        name = key.removeprefix(PREFIX)
        option = allowed.get(name)
        what, hint = None, None
        if key.lower() in _REFUSED["spark"] and not key.startswith(PREFIX):
            what, hint = f"'{key}' is not a setting of Kafka's client", _REFUSED["spark"][key.lower()]
        elif name in refused:
            what = f"'{key}' cannot be set: {refused[name]}"
        elif option is None:
            near = nearest(name, [*allowed, *refused], separator=".")
            what, hint = f"unknown Kafka {role} setting '{key}'", f"did you mean '{PREFIX}{near}'?"
            if name in CONSUMER or name in PRODUCER:
                hint = f"{name} is a setting of {'producers' if role == 'consumer' else 'consumers'}: remove it"
            elif near is None:
                hint = "all settings: https://kafka.apache.org/documentation/#configuration"
        elif not key.startswith(PREFIX):
            what, hint = f"'{key}' lacks its prefix", f"write {PREFIX}{name}"
        elif expected := option.expected_value(value):
            what = f"'{key}' expects {expected}"
            if name == "sasl.mechanism":
                hint = "for OAUTHBEARER write login: {oauth: {token_url: https://…, client_id: …, client_secret: …}}"
        elif name == "sasl.jaas.config" and (mistake := _jaas_mistake(str(value))):
            what, hint = f"'{key}' {mistake}", f"use one of {', '.join(_LOGIN_MODULES)}"
        if what is not None:
            yield ConfigProblem(what, key=key, hint=hint)


def _jaas_mistake(value: str) -> str | None:
    """Return the mistake in a JAAS configuration, without its text, which has a password; None if it is correct."""
    # An entry is 'class flag name="value" …;'. Empty the quoted values first, since they may contain any character.
    bare = re.sub(r'"(?:[^"\\\r\n]|\\.)*"', '""', value)
    # Kafka's parser reads other quotes, comments and line ends differently, so they could hide a second module.
    if re.search(r"'|//|/\*", bare) or '"' in bare.replace('""', ""):
        return "requires values in double quotes, each on one line, and no comments"
    entries = [entry.split() for entry in bare.split(";") if entry.strip()]
    if len(entries) != 1:
        return "requires one login module with its settings, ended by a semicolon"
    if entries[0][0] not in _LOGIN_MODULES:
        return "names a login module that is not allowed"
    return None
