"""The lag of a paused feed follows the broker's end offsets."""

import threading
import time
from collections.abc import Mapping

from lakefeed.errors import Unreachable
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.offsets.ranges import OffsetRange, Partition
from lakefeed.operations.followers import observing_lag_while_paused
from tests.support.clock import until
from tests.support.pipeline_text import feed_config


def test_end_offsets_are_requested_only_while_the_feed_is_paused() -> None:
    monitor, asked, answers = FeedMonitor("taxi"), threading.Event(), [10, 25]

    def ends() -> Mapping[Partition, int]:
        asked.set()
        if len(answers) == 1:
            answers.insert(0, 25)
            raise Unreachable("the broker does not answer")
        return {("trips", 0): answers.pop(0)}

    monitor.begin(sink="memory", fence=None, position=[OffsetRange("trips", 0, 0, 10)])
    monitor.control.open(threading.Event())
    with observing_lag_while_paused(feed_config(), monitor, ends=ends, every=0.01):
        assert not asked.wait(0.2)
        monitor.control.request("pause", by="test", reason="a test")
        request = monitor.control.take()
        assert request is not None
        monitor.control.paused(request.pause)
        # Of three requests, the broker answers the first and the last, and fails the second.
        until(lambda: monitor.snapshot().lag == 15)


def test_a_broker_that_hangs_does_not_delay_the_end_of_the_run() -> None:
    monitor, hang = FeedMonitor("taxi"), threading.Event()

    def ends() -> Mapping[Partition, int]:
        hang.wait(30)
        return {}

    monitor.control.open(threading.Event())
    monitor.control.request("pause", by="test", reason="a test")
    request = monitor.control.take()
    assert request is not None
    monitor.control.paused(request.pause)
    began = time.monotonic()
    with observing_lag_while_paused(feed_config(), monitor, ends=ends, every=0.01):
        time.sleep(0.1)
    assert time.monotonic() - began < 5
    hang.set()
