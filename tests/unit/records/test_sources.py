"""The number of tasks of a batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.records.sources import RECORDS_PER_TASK, task_count


def batch(*records: int) -> OffsetRanges:
    return OffsetRanges(tuple(OffsetRange("t", number, 5, 5 + count) for number, count in enumerate(records)))


@pytest.mark.parametrize(
    ("records", "most", "tasks"),
    [
        ([0, 0], 1_000_000, 1),
        ([1, 0, 0], 1_000_000, 1),
        ([10] * 20, 1_000_000, 1),
        ([RECORDS_PER_TASK] * 20, 1_000_000, 20),
        ([RECORDS_PER_TASK // 4] * 20, 1_000_000, 5),
        # A small limit suggests large records, so a batch at the limit has all tasks.
        ([50] * 20, 1_000, 20),
        ([5] * 20, 1_000, 2),
        # If the limit is very high, the number of records decides.
        ([1_000_000] * 10, 10**12, 10),
    ],
)
def test_a_small_batch_has_few_tasks(records: list[int], most: int, tasks: int) -> None:
    assert task_count(batch(*records), most=most) == tasks


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=30), st.integers(1, 5_000_000))
def test_a_batch_has_at_most_one_task_per_partition_with_records(records: list[int], most: int) -> None:
    assert 1 <= task_count(batch(*records), most=most) <= max(1, sum(each > 0 for each in records))
