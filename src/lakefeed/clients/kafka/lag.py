"""Positions of consumer groups, and the times of records at positions: what a lag is computed from."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from lakefeed.clients.kafka.librdkafka import (
    COORDINATING,
    SILENCE,
    client_settings,
    error_code,
    error_of,
    isolation_level,
    open_consumer,
)
from lakefeed.clients.kafka.scan import TIMEOUT_SECONDS
from lakefeed.clients.retry import retry_until
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import LakefeedError, Unreachable
from lakefeed.offsets.ranges import Partition

LONGEST_SECONDS = 10.0
NO_RECORD = math.inf
"""The time of a record that may come: nothing that is there waits."""

# One record of each partition is needed: little is read ahead, however many partitions there are.
_SMALL_READS = {
    "fetch.message.max.bytes": 16_384,
    "fetch.max.bytes": 1_000_000,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1024,
    "fetch.wait.max.ms": 50,
    "auto.offset.reset": "earliest",
}


def group_offsets(
    source: KafkaSource, group: str, topics: Sequence[str] | None = None, *, stable: bool = True
) -> dict[Partition, int]:
    """Return the offsets that a consumer group has committed, in these topics or all; does not join the group.

    Args:
        stable: refuse offsets that an open transaction may yet change (KIP-447); else return those before it.

    Raises:
        Unreachable: no broker answers, or an open transaction holds offsets of the group.
    """
    # Not by AdminClient: while the broker sets up a new group's coordinator, librdkafka crashes the process there
    # (confluentinc/librdkafka#5040). A consumer that subscribes to nothing does not join the group.
    level = "read_committed" if stable else "read_uncommitted"
    settings = {**client_settings(source), "group.id": group, "enable.auto.commit": False, "isolation.level": level}
    consumer = Consumer(settings, logger=SILENCE)
    try:
        existing = consumer.list_topics(timeout=TIMEOUT_SECONDS).topics
        read = [name for name in existing if (not name.startswith("__") if topics is None else name in topics)]
        requested = [TopicPartition(name, number) for name in read for number in existing[name].partitions]
        answers = retry_until(
            lambda: _committed(consumer, requested),
            is_transient=lambda error: isinstance(error, KafkaException) and error_code(error) in COORDINATING,
            seconds=TIMEOUT_SECONDS,
            pause=0.1,
        )
    except KafkaException as error:
        if stable and error_code(error) == KafkaError._TIMED_OUT:
            # librdkafka waits for the end of a transaction, and does not say so. Without one this fails too.
            group_offsets(source, group, topics, stable=False)
            raise Unreachable(
                f"an open transaction holds offsets of the group {group}",
                where=source.bootstrap_servers,
                hint="try again when it has ended: after the producer's transaction.timeout.ms, a minute by default",
            ) from None
        raise _group_error(error, source, group) from None
    finally:
        consumer.close()
    return {(answer.topic, answer.partition): answer.offset for answer in answers if answer.offset >= 0}


def _committed(consumer: Consumer, requested: list[TopicPartition]) -> list[TopicPartition]:
    answers = consumer.committed(requested, TIMEOUT_SECONDS) if requested else []
    if refused := [answer.error for answer in answers if answer.error is not None]:
        raise KafkaException(refused[0])
    return answers


def group_names(source: KafkaSource) -> list[str]:
    """Return the names of the cluster's consumer groups, sorted; none if the broker does not say."""
    try:
        return sorted(_group_states(source))
    except (KafkaException, TimeoutError):
        return []


def groups_with_members(source: KafkaSource, groups: Sequence[str]) -> list[str]:
    """Return which of these consumer groups have members now; an Unreachable if the broker does not say."""
    try:
        states = _group_states(source)
    except (KafkaException, TimeoutError) as error:
        what = f"the broker does not say whether the group {groups[0]} has members: {error or 'no answer'}"
        raise Unreachable(what, where=source.bootstrap_servers) from None
    without = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
    return [group for group in groups if states.get(group, ConsumerGroupState.DEAD) not in without]


def _group_states(source: KafkaSource) -> dict[str, ConsumerGroupState]:
    # Not by describing a group: see ``group_offsets``.
    admin = AdminClient(client_settings(source), logger=SILENCE)
    listed = admin.list_consumer_groups(request_timeout=TIMEOUT_SECONDS).result(TIMEOUT_SECONDS + 2)
    return {str(group.group_id): group.state for group in listed.valid}


def record_times(
    source: KafkaSource, offsets: Mapping[Partition, int], *, seconds: float = LONGEST_SECONDS
) -> dict[Partition, float | None]:
    """Return the time of the first record from each offset on, in seconds since 1970.

    ``NO_RECORD`` where no more come up to the end, as transactions and compaction leave some offsets without one. None
    where the topic keeps no times, or no record came within ``seconds`` for all together.
    """
    found: dict[Partition, float | None] = dict.fromkeys(offsets)
    left = set(offsets)
    until = time.monotonic() + seconds
    settings = {"isolation.level": isolation_level(source), **_SMALL_READS}
    with open_consumer(source, "lakefeed-lag", settings) as consumer:
        try:
            consumer.assign([TopicPartition(*key, offset) for key, offset in sorted(offsets.items())])
            while left and (wait := until - time.monotonic()) > 0:
                message: Any = consumer.poll(wait)
                if message is None:
                    break
                key = (message.topic(), message.partition())
                if (error := message.error()) is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                if key not in left:
                    continue
                if error is not None:
                    found[key] = NO_RECORD
                else:
                    kind, milliseconds = message.timestamp()
                    found[key] = None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds / 1000
                left.discard(key)
                consumer.incremental_unassign([TopicPartition(*key)])
        except KafkaException as error:
            raise error_of(error, servers=source.bootstrap_servers, topic=None) from None
    return found


def _group_error(error: KafkaException, source: KafkaSource, group: str) -> LakefeedError:
    known = error_of(error, servers=source.bootstrap_servers, topic=None)
    if isinstance(known, Unreachable):
        return known
    return type(known)(known.what, where=f"group {group} at {source.bootstrap_servers}", hint=known.hint)
