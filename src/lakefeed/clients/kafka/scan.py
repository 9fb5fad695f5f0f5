"""Read topics without Spark: all records, the number of records in offset ranges, the times of single records."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, TopicPartition

from lakefeed.clients.kafka.librdkafka import error_of, error_text, isolation_level, open_consumer
from lakefeed.clients.kafka.topics import TopicDescription, Topics, partitions_of
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import Unreachable
from lakefeed.offsets.ranges import OffsetRange, Partition

SILENCE_SECONDS = 30.0
TIMEOUT_SECONDS = 5.0
LONGEST_SECONDS = 10.0
NO_RECORD = math.inf
"""The result of ``record_times`` for a partition without a record at or after the offset."""

# Settings to read one record per partition: prefetch little, because there may be many partitions.
_SMALL_READS = {
    "fetch.message.max.bytes": 16_384,
    "fetch.max.bytes": 1_000_000,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1024,
    "fetch.wait.max.ms": 50,
    "auto.offset.reset": "earliest",
}


def scan(
    cluster: KafkaSource, topic: str, *, starts: Mapping[int, int] | None = None, since: float | None = None
) -> Iterator[Any]:
    """Yield the records that a topic has now, as confluent-kafka's messages, in order within a partition.

    ``starts`` are first offsets by partition (default: all records), ``since`` a record time in seconds since 1970.
    """
    topics = Topics(cluster.bootstrap_servers, options=cluster.client_options)
    described = topics.describe(topic)
    ends = described.ends
    first = {part.id: max(part.start_offset, (starts or {}).get(part.id, 0)) for part in described.partitions}
    if since is not None and since > 0:
        at = topics.offsets_at(topic, datetime.fromtimestamp(since, UTC))
        first = {partition: max(offset, at.get(partition, ends[partition])) for partition, offset in first.items()}
    with open_consumer(cluster, "lakefeed-scan", {"auto.offset.reset": "earliest"}) as consumer:
        left = {partition for partition, end in ends.items() if first[partition] < end}
        try:
            consumer.assign([TopicPartition(topic, partition, first[partition]) for partition in sorted(left)])
        except KafkaException as failure:
            raise _unreadable(failure, f"topic {topic}") from None
        while left:
            message = _poll(consumer, where=f"topic {topic}")
            if message.error() is not None:
                # The partition ends here: transactions and compaction may leave no record at its end.
                left.discard(message.partition())
                continue
            if message.offset() < ends[message.partition()]:
                yield message
            if message.offset() + 1 >= ends[message.partition()]:
                left.discard(message.partition())


def count_records(
    source: KafkaSource, ranges: Sequence[OffsetRange], *, topics: Mapping[str, TopicDescription]
) -> dict[OffsetRange, int | None]:
    """Count the records that a feed would read from these ranges now; None for a range with removed records.

    This reads the ranges, because transactions and compaction leave offsets without a record. Records of aborted
    transactions count only if the source reads them.
    """
    counts: dict[OffsetRange, int | None] = dict.fromkeys(ranges)
    there = partitions_of(topics)
    complete = [span for span in counts if span.key in there and span.start >= there[span.key].start_offset]
    if not complete:
        return counts
    with open_consumer(source, "lakefeed-verify", {"isolation.level": isolation_level(source)}) as consumer:
        for (topic, partition), group in groupby(sorted(complete), key=lambda span: span.key):
            for run in _runs(list(group)):
                counts.update(_count(consumer, topic, partition, run))
    return counts


def offset_behind(
    source: KafkaSource, partition: Partition, start: int, records: int, *, committed: bool
) -> int | None:
    """Return the offset after the first n records from ``start`` on; None if the partition has fewer.

    With ``committed``, records of aborted or open transactions do not count.
    """
    level = "read_committed" if committed else "read_uncommitted"
    with open_consumer(source, "lakefeed-scan", {"isolation.level": level, "auto.offset.reset": "error"}) as consumer:
        consumer.assign([TopicPartition(*partition, start)])
        at = start
        for _ in range(records):
            message = _poll(consumer, where=f"topic {partition[0]}, partition {partition[1]}")
            if message.error() is not None:
                return None
            at = message.offset() + 1
        return at


def _runs(ranges: Sequence[OffsetRange]) -> Iterator[list[OffsetRange]]:
    """Yield lists of ranges that adjoin each other, so that a list can be read without a seek."""
    run: list[OffsetRange] = []
    for current in ranges:
        if run and current.start != run[-1].end:
            yield run
            run = []
        run.append(current)
    yield run


def _count(consumer: Consumer, topic: str, partition: int, run: Sequence[OffsetRange]) -> dict[OffsetRange, int]:
    counts = dict.fromkeys(run, 0)
    at = 0
    consumer.assign([TopicPartition(topic, partition, run[0].start)])
    while True:
        message = _poll(consumer, where=f"topic {topic}, partition {partition}")
        if message.error() is not None:
            return counts  # Transactions or compaction have left no record at the last range's end.
        while message.offset() >= run[at].end:
            at += 1
            if at == len(run):
                return counts
        counts[run[at]] += 1


def _poll(consumer: Consumer, *, where: str) -> Any:
    """Return the consumer's next record; at the end of the partition, the message with the error ``_PARTITION_EOF``."""
    try:
        message: Any = consumer.poll(SILENCE_SECONDS)
        if message is None:
            raise silent_broker(where)
        if (error := message.error()) is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
    except KafkaException as failure:
        raise _unreadable(failure, where) from None
    return message


def silent_broker(where: str) -> Unreachable:
    hint = "check that the brokers run and that this machine reaches them, then try again"
    return Unreachable("the broker has stopped answering", where=where, hint=hint)


def _unreadable(failure: KafkaException, where: str) -> Unreachable:
    hint = "check the brokers and the Kafka user's ACLs, then try again"
    return Unreachable(f"the broker returns an error instead of records: {error_text(failure)}", where=where, hint=hint)


def record_times(
    source: KafkaSource, offsets: Mapping[Partition, int], *, seconds: float = LONGEST_SECONDS
) -> dict[Partition, float | None]:
    """Return, by partition, the time of the first record from the offset on, in seconds since 1970.

    The time is ``NO_RECORD`` if the partition has no record at or after the offset, because transactions and compaction
    leave offsets without a record. The time is None if the record has no time, or if it was not read within
    ``seconds``, the limit for all partitions.
    """
    times: dict[Partition, float | None] = dict.fromkeys(offsets)
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
                    times[key] = NO_RECORD
                else:
                    kind, milliseconds = message.timestamp()
                    times[key] = None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds / 1000
                left.discard(key)
                consumer.incremental_unassign([TopicPartition(*key)])
        except KafkaException as error:
            raise error_of(error, servers=source.bootstrap_servers, topic=None) from None
    return times
