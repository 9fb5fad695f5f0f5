"""Reads a topic without Spark: from offsets or a time to where it ends now."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from lakefeed.clients.kafka.librdkafka import librdkafka_settings
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import Unreachable

SILENCE_SECONDS = 30.0
_silence = logging.getLogger("lakefeed.clients.kafka.librdkafka")


def scan(
    cluster: KafkaSource, topic: str, *, starts: Mapping[int, int] | None = None, since: float | None = None
) -> Iterator[Any]:
    """The records of a topic up to where it ends at the call, partition by partition in order, as confluent-kafka's.

    Args:
        cluster: brokers and client settings.
        topic: the topic.
        starts: the first offset by partition. Default: all that is there.
        since: only records from this time on, in seconds since 1970, as their timestamps say.

    Raises:
        ResourceMissing: there is no such topic.
        Unreachable: the broker does not answer, or stops answering.
    """
    found = Topics(cluster.bootstrap_servers, options=dict(cluster.options)).describe(topic).partitions
    ends = {each.id: each.end_offset for each in found}
    first = {each.id: max(each.start_offset, (starts or {}).get(each.id, 0)) for each in found}
    with _consumer(cluster, topic) as consumer:
        if since is not None:
            for partition, offset in _at(consumer, topic, sorted(ends), since).items():
                first[partition] = max(first[partition], ends[partition] if offset < 0 else offset)
        left = {partition for partition, end in ends.items() if first[partition] < end}
        consumer.assign([TopicPartition(topic, partition, first[partition]) for partition in sorted(left)])
        while left:
            message: Any = consumer.poll(SILENCE_SECONDS)
            if message is None:
                raise Unreachable("the broker has stopped answering", where=f"topic {topic}")
            if (error := message.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                left.discard(message.partition())  # Transactions and compaction leave no record at the end.
                continue
            if message.offset() < ends[message.partition()]:
                yield message
            if message.offset() + 1 >= ends[message.partition()]:
                left.discard(message.partition())


def _at(consumer: Consumer, topic: str, partitions: list[int], since: float) -> dict[int, int]:
    """The first offset of each partition from a time on; negative if there is none."""
    asked = [TopicPartition(topic, partition, int(since * 1000)) for partition in partitions]
    return {each.partition: each.offset for each in consumer.offsets_for_times(asked, timeout=SILENCE_SECONDS)}


@contextmanager
def _consumer(cluster: KafkaSource, topic: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            **librdkafka_settings(cluster.options),
            "bootstrap.servers": cluster.bootstrap_servers,
            # Neither joined nor committed to, but librdkafka requires one.
            "group.id": "lakefeed-scan",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "error_cb": lambda error: None,
        },
        logger=_silence,
    )
    try:
        yield consumer
    except KafkaException as error:
        raise Unreachable(f"the broker cannot be read from: {error.args[0].str()}", where=f"topic {topic}") from None
    finally:
        consumer.close()
