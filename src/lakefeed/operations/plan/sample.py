"""How large records are: some of them are read with the Kafka client, and none of them is kept."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from lakefeed.clients.kafka.librdkafka import librdkafka_settings
from lakefeed.clients.kafka.record_counts import ISOLATION
from lakefeed.config.kafka_options import CONSUMER_DEFAULTS
from lakefeed.config.kafka_source import KafkaSource
from lakefeed.offsets.ranges import OffsetRange

RECORDS = 200
PARTITIONS = 4
SECONDS = 10.0
_silence = logging.getLogger("lakefeed.clients.kafka.librdkafka")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Some records of a topic.

    Attributes:
        records: how many.
        bytes: of their keys, values and headers, as a consumer gets them: not compressed.
    """

    records: int = 0
    bytes: int = 0

    @property
    def bytes_a_record(self) -> float | None:
        """In the mean; None without any."""
        return self.bytes / self.records if self.records else None


def sampled(source: KafkaSource, ranges: Iterable[OffsetRange]) -> Mapping[str, Sample]:
    """The first records of each topic's fullest ranges, up to 200 of 4 partitions.

    What a broker does not give within ten seconds is left out: a plan does not fail for it.

    Args:
        source: the cluster.
        ranges: what is to be read; one of each partition.
    """
    requested = _chosen(ranges)
    if not requested:
        return {}
    consumer = Consumer(
        {
            **librdkafka_settings(source.options),
            "bootstrap.servers": source.bootstrap_servers,
            # Neither joined nor committed to, but librdkafka requires one.
            "group.id": "lakefeed-plan",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # A few records are needed, not all that it could fetch meanwhile.
            "queued.max.messages.kbytes": 1024,
            "fetch.message.max.bytes": 256 * 1024,
            "error_cb": lambda error: None,
            "isolation.level": str(source.options.get(ISOLATION, CONSUMER_DEFAULTS[ISOLATION])),
        },
        logger=_silence,
    )
    try:
        return _read(consumer, requested)
    except KafkaException:
        return {}
    finally:
        consumer.close()


def _chosen(ranges: Iterable[OffsetRange]) -> dict[tuple[str, int], tuple[OffsetRange, int]]:
    """The fullest ranges of each topic, and how many records of each."""
    filled = sorted((each for each in ranges if each.records), key=lambda each: (each.topic, -each.records))
    chosen = {}
    for _, group in groupby(filled, key=lambda each: each.topic):
        few = list(group)[:PARTITIONS]
        for each in few:
            chosen[each.topic, each.partition] = (each, max(1, RECORDS // len(few)))
    return chosen


def _read(consumer: Consumer, requested: Mapping[tuple[str, int], tuple[OffsetRange, int]]) -> Mapping[str, Sample]:
    left = {key: count for key, (_, count) in requested.items()}
    found: dict[str, Sample] = {}
    consumer.assign([TopicPartition(*key, each.start) for key, (each, _) in requested.items()])
    deadline = time.monotonic() + SECONDS
    while left and time.monotonic() < deadline:
        message: Any = consumer.poll(1.0)
        if message is None:
            continue
        key = (message.topic(), message.partition())
        if (error := message.error()) is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                left.pop(key, None)
            continue
        if key not in left:
            continue
        if message.offset() < requested[key][0].end:
            sample = found.get(key[0], Sample())
            found[key[0]] = Sample(records=sample.records + 1, bytes=sample.bytes + _size(message))
            left[key] -= 1
        if not left[key] or message.offset() + 1 >= requested[key][0].end:
            del left[key]
            consumer.pause([TopicPartition(*key)])
    return found


def _size(message: Any) -> int:
    headers = sum(len(name.encode()) + len(value or b"") for name, value in message.headers() or ())
    return len(message.key() or b"") + len(message.value() or b"") + headers
