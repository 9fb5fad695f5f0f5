"""Read a few records of topics in Python, to show them to people. Feeds read with Spark."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, TopicPartition

from lakefeed.clients.kafka.librdkafka import TRANSIENT, error_of, isolation_level, open_consumer
from lakefeed.clients.kafka.scan import SILENCE_SECONDS, TIMEOUT_SECONDS, silent_broker
from lakefeed.config.sources import KafkaSource
from lakefeed.offsets.ranges import OffsetRange, Partition

POLL_SECONDS = 0.2
MOST_AT_ONCE = 1_000


@dataclass(frozen=True)
class Record:
    """A record as the broker stores it; ``timestamp`` is in milliseconds since 1970, None if the record has none."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def size(self) -> int:
        """The number of bytes of key, value and headers together."""
        headers = sum(len(name.encode()) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


def read_ranges(
    source: KafkaSource, ranges: Sequence[OffsetRange], *, most: Mapping[Partition, int] | None = None
) -> Iterator[Record]:
    """Yield the records of offset ranges, with at most one range per partition; a partition's records are in order.

    ``most`` limits the number of records of each partition. Raises Unreachable if the broker stops answering.
    """
    ends = {span.key: span.end for span in ranges if span.records}
    left = set(ends)
    starts = {span.key: span.start for span in ranges if span.records}
    yielded: Counter[Partition] = Counter()
    with _assigned(source, starts) as poll:
        while left:
            messages = poll(SILENCE_SECONDS)
            if not messages:
                raise silent_broker(source.bootstrap_servers)
            for message in messages:
                key = (message.topic(), message.partition())
                if message.error() is not None:
                    # The partition ends here: transactions and compaction may leave no record at the end of a range.
                    left.discard(key)
                    continue
                if key in left and message.offset() < ends[key]:
                    yielded[key] += 1
                    yield _record(message)
                if message.offset() + 1 >= ends[key] or (most is not None and yielded[key] >= most[key]):
                    left.discard(key)


def follow(source: KafkaSource, starts: Mapping[Partition, int]) -> Iterator[list[Record]]:
    """Yield forever lists of records as they arrive from these offsets on; a list is empty if none arrives."""
    silent_since = time.monotonic()
    with _assigned(source, starts) as poll:
        while True:
            messages = poll(POLL_SECONDS)
            records = [_record(message) for message in messages if message.error() is None]
            if messages:
                silent_since = time.monotonic()
            elif time.monotonic() - silent_since > SILENCE_SECONDS:
                poll.require_broker()
                silent_since = time.monotonic()
            yield records


class _Poll:
    """Polls a consumer, and raises the broker's errors as lakefeed's errors."""

    def __init__(self, consumer: Consumer, servers: str) -> None:
        self._consumer, self._servers = consumer, servers

    def __call__(self, seconds: float) -> list[Any]:
        """Return the next messages (records and ends of partitions); an empty list if none arrives for ``seconds``."""
        until = time.monotonic() + seconds
        with self.errors():
            while True:
                # Wait in short intervals, because Python handles a signal only between two calls of the client.
                polled = self._consumer.consume(MOST_AT_ONCE, timeout=min(seconds, POLL_SECONDS))
                messages = []
                for message in polled:
                    error = message.error()
                    if error is not None and error.code() not in (KafkaError._PARTITION_EOF, *TRANSIENT):
                        raise KafkaException(error)
                    if error is None or error.code() not in TRANSIENT:
                        messages.append(message)
                if messages or time.monotonic() >= until:
                    return messages

    def require_broker(self) -> None:
        with self.errors():
            self._consumer.list_topics(timeout=TIMEOUT_SECONDS)

    @contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as failure:
            raise error_of(failure, servers=self._servers, topic=None) from None


@contextmanager
def _assigned(source: KafkaSource, starts: Mapping[Partition, int]) -> Iterator[_Poll]:
    settings = {
        "auto.offset.reset": "earliest",
        "isolation.level": isolation_level(source),
        "queued.max.messages.kbytes": 16_384,
        "fetch.wait.max.ms": 100,
    }
    with open_consumer(source, "lakefeed-look", settings) as consumer:
        poll = _Poll(consumer, source.bootstrap_servers)
        with poll.errors():
            consumer.assign([TopicPartition(*key, offset) for key, offset in sorted(starts.items())])
        yield poll


def _record(message: Any) -> Record:
    kind, milliseconds = message.timestamp()
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds,
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )
