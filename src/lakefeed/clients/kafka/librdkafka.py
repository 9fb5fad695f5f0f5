"""Translate a pipeline's Kafka settings for librdkafka, on which Python's client is based, and translate its errors."""

from __future__ import annotations

import base64
import difflib
import logging
import re
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from lakefeed.clients.http import connect
from lakefeed.clients.s3 import keys_of_the_chain
from lakefeed.config import trust
from lakefeed.config.kafka_client import CONSUMER_DEFAULTS, MSK_IAM, PREFIX
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import AccessDenied, BrokerUnreachable, ConfigError, LakefeedError, ResourceMissing

_HANDSHAKE_SECONDS = 3.0
_NOTICE_SECONDS = 0.5
_OAUTH_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
ISOLATION = "kafka.isolation.level"
# Do not log: librdkafka would log every failed connection, while lakefeed's error reports the broker once.
SILENCE = logging.getLogger("lakefeed.clients.kafka.librdkafka")
SILENCE.addHandler(logging.NullHandler())
SILENCE.propagate = False

# For connection and login: by the Java client's name, librdkafka's. Other settings only tune, and are not translated.
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
UNREACHABLE = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
}
TRANSIENT = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}
COORDINATING = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
"""The errors that a broker returns for a group while its coordinator is elected or loads the offsets."""
_DENIED = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}


def librdkafka_settings(options: Mapping[str, object]) -> dict[str, Any]:
    """Return librdkafka's connection settings from Java's (``options`` with the prefix ``kafka.``) or librdkafka's."""
    java = {key.removeprefix(PREFIX): str(value) for key, value in options.items() if key.startswith(PREFIX)}
    settings: dict[str, Any] = {key: str(value) for key, value in options.items() if not key.startswith(PREFIX)}
    settings |= {_NAMES[key]: value for key, value in java.items() if key in _NAMES}
    settings |= _stores(java)
    if java.get("sasl.mechanism") == MSK_IAM:
        settings |= _msk_iam(java.get("sasl.jaas.config", ""))
    elif jaas := java.get("sasl.jaas.config"):
        settings |= _oauth(jaas, java[_OAUTH_ENDPOINT]) if _OAUTH_ENDPOINT in java else _login(jaas)
    if settings.get("security.protocol", "").upper() in ("SSL", "SASL_SSL"):
        settings = _authorities(settings) | settings
    return settings


def client_settings(source: KafkaSource) -> dict[str, Any]:
    """Return librdkafka's settings for the source's cluster; the client logs no connection errors."""
    return {
        **librdkafka_settings(source.client_options),
        "bootstrap.servers": source.bootstrap_servers,
        "error_cb": lambda error: None,
    }


def isolation_level(source: KafkaSource) -> str:
    """Return the source's isolation level: ``read_committed`` or ``read_uncommitted``."""
    return str(source.client_options.get(ISOLATION, CONSUMER_DEFAULTS[ISOLATION]))


@contextmanager
def open_consumer(source: KafkaSource, group: str, settings: Mapping[str, Any]) -> Iterator[Consumer]:
    """Open a consumer that reports a partition's end, joins no consumer group, and commits no offsets."""
    own = {"group.id": group, "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({**client_settings(source), **own, **settings}, logger=SILENCE)
    try:
        yield consumer
    finally:
        consumer.close()


def error_of(error: KafkaException, *, servers: str, topic: str | None) -> LakefeedError:
    """Return lakefeed's error for an error of the Kafka client."""
    code = error_code(error)
    where = f"topic {topic} at {servers}" if topic else servers
    if code in UNREACHABLE:
        return BrokerUnreachable(
            "no Kafka broker answers",
            where=servers,
            hint="check the address, and whether the broker runs; 'lakefeed local up' starts a local one",
        )
    if code in _DENIED:
        hint = "check login and the Kafka user's ACLs: the user must be allowed to describe and read the topic"
        return AccessDenied(f"Kafka refuses these credentials: {error_text(error)}", where=where, hint=hint)
    if code in TRANSIENT and code != KafkaError.UNKNOWN_TOPIC_OR_PART:
        return BrokerUnreachable(
            f"a partition has no leader that answers: {error_text(error)}",
            where=where,
            hint="the topic is new, or a broker has just left: try again; if that does not help, check the brokers",
        )
    if code in COORDINATING:
        return BrokerUnreachable(
            f"the group has no coordinator yet: {error_text(error)}",
            where=where,
            hint="the cluster is new, or a broker has just left: try again; if that does not help, check the brokers",
        )
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        return ConfigError(
            f"the topic {topic} already exists",
            where=servers,
            hint="choose another name; --if-not-exists leaves the existing topic unchanged",
        )
    if code == KafkaError.INVALID_REPLICATION_FACTOR:
        return ConfigError(
            f"the cluster has not enough brokers for the replication factor: {error_text(error)}",
            where=where,
            hint="choose a replication factor between 1 and the number of brokers",
        )
    hint = "compare the topic and the client's settings (source.kafka.options) with the broker's log"
    return ConfigError(f"Kafka refuses the request: {error_text(error)}", where=where, hint=hint)


def refusal_of(errors: Iterable[KafkaError], *, servers: str) -> LakefeedError | None:
    """Return lakefeed's error if one of the client's errors is a refused login or TLS connection; else None."""
    for error in errors:
        # "sasl_ssl://broker:9093/bootstrap: …": remove the address before the message.
        text = re.sub(r"^\S+://\S+: ", "", error.str())
        if error.code() == KafkaError._SSL or "SSL routines" in text:
            return _tls_refusal(text, servers)
        if error.code() in _DENIED:
            hint = "check login (or sasl.jaas.config in options): the mechanism, the user and the password or token"
            return AccessDenied(f"Kafka refuses the login: {text}", where=servers, hint=hint)
    return None


def _tls_refusal(text: str, servers: str) -> LakefeedError:
    """Try a TLS handshake with the brokers in Python, and return its error, which says more than librdkafka's."""
    for server in servers.split(","):
        host, _, port = server.strip().rpartition("://")[2].rpartition(":")
        host = host.strip("[]")
        try:
            with (
                connect(host, int(port), seconds=_HANDSHAKE_SECONDS) as sock,
                trust.client_context().wrap_socket(sock, server_hostname=host) as tls,
            ):
                tls.settimeout(_NOTICE_SECONDS)
                # Read a byte, because with TLS 1.3 a server refuses a client's certificate only after the handshake.
                tls.recv(1)
        except ssl.SSLError as error:
            return trust.explain(error, server="the Kafka broker", where=server.strip())
        except (OSError, ValueError):
            continue
    hint = "check kafka.ssl.truststore and kafka.ssl.keystore in options, or tls.ca_file and tls.certificate"
    return ConfigError(f"no TLS connection to Kafka: {text}", where=servers, hint=hint)


def missing_topic(name: str, existing: Sequence[str], *, where: str) -> ResourceMissing:
    """Return the error for a topic that does not exist; its hint lists existing topics with similar names."""
    near = difflib.get_close_matches(name, existing, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return ResourceMissing(
        f"there is no topic {name}", where=where, hint=f"{hint}create it: lakefeed topics create {name}"
    )


def error_code(error: KafkaException) -> int:
    code: int = error.args[0].code()
    return code


def error_text(error: Exception) -> str:
    detail = error.args[0] if error.args else error
    return str(detail.str()) if isinstance(detail, KafkaError) else str(detail)


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
            password = java.get("ssl.keystore.password", "")
            settings |= {"ssl.keystore.location": keys, "ssl.keystore.password": password}
        else:
            raise _unreadable("ssl.keystore.location", "PEM or PKCS12")
    return settings


def _authorities(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings for trusting the declared certificate authorities, for brokers and OAuth servers.

    They include the system's authorities, which librdkafka ignores if a setting names other authorities.
    """
    if not (declared := trust.current().authorities):
        return {}
    trusted = f"{declared}\n{trust.system_authorities()}"
    brokers = {} if {"ssl.ca.location", "ssl.ca.pem"} & settings.keys() else {"ssl.ca.pem": trusted}
    return {**brokers, "https.ca.pem": trusted} if settings.get("sasl.oauthbearer.method") == "oidc" else brokers


def _oauth(jaas: str, token_url: str) -> dict[str, str]:
    """Return the settings with which librdkafka fetches OAuth tokens and renews them before they expire."""
    login = _jaas_options(jaas)
    extensions = {name.removeprefix("extension_"): text for name, text in login.items() if name[:10] == "extension_"}
    names = {"clientId": "client.id", "clientSecret": "client.secret", "scope": "scope"}
    return {
        "sasl.oauthbearer.method": "oidc",
        _OAUTH_ENDPOINT: token_url,
        **{f"sasl.oauthbearer.{name}": login[java] for java, name in names.items() if java in login},
        **({"sasl.oauthbearer.extensions": ",".join(f"{k}={v}" for k, v in extensions.items())} if extensions else {}),
    }


def _msk_iam(jaas: str) -> dict[str, Any]:
    """Return the settings for Amazon's IAM login. This process signs the tokens, because librdkafka cannot."""
    login = _jaas_options(jaas)
    sign = partial(msk_iam_token, login["awsStsRegion"], profile=login.get("awsProfileName"))
    # Sign the first token now, to raise an error if AWS's keys are missing: librdkafka would report a timeout.
    signed = [sign()]
    return {"sasl.mechanisms": "OAUTHBEARER", "oauth_cb": lambda _: signed.pop() if signed else sign()}


def _jaas_options(jaas: str) -> dict[str, str]:
    options = re.findall(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"', jaas)
    return {name: re.sub(r"\\(.)", r"\1", value) for name, value in options}


def _login(jaas: str) -> dict[str, str]:
    """Return the user name and password of a PlainLoginModule or ScramLoginModule."""
    if "Krb5LoginModule" in jaas:
        return {}  # Without further settings, librdkafka logs in with the tickets in this process's Kerberos cache.
    login = _jaas_options(jaas)
    if not {"username", "password"} <= login.keys():
        what = 'kafka.sasl.jaas.config has no username="…" and password="…"'
        hint = (
            "remove kafka.sasl.jaas.config, and write source.kafka.login: {scram: {username: …, password: …}}, or plain"
        )
        raise ConfigError(what, where="the Kafka client's settings", hint=hint)
    return {f"sasl.{name}": login[name] for name in ("username", "password")}


def _unreadable(key: str, kinds: str) -> ConfigError:
    return ConfigError(
        f"'{PREFIX}{key}' names a Java key store, which librdkafka, Python's Kafka client, cannot read",
        where="the Kafka client's settings",
        hint=f"convert the store, and set '{PREFIX}{key.replace('location', 'type')}': {kinds}",
    )


# Java's client logs in at Amazon MSK with a SASL mechanism of its own. Brokers also accept tokens, which are signed
# URLs, by OAUTHBEARER: https://github.com/aws/aws-msk-iam-sasl-signer-python.
_TOKEN_SECONDS = 900


def msk_iam_token(region: str, *, profile: str | None = None) -> tuple[str, float]:
    """Sign a token with the keys of AWS's default chain; return the token and its expiry time, in seconds since 1970.

    Raises:
        MissingExtra: botocore is missing.
        AccessDenied: AWS's default chain has no keys.
    """
    keys = keys_of_the_chain("AWS", purpose="Amazon MSK's login by IAM", profile=profile)
    from botocore.auth import SigV4QueryAuth
    from botocore.awsrequest import AWSRequest

    address = f"https://kafka.{region}.amazonaws.com/"
    request = AWSRequest(method="GET", url=address, params={"Action": "kafka-cluster:Connect"})
    expires = time.time() + _TOKEN_SECONDS
    SigV4QueryAuth(keys, "kafka-cluster", region, expires=_TOKEN_SECONDS).add_auth(request)
    # This parameter, which is not signed, names the client in the broker's log.
    signed = f"{request.url}&User-Agent=lakefeed"
    return base64.urlsafe_b64encode(signed.encode()).rstrip(b"=").decode(), expires
