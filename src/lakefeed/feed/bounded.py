"""Runs a feed as one batch without a streaming query, over chosen records or over all new records."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from lakefeed.clients.kafka.selection import Selection, offset_ranges, topics_of
from lakefeed.clients.kafka.topics import partitions_of
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import CheckpointMismatch
from lakefeed.feed.batch_writer import BatchResult
from lakefeed.feed.feed import Feed
from lakefeed.feed.open import FeedStart
from lakefeed.feed.recovery import ends
from lakefeed.lazy import SparkSession
from lakefeed.ledger.feed_position import Position
from lakefeed.messages.printable import ReadableResult, counted
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition, with_batch
from lakefeed.records.sources import SourceTopics

AS_BATCH = "a batch"
"""The query id of a batch of ``run_bounded`` in the ledger. No query has it, so no query resumes from the batch."""


@dataclass(frozen=True, repr=False)
class BatchSummary(ReadableResult):
    """The result of a run as one batch; ``notes`` are messages for the user."""

    records: int
    rows: int | None
    dead_letters: int
    skipped: int
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        rows = "" if self.rows is None else f", {counted(self.rows, 'row')}"
        letters = counted(self.dead_letters, "dead letter")
        return f"{counted(self.records, 'record')}{rows}, {letters} in {self.seconds:.1f} s"


def run_bounded(feed: Feed, spark: SparkSession, selection: Selection) -> BatchSummary:
    """Write the chosen records in one commit; by default all records from the feed's position to the topics' ends.

    A stream over the same records writes the same rows. If the transform keeps state, the rows are those of a stream
    whose watermark has passed all the records, so no record is late. Without state, a stream or the next batch resumes
    after these records. With state, no stream or batch can resume after this batch, because it stores no state: it must
    be the table's only batch.

    Raises:
        ConfigError: the sink's log numbers the batches of a stream.
        CheckpointMismatch: the records do not begin at the feed's position; or the transform keeps state, and the table
            has one.
    """
    began = time.monotonic()
    config = feed.config
    config.sink.require("batch")
    stateful = feed.plan(spark).stateful
    sink = feed.sink(spark, feed.claim(spark))

    def require_empty_table(position: Position | None) -> None:
        if stateful and position is not None:
            raise CheckpointMismatch(
                f"feed '{config.name}' keeps state, and its table already has batches: a separate batch would start "
                "without their state",
                where=sink.location(),
                hint="write the batch to a new table",
            )

    topics = SourceTopics(config.kafka)
    # The batch resumes at the sink's position and leaves the checkpoint unchanged.
    start = FeedStart(
        feed.identity,
        sink,
        checkpoint=None,
        describe=topics.describe,
        stateful=stateful,
        source=config.kafka,
        check=require_empty_table,
    )
    begin = ends(start.position) if start.position else start.decision.positions or {}
    ranges = topics.identify(_ranges(config.kafka, selection, begin))
    records = feed.source.read_batch(spark, ranges.ranges)
    writer = feed.begin_writer(spark, sink, records, alone=True)
    result = BatchResult(batch_id=0, rows=0, replayed=True)
    if ranges.records:
        number = next((commit.batch_id + 1 for commit in sink.commits() if commit.move is None), 0)
        if stateful:
            ranges = with_batch(ranges, batch_id=0, query_id=AS_BATCH)
        result = writer.write(records, ranges, number)
    published = writer.end()
    return BatchSummary(
        records=result.counts.records,
        rows=result.rows,
        dead_letters=result.counts.dead_letters,
        skipped=result.counts.skipped,
        seconds=round(time.monotonic() - began, 3),
        notes=result.notes if published is None else (*result.notes, published),
    )


def _ranges(source: KafkaSource, selection: Selection, begin: Mapping[Partition, int]) -> OffsetRanges:
    """Return the chosen ranges, and an empty range for every other partition, because a commit lists all partitions."""
    chosen = {span.key: span for span in offset_ranges(source, selection)}
    starts, end_offsets = {}, {}
    for key, partition in partitions_of(topics_of(source)).items():
        at = begin.get(key, partition.start_offset)
        span = chosen.get(key, OffsetRange(*key, at, at))
        # Without a start time, the range begins at the feed's position, or later if records were removed.
        starts[key] = span.start if selection.since is not None else max(span.start, at)
        end_offsets[key] = max(starts[key], span.end)
    return OffsetRanges.between(starts, end_offsets)
