"""Find truncated partitions: after an unclean election the leader lacks records that a feed has read.

The leader gives the offsets of the missing records to new records. Each leader has an epoch, and only appends. An
unchanged epoch therefore proves without a request that the partition was not truncated. If the epoch has changed, the
broker returns the offset at which the old epoch ended (KIP-320).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from lakefeed.clients.kafka.librdkafka import error_of, open_consumer
from lakefeed.clients.kafka.topics import TopicDescription, partitions_of
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import BrokerUnreachable
from lakefeed.offsets.ranges import OffsetRange, Partition

SECONDS = 30.0
# librdkafka reports the offset only in the text of an error.
_TRUNCATED = re.compile(r"log truncation detected.*broker end offset is (\d+)")


def mark_cut_offs(
    source: KafkaSource, topics: Mapping[str, TopicDescription | None], read: Iterable[OffsetRange]
) -> dict[str, TopicDescription | None]:
    """Return the topics with ``agreed`` set in truncated partitions; ``read`` are the ranges that a feed has read."""
    there = partitions_of(topics)
    positions = {
        span.key: (span.end, span.epoch)
        for span in read
        if span.epoch is not None and span.key in there and there[span.key].leader_epoch not in (None, span.epoch)
    }
    agreed = find_cut_offs(source, positions)
    return {
        name: topic
        and replace(
            topic,
            partitions=tuple(replace(part, agreed=agreed.get((name, part.id))) for part in topic.partitions),
        )
        for name, topic in topics.items()
    }


def find_cut_offs(source: KafkaSource, positions: Mapping[Partition, tuple[int, int]]) -> dict[Partition, int]:
    """Return the offsets at which partitions were truncated since a feed read them up to ``positions``.

    A position is an offset and a leader epoch. A consumer that fetches from such a position first checks the position
    by a request to the broker (OffsetsForLeaderEpoch).
    """
    found: dict[Partition, int] = {}
    if not positions:
        return found
    settings = {"auto.offset.reset": "error", "fetch.message.max.bytes": 1024, "fetch.wait.max.ms": 10}
    with open_consumer(source, "lakefeed-epochs", settings) as consumer:
        consumer.assign([TopicPartition(*key, at, leader_epoch=epoch) for key, (at, epoch) in positions.items()])
        left, deadline = set(positions), time.monotonic() + SECONDS
        while left:
            message = consumer.poll(1.0)
            if message is None:
                if time.monotonic() > deadline:
                    names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(left)[:10])
                    raise BrokerUnreachable(
                        f"no broker says whether {names} was truncated after the feed read it",
                        where=source.bootstrap_servers,
                        hint="check that the partitions have leaders, then start the feed again",
                    )
                continue
            # The message is a record, the end of a partition or an error; each of these is an answer for the partition.
            key, error = (str(message.topic()), int(message.partition() or 0)), message.error()
            if error is None or error.code() in (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET):
                left.discard(key)
                if error is not None and (cut := _TRUNCATED.search(error.str())):
                    found[key] = int(cut[1])
            elif not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
                raise error_of(KafkaException(error), servers=source.bootstrap_servers, topic=key[0])
    return found
