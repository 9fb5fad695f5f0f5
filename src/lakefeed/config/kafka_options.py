"""Kafka client settings that a pipeline may pass on, with the prefix ``kafka.``, and those it may not.

An allow-list of exact names: a misspelt setting, which Kafka would ignore with one line in a log, is an error
with the nearest name; so is one that Spark or lakefeed sets itself, or one that loads classes, runs commands
or fetches URLs. Names and types: ``ConsumerConfig`` and ``ProducerConfig`` of the locked kafka-clients jar; a
test compares them with these lists.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lakefeed.config.base import Complaint

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
    """What a client setting takes.

    Attributes:
        type: the kind of value.
        words: the words it takes, where they are counted.
        least: the smallest number it takes.
    """

    type: Literal["text", "int", "number", "bool"] = "text"
    words: tuple[str, ...] = ()
    least: int = 0

    def expected_value(self, value: object) -> str | None:
        """What the setting expects, if ``value`` is not that."""
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


def _options(kind: Literal["text", "int", "number", "bool"], names: str, *, least: int = 0) -> dict[str, Option]:
    return {name: Option(type=kind, least=least) for name in names.split()}


_CLIENT: dict[str, Option] = {
    **_options("text", "client.id client.rack sasl.jaas.config sasl.kerberos.service.name security.protocol"),
    **_options("text", "ssl.cipher.suites ssl.enabled.protocols ssl.key.password ssl.keymanager.algorithm"),
    **_options("text", "ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location"),
    **_options("text", "ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider"),
    **_options("text", "ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates"),
    **_options("text", "ssl.truststore.location ssl.truststore.password ssl.truststore.type"),
    **_options("int", "metadata.max.age.ms metrics.num.samples metrics.sample.window.ms reconnect.backoff.ms"),
    **_options("int", "reconnect.backoff.max.ms request.timeout.ms retry.backoff.ms retry.backoff.max.ms"),
    **_options("int", "sasl.kerberos.min.time.before.relogin sasl.login.connect.timeout.ms"),
    **_options("int", "sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds"),
    **_options("int", "sasl.login.refresh.min.period.seconds sasl.login.retry.backoff.ms"),
    **_options("int", "sasl.login.retry.backoff.max.ms socket.connection.setup.timeout.ms"),
    **_options("int", "socket.connection.setup.timeout.max.ms"),
    # -1: as the operating system has it, or never.
    **_options("int", "connections.max.idle.ms receive.buffer.bytes send.buffer.bytes", least=-1),
    **_options("number", "sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor"),
    **_options("number", "sasl.login.refresh.window.factor sasl.login.refresh.window.jitter"),
    **_options("bool", "auto.include.jmx.reporter enable.metrics.push"),
    "client.dns.lookup": Option(words=("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")),
    "metadata.recovery.strategy": Option(words=("none", "rebootstrap")),
    "metrics.recording.level": Option(words=("INFO", "DEBUG", "TRACE")),
    "sasl.mechanism": Option(words=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")),
    "security.protocol": Option(words=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    # Empty would switch the check of the broker's host name off.
    "ssl.endpoint.identification.algorithm": Option(words=("https",)),
}

CONSUMER: dict[str, Option] = {
    **_CLIENT,
    **_options("bool", "allow.auto.create.topics check.crcs exclude.internal.topics"),
    **_options("int", "default.api.timeout.ms fetch.max.bytes fetch.max.wait.ms fetch.min.bytes"),
    **_options("int", "max.partition.fetch.bytes"),
    **_options("int", "max.poll.records", least=1),
    # Spark assigns partitions itself and commits nothing, so a group's id is a name for access rules only.
    "group.id": Option(),
    "isolation.level": Option(words=("read_committed", "read_uncommitted")),
}

PRODUCER: dict[str, Option] = {
    **{name: option for name, option in _CLIENT.items() if name != "client.rack"},
    **_options("int", "batch.size buffer.memory delivery.timeout.ms linger.ms max.block.ms max.request.size"),
    **_options("int", "metadata.max.idle.ms partitioner.availability.timeout.ms retries"),
    **_options("int", "max.in.flight.requests.per.connection", least=1),
    **_options("int", "compression.gzip.level compression.lz4.level", least=-1),
    # Zstandard's negative levels trade size for speed.
    **_options("int", "compression.zstd.level", least=-131072),
    **_options("bool", "enable.idempotence partitioner.adaptive.partitioning.enable partitioner.ignore.keys"),
    "acks": Option(words=("all", "-1", "0", "1")),
    "compression.type": Option(words=("none", "gzip", "snappy", "lz4", "zstd")),
}

_CODE = "it would load a class into Spark, and lakefeed loads none that a pipeline file names"
_URL = "it can be made to read files and internal URLs (CVE-2025-27817)"
_ALONE = "Spark assigns partitions itself: no consumer joins a group, so this has no effect"
_COMMIT = "progress is kept in the checkpoint and the table, never in consumer group offsets"
_BYTES = "Spark hands bytes to and fro: the pipeline's decode block says what they mean"
_INTERNAL = "it is internal to Kafka"
_TRUSTED = "it belongs to a server that checks tokens, not to a client"

_REFUSED_CLIENT: dict[str, str] = {
    "bootstrap.servers": "write source.kafka.bootstrap_servers instead",
    "interceptor.classes": _CODE,
    "metric.reporters": _CODE,
    "sasl.client.callback.handler.class": _CODE,
    "sasl.login.callback.handler.class": _CODE,
    "sasl.login.class": _CODE,
    "security.providers": _CODE,
    "ssl.engine.factory.class": _CODE,
    "sasl.kerberos.kinit.cmd": "it would run a command on Spark's machines",
    "sasl.oauthbearer.token.endpoint.url": _URL,
    "sasl.oauthbearer.jwks.endpoint.url": _URL,
    **dict.fromkeys(
        (
            "sasl.oauthbearer.clock.skew.seconds",
            "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        ),
        _TRUSTED,
    ),
    **dict.fromkeys(
        (
            "sasl.oauthbearer.header.urlencode",
            "sasl.oauthbearer.scope.claim.name",
            "sasl.oauthbearer.sub.claim.name",
        ),
        "OAUTHBEARER is not offered; sasl.mechanism takes PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and GSSAPI",
    ),
}

REFUSED_CONSUMER: dict[str, str] = {
    **_REFUSED_CLIENT,
    "auto.offset.reset": "write source.kafka.start (earliest or latest) instead",
    "auto.commit.interval.ms": _COMMIT,
    "enable.auto.commit": _COMMIT,
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
    **dict.fromkeys(
        (
            "group.instance.id",
            "group.protocol",
            "group.remote.assignor",
            "heartbeat.interval.ms",
            "max.poll.interval.ms",
            "partition.assignment.strategy",
            "session.timeout.ms",
        ),
        _ALONE,
    ),
    "internal.leave.group.on.close": _INTERNAL,
    "internal.throw.on.fetch.stable.offset.unsupported": _INTERNAL,
}

REFUSED_PRODUCER: dict[str, str] = {
    **_REFUSED_CLIENT,
    "bootstrap.servers": "write --bootstrap-servers instead",
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "partitioner.class": f"{_CODE}; choose a key column instead",
    "transactional.id": "Spark's Kafka sink begins no transactions",
    "transaction.timeout.ms": "Spark's Kafka sink begins no transactions",
}

# Spark's own options of the Kafka source, which have no prefix, in lower case as Spark compares them.
_SPARK: dict[str, str] = {
    "subscribe": "write source.kafka.topics instead",
    "subscribepattern": "write source.kafka.topics_pattern instead",
    "assign": "write source.kafka.topics instead",
    "startingoffsets": "write source.kafka.start (earliest or latest) instead",
    "startingtimestamp": "write source.kafka.start (earliest or latest) instead",
    "startingoffsetsbytimestamp": "write source.kafka.start (earliest or latest) instead",
    "startingoffsetsbytimestampstrategy": "write source.kafka.start (earliest or latest) instead",
    "endingoffsets": "a feed has no end: lakefeed run --once stops at what the topics hold now",
    "endingtimestamp": "a feed has no end: lakefeed run --once stops at what the topics hold now",
    "endingoffsetsbytimestamp": "a feed has no end: lakefeed run --once stops at what the topics hold now",
    "maxoffsetspertrigger": "write source.kafka.max_records_per_batch instead",
    "minoffsetspertrigger": "set the trigger to a longer time instead",
    "maxtriggerdelay": "set the trigger to a longer time instead",
    "maxrecordsperpartition": "write source.kafka.max_records_per_batch instead",
    "minpartitions": "more tasks than the topic has partitions were measured slower: add partitions instead",
    "failondataloss": "lost records always stop the feed: it never skips offsets in silence",
    "includeheaders": "write decode.metadata: [headers] instead",
    "groupidprefix": "write kafka.group.id instead",
    "kafkaconsumer.polltimeoutms": "write kafka.request.timeout.ms instead",
    "fetchoffset.numretries": "write kafka.default.api.timeout.ms instead",
    "fetchoffset.retryintervalms": "write kafka.retry.backoff.ms instead",
}

# Those that only read what the user's own credentials say. Others reach for LDAP, JNDI or files
# (CVE-2023-25194, CVE-2025-27818, CVE-2025-27819).
_LOGIN_MODULES = (
    "org.apache.kafka.common.security.plain.PlainLoginModule",
    "org.apache.kafka.common.security.scram.ScramLoginModule",
    "com.sun.security.auth.module.Krb5LoginModule",
)


def consumer_complaints(options: Mapping[str, object]) -> list[Complaint]:
    """What is wrong with ``source.kafka.options``, one complaint for each setting at fault.

    Args:
        options: settings with the prefix ``kafka.``.
    """
    return _complaints(options, allowed=CONSUMER, refused=REFUSED_CONSUMER, other=PRODUCER, role="consumer")


def producer_complaints(options: Mapping[str, object]) -> list[Complaint]:
    """What is wrong with a producer's settings, one complaint for each setting at fault.

    Args:
        options: settings with the prefix ``kafka.``, without ``PRODUCER_DEFAULTS``.
    """
    found = _complaints(options, allowed=PRODUCER, refused=REFUSED_PRODUCER, other=CONSUMER, role="producer")
    merged = {**PRODUCER_DEFAULTS, **{key: str(value).lower() for key, value in options.items()}}
    if merged["kafka.enable.idempotence"] == "true":
        if merged["kafka.acks"] not in ("all", "-1"):
            hint = "write kafka.acks: all, or add kafka.enable.idempotence: false and accept doubled rows"
            found.append(Complaint(key="kafka.acks", what="an idempotent producer requires acks=all", hint=hint))
        in_flight = merged.get("kafka.max.in.flight.requests.per.connection", "5")
        if in_flight.isdigit() and int(in_flight) > 5:
            key = "kafka.max.in.flight.requests.per.connection"
            found.append(Complaint(key=key, what=f"'{key}': an idempotent producer allows at most 5"))
    return found


def _complaints(
    options: Mapping[str, object],
    *,
    allowed: Mapping[str, Option],
    refused: Mapping[str, str],
    other: Mapping[str, Option],
    role: str,
) -> list[Complaint]:
    found = []
    for key, value in options.items():
        name = key.removeprefix(PREFIX)
        option = allowed.get(name)
        if key.lower() in _SPARK and not key.startswith(PREFIX):
            found.append(Complaint(key=key, what=f"'{key}' is not for options", hint=_SPARK[key.lower()]))
        elif name in refused:
            found.append(Complaint(key=key, what=f"'{key}' cannot be set: {refused[name]}"))
        elif option is None:
            hint = _nearest(name, allowed, refused)
            if name in other:
                hint = f"it is no {role} setting, but one of the other side"
            found.append(Complaint(key=key, what=f"unknown Kafka {role} setting '{key}'", hint=hint))
        elif not key.startswith(PREFIX):
            found.append(Complaint(key=key, what=f"'{key}' lacks its prefix", hint=f"write {PREFIX}{name}"))
        elif expected := option.expected_value(value):
            hint = "OAUTHBEARER is not offered: " + _URL if name == "sasl.mechanism" else None
            found.append(Complaint(key=key, what=f"'{key}' expects {expected}", hint=hint))
        elif name == "sasl.jaas.config" and (what := _jaas(str(value))):
            hint = f"one of {', '.join(_LOGIN_MODULES)}"
            found.append(Complaint(key=key, what=f"'{key}' {what}", hint=hint))
    return found


def _nearest(name: str, allowed: Mapping[str, Option], refused: Mapping[str, str]) -> str | None:
    plain = re.sub(r"[_\- ]", ".", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", ".", name)).lower()
    near = difflib.get_close_matches(plain, [*allowed, *refused], n=1, cutoff=0.7)
    if not near:
        return "names and meanings: https://kafka.apache.org/documentation/#configuration"
    return f"did you mean '{PREFIX}{near[0]}'?"


def _jaas(value: str) -> str | None:
    """What is wrong with a JAAS configuration, without a word of it: it holds a password."""
    # One entry is 'class flag name="value" …;'. Quoted values may hold anything, so they go first.
    bare = re.sub(r'"(?:[^"\\\r\n]|\\.)*"', '""', value)
    # What Kafka's tokenizer would read otherwise could hide a second module: other quotes, comments, line ends.
    if re.search(r"'|//|/\*", bare) or '"' in bare.replace('""', ""):
        return "requires values in double quotes, each on one line, and no comments"
    entries = [entry.split() for entry in bare.split(";") if entry.strip()]
    if len(entries) != 1:
        return "requires one login module with its settings, ended by a semicolon"
    if entries[0][0] not in _LOGIN_MODULES:
        return "names a login module that is not allowed"
    return None
