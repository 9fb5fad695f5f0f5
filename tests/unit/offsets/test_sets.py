"""Compare arithmetic of offset ranges as sets with Python's own sets."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from lakefeed.offsets.ranges import OffsetRange, Offsets, difference, intersection, layers, overlapping, portions, union

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


def is_least(found: list[OffsetRange]) -> bool:
    """Check that the ranges are sorted, that none is empty, and that no two touch."""
    return found == sorted(found) and all(
        each.records
        and not any(
            other.start == each.end for other in found if (other.topic, other.partition) == (each.topic, each.partition)
        )
        for each in found
    )


@given(ranges)
def test_united_is_the_same_offsets_in_the_fewest_ranges(some: list[OffsetRange]) -> None:
    found = union(some)
    assert offsets(found) == offsets(some)
    assert sum(each.records for each in found) == len(offsets(some))
    assert is_least(found)


@given(ranges, ranges)
def test_subtracted_and_common_are_those_of_sets(some: list[OffsetRange], others: list[OffsetRange]) -> None:
    left, both = difference(some, others), intersection(some, others)
    assert offsets(left) == offsets(some) - offsets(others)
    assert offsets(both) == offsets(some) & offsets(others)
    assert is_least(left)
    assert is_least(both)


@given(ranges)
def test_overlapping_finds_an_offset_that_is_there_twice(some: list[OffsetRange]) -> None:
    pair = overlapping(some)
    assert (pair is None) == (sum(each.records for each in some) == len(offsets(some)))
    if pair is not None:
        assert offsets([pair[0]]) & offsets([pair[1]])


@given(ranges, st.integers(0, 45))
def test_offsets_are_found_one_by_one(some: list[OffsetRange], offset: int) -> None:
    found = Offsets(some)
    for topic in ("a", "b"):
        for partition in range(3):
            assert found.has(topic, partition, offset) == ((topic, partition, offset) in offsets(some))


@given(ranges)
def test_layers_hold_every_range_once_and_a_partition_once_each(some: list[OffsetRange]) -> None:
    found = layers(some)
    assert sorted(each for layer in found for each in layer) == sorted(each for each in some if each.records)
    for layer in found:
        assert len({(each.topic, each.partition) for each in layer}) == len(layer)


@given(ranges, st.integers(1, 40))
def test_portions_are_bounded_and_hold_every_offset_once(some: list[OffsetRange], size: int) -> None:
    found = list(portions(some, size))
    cut = [each for portion in found for each in portion]
    assert offsets(cut) == offsets(some)
    assert sum(each.records for each in cut) == len(offsets(some))
    for number, portion in enumerate(found):
        assert len({(each.topic, each.partition) for each in portion}) == len(portion)
        count = sum(each.records for each in portion)
        assert 0 < count <= size
        # There are no more portions than needed: a portion is full, except where gaps of a partition need another one.
        later = {(each.topic, each.partition) for rest in found[number + 1 :] for each in rest}
        gaps = any(
            each.end not in {other.start for rest in found[number + 1 :] for other in rest}
            for each in portion
            if (each.topic, each.partition) in later
        )
        assert count == size or not later or gaps or later <= {(each.topic, each.partition) for each in portion}


def test_partitions_share_a_portion() -> None:
    [first, *_] = portions([OffsetRange("a", 0, 0, 100), OffsetRange("a", 1, 0, 2), OffsetRange("a", 2, 5, 100)], 20)
    assert first == [OffsetRange("a", 0, 0, 9), OffsetRange("a", 1, 0, 2), OffsetRange("a", 2, 5, 14)]
