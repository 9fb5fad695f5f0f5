"""Counts the records that a topic holds in offset ranges: transactions and compaction leave offsets without one."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from lakefeed.clients.kafka.librdkafka import librdkafka_settings
from lakefeed.clients.kafka.topics import TopicDescription
from lakefeed.config.kafka_options import CONSUMER_DEFAULTS
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import Unreachable
from lakefeed.offsets.ranges import OffsetRange

ISOLATION = "kafka.isolation.level"
SILENCE_SECONDS = 30.0
_silence = logging.getLogger("lakefeed.clients.kafka.librdkafka")


def records_held(
    source: KafkaSource, ranges: Sequence[OffsetRange], *, topics: Mapping[str, TopicDescription]
) -> dict[OffsetRange, int | None]:
    """How many records a feed would read from each range today; None if the topic no longer has all its offsets.

    Reads the ranges, and no key or value of them is kept. Aborted records count only for a source that reads them.

    Args:
        source: the cluster, and which records count.
        ranges: where to look.
        topics: the topics as they are now.

    Raises:
        Unreachable: the broker does not answer, or stops answering.
    """
    starts = {(name, each.id): each.start_offset for name, found in topics.items() for each in found.partitions}
    held: dict[OffsetRange, int | None] = dict.fromkeys(ranges)
    there = [each for each in held if each.start >= starts.get((each.topic, each.partition), each.end + 1)]
    if not there:
        return held
    consumer = Consumer(
        {
            **librdkafka_settings(source.options),
            "bootstrap.servers": source.bootstrap_servers,
            # Neither joined nor committed to, but librdkafka requires one.
            "group.id": "lakefeed-verify",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "error_cb": lambda error: None,
            "isolation.level": str(source.options.get(ISOLATION, CONSUMER_DEFAULTS[ISOLATION])),
        },
        logger=_silence,
    )
    try:
        for (topic, partition), group in groupby(sorted(there), key=lambda each: (each.topic, each.partition)):
            requested = list(group)
            counts = dict.fromkeys(requested, 0)
            for run in _runs(requested):
                _count(consumer, topic, partition, run, counts)
            held.update(counts)
    finally:
        consumer.close()
    return held


def _runs(ranges: Sequence[OffsetRange]) -> Iterator[list[OffsetRange]]:
    """Ranges that follow each other are read in one go."""
    run: list[OffsetRange] = []
    for each in ranges:
        if run and each.start != run[-1].end:
            yield run
            run = []
        run.append(each)
    if run:
        yield run


def _count(
    consumer: Consumer, topic: str, partition: int, run: Sequence[OffsetRange], counts: dict[OffsetRange, int]
) -> None:
    where = f"topic {topic}, partition {partition}"
    at = 0
    consumer.assign([TopicPartition(topic, partition, run[0].start)])
    while True:
        try:
            message: Any = consumer.poll(SILENCE_SECONDS)
        except KafkaException as failure:
            raise Unreachable(f"the broker cannot be read from: {failure.args[0].str()}", where=where) from None
        if message is None:
            raise Unreachable("the broker has stopped answering", where=where)
        if (error := message.error()) is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                return  # Transactions and compaction leave no record at the end.
            raise Unreachable(f"the broker cannot be read from: {error.str()}", where=where)
        while message.offset() >= run[at].end:
            at += 1
            if at == len(run):
                return
        counts[run[at]] += 1
