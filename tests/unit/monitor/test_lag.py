"""Lag of a partition, and the age of its oldest record."""

from hypothesis import given
from hypothesis import strategies as st

from lakefeed.feed.progress import FinishedBatch
from lakefeed.monitor.end_times import MOST_MARKS, EndTimes
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.model import PartitionLag, difference, oldest, total_lag
from lakefeed.offsets.ranges import OffsetRange

OFFSETS = st.integers(0, 2**40) | st.none()


def test_records_that_were_read_and_are_not_committed_are_counted_apart() -> None:
    part = PartitionLag(topic="t", partition=0, end=100, read=80, committed=70)
    assert (part.unread, part.uncommitted, part.lag) == (20, 10, 30)


def test_a_group_has_committed_offsets_alone() -> None:
    part = PartitionLag(topic="t", partition=0, end=100, committed=70, uncommitted_seconds=4.0)
    assert (part.unread, part.uncommitted, part.lag, part.seconds) == (30, None, 30, 4.0)


def test_nothing_known_is_no_lag_of_zero() -> None:
    part = PartitionLag(topic="t", partition=0, end=100)
    assert (part.unread, part.lag, part.seconds) == (None, None, None)


@given(OFFSETS, OFFSETS, OFFSETS)
def test_a_lag_is_never_negative_and_its_parts_make_the_whole(
    end: int | None, read: int | None, committed: int | None
) -> None:
    part = PartitionLag(topic="t", partition=0, end=end, read=read, committed=committed)
    assert all(number is None or number >= 0 for number in (part.unread, part.uncommitted, part.lag))
    if end is not None and read is not None and committed is not None and committed <= read <= end:
        assert part.lag == (part.unread or 0) + (part.uncommitted or 0)


@given(st.lists(OFFSETS))
def test_one_unknown_makes_the_sum_unknown(lags: list[int | None]) -> None:
    parts = [PartitionLag(topic="t", partition=0, end=lag, committed=0) for lag in lags]
    assert total_lag(parts) == (None if not lags or None in lags else sum(lag or 0 for lag in lags))


def test_differences_and_ages() -> None:
    assert (difference(5, 7), difference(None, 7), difference(7, 5)) == (0, None, 2)
    one, three, unknown = (PartitionLag(topic="t", partition=0, uncommitted_seconds=age) for age in (1.0, 3.0, None))
    assert oldest([one, three, one]) == 3.0
    assert (oldest([unknown, three]), oldest([unknown]), oldest([])) == (None, None, None)


def test_the_youngest_age_is_not_taken_for_the_oldest() -> None:
    old = PartitionLag(topic="t", partition=0, end=100, read=50, committed=50)
    young = PartitionLag(topic="t", partition=1, end=100, read=90, committed=90, uncommitted_seconds=2.0)
    idle = PartitionLag(topic="t", partition=2, end=100, read=100, committed=100)
    progress = FeedMonitor("f").snapshot()
    assert progress.model_copy(update={"partitions": (old, young, idle)}).lag_seconds is None
    assert progress.model_copy(update={"partitions": (young, idle)}).lag_seconds == 2.0


def test_the_age_is_the_time_since_the_topic_had_the_record() -> None:
    ends = EndTimes()
    ends.observe(100, at=1000.0)
    ends.observe(200, at=1010.0)
    assert ends.age(99, now=1020.0) is None  # It was there before the first look.
    assert ends.age(199, now=1020.0) == 10.0
    assert ends.age(149, now=1020.0) == 10.0  # It may have come just before the look that saw it.
    assert ends.age(200, now=1020.0) == 0.0  # It is not there yet.


def test_a_record_after_a_quiet_time_is_not_taken_for_an_old_one() -> None:
    ends = EndTimes()
    for at in range(0, 1000, 10):
        ends.observe(100, at=float(at))
    ends.observe(101, at=1000.0)
    assert ends.age(100, now=1005.0) == 5.0


def test_a_burst_after_nine_idle_minutes_without_a_look_is_not_minutes_old() -> None:
    clock = [1000.0]
    monitor = FeedMonitor("f", clock=lambda: clock[0])
    for start, end in ((0, 100), (100, 200)):
        with monitor.batch(start, [OffsetRange("t", 0, start, end)]):
            clock[0] += 1.0
        monitor.finish(batch(start, at=clock[0], seconds=1.0), ends={("t", 0): end})
    clock[0] += 540.0
    with monitor.batch(3, [OffsetRange("t", 0, 200, 300)]):
        clock[0] += 3.0
        assert monitor.snapshot().lag_seconds == 3.0
        clock[0] += 2.0
    # When the batch was planned, 1,000 records were there; the batch read 100 of them.
    monitor.finish(batch(3, at=clock[0], seconds=5.5), ends={("t", 0): 1200})
    assert monitor.snapshot().lag_seconds == 5.5


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["produce", "idle", "long idle", "batch", "batch", "look"]),
        st.integers(0, 40),
        st.floats(0.01, 3.0),
    ),
    max_size=60,
)


@given(STEPS)
def test_an_age_is_never_above_that_of_the_first_record_that_was_not_committed(
    steps: list[tuple[str, int, float]],
) -> None:
    """Produce, idle and consume at random: the age is never too high, and too low by at most one look."""
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
            # The first look after the record came has seen the record.
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


def test_a_recreated_topic_starts_over() -> None:
    ends = EndTimes()
    ends.observe(1000, at=1.0)
    ends.observe(10, at=2.0)
    ends.observe(20, at=3.0)
    assert ends.age(15, now=4.0) is not None


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0.1, 5)), min_size=2, max_size=400), st.floats(0, 1))
def test_ages_are_bounded_by_what_was_observed(steps: list[tuple[int, float]], share: float) -> None:
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
