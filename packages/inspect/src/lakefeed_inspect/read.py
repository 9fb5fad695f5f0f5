"""Read chosen records once, without a feed: offset ranges, records since a time, or the newest record of each key."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from lakefeed import Pipeline
from lakefeed.clients.kafka.scan import count_records
from lakefeed.clients.kafka.selection import Selection, offset_ranges
from lakefeed.clients.kafka.topics import Topics
from lakefeed.clients.spark.errors import translating
from lakefeed.config.decoding import Accept, Decode
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import JobFailed
from lakefeed.feed.batch_writer import BatchWriter
from lakefeed.feed.row_builder import RowBuilder
from lakefeed.lazy import DataFrame, SparkSession
from lakefeed.ledger.outcomes import ZERO, BatchOutcomes, Reason
from lakefeed.offsets.ranges import OffsetRange, Partition
from lakefeed.records.decode import RecordPolicy
from lakefeed.records.decode.resolve import put_credentials, resolve_decoder
from lakefeed.records.schema.reader import ChangePolicy as OnChange
from lakefeed.records.schema.reader import ReaderSchema
from lakefeed.records.sources.kafka import newest_per_key, read_batch
from lakefeed_inspect.export import ConsoleResult, Target


@dataclass(frozen=True)
class ReadSummary:
    """The result of one read.

    Attributes:
        whole: whether all ranges were read; False if the console had enough rows before: then the counts are unknown.
        records: the number of records that were read; None if it is unknown.
        unreadable: the number of records that a feed would have made dead letters.
        rows: the number of rows written or shown; None if the target does not count them.
        reasons: the reasons why records are unreadable, the most frequent first.
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
        return sum(span.records for span in self.ranges)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "offsets": self.offsets, "ranges": [str(span) for span in self.ranges]}


@dataclass(frozen=True, kw_only=True)
class BatchRead:
    """The settings for reading records, with or without a pipeline; a read counts dead letters and writes none."""

    name: str
    source: KafkaSource
    decode: Decode
    policy: RecordPolicy
    on_change: OnChange = "evolve"
    accept: Accept = "same_record"
    transform: Callable[[DataFrame], DataFrame] = lambda rows: rows

    @classmethod
    def of(cls, pipeline: Pipeline) -> BatchRead:
        """Return a pipeline's settings, for a read into a target other than the pipeline's sink."""
        pipeline.require_one_table()
        feed, config = pipeline.feed, pipeline.config
        return cls(
            name=config.name,
            source=config.kafka,
            decode=config.decode,
            policy=feed.decoder.policy,
            on_change=config.schema_.on_change,
            accept=config.schema_.accept,
            transform=feed.transform,
        )

    def on_error(self, choice: Literal["fail", "skip"]) -> BatchRead:
        """Return a read that stops at an unreadable record (fail), or counts it and continues (skip)."""
        if choice == "skip":
            return replace(self, policy=replace(self.policy, on_error="dead_letter"))
        expect = tuple(
            replace(rule, on_violation="fail") if rule.on_violation == "dead_letter" else rule
            for rule in self.policy.expect
        )
        on_null = "fail" if self.policy.on_null == "dead_letter" else self.policy.on_null
        return replace(self, policy=replace(self.policy, on_error="fail", on_null=on_null, expect=expect))

    def records(self, spark: SparkSession, ranges: list[OffsetRange], *, latest: bool = False) -> DataFrame:
        """Return the undecoded records of these ranges; with ``latest`` only the newest record of each key."""
        records = read_batch(spark, self.source, ranges=ranges, headers=self.decode.reads_headers)
        return newest_per_key(records) if latest else records

    def to(self, target: Target, selection: Selection, *, spark: SparkSession, latest: bool = False) -> ReadSummary:
        """Read the chosen records into a target, with ``latest`` only the newest record of each key."""
        started = time.monotonic()
        ranges = offset_ranges(self.source, selection)
        with translating():
            records = self.records(spark, ranges, latest=latest)
            writer = self._writer(spark, target).begin(records, fenced=False)
            committed = writer.commit_rows(records, _NoProperties())
        outcomes = committed.outcomes
        whole = not isinstance(target, ConsoleResult) or target.is_whole
        if whole and not latest:
            self._require_all(ranges, outcomes)
        counts = outcomes.counts if whole else None
        return ReadSummary(
            target=target.where,
            ranges=tuple(ranges),
            whole=whole,
            records=counts.records if counts else None,
            unreadable=counts.dead_letters if counts else None,
            skipped=counts.skipped if counts else None,
            rows=committed.rows,
            reasons=tuple(outcomes.reasons),
            notes=writer.rows.notes(),
            seconds=round(time.monotonic() - started, 3),
        )

    def _writer(self, spark: SparkSession, target: Target) -> BatchWriter:
        put_credentials(spark, self.decode)
        decoder = resolve_decoder(spark, self.decode, self.source, accept=self.accept)
        # Old records may have another schema, and a read must not stop where the schema changes.
        on_change = "ignore" if self.on_change == "fail" else self.on_change
        rows = RowBuilder(
            schema=ReaderSchema(decoder, policy=on_change, keeper=target),
            policy=self.policy,
            keep=tuple(self.decode.metadata),
            transform=self.transform,
        )
        return BatchWriter.of_rows(spark, rows, target, feed=self.name)

    def _require_all(self, ranges: list[OffsetRange], outcomes: BatchOutcomes) -> None:
        """Raise a JobFailed if the broker has more records in the ranges than were read.

        Transactions and compaction leave offsets without records, so a partition with fewer records than offsets is
        counted again on the broker. A compacted topic is not counted, because it may lose records during the read.
        """
        spans: dict[Partition, list[OffsetRange]] = defaultdict(list)
        for span in ranges:
            spans[span.topic, span.partition].append(span)
        read = {key: outcomes.by_partition.get(key, ZERO).records for key in spans}
        fewer = {key: here for key, here in spans.items() if read[key] < sum(span.records for span in here)}
        cluster = Topics(self.source.bootstrap_servers, options=self.source.client_options)
        topics = {name: cluster.describe(name) for name in sorted({name for name, _ in fewer})}
        compacted = {name for name in topics if "compact" in (cluster.setting(name, "cleanup.policy") or "")}
        fewer = {key: here for key, here in fewer.items() if key[0] not in compacted}
        held = count_records(self.source, [span for here in fewer.values() for span in here], topics=topics)
        for key, here in sorted(fewer.items()):
            there = sum(held[span] or 0 for span in here)
            if there > read[key]:
                raise JobFailed(
                    f"only {read[key]:,} of {there:,} records of partition {key[1]} were read",
                    where=", ".join(str(span) for span in here),
                    hint="read the records again; if the error stays, report it as a defect",
                )


class _NoProperties:
    """The properties of a commit that belongs to no feed."""

    def properties(self) -> dict[str, str]:
        return {}
