"""``login`` of a Kafka cluster: who logs in, written once for Spark's client and for Python's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr

from lakefeed.config import trust
from lakefeed.config.addresses import PlainTextLogin
from lakefeed.config.base import ConfigProblem, Model, OneOf, checked, validated
from lakefeed.config.connections import is_loopback, refuse_credentials
from lakefeed.config.kafka_options import PREFIX
from lakefeed.config.secrets import Scalar, SecretText, plain

_MODULES = "org.apache.kafka.common.security"
_OAUTH = f"{_MODULES}.oauthbearer"
_MSK = "software.amazon.msk.auth.iam"
MSK_IAM = "AWS_MSK_IAM"
"""The mechanism of Amazon's jar."""
MSK_JAR = "software.amazon.msk:aws-msk-iam-auth"


def _require_token_url(url: str) -> None:
    refuse_credentials(url, instead="client_id and client_secret")
    parts = urlsplit(url)
    # Kafka's client would also read files, and post the secret as plain text (CVE-2025-27817).
    if parts.scheme != "https" or not parts.hostname:
        raise ValueError("the server of tokens is an address that begins with https://")


def _require_one_line(text: str | SecretStr) -> None:
    if re.search(r"[\x00-\x1f]", plain(text)):
        raise ValueError("Kafka's client takes no line breaks and no tabs here")


def _require_region(text: str) -> None:
    if not re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d", text):
        raise ValueError("a region of AWS is written as eu-west-1")


OneLine = Annotated[SecretStr, checked(_require_one_line)]
TokenUrl = Annotated[str, checked(_require_token_url)]
"""Where an OAuth 2.0 server gives out tokens."""


class PlainLogin(Model):
    """SASL PLAIN: the broker sees the password."""

    username: Annotated[str, checked(_require_one_line)] = Field(min_length=1, description="Who logs in.")
    password: OneLine = Field(description="The user's password; give it as ${NAME}.")

    def settings(self) -> dict[str, str]:
        """Return the settings of Kafka's client."""
        return {"sasl.mechanism": "PLAIN", "sasl.jaas.config": self._jaas("plain.PlainLoginModule")}

    def _jaas(self, module: str) -> str:
        return _jaas(f"{_MODULES}.{module}", username=self.username, password=self.password.get_secret_value())


class ScramLogin(PlainLogin):
    """SASL SCRAM: the password does not leave this machine."""

    hash: Literal["SHA-256", "SHA-512"] = Field("SHA-512", description="As the broker keeps the user's password.")

    def settings(self) -> dict[str, str]:
        """Return the settings of Kafka's client."""
        return {"sasl.mechanism": f"SCRAM-{self.hash}", "sasl.jaas.config": self._jaas("scram.ScramLoginModule")}


class OAuthLogin(Model):
    """SASL OAUTHBEARER with tokens for a client's own credentials, fetched again before they expire."""

    token_url: TokenUrl = Field(description="https://… where the OAuth 2.0 server gives out tokens.")
    client_id: Annotated[str, checked(_require_one_line)] = Field(min_length=1, description="The client's name.")
    client_secret: OneLine = Field(description="Its secret; give it as ${NAME}.")
    scope: str | None = Field(None, description="The scope to ask for.")
    extensions: dict[str, str] = Field(default_factory=dict)
    """SASL extensions, as Confluent Cloud's logicalCluster and identityPoolId."""

    def settings(self) -> dict[str, str]:
        """Return the settings of Kafka's client."""
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
    """Amazon MSK's login by IAM, with keys of AWS's default chain. Spark needs Amazon's jar for it."""

    region: Annotated[str, checked(_require_region)] = Field(description="Region of the cluster.")
    profile: Annotated[str, checked(_require_one_line)] | None = None
    """A profile of ~/.aws. Default: what AWS's chain finds."""

    def settings(self) -> dict[str, str]:
        """Return the settings of Kafka's client."""
        own = {"awsProfileName": self.profile} if self.profile else {}
        return {
            "sasl.mechanism": MSK_IAM,
            # Java's client finds the region in the broker's name; Python's reads it here.
            "sasl.jaas.config": _jaas(f"{_MSK}.IAMLoginModule", awsStsRegion=self.region, **own),
            "sasl.client.callback.handler.class": f"{_MSK}.IAMClientCallbackHandler",
        }


class KafkaLogin(OneOf):
    """One way to log in."""

    plain: PlainLogin | None = None
    scram: ScramLogin | None = None
    oauth: OAuthLogin | None = None
    msk_iam: MskIamLogin | None = None

    def settings(self) -> dict[str, str]:
        """Return the settings of Kafka's client, over TLS."""
        chosen: PlainLogin | OAuthLogin | MskIamLogin = getattr(self, self.kind)
        return {"security.protocol": "SASL_SSL", **chosen.settings()}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self | None:
        """Return the login that the variables ``KAFKA_SASL_…`` and ``KAFKA_OAUTH_…`` name; None if there is none."""
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
    """How a cluster is reached."""

    login: KafkaLogin | None = None
    """Who logs in: plain, scram, oauth or msk_iam; over TLS. Default: as options say."""
    options: dict[str, Scalar] = Field(default_factory=dict)

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        if self.login is None:
            return
        for key in self.options:
            if key.startswith(f"{PREFIX}sasl.") and key.removeprefix(PREFIX) in ("sasl.mechanism", "sasl.jaas.config"):
                yield ConfigProblem(f"login says what '{key}' says", key="login", hint=f"remove options.{key}")

    @property
    def client_options(self) -> dict[str, Any]:
        """``options``, with the settings of the login and of TLS."""
        return client_options(self.login, self.options)


def client_options(login: KafkaLogin | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return client settings with the prefix: those of a login, of this process's certificate, and ``options``."""
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
    """Yield the login to brokers on other machines by the protocol SASL_PLAINTEXT, which has no TLS."""
    key = f"{PREFIX}security.protocol"
    hosts = [urlsplit(f"//{server.strip().rpartition('//')[2]}").hostname for server in servers.split(",")]
    if str(options.get(key, "")).strip() == "SASL_PLAINTEXT" and not all(is_loopback(host) for host in hosts):
        why = "goes over the network as plain text, since the protocol is SASL_PLAINTEXT"
        yield PlainTextLogin(f"options.{key}", servers, why, "use SASL_SSL")


def _jaas(module: str, **settings: str) -> str:
    """Write one JAAS entry, with every value in quotes."""
    escaped = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in settings.items()}
    return SecretText(" ".join([module, "required", *(f'{name}="{value}"' for name, value in escaped.items())]) + ";")
