"""A feed has stalled if it has lag and makes no commits."""

import pytest

from lakefeed.config.operation import Metrics
from lakefeed.ledger.pauses import Pause
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.offsets.ranges import OffsetRange
from tests.support.clock import Clock

LIMIT = 600.0


def feed(clock: Clock) -> FeedMonitor:
    monitor = FeedMonitor("taxi", clock=clock)
    monitor.begin(sink="", fence=None, position=[OffsetRange("t", 0, 0, 100)])
    monitor.observe_ends({("t", 0): 100})
    return monitor


def is_stalled(monitor: FeedMonitor, clock: Clock) -> bool:
    monitor.tick()
    return monitor.snapshot().health(no_commit_seconds=LIMIT).stalled


def test_a_feed_without_new_records_has_not_stalled() -> None:
    clock = Clock()
    monitor = feed(clock)
    clock.now += 10 * LIMIT
    assert not is_stalled(monitor, clock)


def test_a_new_record_after_an_idle_night_does_not_stall_the_feed() -> None:
    clock = Clock()
    monitor = feed(clock)
    clock.now += 10 * LIMIT
    monitor.observe_ends({("t", 0): 100})
    clock.now += 1
    monitor.observe_ends({("t", 0): 101})
    clock.now += LIMIT - 10
    assert not is_stalled(monitor, clock)
    clock.now += 20
    assert is_stalled(monitor, clock)
    with monitor.batch(1, [OffsetRange("t", 0, 100, 101)]):
        pass
    assert not is_stalled(monitor, clock)


def test_records_older_than_the_driver_wait_since_the_start_of_the_driver() -> None:
    clock = Clock()
    monitor = feed(clock)
    monitor.reached([OffsetRange("t", 0, 0, 50)])
    clock.now += LIMIT - 1
    assert not is_stalled(monitor, clock)
    clock.now += 2
    assert is_stalled(monitor, clock)
    health = monitor.snapshot().health(no_commit_seconds=LIMIT)
    assert (health.is_well, health.live, health.ready) == (False, True, True)
    assert monitor.snapshot().health().is_well


def test_a_paused_feed_has_not_stalled() -> None:
    clock = Clock()
    monitor = feed(clock)
    monitor.reached([OffsetRange("t", 0, 0, 50)])
    clock.now += 2 * LIMIT
    assert is_stalled(monitor, clock)
    monitor.control.paused(Pause(reason="r", by="ann", at=clock.now))
    assert not is_stalled(monitor, clock)


@pytest.mark.parametrize(
    ("setting", "trigger", "seconds"),
    [(None, "1 minute", 900), (None, "1 hour", 10800), (None, "available-now", 900), ("5 minutes", "1 hour", 300)],
)
def test_the_default_time_without_a_commit_depends_on_the_trigger(
    setting: str | None, trigger: str, seconds: float
) -> None:
    assert Metrics(no_commit_for=setting).no_commit_seconds(trigger) == seconds
