"""Arithmetic of offsets; ranges are read from a snapshot as they were written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.errors import ConfigError
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition, spark_offsets

topics = st.sampled_from(["a", "nyc-avro-topic", "x.y_z"])
positions = st.dictionaries(st.tuples(topics, st.integers(0, 20)), st.integers(0, 10**12), min_size=1)


def advanced(position: dict[Partition, int], by: int) -> dict[Partition, int]:
    return {(topic, partition): offset + by * (partition % 3) for (topic, partition), offset in position.items()}


@given(positions, st.integers(0, 10**6))
def test_ranges_survive_json(start: dict[Partition, int], by: int) -> None:
    ranges = OffsetRanges.between(start, advanced(start, by), {topic: f"id-{topic}" for topic, _ in start})
    assert OffsetRanges.from_json(ranges.to_json()) == ranges


@given(positions, st.integers(0, 10**6))
def test_records_are_the_sum_of_the_ranges(start: dict[Partition, int], by: int) -> None:
    ranges = OffsetRanges.between(start, advanced(start, by))
    assert ranges.records == sum(each.end - each.start for each in ranges.ranges)


def test_the_topic_id_is_part_of_what_a_batch_is() -> None:
    old = OffsetRanges((OffsetRange("a", 0, 0, 5),), {"a": "old"})
    new = OffsetRanges((OffsetRange("a", 0, 0, 5),), {"a": "new"})
    assert old != new


@pytest.mark.parametrize(("partition", "start", "end"), [(-1, 0, 1), (0, -1, 1), (0, 5, 4)])
def test_impossible_ranges_are_refused(partition: int, start: int, end: int) -> None:
    with pytest.raises(ConfigError, match="no offset range"):
        OffsetRange("a", partition, start, end)


def test_two_ranges_of_one_partition_are_refused() -> None:
    with pytest.raises(ConfigError, match="more than one offset range"):
        OffsetRanges((OffsetRange("a", 0, 0, 5), OffsetRange("a", 0, 7, 9)))


@pytest.mark.parametrize("text", ["", "[]", "{}x", '{"a": 1}', '{"a": {"id": "", "ranges": {"0": [1]}}}'])
def test_foreign_text_is_not_taken_for_ranges(text: str) -> None:
    with pytest.raises(ConfigError, match="not the offset ranges"):
        OffsetRanges.from_json(text)


def test_sparks_offsets_are_read() -> None:
    assert spark_offsets('{"a":{"0":3,"12":4}}') == {("a", 0): 3, ("a", 12): 4}


@pytest.mark.parametrize("marks", [[], ["a"], ["a", "b", "c"], "abc", 7])
def test_marks_that_are_no_pair_are_refused(marks: object) -> None:
    text = json.dumps({"t": {"id": "x", "ranges": {"0": [1, 2]}, "marks": {"0": marks}}})
    with pytest.raises(ConfigError, match="not the offset ranges of a commit"):
        OffsetRanges.from_json(text)


def test_json_with_a_partition_that_comes_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="not the offset ranges of a commit"):
        OffsetRanges.from_json('{"t": {"id": "", "ranges": {"0": [0, 1], "00": [2, 3]}}}')


def test_a_leader_says_nothing_of_the_records() -> None:
    ranges = OffsetRanges((OffsetRange("t", 0, 3, 7), OffsetRange("t", 1, 0, 0)), {"t": "A"})
    led = ranges.in_epochs({("t", 0): 5})
    assert led == ranges
    assert led.to_json() == '{"t":{"id":"A","ranges":{"0":[3,7],"1":[0,0]},"epochs":{"0":5}}}'
    assert [span.epoch for span in OffsetRanges.from_json(led.to_json()).ranges] == [5, None]
