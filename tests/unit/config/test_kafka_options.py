from __future__ import annotations

import pytest

from lakefeed.config.kafka_options import (
    CONSUMER,
    CONSUMER_DEFAULTS,
    PREFIX,
    PRODUCER,
    PRODUCER_DEFAULTS,
    REFUSED_CONSUMER,
    REFUSED_PRODUCER,
    consumer_problems,
    producer_problems,
)


def test_the_defaults_pass_their_own_check() -> None:
    assert consumer_problems(CONSUMER_DEFAULTS) == []
    assert producer_problems(PRODUCER_DEFAULTS) == []


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
        (
            "kafka.sasl.jaas.config",
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p;\' // /*";',
        ),
        (
            "kafka.sasl.jaas.config",
            'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/k";',
        ),
    ],
)
def test_what_a_consumer_may_be_given(key: str, value: object) -> None:
    assert consumer_problems({key: value}) == []


@pytest.mark.parametrize(
    ("key", "value", "what", "hint"),
    [
        # misspelt
        ("kafka.max.pol.records", 5, "unknown", "'kafka.max.poll.records'"),
        ("kafka.maxPollRecords", 5, "unknown", "'kafka.max.poll.records'"),
        ("kafka.max_poll_records", 5, "unknown", "'kafka.max.poll.records'"),
        ("max.poll.records", 5, "lacks its prefix", "kafka.max.poll.records"),
        ("kafka.zzz", 5, "unknown", "kafka.apache.org"),
        ("kafka.linger.ms", 5, "unknown", "the other side"),
        # wrong values
        ("kafka.max.poll.records", "many", "a whole number of at least 1", None),
        ("kafka.max.poll.records", 0, "a whole number of at least 1", None),
        ("kafka.max.poll.records", True, "a whole number", None),
        ("kafka.max.poll.records", 1.5, "a whole number", None),
        ("kafka.check.crcs", "yes", "true or false", None),
        ("kafka.isolation.level", "committed", "one of read_committed, read_uncommitted", None),
        ("kafka.client.id", "", "a text", None),
        ("kafka.client.id", ["a"], "a single value", None),
        # what Spark or lakefeed sets
        ("kafka.bootstrap.servers", "a:1", "cannot be set", None),
        ("kafka.auto.offset.reset", "earliest", "source.kafka.start", None),
        ("kafka.key.deserializer", "a.B", "cannot be set", None),
        ("kafka.value.deserializer", "a.B", "cannot be set", None),
        ("kafka.enable.auto.commit", True, "cannot be set", None),
        ("kafka.session.timeout.ms", 5, "no consumer joins a group", None),
        # Spark's own
        ("startingOffsets", "latest", "not for options", "source.kafka.start"),
        ("startingoffsets", "latest", "not for options", "source.kafka.start"),
        ("failOnDataLoss", False, "not for options", "never skips"),
        ("maxOffsetsPerTrigger", 5, "not for options", "max_records_per_batch"),
        ("subscribe", "a", "not for options", "source.kafka.topics"),
        ("subscribePattern", "a", "not for options", "topics_pattern"),
        ("includeHeaders", True, "not for options", "decode.metadata"),
        ("minPartitions", 8, "not for options", "partitions"),
        ("groupIdPrefix", "a", "not for options", "kafka.group.id"),
        # dangerous
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
def test_what_a_consumer_may_not_be_given(key: str, value: object, what: str, hint: str | None) -> None:
    (problem,) = consumer_problems({key: value})
    assert problem.key == key
    assert what in problem.what
    assert (hint or "") in (problem.hint or "")


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
JNDI = "com.sun.security.auth.module.JndiLoginModule"


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
        "com.sun.security.auth.module.LdapLoginModule required;",
        "hunter2",
        ";",
    ],
)
def test_other_login_modules_are_refused_without_a_word_of_the_value(value: str) -> None:
    (problem,) = consumer_problems({"kafka.sasl.jaas.config": value})
    assert "hunter2" not in problem.what + (problem.hint or "")


def test_all_problems_come_at_once() -> None:
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
def test_what_a_producer_may_not_be_given(options: dict[str, object], what: str) -> None:
    (problem,) = producer_problems(options)
    assert what in problem.what


def test_a_producer_may_give_its_guarantees_up_knowingly() -> None:
    assert producer_problems({"kafka.acks": "1", "kafka.enable.idempotence": False}) == []
    assert producer_problems({"kafka.compression.zstd.level": -5, "kafka.linger.ms": 0}) == []


def test_every_default_has_the_prefix() -> None:
    assert all(key.startswith(PREFIX) for key in [*CONSUMER_DEFAULTS, *PRODUCER_DEFAULTS])
