"""What batches will cost, and what each figure rests on: past batches of the table, or rules that were measured.

The rules are those of docs/s3-requests.md, which ``tests/integration/test_data_path.py`` holds exactly; why these and
no others: docs/decisions/0142.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lakefeed.config.models import PipelineConfig
from lakefeed.operations.plan.batches import Batches
from lakefeed.operations.plan.past import Past
from lakefeed.operations.plan.sample import Sample

CHECKPOINT = 2
"""PUTs of a batch beside its sink's: ``offsets/N`` and ``commits/N``."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A figure for the first batch, and for all batches that land what is there now.

    Attributes:
        first: of the first batch; None if it is not known.
        all: of all of them; None if it is not known.
        rests_on: where the figures come from, or why there are none.
    """

    first: int | float | None
    all: int | float | None
    rests_on: str


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """What batches will cost.

    Attributes:
        records: that are read: exact, but for offsets that transactions and compaction leave without a record.
        bytes: of these records: keys, values and headers, not compressed.
        stored: bytes of the files that are written.
        files: data files that are written.
        requests: to S3, by the batches; not those of the start, of dead letters and of upkeep.
        seconds: from the first batch to the last.
    """

    records: Estimate
    bytes: Estimate
    stored: Estimate
    files: Estimate
    requests: Estimate
    seconds: Estimate

    def named(self) -> list[tuple[str, Estimate]]:
        """In the order of the report."""
        return [
            ("records", self.records),
            ("bytes read", self.bytes),
            ("bytes stored", self.stored),
            ("files", self.files),
            ("S3 requests", self.requests),
            ("seconds", self.seconds),
        ]


def estimates(
    config: PipelineConfig,
    *,
    batches: Batches,
    past: Past,
    sample: Sample | None,
    is_laid_out_anew: bool,
    has_state: bool,
) -> Estimates:
    """Estimates what is there now.

    Args:
        config: the pipeline; of one topic, where each has a table of its own.
        batches: what is to be landed.
        past: what batches were like until now.
        sample: some of the records; None if there was nothing to read.
        is_laid_out_anew: whether past files say nothing about those to come.
        has_state: whether the transform keeps state from batch to batch.
    """
    first = sum(each.records for each in batches.first)
    whole = sum(each.records for each in batches.backlog)
    records = Estimate(first=first, all=whole, rests_on="offsets that are there now")
    files = _files(config, batches=batches, past=past, is_laid_out_anew=is_laid_out_anew, has_state=has_state)
    return Estimates(
        records=records,
        bytes=_a_record(
            records,
            sample.bytes_a_record if sample else None,
            rests_on=f"{sample.records:,} of the records, read with the Kafka client" if sample else "",
            unknown="no record could be read",
        ),
        stored=_a_record(
            records,
            past.bytes_a_record,
            rests_on=f"bytes a record in {_batches_of(past)}",
            unknown="the table has no batch yet",
        ),
        files=files,
        requests=_requests(config, files, batches=batches, past=past, has_state=has_state),
        seconds=_seconds(records, past),
    )


def total(each: Sequence[Estimates]) -> Estimates:
    """Of several tables. A figure that is not known of one of them is not known of all."""

    def of(name: str) -> Estimate:
        found: list[Estimate] = [getattr(one, name) for one in each]
        unknown = sum(one.all is None for one in found)
        rests_on = f"the sum over {len(found):,} tables"
        if unknown:
            rests_on = f"not known for {unknown:,} of {len(found):,} tables"
        if name == "seconds" and not unknown:
            rests_on = f"{rests_on}, as if one were landed after the other"
        return Estimate(
            first=_sum([one.first for one in found]), all=_sum([one.all for one in found]), rests_on=rests_on
        )

    return Estimates(**{name: of(name) for name in ("records", "bytes", "stored", "files", "requests", "seconds")})


def _sum(figures: Sequence[int | float | None]) -> int | float | None:
    known = [each for each in figures if each is not None]
    return sum(known) if len(known) == len(figures) else None


def _a_record(records: Estimate, each: float | None, *, rests_on: str, unknown: str) -> Estimate:
    if records.first is None or records.all is None or not records.all:
        return Estimate(first=0, all=0, rests_on="there is nothing to land")
    if each is None:
        return Estimate(first=None, all=None, rests_on=f"not known: {unknown}")
    return Estimate(first=round(each * records.first), all=round(each * records.all), rests_on=rests_on)


def _files(
    config: PipelineConfig, *, batches: Batches, past: Past, is_laid_out_anew: bool, has_state: bool
) -> Estimate:
    if not batches.count:
        return Estimate(first=0, all=0, rests_on="there is nothing to land")
    written = config.sink.chosen.stored_files
    if written.elsewhere is not None:
        return Estimate(first=0, all=0, rests_on=f"the rows go to {written.elsewhere}")
    if written.is_unknown:
        return Estimate(first=None, all=None, rests_on=f"not known: sink.{config.sink.kind} writes in its own way")
    if past.files is not None and not is_laid_out_anew:
        rests_on = f"the mean of {_batches_of(past)}"
        return Estimate(first=math.ceil(past.files), all=math.ceil(past.files * batches.count), rests_on=rests_on)
    if written.merges:
        unknown = "how many files a MERGE writes depends on the rows that it finds, and the table has no batch yet"
    elif has_state:
        unknown = "the query says which groups and windows a batch hands on, and the table has no batch yet"
    elif written.is_partitioned:
        unknown = "it depends on how many of the table's partitions the records are of" + (
            ", and new files are laid out in another way" if is_laid_out_anew and past.batches else ""
        )
    else:
        tasks = sum(each.records > 0 for each in batches.first)
        rests_on = "one for each topic partition with records, unless one exceeds the target size"
        return Estimate(first=tasks, all=batches.reads, rests_on=rests_on)
    return Estimate(first=None, all=None, rests_on=f"not known: {unknown}")


def _requests(config: PipelineConfig, files: Estimate, *, batches: Batches, past: Past, has_state: bool) -> Estimate:
    written = config.sink.chosen.stored_files
    if written.merges and batches.count:
        unknown = "a MERGE reads files of the table, as many as have rows of the batch's keys"
        return Estimate(first=None, all=None, rests_on=f"not known: {unknown}")
    if has_state and batches.count:
        unknown = "beside the files each part of the state is a request of every batch (docs/s3-requests.md)"
        return Estimate(first=None, all=None, rests_on=f"not known: {unknown}")
    if files.first is None or files.all is None:
        return Estimate(first=None, all=None, rests_on="not known, as the files are not")
    if not batches.count:
        return Estimate(first=0, all=0, rests_on="there is nothing to land")
    parts = [CHECKPOINT if config.checkpoint else 0]
    names = ["2 of the checkpoint" if config.checkpoint else ""]
    if written.commit_puts:
        parts.append(written.commit_puts)
        names.append(written.commit_name)
    if past.deletes_metadata:
        parts.append(1)
        names.append("1 delete of old metadata")
    each = sum(parts)
    return Estimate(
        first=files.first + each,
        all=files.all + each * batches.count,
        rests_on=f"files, and in each batch {' and '.join(name for name in names if name)} (docs/s3-requests.md)",
    )


def _seconds(records: Estimate, past: Past) -> Estimate:
    if not records.all or records.first is None:
        return Estimate(first=0, all=0, rests_on="there is nothing to land")
    if past.rate is None:
        unknown = "no driver has landed two batches one after the other" if past.batches else "no batch yet"
        return Estimate(first=None, all=None, rests_on=f"not known: {unknown}")
    slowest, fastest = min(past.rates), max(past.rates)
    return Estimate(
        first=round(records.first / past.rate, 1),
        all=round(records.all / past.rate, 1),
        rests_on=f"{past.rate:,.0f} records/s, the median from commit to commit in {_batches_of(past)} "
        f"({slowest:,.0f} to {fastest:,.0f}; waits for the trigger count)",
    )


def _batches_of(past: Past) -> str:
    return f"the last {len(past.batches)} batches" if len(past.batches) > 1 else "the only batch"
