"""Which offsets a table takes next: all of them in the end, none twice, and a share for each partition."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lakefeed.clients.kafka.topics import PartitionDescription, TopicDescription
from lakefeed.feed.multi_table.ranges import backlog, next_ranges

spans = st.tuples(st.integers(0, 50), st.integers(0, 200)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def topic(*spans_: tuple[int, int]) -> TopicDescription:
    return TopicDescription(
        name="t",
        topic_id="id",
        partitions=tuple(
            PartitionDescription(id=number, leader=1, start_offset=start, end_offset=end)
            for number, (start, end) in enumerate(spans_)
        ),
    )


@settings(deadline=None)
@given(st.lists(spans, min_size=1, max_size=6), st.integers(1, 300))
def test_batch_after_batch_takes_each_offset_once(given_spans: list[tuple[int, int]], limit: int) -> None:
    described = topic(*given_spans)
    position: dict[int, int] = {}
    taken: list[tuple[int, int]] = []
    while backlog(position, described):
        ranges = next_ranges(position, described, limit=limit)
        assert 0 < ranges.records <= limit + len(given_spans)
        taken += [(each.partition, offset) for each in ranges.ranges for offset in range(each.start, each.end)]
        position = {each.partition: each.end for each in ranges.ranges}
    there = [(number, offset) for number, span in enumerate(given_spans) for offset in range(*span)]
    assert sorted(taken) == there


@given(st.lists(spans, min_size=1, max_size=6), st.integers(1, 300))
def test_every_partition_is_in_every_batch_and_none_with_records_waits(
    given_spans: list[tuple[int, int]], limit: int
) -> None:
    ranges = next_ranges({}, topic(*given_spans), limit=limit).ranges
    assert [each.partition for each in ranges] == list(range(len(given_spans)))
    assert all(each.records or start == end for each, (start, end) in zip(ranges, given_spans, strict=True))


def test_a_bound_holds_and_what_comes_later_waits() -> None:
    described = topic((0, 10), (0, 4))
    assert backlog({0: 3}, described, until={0: 5, 1: 0}) == 2
    assert [each.end for each in next_ranges({0: 3}, described, limit=100, until={0: 5, 1: 0}).ranges] == [5, 0]


def test_a_position_beyond_the_end_is_not_read_backwards() -> None:
    assert backlog({0: 12}, topic((0, 10))) == 0
    assert [(each.start, each.end) for each in next_ranges({0: 12}, topic((0, 10)), limit=5).ranges] == [(12, 12)]
