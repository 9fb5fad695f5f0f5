"""``login``: one block for Java's client and for librdkafka."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lakefeed.clients.kafka.librdkafka import librdkafka_settings
from lakefeed.config.base import ConfigProblems
from lakefeed.config.kafka_login import KafkaLogin, client_options
from lakefeed.config.secrets import is_secret
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import AccessDenied, ConfigError
from tests.support.pipeline_text import GOOD, Reader

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
        ({"msk_iam": {"region": "Dublin"}}, "written as eu-west-1"),
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
    found = KafkaLogin.from_environment({"KAFKA_SASL_MECHANISM": "AWS_MSK_IAM", "AWS_REGION": "eu-west-1"})
    assert found is not None
    assert found.msk_iam is not None
    assert found.msk_iam.region == "eu-west-1"
    with pytest.raises(ConfigError, match="KAFKA_ variables"):
        KafkaLogin.from_environment({**user, "KAFKA_SASL_MECHANISM": "GSSAPI"})


def test_amazons_login_is_a_class_for_java_and_a_signed_token_for_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "short-lived")
    options = client_options(KafkaLogin.model_validate({"msk_iam": {"region": "eu-west-1"}}), {})
    java = "software.amazon.msk.auth.iam"
    assert options == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "AWS_MSK_IAM",
        "kafka.sasl.jaas.config": f'{java}.IAMLoginModule required awsStsRegion="eu-west-1";',
        "kafka.sasl.client.callback.handler.class": f"{java}.IAMClientCallbackHandler",
    }
    settings = librdkafka_settings(options)
    sign = settings.pop("oauth_cb")
    assert settings == {"security.protocol": "SASL_SSL", "sasl.mechanisms": "OAUTHBEARER"}
    token, expires = sign("")
    assert 800 < expires - time.time() <= 900
    address = urlsplit(base64.urlsafe_b64decode(token + "==").decode())
    assert (address.scheme, address.netloc, address.path) == ("https", "kafka.eu-west-1.amazonaws.com", "/")
    query = dict(parse_qsl(address.query, strict_parsing=True))
    assert query["Action"] == "kafka-cluster:Connect"
    assert query["X-Amz-Expires"] == "900"
    assert query["X-Amz-Security-Token"] == "short-lived"
    assert query["X-Amz-Credential"].startswith("AKIDEXAMPLE/")
    assert query["X-Amz-Credential"].endswith("/eu-west-1/kafka-cluster/aws4_request")
    assert "hush-hush" not in address.query


def test_a_profile_is_for_both_clients(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("[feeds]\naws_access_key_id = AKIDFEEDS\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    options = client_options(
        KafkaLogin.model_validate({"msk_iam": {"region": "us-gov-east-1", "profile": "feeds"}}), {}
    )
    assert 'awsProfileName="feeds"' in options["kafka.sasl.jaas.config"]
    token, _ = librdkafka_settings(options)["oauth_cb"]("")
    assert b"AKIDFEEDS" in base64.urlsafe_b64decode(token + "==")


def test_amazons_login_without_keys_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    options = client_options(KafkaLogin.model_validate({"msk_iam": {"region": "eu-west-1"}}), {})
    with pytest.raises(AccessDenied, match="no AWS keys were found"):
        librdkafka_settings(options)


def test_the_jar_for_amazons_login_is_the_users(reading: Reader) -> None:
    login = GOOD.replace("    topics:", "    login: {msk_iam: {region: eu-west-1}}\n    topics:")
    [found] = reading(login)[1]
    assert (found.key, found.severity) == ("source.kafka.login.msk_iam", "warning")
    assert "software.amazon.msk:aws-msk-iam-auth" in found.what
    assert reading(login + "spark: {spark.jars.packages: 'software.amazon.msk:aws-msk-iam-auth:2.3.2'}\n")[1] == []
