"""What Kafka's errors mean, and what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException

from lakefeed.errors import AccessDenied, ConfigError, LakefeedError, ResourceMissing, Unreachable

_AWAY = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
}
PASSING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}
_DENIED = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}


def explained(error: KafkaException, *, servers: str, topic: str | None) -> LakefeedError:
    """The error that a user is to see.

    Args:
        error: the client's.
        servers: whom it was asked of.
        topic: what it is about, if one.
    """
    code = error_code(error)
    where = f"topic {topic} at {servers}" if topic else servers
    if code in _AWAY:
        return Unreachable(
            "no Kafka broker answers",
            where=servers,
            hint="check the address and that the broker runs; 'lakefeed local up' starts a local one",
        )
    if code in _DENIED:
        return AccessDenied(f"Kafka refuses these credentials: {error_text(error)}", where=where)
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        return ConfigError(
            f"the topic {topic} already exists",
            where=servers,
            hint="use --if-not-exists to leave it as it is, or choose another name",
        )
    if code == KafkaError.INVALID_REPLICATION_FACTOR:
        return ConfigError(
            f"the cluster cannot keep that many copies: {error_text(error)}",
            where=where,
            hint="choose a replication factor between 1 and the number of brokers",
        )
    return ConfigError(f"Kafka refuses: {error_text(error)}", where=where)


def missing_topic(name: str, existing: Sequence[str], *, where: str) -> ResourceMissing:
    """The error for a topic that is not there, with the nearest names."""
    near = difflib.get_close_matches(name, existing, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return ResourceMissing(
        f"there is no topic {name}", where=where, hint=f"{hint}create it: lakefeed topics create {name}"
    )


def error_code(error: KafkaException) -> int:
    """Kafka's number of an error."""
    code: int = error.args[0].code()
    return code


def error_text(error: Exception) -> str:
    """What the client says of an error."""
    detail = error.args[0] if error.args else error
    return str(detail.str()) if isinstance(detail, KafkaError) else str(detail)
