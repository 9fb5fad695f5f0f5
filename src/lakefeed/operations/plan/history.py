"""Read the figures of a feed's newest batches, and the size of a sample of the topics' records."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, islice, pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.librdkafka import isolation_level, open_consumer
from lakefeed.config.connections import Connections
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ResourceMissing
from lakefeed.ledger.outcomes import total
from lakefeed.ledger.snapshot_summary import FEED, RANGES, Commit
from lakefeed.ledger.snapshots import ancestors
from lakefeed.offsets.ranges import OffsetRange, Partition

if TYPE_CHECKING:
    from pyiceberg.table import Table

BATCHES = 20
"""The number of newest batches that a plan reads."""

MOST_METADATA = "write.metadata.previous-versions-max"
DELETES_METADATA = "write.metadata.delete-after-commit.enabled"
RECORDS = 200
PARTITIONS = 4
SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class PastBatch:
    """A batch that landed records, committed at the time ``at``; ``files`` includes delete files."""

    at: float
    fence: str | None
    records: int
    files: int
    bytes: int
    dead_letters: int
    merged_because: str | None = None


@dataclass(frozen=True, kw_only=True)
class Past:
    """A feed's newest batches, and whether each commit also deletes one of the table's old metadata files."""

    batches: tuple[PastBatch, ...] = ()
    deletes_metadata: bool = False

    @property
    def bytes_a_record(self) -> float | None:
        """The mean number of bytes in the table per record; None without records."""
        records = sum(batch.records for batch in self.batches)
        return sum(batch.bytes for batch in self.batches) / records if records else None

    @property
    def rates(self) -> tuple[float, ...]:
        """For each two consecutive commits of the same driver, the records per second between them."""
        return tuple(
            after.records / (after.at - before.at)
            for before, after in pairwise(self.batches)
            if before.fence == after.fence and after.at > before.at
        )

    @property
    def rate(self) -> float | None:
        """The median of the rates; None if no driver has landed two batches."""
        return median(self.rates) if self.rates else None


def read_past(name: str, feed: str, *, connections: Connections) -> Past:
    """Read the newest batches from the table's snapshots; without a table, return no batches."""
    try:
        table = open_table(name, connections=connections)
    except ResourceMissing:
        return Past()
    deletes = table.properties.get(DELETES_METADATA) == "true"
    deletes = deletes and len(table.metadata.metadata_log) >= int(table.properties.get(MOST_METADATA, 100))
    return Past(batches=tuple(islice(_batches(table, feed), BATCHES))[::-1], deletes_metadata=deletes)


def _batches(table: Table, feed: str) -> Iterator[PastBatch]:
    for snapshot in reversed(ancestors(table, feed)[0]):
        summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
        if summary.get(FEED) != feed or RANGES not in summary:
            continue
        commit = Commit.of(snapshot.snapshot_id, summary)
        if (counts := total(commit.counts)).records:
            yield PastBatch(
                at=snapshot.timestamp_ms / 1000,
                fence=commit.fence,
                records=counts.records,
                files=commit.files + int(summary.get("added-delete-files", 0)),
                bytes=int(summary.get("added-files-size", 0)),
                dead_letters=counts.dead_letters,
                merged_because=commit.merged_because,
            )


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A sample of records, and the size of their uncompressed keys, values and headers."""

    records: int = 0
    bytes: int = 0

    def __add__(self, other: Sample) -> Sample:
        return Sample(records=self.records + other.records, bytes=self.bytes + other.bytes)

    @property
    def bytes_a_record(self) -> float | None:
        return self.bytes / self.records if self.records else None


def sample_records(source: KafkaSource, ranges: Iterable[OffsetRange]) -> Mapping[str, Sample]:
    """Return the size of up to 200 records of each topic, read at the beginnings of its largest ranges (at most 4).

    If a broker does not answer within ten seconds, its records are left out, and the plan does not fail.
    """
    filled = sorted((span for span in ranges if span.records), key=lambda span: (span.topic, -span.records))
    chosen: dict[Partition, tuple[OffsetRange, int]] = {}
    for _, group in groupby(filled, key=lambda span: span.topic):
        few = list(group)[:PARTITIONS]
        chosen |= {span.key: (span, max(1, RECORDS // len(few))) for span in few}
    if not chosen:
        return {}
    # The limits keep librdkafka from prefetching megabytes for a few records.
    bounds = {"queued.max.messages.kbytes": 1024, "fetch.message.max.bytes": 256 * 1024}
    settings = {**bounds, "isolation.level": isolation_level(source)}
    try:
        with open_consumer(source, "lakefeed-plan", settings) as consumer:
            return _read(consumer, chosen)
    except KafkaException:
        return {}


def _read(consumer: Consumer, chosen: Mapping[Partition, tuple[OffsetRange, int]]) -> Mapping[str, Sample]:
    """Read at most ``RECORDS`` records of a topic from the ranges; return their sizes by topic."""
    left = {key: count for key, (_, count) in chosen.items()}
    samples: dict[str, Sample] = {}
    consumer.assign([TopicPartition(*key, span.start) for key, (span, _) in chosen.items()])
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
        span, _ = chosen[key]
        if message.offset() < span.end:
            samples[key[0]] = samples.get(key[0], Sample()) + Sample(records=1, bytes=_size(message))
            left[key] -= 1
        if not left[key] or message.offset() + 1 >= span.end:
            del left[key]
            consumer.pause([TopicPartition(*key)])
    return samples


def _size(message: Any) -> int:
    headers = sum(len(name.encode()) + len(value or b"") for name, value in message.headers() or ())
    return len(message.key() or b"") + len(message.value() or b"") + headers
