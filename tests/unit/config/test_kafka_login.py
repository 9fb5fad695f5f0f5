"""``login``: one block for Java's client and for librdkafka."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lakefeed.clients.kafka.librdkafka import librdkafka_settings
from lakefeed.config.base import ConfigProblems
from lakefeed.config.kafka_login import KafkaLogin, client_options
from lakefeed.config.secrets import is_secret
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ConfigError

OAUTH = {"token_url": "https://login/token", "client_id": "me", "client_secret": "s", "scope": "kafka"}
TEXT = st.text(st.characters(min_codepoint=0x20, exclude_categories=["Cs"]), min_size=1)


@given(TEXT, TEXT, st.sampled_from(["plain", "scram"]))
def test_both_clients_get_the_same_user_and_password(user: str, password: str, kind: str) -> None:
    options = client_options(KafkaLogin.model_validate({kind: {"username": user, "password": password}}), {})
    settings = librdkafka_settings(options)
    assert (settings["sasl.username"], settings["sasl.password"]) == (user, password)
    assert settings["security.protocol"] == "SASL_SSL"
    assert settings["sasl.mechanisms"] == {"plain": "PLAIN", "scram": "SCRAM-SHA-512"}[kind]
    assert is_secret("kafka.sasl.jaas.config", options["kafka.sasl.jaas.config"])


@given(TEXT, TEXT)
def test_both_clients_fetch_the_same_tokens(client: str, secret: str) -> None:
    login = {**OAUTH, "client_id": client, "client_secret": secret, "extensions": {"logicalCluster": "lkc-1"}}
    options = client_options(KafkaLogin.model_validate({"oauth": login}), {})
    assert options["kafka.sasl.oauthbearer.token.endpoint.url"] == "https://login/token"
    settings = librdkafka_settings(options)
    assert settings["sasl.oauthbearer.method"] == "oidc"
    assert settings["sasl.oauthbearer.client.id"] == client
    assert settings["sasl.oauthbearer.client.secret"] == secret
    assert settings["sasl.oauthbearer.scope"] == "kafka"
    assert settings["sasl.oauthbearer.extensions"] == "logicalCluster=lkc-1"


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"oauth": {**OAUTH, "token_url": "http://login/token"}}, "begins with https://"),
        ({"oauth": {**OAUTH, "token_url": "file:///etc/passwd"}}, "begins with https://"),
        ({"oauth": {**OAUTH, "token_url": "https://me:s@login/token"}}, "credentials do not belong in a URL"),
        ({"scram": {"username": "me", "password": "a\nb"}}, "no line breaks"),
        ({"scram": {"username": "me", "password": "x", "hash": "MD5"}}, "SHA-256"),
        ({"plain": {"username": "me", "password": "x"}, "oauth": OAUTH}, "exactly one"),
        ({}, "exactly one"),
    ],
)
def test_logins_that_are_refused(block: dict[str, object], message: str) -> None:
    with pytest.raises((ValidationError, ConfigProblems), match=message):
        KafkaLogin.model_validate(block)


def test_a_login_is_not_said_twice() -> None:
    source = {"bootstrap_servers": "b:9093", "topics": ["t"], "login": {"oauth": OAUTH}}
    assert KafkaSource.model_validate(source).client_options["kafka.sasl.mechanism"] == "OAUTHBEARER"
    with pytest.raises(ValidationError, match="login says what"):
        KafkaSource.model_validate({**source, "options": {"kafka.sasl.mechanism": "PLAIN"}})


def test_the_environment_names_a_login() -> None:
    assert KafkaLogin.from_environment({}) is None
    user = {"KAFKA_SASL_USERNAME": "me", "KAFKA_SASL_PASSWORD": "x"}
    for mechanism, kind in (("PLAIN", "plain"), ("SCRAM-SHA-256", "scram")):
        found = KafkaLogin.from_environment({**user, "KAFKA_SASL_MECHANISM": mechanism})
        assert found is not None
        assert (found.kind, found.settings()["sasl.mechanism"]) == (kind, mechanism)
    tokens = {f"KAFKA_OAUTH_{name.upper()}": value for name, value in OAUTH.items()}
    found = KafkaLogin.from_environment(tokens)
    assert found is not None
    assert found.kind == "oauth"
    with pytest.raises(ConfigError, match="KAFKA_ variables"):
        KafkaLogin.from_environment({**user, "KAFKA_SASL_MECHANISM": "GSSAPI"})
