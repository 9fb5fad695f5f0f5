"""The first offsets of a planned run, and its number of batches."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lakefeed.clients.kafka.topics import PartitionDescription, TopicDescription
from lakefeed.feed.recovery import Start
from lakefeed.ledger.checkpoint import CheckpointState
from lakefeed.ledger.feed_position import Position
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.operations.plan.estimates import (
    Begin,
    batches,
    begin_of_query,
    spread_by_round,
    spread_by_spark,
)


def topic(*ends: int, starts: tuple[int, ...] = ()) -> TopicDescription:
    partitions = tuple(
        PartitionDescription(id=at, leader=0, start_offset=starts[at] if starts else 0, end_offset=end)
        for at, end in enumerate(ends)
    )
    return TopicDescription(name="t", topic_id="id", partitions=partitions)


def ranges(*pairs: tuple[int, int]) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange("t", at, start, end) for at, (start, end) in enumerate(pairs))


def keyed(*offsets: int) -> dict[tuple[str, int], int]:
    return {("t", at): offset for at, offset in enumerate(offsets)}


def begin(start: Start, state: CheckpointState, *, position: Position | None = None, **more: object) -> Begin:
    given_topic = more.get("topic", topic(10, 20, starts=(2, 0)))
    return begin_of_query(
        start,
        checkpoint=state,
        position=position,
        logged=more.get("logged"),  # type: ignore[arg-type]
        topics={"t": given_topic},  # type: ignore[dict-item]
        first=more.get("first", {}),  # type: ignore[arg-type]
    )


def test_a_batch_that_the_checkpoint_has_planned_is_repeated_unless_it_has_landed() -> None:
    state = CheckpointState(batch_id=7, committed=False, start=keyed(2, 3), end=keyed(4, 9))
    found = begin(Start(), state)
    assert (found.batch_id, found.positions, found.again_is_landed) == (7, keyed(4, 9), False)
    assert found.again == OffsetRanges(ranges((2, 4), (3, 9)))
    counted = batches(found, {"t": topic(10, 20)}, limit=100, spread=spread_by_spark(100))
    assert counted.first == ranges((2, 4), (3, 9))
    assert counted.backlog == ranges((2, 10), (3, 20))
    assert counted.count == 2

    landed = begin(Start(), state, position=Position(OffsetRanges(ranges((2, 4), (3, 9))), 1))
    assert landed.again_is_landed
    after = batches(landed, {"t": topic(10, 20)}, limit=100, spread=spread_by_spark(100))
    assert (after.first, after.count) == (ranges((4, 10), (9, 20)), 1)
    assert begin(Start(), state, logged=7).again_is_landed
    assert not begin(Start(), state, logged=6).again_is_landed


def test_the_limit_is_divided_in_proportion_to_the_lag_and_every_partition_gets_records() -> None:
    left = ranges((0, 900), (0, 99), (5, 6), (3, 3))
    assert spread_by_spark(100)(left) == ranges((0, 90), (0, 9), (5, 6), (3, 3))
    assert spread_by_spark(10_000)(left) == left
    assert spread_by_spark(100)(ranges((4, 4))) == ranges((4, 4))


def test_a_small_batch_is_read_by_few_tasks() -> None:
    """The plan has the number of tasks to which ``coalesce_small`` reduces the batch."""
    described = {"t": topic(4, 4, 4)}
    begin = Begin(batch_id=0, positions=keyed(0, 0, 0))
    small = batches(begin, described, limit=100_000, spread=spread_by_spark(100_000))
    full = batches(begin, described, limit=12, spread=spread_by_spark(12))
    assert (small.first_tasks, small.tasks) == (1, 1)
    assert (full.first_tasks, full.tasks) == (3, 3)


def test_a_billion_batches_are_counted_quickly() -> None:
    found = batches(
        Begin(batch_id=0, positions=keyed(0)), {"t": topic(10**12)}, limit=1000, spread=spread_by_spark(1000)
    )
    assert found.count == 10**9


@settings(deadline=None)
@given(st.lists(st.integers(0, 500), min_size=1, max_size=6), st.integers(1, 300), st.booleans())
def test_planned_batches_contain_each_offset_once(ends: list[int], limit: int, by_round: bool) -> None:
    described = topic(*ends)
    spread = spread_by_round(limit, described) if by_round else spread_by_spark(limit)
    found = batches(Begin(batch_id=0, positions=keyed(*[0] * len(ends))), {"t": described}, limit=limit, spread=spread)
    assert sum(each.records for each in found.backlog) == sum(ends)
    assert sum(each.records for each in found.first) <= limit + len(ends)
    assert found.count >= -(-sum(ends) // (limit + len(ends)))
    assert (found.count == 0) == (sum(ends) == 0)
    assert found.count <= found.tasks <= found.count * len(ends)
