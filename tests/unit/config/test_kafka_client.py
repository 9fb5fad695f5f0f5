"""The login for Kafka's clients in Java and Python, and the client settings that users may give."""

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
from lakefeed.config.kafka_client import (
    CONSUMER,
    CONSUMER_DEFAULTS,
    PREFIX,
    PRODUCER,
    PRODUCER_DEFAULTS,
    REFUSED_CONSUMER,
    REFUSED_PRODUCER,
    KafkaLogin,
    client_options,
    consumer_problems,
    producer_problems,
)
from lakefeed.config.secrets import is_secret
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import AccessDenied, ConfigError
from tests.support.pipeline_text import GOOD, Reader

MODULES = "com.sun.security.auth.module"
JNDI = f"{MODULES}.JndiLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = {"token_url": "https://login/token", "client_id": "me", "client_secret": "s", "scope": "kafka"}
TEXT = st.text(st.characters(min_codepoint=0x20, exclude_categories=["Cs"]), min_size=1)


@given(TEXT, TEXT, st.sampled_from(["plain", "scram"]))
def test_java_and_python_get_the_same_user_and_password(user: str, password: str, kind: str) -> None:
    options = client_options(KafkaLogin.model_validate({kind: {"username": user, "password": password}}), {})
    settings = librdkafka_settings(options)
    assert (settings["sasl.username"], settings["sasl.password"]) == (user, password)
    assert settings["security.protocol"] == "SASL_SSL"
    assert settings["sasl.mechanisms"] == {"plain": "PLAIN", "scram": "SCRAM-SHA-512"}[kind]
    assert is_secret("kafka.sasl.jaas.config", options["kafka.sasl.jaas.config"])


@given(TEXT, TEXT)
def test_java_and_python_request_the_same_tokens(client: str, secret: str) -> None:
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
def test_a_wrong_login_is_refused(block: dict[str, object], message: str) -> None:
    with pytest.raises((ValidationError, ConfigProblems), match=message):
        KafkaLogin.model_validate(block)


def test_a_login_is_refused_if_client_options_set_a_login_too() -> None:
    source = {"bootstrap_servers": "b:9093", "topics": ["t"], "login": {"oauth": OAUTH}}
    assert KafkaSource.model_validate(source).client_options["kafka.sasl.mechanism"] == "OAUTHBEARER"
    with pytest.raises(ValidationError, match="login and options both set"):
        KafkaSource.model_validate({**source, "options": {"kafka.sasl.mechanism": "PLAIN"}})


def test_a_login_comes_from_the_environment() -> None:
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


def test_msk_iam_is_a_class_for_java_and_a_signed_token_for_python(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_java_and_python_use_the_profile_of_msk_iam(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


def test_msk_iam_without_aws_keys_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    options = client_options(KafkaLogin.model_validate({"msk_iam": {"region": "eu-west-1"}}), {})
    with pytest.raises(AccessDenied, match="no AWS keys were found"):
        librdkafka_settings(options)


def test_a_missing_jar_for_msk_iam_is_a_warning(reading: Reader) -> None:
    login = GOOD.replace("    topics:", "    login: {msk_iam: {region: eu-west-1}}\n    topics:")
    [found] = reading(login)[1]
    assert (found.key, found.severity) == ("source.kafka.login.msk_iam", "warning")
    assert "software.amazon.msk:aws-msk-iam-auth" in found.what
    assert reading(login + "spark: {spark.jars.packages: 'software.amazon.msk:aws-msk-iam-auth:2.3.2'}\n")[1] == []


def test_lakefeeds_default_client_settings_are_allowed() -> None:
    assert consumer_problems(CONSUMER_DEFAULTS) == []
    assert producer_problems(PRODUCER_DEFAULTS) == []
    assert all(key.startswith(PREFIX) for key in [*CONSUMER_DEFAULTS, *PRODUCER_DEFAULTS])


def test_no_setting_is_both_allowed_and_refused() -> None:
    assert not CONSUMER.keys() & REFUSED_CONSUMER.keys()
    assert not PRODUCER.keys() & REFUSED_PRODUCER.keys()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kafka.max.poll.records", 5),
        ("kafka.max.poll.records", "5"),
        ("kafka.check.crcs", True),
        ("kafka.check.crcs", "FALSE"),
        ("kafka.receive.buffer.bytes", -1),
        ("kafka.sasl.login.refresh.window.factor", 0.8),
        ("kafka.isolation.level", "read_uncommitted"),
        ("kafka.group.id", "allowed-group"),
        ("kafka.ssl.truststore.location", "/etc/trust.pem"),
        ("kafka.sasl.jaas.config", f'{SCRAM} required username="u" password="p;\' // /*";'),
        ("kafka.sasl.jaas.config", f'{MODULES}.Krb5LoginModule required useKeyTab=true keyTab="/k";'),
    ],
)
def test_an_allowed_setting_of_a_consumer_is_accepted(key: str, value: object) -> None:
    assert consumer_problems({key: value}) == []


@pytest.mark.parametrize(
    ("key", "value", "what", "hint"),
    [
        # misspelt settings
        ("kafka.max.pol.records", 5, "unknown", "'kafka.max.poll.records'"),
        ("kafka.maxPollRecords", 5, "unknown", "'kafka.max.poll.records'"),
        ("kafka.max_poll_records", 5, "unknown", "'kafka.max.poll.records'"),
        ("max.poll.records", 5, "lacks its prefix", "kafka.max.poll.records"),
        ("kafka.zzz", 5, "unknown", "kafka.apache.org"),
        ("kafka.linger.ms", 5, "unknown", "a setting of producers"),
        # wrong values
        ("kafka.max.poll.records", "many", "a whole number of at least 1", None),
        ("kafka.max.poll.records", 0, "a whole number of at least 1", None),
        ("kafka.max.poll.records", True, "a whole number", None),
        ("kafka.max.poll.records", 1.5, "a whole number", None),
        ("kafka.check.crcs", "yes", "true or false", None),
        ("kafka.isolation.level", "committed", "one of read_committed, read_uncommitted", None),
        ("kafka.client.id", "", "a text", None),
        ("kafka.client.id", ["a"], "a single value", None),
        # settings that Spark or lakefeed sets
        ("kafka.bootstrap.servers", "a:1", "cannot be set", None),
        ("kafka.auto.offset.reset", "earliest", "source.kafka.start", None),
        ("kafka.key.deserializer", "a.B", "cannot be set", None),
        ("kafka.value.deserializer", "a.B", "cannot be set", None),
        ("kafka.enable.auto.commit", True, "cannot be set", None),
        ("kafka.session.timeout.ms", 5, "no consumer joins a group", None),
        # options of Spark's Kafka source
        ("startingOffsets", "latest", "not a setting of Kafka's client", "source.kafka.start"),
        ("startingoffsets", "latest", "not a setting of Kafka's client", "source.kafka.start"),
        ("failOnDataLoss", False, "not a setting of Kafka's client", "never skips"),
        ("maxOffsetsPerTrigger", 5, "not a setting of Kafka's client", "max_records_per_batch"),
        ("subscribe", "a", "not a setting of Kafka's client", "source.kafka.topics"),
        ("subscribePattern", "a", "not a setting of Kafka's client", "topics_pattern"),
        ("includeHeaders", True, "not a setting of Kafka's client", "decode.metadata"),
        ("minPartitions", 8, "not a setting of Kafka's client", "partitions"),
        ("groupIdPrefix", "a", "not a setting of Kafka's client", "kafka.group.id"),
        # dangerous settings
        ("kafka.interceptor.classes", "a.B", "load a class", None),
        ("kafka.metric.reporters", "a.B", "load a class", None),
        ("kafka.sasl.login.callback.handler.class", "a.B", "load a class", None),
        ("kafka.ssl.engine.factory.class", "a.B", "load a class", None),
        ("kafka.security.providers", "a.B", "load a class", None),
        ("kafka.sasl.kerberos.kinit.cmd", "/bin/sh", "run a command", None),
        ("kafka.sasl.oauthbearer.token.endpoint.url", "file:///etc/passwd", "CVE-2025-27817", None),
        ("kafka.sasl.oauthbearer.jwks.endpoint.url", "http://169.254.169.254", "CVE-2025-27817", None),
        ("kafka.sasl.mechanism", "OAUTHBEARER", "one of PLAIN", "login: {oauth: {token_url"),
        ("kafka.ssl.endpoint.identification.algorithm", "", "one of https", None),
    ],
)
def test_a_wrong_setting_of_a_consumer_is_refused(key: str, value: object, what: str, hint: str | None) -> None:
    (problem,) = consumer_problems({key: value})
    assert problem.key == key
    assert what in problem.what
    assert (hint or "") in (problem.hint or "")


@pytest.mark.parametrize(
    "value",
    [
        f'{JNDI} required user.provider.url="ldap://evil" password="hunter2";',
        f'{PLAIN} required password="hunter2"; {JNDI} required;',
        f"{PLAIN} required a='\"'; {JNDI} required b='\"hunter2';",
        f'{PLAIN} required /*"*/; {JNDI} required /*"*/ password="hunter2";',
        f'{PLAIN} required //"\n; {JNDI} required //"hunter2',
        f'{PLAIN} required a="hunter2\n"; {JNDI} required b="";',
        f'"{PLAIN}" required password="hunter2";',
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
        f"{MODULES}.LdapLoginModule required;",
        "hunter2",
        ";",
    ],
)
def test_other_login_modules_are_refused_without_quoting_the_value(value: str) -> None:
    (problem,) = consumer_problems({"kafka.sasl.jaas.config": value})
    assert "hunter2" not in problem.what + (problem.hint or "")


def test_all_wrong_settings_are_reported() -> None:
    found = consumer_problems({"subscribe": "a", "kafka.fetch.min.bytes": "x", "kafka.client.id": "ok", "kafka.no": 1})
    assert [each.key for each in found] == ["subscribe", "kafka.fetch.min.bytes", "kafka.no"]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"kafka.acks": "1"}, "an idempotent producer requires acks=all"),
        ({"kafka.max.in.flight.requests.per.connection": 6}, "at most 5"),
        ({"kafka.compression.type": "brotli"}, "one of none, gzip"),
        ({"kafka.transactional.id": "t"}, "begins no transactions"),
        ({"kafka.partitioner.class": "a.B"}, "load a class"),
        ({"kafka.isolation.level": "read_committed"}, "unknown"),
        ({"kafka.bootstrap.servers": "a:1"}, "--bootstrap-servers"),
    ],
)
def test_a_wrong_setting_of_a_producer_is_refused(options: dict[str, object], what: str) -> None:
    (problem,) = producer_problems(options)
    assert what in problem.what


def test_acks_1_is_allowed_without_idempotence() -> None:
    assert producer_problems({"kafka.acks": "1", "kafka.enable.idempotence": False}) == []
    assert producer_problems({"kafka.compression.zstd.level": -5, "kafka.linger.ms": 0}) == []
