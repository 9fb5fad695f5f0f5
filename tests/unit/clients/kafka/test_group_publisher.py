"""Publish offsets to a monitoring group while its broker refuses them, or does not answer."""

import threading
import time
from collections.abc import Callable, Iterable

from lakefeed.clients.kafka.groups import GroupPublisher, MonitoringGroup
from lakefeed.offsets.ranges import OffsetRange

LOADING = "t-0: Broker: Coordinator load in progress"


class Group(MonitoringGroup):
    """Refuses offsets `refusals` times, then accepts them."""

    name = "taxi-lag"

    def __init__(self, *, refusals: int = 0, before: Callable[[], object] = lambda: None) -> None:
        self.refusals, self.before = refusals, before
        self.accepted: dict[tuple[str, int], int] = {}
        self.calls = 0

    def set_offsets(self, ranges: Iterable[OffsetRange]) -> str | None:
        self.calls += 1
        self.before()
        if self.refusals:
            self.refusals -= 1
            return LOADING
        self.accepted.update({span.key: span.end for span in ranges})
        return None


def span(end: int, partition: int = 0) -> OffsetRange:
    return OffsetRange("t", partition, 0, end)


def test_a_refused_position_is_sent_again_even_without_another_batch() -> None:
    group = Group(refusals=3)
    publisher = GroupPublisher(group, retry_seconds=0.01)
    assert publisher.publish([span(5), span(7, 1)]) is None
    until = time.monotonic() + 10
    while group.accepted != {("t", 0): 5, ("t", 1): 7} and time.monotonic() < until:
        time.sleep(0.01)
    assert (group.accepted, group.calls) == ({("t", 0): 5, ("t", 1): 7}, 4)
    assert publisher.close() is None
    assert group.calls == 4


def test_batches_do_not_wait_while_the_broker_does_not_answer() -> None:
    answers = threading.Event()
    group = Group(before=lambda: answers.wait(30))
    publisher = GroupPublisher(group)
    began = time.monotonic()
    for end in range(1, 101):
        assert publisher.publish([span(end)]) is None
    assert time.monotonic() - began < 1
    answers.set()
    assert publisher.close() is None
    assert group.accepted == {("t", 0): 100}
    assert group.calls <= 3


def test_close_waits_a_limited_time_for_the_last_position() -> None:
    late = Group(refusals=5)
    publisher = GroupPublisher(late, retry_seconds=0.01)
    publisher.publish([span(9)])
    assert publisher.close(seconds=10) is None
    assert late.accepted == {("t", 0): 9}

    never = Group(refusals=10**6)
    publisher = GroupPublisher(never, retry_seconds=0.01)
    publisher.publish([span(9)])
    began = time.monotonic()
    assert publisher.close(seconds=0.2) == f"the monitoring group taxi-lag could not be set: {LOADING}"
    assert time.monotonic() - began < 5


def test_close_without_remaining_time_sends_no_position() -> None:
    group = Group(refusals=10**6)
    publisher = GroupPublisher(group, retry_seconds=0.05)
    publisher.publish([span(9)])
    assert publisher.close(seconds=0) is None
    time.sleep(0.2)
    calls = group.calls
    time.sleep(0.2)
    assert group.calls == calls <= 2


def test_a_failure_that_persists_is_reported_once() -> None:
    publisher = GroupPublisher(Group(refusals=10**6), retry_seconds=0.01, patience=0.05)
    assert publisher.publish([span(1)]) is None
    time.sleep(0.5)
    assert [publisher.publish([span(end)]) is None for end in (2, 3)] == [False, True]
    publisher.close(seconds=0)
