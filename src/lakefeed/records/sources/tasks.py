"""In how many tasks a batch is read and written: each task writes files of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefeed.offsets.ranges import OffsetRanges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORDS_PER_TASK = 50_000
"""So many are a fraction of a second's work: with fewer, more tasks save no time, and write more and smaller files."""


def task_count(ranges: OffsetRanges, *, most: int) -> int:
    """How many tasks a batch is worth: one for each partition at most, and few where it is small.

    Args:
        ranges: of the batch.
        most: records of a batch as large as it may be. That one is spread over all partitions, whatever its records
            weigh; a smaller one over as many as is its share.
    """
    filled = sum(each.records > 0 for each in ranges.ranges)
    if filled <= 1:
        return max(1, filled)
    each_task = max(1, min(RECORDS_PER_TASK, most // filled))
    return min(filled, -(-ranges.records // each_task))


def in_few_tasks(batch: DataFrame, ranges: OffsetRanges, *, most: int) -> DataFrame:
    """The records of a batch, read by as many tasks as it is worth.

    Args:
        batch: read with a task for each partition.
        ranges: of the batch.
        most: see ``task_count``.
    """
    count = task_count(ranges, most=most)
    filled = sum(each.records > 0 for each in ranges.ranges)
    return batch if count >= filled else batch.coalesce(count)
