"""The lag of a partition, and the age of its oldest uncommitted record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.feed.progress import FinishedBatch
from lakefeed.monitor.counters import MOST_MARKS, EndTimes
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.model import PartitionLag, oldest, total_lag
from lakefeed.offsets.ranges import OffsetRange

OFFSETS = st.integers(0, 2**40) | st.none()


@pytest.mark.parametrize(
    ("known", "lags"),
    [
        ({"read": 80, "committed": 70}, (20, 10, 30)),
        # A consumer group has committed offsets, but its read offsets are unknown.
        ({"committed": 70}, (30, None, 30)),
        ({}, (None, None, None)),
    ],
)
def test_the_lag_of_a_partition_is_the_sum_of_unread_and_uncommitted_offsets(
    known: dict[str, int], lags: tuple[int | None, ...]
) -> None:
    part = PartitionLag(topic="t", partition=0, end=100, **known)
    assert (part.unread, part.uncommitted, part.lag) == lags


@given(OFFSETS, OFFSETS, OFFSETS)
def test_a_lag_is_never_negative_and_is_the_sum_of_its_parts(
    end: int | None, read: int | None, committed: int | None
) -> None:
    part = PartitionLag(topic="t", partition=0, end=end, read=read, committed=committed)
    assert all(number is None or number >= 0 for number in (part.unread, part.uncommitted, part.lag))
    if end is not None and read is not None and committed is not None and committed <= read <= end:
        assert part.lag == (part.unread or 0) + (part.uncommitted or 0)


@given(st.lists(OFFSETS))
def test_the_total_lag_is_unknown_if_a_partitions_lag_is_unknown(lags: list[int | None]) -> None:
    parts = [PartitionLag(topic="t", partition=0, end=lag, committed=0) for lag in lags]
    assert total_lag(parts) == (None if not lags or None in lags else sum(lag or 0 for lag in lags))


def test_the_oldest_age_is_unknown_if_a_partitions_age_is_unknown() -> None:
    one, three, unknown = (PartitionLag(topic="t", partition=0, uncommitted_seconds=age) for age in (1.0, 3.0, None))
    assert oldest([one, three, one]) == 3.0
    assert (oldest([unknown, three]), oldest([unknown]), oldest([])) == (None, None, None)


def test_the_age_of_the_lag_is_unknown_if_the_age_of_a_partition_with_lag_is_unknown() -> None:
    old = PartitionLag(topic="t", partition=0, end=100, read=50, committed=50)
    young = PartitionLag(topic="t", partition=1, end=100, read=90, committed=90, uncommitted_seconds=2.0)
    idle = PartitionLag(topic="t", partition=2, end=100, read=100, committed=100)
    progress = FeedMonitor("f").snapshot()
    assert progress.model_copy(update={"partitions": (old, young, idle)}).lag_seconds is None
    assert progress.model_copy(update={"partitions": (young, idle)}).lag_seconds == 2.0


def test_the_age_of_a_record_counts_from_the_first_observation_after_its_arrival() -> None:
    ends = EndTimes()
    ends.observe(100, at=1000.0)
    ends.observe(200, at=1010.0)
    # The first observation already includes record 99, whose age is therefore unknown.
    assert ends.age(99, now=1020.0) is None
    assert ends.age(199, now=1020.0) == 10.0
    assert ends.age(149, now=1020.0) == 10.0  # Record 149 may have come just before the second observation.
    assert ends.age(200, now=1020.0) == 0.0  # There is no record 200 yet.


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["produce", "idle", "long idle", "batch", "batch", "look"]),
        st.integers(0, 40),
        st.floats(0.01, 3.0),
    ),
    max_size=60,
)


@given(STEPS)
def test_the_lags_age_is_never_too_high_and_at_most_one_observation_too_low(
    steps: list[tuple[str, int, float]],
) -> None:
    """Records are produced and consumed at random, with idle times."""
    clock, came = [1_000_000.0], list[float]()
    monitor = FeedMonitor("f", clock=lambda: clock[0])
    key, committed, looks = ("t", 0), 0, [clock[0]]
    monitor.observe_ends({key: 0})
    monitor.starts_at({key: 0})

    def require_age() -> None:
        [part] = monitor.snapshot().partitions
        first = part.committed
        assert first is not None
        if first == len(came) or part.seconds is None:
            return
        true = clock[0] - came[first]
        assert part.seconds <= true + 1e-6
        assert monitor.snapshot().lag_seconds == part.seconds
        if part.lag:
            # The first observation after the arrival of the record includes it.
            found = next(at for at in looks if at >= came[first])
            assert part.seconds >= clock[0] - found - 1e-6

    for number, (kind, count, seconds) in enumerate(steps):
        if kind == "produce":
            clock[0] += 0.01
            came += [clock[0]] * count
        elif kind == "look":
            monitor.observe_ends({key: len(came)})
            looks.append(clock[0])
        elif kind == "batch" and committed < len(came):
            began, planned = clock[0], len(came)
            end = min(planned, committed + 1 + count)
            clock[0] += 0.1
            with monitor.batch(number, [OffsetRange("t", 0, committed, end)]):
                looks.append(clock[0])
                require_age()
                clock[0] += seconds
                came += [clock[0]] * count
                require_age()
            looks.append(began + 0.1)
            looks.sort()
            finished = batch(number, at=clock[0], seconds=clock[0] - began, plan=0.1)
            monitor.finish(finished, ends={key: planned})
            committed = end
        else:
            clock[0] += 600.0 * seconds if kind == "long idle" else seconds
        require_age()


def batch(number: int, *, at: float, seconds: float, plan: float = 0.0) -> FinishedBatch:
    return FinishedBatch(batch_id=number, finished_at=at, seconds=seconds, records=1, phases={"plan": plan})


def test_a_lower_end_offset_discards_the_observations_of_a_deleted_topic() -> None:
    ends = EndTimes()
    ends.observe(1000, at=1.0)
    ends.observe(10, at=2.0)
    ends.observe(20, at=3.0)
    assert ends.age(15, now=4.0) is not None


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0.1, 5)), min_size=2, max_size=400), st.floats(0, 1))
def test_ages_are_at_most_the_time_since_the_first_observation(steps: list[tuple[int, float]], share: float) -> None:
    ends, end, at = EndTimes(), 0, 0.0
    for grown, seconds in steps:
        end, at = end + grown, at + seconds
        ends.observe(end, at=at)
    first = steps[0][0]
    if end > first:
        offset = first + int(share * (end - first - 1))
        age = ends.age(offset, now=at)
        assert age is not None
        assert 0 <= age <= at - steps[0][1]
        later = ends.age(min(end - 1, offset + 1), now=at)
        assert later is not None
        assert later <= age
    assert len(ends._ends) <= MOST_MARKS + 1
