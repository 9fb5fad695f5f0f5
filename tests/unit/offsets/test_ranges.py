"""Offset ranges and their JSON."""

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
def test_ranges_are_read_from_their_json(start: dict[Partition, int], by: int) -> None:
    ranges = OffsetRanges.between(start, advanced(start, by), {topic: f"id-{topic}" for topic, _ in start})
    assert OffsetRanges.from_json(ranges.to_json()) == ranges
    assert ranges.records == sum(each.end - each.start for each in ranges.ranges)


def test_ranges_of_a_recreated_topic_differ() -> None:
    ranges = (OffsetRange("a", 0, 0, 5),)
    assert OffsetRanges(ranges, {"a": "old"}) != OffsetRanges(ranges, {"a": "new"})


def test_ranges_between_two_positions_begin_at_0_in_a_new_partition() -> None:
    assert OffsetRanges.between({}, {("a", 1): 7}).ranges == (OffsetRange("a", 1, 0, 7),)


@pytest.mark.parametrize(("partition", "start", "end"), [(-1, 0, 1), (0, -1, 1), (0, 5, 4)])
def test_negative_and_reversed_ranges_are_refused(partition: int, start: int, end: int) -> None:
    with pytest.raises(ConfigError, match="not an offset range"):
        OffsetRange("a", partition, start, end)


def test_two_ranges_of_one_partition_are_refused() -> None:
    with pytest.raises(ConfigError, match="more than one offset range"):
        OffsetRanges((OffsetRange("a", 0, 0, 5), OffsetRange("a", 0, 7, 9)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}x",
        '{"a": 1}',
        '{"a": {"id": "", "ranges": {"0": [1]}}}',
        '{"t": {"id": "", "ranges": {"0": [0, 1], "00": [2, 3]}}}',
        *(
            json.dumps({"t": {"id": "x", "ranges": {"0": [1, 2]}, "marks": {"0": marks}}})
            for marks in ([], ["a"], ["a", "b", "c"], "abc", 7)
        ),
    ],
)
def test_from_json_refuses_a_text_without_ranges(text: str) -> None:
    with pytest.raises(ConfigError, match="not the offset ranges of a commit"):
        OffsetRanges.from_json(text)


def test_spark_offsets_parses_sparks_json_of_offsets() -> None:
    assert spark_offsets('{"a":{"0":3,"12":4}}') == {("a", 0): 3, ("a", 12): 4}


def test_ranges_with_and_without_leader_epochs_are_equal() -> None:
    ranges = OffsetRanges((OffsetRange("t", 0, 3, 7), OffsetRange("t", 1, 0, 0)), {"t": "A"})
    with_epochs = ranges.in_epochs({("t", 0): 5})
    assert with_epochs == ranges
    assert with_epochs.to_json() == '{"t":{"id":"A","ranges":{"0":[3,7],"1":[0,0]},"epochs":{"0":5}}}'
    assert [span.epoch for span in OffsetRanges.from_json(with_epochs.to_json()).ranges] == [5, None]
