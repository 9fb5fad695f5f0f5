"""Predict the batches that land the topics' present records, and estimate their cost.

The estimates come from past batches of the table, or else from the rules of docs/s3-requests.md, which
``tests/integration/test_data_path.py`` checks. docs/design/starts-and-topics.md has the reasons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import mean

from lakefeed.clients.kafka.topics import TopicDescription, partitions_of
from lakefeed.config.models import PipelineConfig
from lakefeed.feed.multi_table.table import next_ranges
from lakefeed.feed.recovery import Start, ends
from lakefeed.ledger.checkpoint import CheckpointState
from lakefeed.ledger.feed_position import Position
from lakefeed.messages.pages import page_command
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition
from lakefeed.operations.plan.history import Past, Sample
from lakefeed.records.sources import task_count

MOST_BATCHES = 1_000
"""The most batches to predict one by one; all later batches are assumed to be full."""

Spread = Callable[[tuple[OffsetRange, ...]], tuple[OffsetRange, ...]]
"""A function from the remaining ranges to the ranges of the next batch."""


@dataclass(frozen=True, kw_only=True)
class Begin:
    """The offsets at which a run begins.

    Attributes:
        again: the ranges of a batch that an earlier run has planned, which is skipped if the sink already has it.
        positions: the offsets at which the first new batch begins.
    """

    batch_id: int
    positions: Mapping[Partition, int]
    again: OffsetRanges | None = None
    again_is_landed: bool = False


@dataclass(frozen=True, kw_only=True)
class Batches:
    """The batches that land the ``backlog``, and how many tasks they have together.

    ``first`` has all ranges, even empty ones, of the first batch that lands records.
    """

    first: tuple[OffsetRange, ...] = ()
    first_tasks: int = 0
    backlog: tuple[OffsetRange, ...] = ()
    count: int = 0
    tasks: int = 0


def begin_of_query(
    start: Start,
    *,
    checkpoint: CheckpointState,
    position: Position | None,
    logged: int | None,
    topics: Mapping[str, TopicDescription],
    first: Mapping[Partition, int],
) -> Begin:
    """Return where a streaming query begins.

    Args:
        logged: the newest batch in the log of a sink without a ledger.
        first: the offsets at which a new feed begins.
    """
    if start.positions is not None:
        return Begin(batch_id=0, positions=_positions(start.positions, topics))
    if start.reset_checkpoint or checkpoint.batch_id is None:
        return Begin(batch_id=0, positions=_positions(first, topics))
    # A partition that is not in the checkpoint is new, so its ranges begin at 0.
    after = {key: checkpoint.end.get(key, 0) for key in _positions({}, topics)}
    if checkpoint.committed or checkpoint.start is None:
        return Begin(batch_id=checkpoint.batch_id + checkpoint.committed, positions=after)
    again = tuple(OffsetRange(*key, checkpoint.start.get(key, 0), end) for key, end in checkpoint.end.items())
    landed = logged == checkpoint.batch_id if position is None else ends(position) == dict(checkpoint.end)
    return Begin(batch_id=checkpoint.batch_id, positions=after, again=OffsetRanges(again), again_is_landed=landed)


def begin_of_topic(position: Position | None, topic: TopicDescription, *, first: Mapping[Partition, int]) -> Begin:
    """Return the offsets at which one of many topics begins: its table's position, or ``first`` without a position."""
    known = first if position is None else ends(position)
    return Begin(batch_id=0, positions=_positions(known, {topic.name: topic}))


def spread_by_spark(limit: int) -> Spread:
    """Return the next batch's ranges, as Spark's Kafka source divides ``maxOffsetsPerTrigger`` among partitions.

    Source: ``KafkaMicroBatchStream.rateLimit`` of Spark 4.1.3.
    """

    def spread(left: tuple[OffsetRange, ...]) -> tuple[OffsetRange, ...]:
        whole = sum(span.records for span in left) or 1
        shares = (limit * (span.records / whole) for span in left)
        # Each partition gets at least one record, so that a small one is read, too.
        offsets = (math.ceil(share) if share < 1 else math.floor(share) for share in shares)
        taken = (min(span.records, count) for span, count in zip(left, offsets, strict=True))
        return tuple(replace(span, end=span.start + count) for span, count in zip(left, taken, strict=True))

    return spread


def spread_by_round(limit: int, topic: TopicDescription) -> Spread:
    """Return the next batch's ranges of one table, as ``lakefeed.feed.multi_table.table`` divides the limit."""

    def spread(left: tuple[OffsetRange, ...]) -> tuple[OffsetRange, ...]:
        return next_ranges({each.partition: each.start for each in left}, topic, limit=limit).ranges

    return spread


def batches(begin: Begin, topics: Mapping[str, TopicDescription], *, limit: int, spread: Spread) -> Batches:
    """Predict the batches of at most ``limit`` offsets that land the topics' present records."""
    end = {key: part.end_offset for key, part in partitions_of(topics).items()}
    left = tuple(OffsetRange(*key, at, max(at, end[key])) for key, at in sorted(begin.positions.items()) if key in end)
    again = () if begin.again is None or begin.again_is_landed else begin.again.ranges
    starts = {span.key: span.start for span in again}
    backlog = tuple(replace(span, start=starts.get(span.key, span.start)) for span in left)
    first = again or spread(left)
    count, tasks = int(any(span.records for span in again)), _tasks(again, most=limit)
    while (requested := sum(span.records for span in left)) and count < MOST_BATCHES:
        taken = spread(left)
        count, tasks = count + 1, tasks + _tasks(taken, most=limit)
        left = tuple(replace(span, start=now.end) for span, now in zip(left, taken, strict=True))
    if requested:
        more = -(-requested // limit)
        count, tasks = count + more, tasks + more * _tasks(left, most=limit)
    return Batches(first=first, first_tasks=_tasks(first, most=limit), backlog=backlog, count=count, tasks=tasks)


def _tasks(ranges: tuple[OffsetRange, ...], *, most: int) -> int:
    return task_count(OffsetRanges(ranges), most=most) if any(span.records for span in ranges) else 0


def _positions(known: Mapping[Partition, int], topics: Mapping[str, TopicDescription]) -> dict[Partition, int]:
    return {key: known.get(key, part.start_offset) for key, part in partitions_of(topics).items()}


CHECKPOINT = 2
"""How many PUTs a batch makes for the checkpoint: ``offsets/N`` and ``commits/N``."""


@dataclass(frozen=True)
class Estimate:
    """One figure, such as the number of records, for the first batch and for all batches; None if unknown."""

    first: int | float | None
    all: int | float | None
    rests_on: str


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """The cost of batches.

    The number of records is exact, unless transactions or compaction have left offsets without a record. Bytes are
    those of uncompressed keys, values and headers. S3 requests of the start, of dead letters and of maintenance are not
    included.
    """

    records: Estimate
    bytes: Estimate
    stored: Estimate
    files: Estimate
    requests: Estimate
    seconds: Estimate

    def named(self) -> list[tuple[str, Estimate]]:
        """Return the estimates with their names, in the order of the report."""
        names = ("records", "bytes read", "bytes stored", "files", "S3 requests", "seconds")
        return [(name, getattr(self, part.name)) for name, part in zip(names, fields(self), strict=True)]


NOTHING = Estimate(0, 0, "there is nothing to land")
ON_DISK = Estimate(0, 0, "tables and checkpoint are on this machine's disk")


def _unknown(why: str) -> Estimate:
    return Estimate(None, None, f"not known: {why}")


def estimates(
    config: PipelineConfig,
    *,
    batches: Batches,
    past: Past,
    sample: Sample,
    is_laid_out_anew: bool,
    has_state: bool,
    is_on_disk: bool = False,
) -> Estimates:
    """Estimate the cost of landing the present records in one table.

    Args:
        is_laid_out_anew: whether the table's partitions or sort order change, so that past files predict nothing.
        is_on_disk: whether tables and checkpoint are on this machine's disk, so that there are no S3 requests.
    """
    first, whole = (sum(span.records for span in ranges) for ranges in (batches.first, batches.backlog))

    def of_bytes(a_record: float | None, rests_on: str, unknown: str) -> Estimate:
        if a_record is None:
            return _unknown(unknown)
        return Estimate(round(a_record * first), round(a_record * whole), rests_on)

    sampled = f"{sample.records:,} of the records, read with the Kafka client"
    stored = f"bytes a record in {_batches_of(past)}"
    files = _files(config, batches=batches, past=past, is_laid_out_anew=is_laid_out_anew, has_state=has_state)
    return Estimates(
        records=Estimate(first, whole, "the topics' present offsets"),
        bytes=of_bytes(sample.bytes_a_record, sampled, "no record could be read") if whole else NOTHING,
        stored=of_bytes(past.bytes_a_record, stored, "the table has no batch yet") if whole else NOTHING,
        files=files,
        requests=ON_DISK if is_on_disk else _requests(config, files, batches=batches, past=past, has_state=has_state),
        seconds=_seconds(first, whole, past) if whole else NOTHING,
    )


def total(tables: Sequence[Estimates]) -> Estimates:
    """Add up the estimates of several tables; a sum is unknown if the figure of one table is unknown."""

    def of(name: str) -> Estimate:
        figures: list[Estimate] = [getattr(table, name) for table in tables]
        unknown = sum(figure.all is None for figure in figures)
        rests_on = f"the sum over {len(figures):,} tables"
        if unknown:
            rests_on = f"not known for {unknown:,} of {len(figures):,} tables"
        elif name == "seconds":
            rests_on = f"{rests_on}, as if they landed one after the other"
        return Estimate(_sum([figure.first for figure in figures]), _sum([figure.all for figure in figures]), rests_on)

    return Estimates(**{part.name: of(part.name) for part in fields(Estimates)})


def _sum(figures: Sequence[int | float | None]) -> int | float | None:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if len(known) == len(figures) else None


def _files(
    config: PipelineConfig, *, batches: Batches, past: Past, is_laid_out_anew: bool, has_state: bool
) -> Estimate:
    written = config.sink.chosen.stored_files
    if not batches.count:
        return NOTHING
    if written.elsewhere is not None:
        return Estimate(0, 0, f"the rows go to {written.elsewhere}")
    if written.is_unknown:
        return _unknown(f"sink.{config.sink.kind} decides it")
    if past.batches and not is_laid_out_anew:
        files = mean(batch.files for batch in past.batches)
        return Estimate(math.ceil(files), math.ceil(files * batches.count), f"the mean of {_batches_of(past)}")
    if written.merges:
        return _unknown("they depend on the rows that the changes replace, and the table has no batch yet")
    if has_state:
        return _unknown("the query decides which groups and windows a batch writes, and the table has no batch yet")
    if written.is_partitioned:
        again = ", and the layout of the table changes" if is_laid_out_anew and past.batches else ""
        return _unknown(f"it depends on the number of table partitions that the records belong to{again}")
    why = "one for each topic partition with records, fewer in a small batch, unless one exceeds the target size"
    return Estimate(batches.first_tasks, batches.tasks, why)


def _requests(config: PipelineConfig, files: Estimate, *, batches: Batches, past: Past, has_state: bool) -> Estimate:
    written = config.sink.chosen.stored_files
    if not batches.count:
        return NOTHING
    if written.merges and written.reads_rows:
        return _unknown("a MERGE reads all files of the table that have rows with the batch's keys")
    if has_state:
        return _unknown(
            f"every batch also writes all parts of the state, a request each ({page_command('s3-requests')})"
        )
    if files.first is None or files.all is None:
        return _unknown("the number of files is unknown")
    parts = {
        "2 of the checkpoint": CHECKPOINT if config.checkpoint else 0,
        written.commit_name: written.commit_puts,
        "1 delete of old metadata": int(past.deletes_metadata),
        "2 to compare a row with the index of keys": 2 * written.merges,
    }
    names = " and ".join(name for name, count in parts.items() if count)
    a_batch, why = sum(parts.values()), f"files, and in each batch {names}; without the run's start and dead letters"
    return Estimate(files.first + a_batch, files.all + a_batch * batches.count, why)


def _seconds(first: int, whole: int, past: Past) -> Estimate:
    if past.rate is None:
        return _unknown("no driver has landed two batches one after the other" if past.batches else "no batch yet")
    why = (
        f"{past.rate:,.0f} records/s, the median from commit to commit in {_batches_of(past)} "
        f"({min(past.rates):,.0f} to {max(past.rates):,.0f}; waits for the trigger count)"
    )
    return Estimate(round(first / past.rate, 1), round(whole / past.rate, 1), why)


def _batches_of(past: Past) -> str:
    return f"the last {len(past.batches)} batches" if len(past.batches) > 1 else "the only batch"
