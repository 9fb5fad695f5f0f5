"""A backfill writes its ranges in portions."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from lakefeed.offsets.ranges import OffsetRange
from lakefeed_repair.backfill import portions

ranges = st.lists(
    st.builds(
        lambda topic, partition, start, records: OffsetRange(topic, partition, start, start + records),
        st.sampled_from(["a", "b"]),
        st.integers(0, 2),
        st.integers(0, 30),
        st.integers(0, 12),
    ),
    max_size=12,
)


def offsets(given_ranges: Iterable[OffsetRange]) -> set[tuple[str, int, int]]:
    return {(each.topic, each.partition, offset) for each in given_ranges for offset in range(each.start, each.end)}


@given(ranges, st.integers(1, 40))
def test_portions_have_at_most_the_given_size_and_every_offset_once(some: list[OffsetRange], size: int) -> None:
    found = list(portions(some, size))
    cut = [each for portion in found for each in portion]
    assert offsets(cut) == offsets(some)
    assert sum(each.records for each in cut) == len(offsets(some))
    for number, portion in enumerate(found):
        keys = {each.key for each in portion}
        assert len(keys) == len(portion)
        count = sum(each.records for each in portion)
        assert 0 < count <= size
        # Each portion is full, unless a gap in a partition ends it, so there are no more portions than needed.
        later = [each for rest in found[number + 1 :] for each in rest]
        later_keys = {each.key for each in later}
        starts = {other.start for other in later}
        gaps = any(each.end not in starts for each in portion if each.key in later_keys)
        assert count == size or not later or gaps or later_keys <= keys


def test_longer_ranges_of_a_portion_get_the_records_that_a_short_range_lacks() -> None:
    [first, *_] = portions([OffsetRange("a", 0, 0, 100), OffsetRange("a", 1, 0, 2), OffsetRange("a", 2, 5, 100)], 20)
    assert first == [OffsetRange("a", 0, 0, 9), OffsetRange("a", 1, 0, 2), OffsetRange("a", 2, 5, 14)]
