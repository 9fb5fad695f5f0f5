"""A backfill lands the records below the feed's position that are missing in the table and still in the topic."""

from collections.abc import Iterable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.clients.kafka.topics import PartitionDescription, TopicDescription
from lakefeed.errors import CheckpointMismatch, ConfigError, ResourceMissing
from lakefeed.ledger.feed_position import CommittedOffsets, Position
from lakefeed.ledger.snapshot_summary import adopted_offsets, adopted_property
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, union
from lakefeed_repair.backfill import BackfillPlan, BackfillRequest, find_missing

TOPIC, ID = "trips", "id-one"


def position(ends: dict[int, int], has: Iterable[tuple[int, int, int]], *, topic_id: str = ID) -> Position:
    intervals: dict[tuple[str, int], tuple[tuple[int, int], ...]] = {}
    for each in union(OffsetRange(TOPIC, *interval) for interval in has):
        key = (each.topic, each.partition)
        intervals[key] = (*intervals.get(key, ()), (each.start, each.end))
    ranges = OffsetRanges(tuple(OffsetRange(TOPIC, at, end, end) for at, end in ends.items()), {TOPIC: topic_id})
    return Position(ranges, snapshot_id=1, covered=CommittedOffsets(intervals, {TOPIC: topic_id}))


def described(held: dict[int, tuple[int, int]], *, topic_id: str = ID) -> dict[str, TopicDescription]:
    partitions = tuple(
        PartitionDescription(id=at, leader=1, start_offset=start, end_offset=end) for at, (start, end) in held.items()
    )
    return {TOPIC: TopicDescription(name=TOPIC, topic_id=topic_id, partitions=partitions)}


def offsets(ranges: Iterable[OffsetRange]) -> set[tuple[int, int]]:
    return {(each.partition, offset) for each in ranges for offset in range(each.start, each.end)}


def of(*args: object, **kwargs: object) -> BackfillPlan:
    return find_missing(*args, **kwargs, where="broker")  # type: ignore[arg-type]


partitions = st.integers(0, 2)
small = st.integers(0, 25)


@given(
    st.dictionaries(partitions, small, min_size=1),
    st.lists(st.tuples(partitions, small, small).map(lambda each: (each[0], min(each[1:]), max(each[1:])))),
    st.dictionaries(partitions, st.tuples(small, small).map(lambda each: (min(each), max(each) + 25))),
    st.one_of(st.none(), small),
)
def test_a_backfill_lands_records_below_the_position_that_are_in_the_topic_but_not_in_the_table(
    ends: dict[int, int], has: list[tuple[int, int, int]], held: dict[int, tuple[int, int]], start: int | None
) -> None:
    found = of(position(ends, has), described(held), BackfillRequest(start=start))
    covered = {(at, offset) for at, first, last in has for offset in range(first, last)}
    absent = {
        (at, offset) for at, end in ends.items() for offset in range(start or 0, end) if (at, offset) not in covered
    }
    there = {(at, offset) for at, (first, last) in held.items() for offset in range(first, last)}
    assert offsets(found.ranges) == absent & there
    assert offsets(found.gone) == absent - there
    assert found.offsets == len(absent & there)


def test_a_second_backfill_lands_only_records_that_the_first_backfill_has_not_landed() -> None:
    topics = described({0: (0, 100)})
    first = of(position({0: 80}, [(0, 50, 80)]), topics, BackfillRequest())
    assert first.ranges == (OffsetRange(TOPIC, 0, 0, 50),)
    rest = of(position({0: 90}, [(0, 50, 90), (0, 0, 20)]), topics, BackfillRequest())
    assert rest.ranges == (OffsetRange(TOPIC, 0, 20, 50),)
    assert of(position({0: 90}, [(0, 0, 90)]), topics, BackfillRequest()).ranges == ()


def test_a_backfill_since_a_time_begins_at_each_partitions_first_offset_since_that_time() -> None:
    topics, stands = described({0: (0, 100), 1: (0, 100)}), position({0: 50, 1: 50}, [])
    found = of(
        stands,
        topics,
        BackfillRequest(since=datetime(2026, 11, 20, 12, tzinfo=UTC)),
        starts={(TOPIC, 0): 30, (TOPIC, 1): None},
    )
    assert found.ranges == (OffsetRange(TOPIC, 0, 30, 50),)


def test_the_requested_ranges_must_be_in_the_topic_and_below_the_position() -> None:
    topics, stands = described({0: (10, 100)}), position({0: 50}, [(0, 0, 5), (0, 30, 50)])

    def span(start: int, end: int, *, partition: int = 0) -> BackfillPlan:
        return of(stands, topics, BackfillRequest(ranges=(OffsetRange(TOPIC, partition, start, end),)))

    assert span(20, 40).ranges == (OffsetRange(TOPIC, 0, 20, 30),)
    assert span(0, 5).ranges == span(0, 5).gone == ()
    with pytest.raises(ResourceMissing, match="no longer has offset 5, it begins at 10"):
        span(0, 12)
    with pytest.raises(ConfigError, match="committed trips-0 up to 50"):
        span(40, 51)
    with pytest.raises(ConfigError, match="does not read trips-1"):
        span(0, 5, partition=1)
    with pytest.raises(ConfigError, match="exclude a first offset"):
        BackfillRequest(ranges=(), start=3)


def test_a_backfill_is_refused_if_the_offsets_in_the_table_are_unknown() -> None:
    known = position({0: 50}, [])
    unknown = Position(known.ranges, snapshot_id=1, covered=None)
    with pytest.raises(CheckpointMismatch, match="does not know which records"):
        of(unknown, described({0: (0, 100)}), BackfillRequest())


def test_missing_records_of_a_recreated_topic_are_reported_as_gone() -> None:
    other = described({0: (0, 100)}, topic_id="id-two")
    found = of(position({0: 50}, [(0, 20, 50)]), other, BackfillRequest())
    assert (found.ranges, found.gone) == ((), (OffsetRange(TOPIC, 0, 0, 20),))
    assert of(position({0: 50}, []), {}, BackfillRequest()).gone == (OffsetRange(TOPIC, 0, 0, 50),)
    with pytest.raises(CheckpointMismatch, match="was recreated with the id id-two"):
        of(position({0: 50}, []), other, BackfillRequest(ranges=(OffsetRange(TOPIC, 0, 0, 5),)))


def test_records_from_before_a_takeover_land_only_if_the_requested_ranges_include_them() -> None:
    topics, stands, adopted = described({0: (0, 100)}), position({0: 80}, [(0, 60, 80)]), {(TOPIC, 0): 50}
    for request in (BackfillRequest(), BackfillRequest(start=0)):
        assert of(stands, topics, request, adopted=adopted).ranges == (OffsetRange(TOPIC, 0, 50, 60),)
    named = BackfillRequest(ranges=(OffsetRange(TOPIC, 0, 20, 30),))
    assert of(stands, topics, named, adopted=adopted).ranges == named.ranges


def test_the_properties_of_the_table_store_the_offsets_of_a_takeover() -> None:
    ranges = OffsetRanges.at({(TOPIC, 0): 50, (TOPIC, 11): 7}, {TOPIC: "id-one"})
    properties = adopted_property("f", ranges)
    assert properties == {"lakefeed.adopted.f": f'{{"{TOPIC}":{{"0":50,"11":7}}}}'}
    assert adopted_offsets(properties, "f") == ranges.ends
    assert adopted_offsets(properties, "g") == {}
