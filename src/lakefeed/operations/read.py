"""Reads chosen records once: offset ranges, a time, or the newest record of each key; decoded, judged, written."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from lakefeed.clients.kafka.record_counts import records_held
from lakefeed.clients.kafka.selection import Selection, offset_ranges
from lakefeed.clients.kafka.topics import Topics
from lakefeed.clients.spark.errors import translating
from lakefeed.config.decoding import Decode
from lakefeed.config.failures import Accept
from lakefeed.config.kafka_source import KafkaSource
from lakefeed.errors import JobFailed
from lakefeed.feed.batch_writer import BatchWriter
from lakefeed.feed.feed import Feed
from lakefeed.feed.row_builder import RowBuilder
from lakefeed.ledger.outcomes import BatchOutcomes, Counts, Reason
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.records.decode import RecordPolicy
from lakefeed.records.decode.resolve import key_spec_of, put_credentials, resolve_decoder
from lakefeed.records.schema.reader import ChangePolicy as OnChange
from lakefeed.records.schema.reader import ReaderSchema
from lakefeed.records.sources.kafka import newest_per_key, read_batch
from lakefeed.sinks.export import ConsoleResult, Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OnError = Literal["fail", "skip"]


@dataclass(frozen=True)
class ReadSummary:
    """What one read did.

    Attributes:
        target: where the rows went.
        ranges: the offsets that were read.
        whole: whether all of them were read; if not, enough rows were shown before, and the counts are not known.
        records: records that they held; with the newest of each key, only these. None if that is not known.
        unreadable: of the records, those that could not be read, or broke a rule whose records are set aside.
        skipped: of the records, those left out because the pipeline says so.
        rows: rows written or shown; None if the target does not say.
        reasons: why records could not be read, the commonest first.
        notes: what one should hear of.
        seconds: how long it took.
    """

    target: str
    ranges: tuple[OffsetRange, ...]
    whole: bool
    records: int | None
    unreadable: int | None
    skipped: int | None
    rows: int | None
    reasons: tuple[Reason, ...]
    notes: tuple[str, ...]
    seconds: float

    @property
    def offsets(self) -> int:
        """How many offsets the ranges span."""
        return sum(each.records for each in self.ranges)

    def as_dict(self) -> dict[str, Any]:
        """For ``--output json``."""
        return {**asdict(self), "offsets": self.offsets, "ranges": [str(each) for each in self.ranges]}


@dataclass(frozen=True, kw_only=True)
class BatchRead:
    """How records are read: a pipeline's way, or that of a topic without one.

    Attributes:
        name: the pipeline's, or the topic's.
        source: the topics.
        decode: how values become columns.
        policy: what becomes of records that are not as they should be; what would be dead letters is only counted.
        on_change: whether new fields of writers' schemas become columns.
        accept: whose records are read at all.
        transform: from decoded rows to the requested ones.
    """

    name: str
    source: KafkaSource
    decode: Decode
    policy: RecordPolicy
    on_change: OnChange = "evolve"
    accept: Accept = "same_record"
    transform: Callable[[DataFrame], DataFrame] = lambda rows: rows

    def on_error(self, choice: OnError) -> BatchRead:
        """The same, but records that cannot be read or break a rule stop the read, or are left out and counted."""
        if choice == "skip":
            return replace(self, policy=replace(self.policy, on_error="dead_letter"))
        expect = tuple(
            replace(each, on_violation="fail") if each.on_violation == "dead_letter" else each
            for each in self.policy.expect
        )
        on_null = "fail" if self.policy.on_null == "dead_letter" else self.policy.on_null
        return replace(self, policy=replace(self.policy, on_error="fail", on_null=on_null, expect=expect))

    def records(self, spark: SparkSession, ranges: list[OffsetRange], *, latest: bool = False) -> DataFrame:
        """The records of these ranges, undecoded; with ``latest`` the newest of each key."""
        records = read_batch(spark, self.source, ranges=ranges, headers="headers" in self.decode.metadata)
        return newest_per_key(records) if latest else records

    def to(self, target: Target, selection: Selection, *, spark: SparkSession, latest: bool = False) -> ReadSummary:
        """Reads the chosen records into a target.

        Args:
            target: where the rows go.
            selection: which records.
            spark: the session.
            latest: only the newest record of each key in each partition; keys whose newest value is null are gone.

        Raises:
            ResourceMissing: the topics do not hold what was chosen.
            DecodeError: a record stops the read; nothing was written.
            JobFailed: records of the ranges were not read, though the broker has them.
            LakefeedError: see ``lakefeed.errors``.
        """
        started = time.monotonic()
        ranges = offset_ranges(self.source, selection)
        with translating():
            records = self.records(spark, ranges, latest=latest)
            writer = self._writer(spark, target)
            writer.begin(records, fenced=False)
            committed = writer.write_unbatched(records, _NoProperties())
        outcomes = committed.outcomes
        whole = not isinstance(target, ConsoleResult) or target.is_whole
        if whole and not latest:
            self._require_all(ranges, outcomes)
        counts = outcomes.counts if whole else None
        return ReadSummary(
            target=target.location(),
            ranges=tuple(ranges),
            whole=whole,
            records=counts.records if counts else None,
            unreadable=counts.dead_letters if counts else None,
            skipped=counts.skipped if counts else None,
            rows=committed.rows,
            reasons=tuple(outcomes.reasons),
            notes=writer.notes(),
            seconds=round(time.monotonic() - started, 3),
        )

    def _writer(self, spark: SparkSession, target: Target) -> BatchWriter:
        put_credentials(spark, self.decode)
        decoding = resolve_decoder(spark, self.decode, self.source, accept=self.accept)
        schema = ReaderSchema(
            decoding.spec,
            # Older records may well have another schema: that is no change that one could stop at.
            policy="ignore" if self.on_change == "fail" else self.on_change,
            accept=self.accept,
            latest_id=decoding.latest_id,
            writer_schema=decoding.writer_schema,
            keeper=target,
        )
        return BatchWriter(
            spark,
            feed=self.name,
            sink=target,
            rows=RowBuilder(
                schema,
                policy=self.policy,
                keep=tuple(self.decode.metadata),
                transform=self.transform,
                key=key_spec_of(spark, self.decode, self.source, accept=self.accept),
            ),
        )

    def _require_all(self, ranges: list[OffsetRange], outcomes: BatchOutcomes) -> None:
        """Holds what was counted against the offsets, and where it is less against what the broker says.

        Transactions and compaction leave offsets without a record; a topic may be compacted while it is read.
        """
        counted = outcomes.by_partition
        spans: dict[tuple[str, int], list[OffsetRange]] = {}
        for each in ranges:
            spans.setdefault((each.topic, each.partition), []).append(each)
        fewer = [
            each
            for key, of_partition in spans.items()
            if counted.get(key, Counts()).records < sum(each.records for each in of_partition)
            for each in of_partition
        ]
        cluster = Topics(self.source.bootstrap_servers, options=dict(self.source.options))
        topics = {name: cluster.describe(name) for name in sorted({each.topic for each in fewer})}
        compacted = {name for name in topics if "compact" in (cluster.setting(name, "cleanup.policy") or "")}
        asked = [each for each in fewer if each.topic not in compacted]
        held = records_held(self.source, asked, topics=topics)
        for key in sorted({(each.topic, each.partition) for each in asked}):
            there = sum(held[each] or 0 for each in spans[key])
            if there > (read := counted.get(key, Counts()).records):
                raise JobFailed(
                    f"{read:,} records were read of partition {key[1]}, the broker holds {there:,}",
                    where=", ".join(str(each) for each in spans[key]),
                    hint="read them again; if it happens again, it is a fault worth reporting",
                )


class _NoProperties:
    """What a commit carries that is no feed's."""

    def properties(self) -> dict[str, str]:
        """Nothing."""
        return {}


def batch_read_of(feed: Feed) -> BatchRead:
    """How a feed reads records, to read some of them into something else than its sink."""
    config = feed.config
    return BatchRead(
        name=config.name,
        source=config.kafka,
        decode=config.decode,
        policy=feed.decoder.policy,
        on_change=config.schema_.on_change,
        accept=config.schema_.accept,
        transform=feed.transform,
    )
