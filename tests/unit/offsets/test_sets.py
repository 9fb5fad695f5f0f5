"""The set operations on offset ranges give the results of Python's sets of offsets."""

from collections.abc import Iterable
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from lakefeed.offsets.ranges import OffsetRange, Offsets, difference, intersection, layers, overlapping, union

Offset = tuple[str, int, int]


@st.composite
def a_range(draw: st.DrawFn) -> OffsetRange:
    start = draw(st.integers(0, 30))
    return OffsetRange(
        draw(st.sampled_from(["a", "b"])), draw(st.integers(0, 2)), start, start + draw(st.integers(0, 12))
    )


ranges = st.lists(a_range(), max_size=12)


def offsets(given_ranges: Iterable[OffsetRange]) -> set[Offset]:
    return {(each.topic, each.partition, offset) for each in given_ranges for offset in range(each.start, each.end)}


def is_union(found: list[OffsetRange]) -> bool:
    """Return whether the ranges are sorted, no range is empty, and no two ranges touch."""
    starts = {(each.key, each.start) for each in found}
    return found == sorted(found) and all(each.records and (each.key, each.end) not in starts for each in found)


@given(ranges)
def test_a_union_has_the_same_offsets_in_the_fewest_ranges(some: list[OffsetRange]) -> None:
    joined = union(some)
    assert offsets(joined) == offsets(some)
    assert sum(each.records for each in joined) == len(offsets(some))
    assert is_union(joined)


@given(ranges, ranges)
def test_difference_and_intersection_equal_those_of_pythons_sets(
    some: list[OffsetRange], others: list[OffsetRange]
) -> None:
    left, both = difference(some, others), intersection(some, others)
    assert offsets(left) == offsets(some) - offsets(others)
    assert offsets(both) == offsets(some) & offsets(others)
    assert is_union(left)
    assert is_union(both)


@given(ranges)
def test_two_ranges_with_a_common_offset_are_found(some: list[OffsetRange]) -> None:
    pair = overlapping(some)
    assert (pair is None) == (sum(each.records for each in some) == len(offsets(some)))
    if pair is not None:
        assert offsets([pair[0]]) & offsets([pair[1]])


@given(ranges, st.integers(0, 45))
def test_a_set_of_offsets_has_exactly_the_offsets_of_the_ranges(some: list[OffsetRange], offset: int) -> None:
    own = Offsets(some)
    for topic, partition in product("ab", range(3)):
        assert own.has(topic, partition, offset) == ((topic, partition, offset) in offsets(some))


@given(ranges)
def test_layers_have_every_range_once_and_at_most_one_range_of_each_partition(some: list[OffsetRange]) -> None:
    found = layers(some)
    assert sorted(each for layer in found for each in layer) == sorted(each for each in some if each.records)
    for layer in found:
        assert len({each.key for each in layer}) == len(layer)
