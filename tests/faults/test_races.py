"""Two drivers of one feed at the same moment, again and again: no record is lost, none is there twice."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from lakefeed.local import Endpoints
from tests.support.faults.drivers import SHORT_LIVED, Driver, driver
from tests.support.faults.landed import Landing, assert_all_landed
from tests.support.faults.workload import PARTITIONS, Workload
from tests.support.feed import Feed

# The messages to the one that loses; all of it is ours, and none a stack trace.
LOST = (
    "another driver has taken over this feed",
    "another driver works on the same checkpoint",
    "the commit was refused, nothing of the batch is visible",
    "does not continue where feed",
)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", [50])
def test_of_two_drivers_on_one_batch_nothing_is_lost_or_doubled(
    stack: Endpoints, feed: Feed, tmp_path: Path, rounds: int
) -> None:
    work = Workload(feed)
    feed.create_topic(partitions=PARTITIONS)
    work.send(80)
    work.transaction(20, end="abort")
    work.transaction(40, end="commit")
    environment = {**stack.as_environment(), **SHORT_LIVED}
    dice = random.Random(20180208)
    ends: Counter[str] = Counter()
    with ExitStack() as running:
        both = [
            running.enter_context(
                driver(
                    "tests.support.faults.driver_child", environment=environment, log=tmp_path / f"driver-{number}.log"
                )
            )
            for number in range(2)
        ]
        for number in range(rounds):
            landing = Landing(Feed(stack, tmp_path), "iceberg", 70, topic=feed.topic)
            errors = play(both, landing, begun=number % 2 == 1, apart=dice.uniform(-1.5, 1.5))
            ends[f"{errors.count(None)} of 2 ran to the end"] += 1
            if None not in errors:
                # Each of the two has stopped the other: at the catalog the one, at the checkpoint the other.
                assert run(both[0], landing) is None
            assert_all_landed(landing, work)
    print(dict(ends))


def play(both: list[Driver], landing: Landing, *, begun: bool, apart: float) -> list[str | None]:
    """Both start, so many seconds apart; with ``begun`` they find a batch that a third one has begun and not landed."""
    file = landing.write_file()
    if begun:
        both[0].prepare(file, begin_only=True)
        both[0].tell("0")
        assert both[0].ended() is None
    for each in both:
        each.prepare(file)
    both[0].tell(str(max(0.0, apart)))
    both[1].tell(str(max(0.0, -apart)))
    errors = [each.ended() for each in both]
    for error in errors:
        assert error is None or any(each in error for each in LOST), error
    return errors


def run(one: Driver, landing: Landing) -> str | None:
    """A run with no other beside it."""
    one.prepare(landing.write_file())
    one.tell("0")
    return one.ended()
