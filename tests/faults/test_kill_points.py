"""A driver is killed before and after each step of a batch; after a restart, each record has landed once.

The S3 proxy kills the driver's process group at the step's request: see ``kill_points.py``. The topic has broken
records, an aborted transaction, and a transaction that is open when the driver dies and is committed afterwards.
"""

import pytest

from tests.support.faults.drivers import Driver
from tests.support.faults.kill_points import POINTS, KillPoint
from tests.support.faults.landed import Landing, assert_all_landed, assert_killed, assert_nothing_wrong
from tests.support.faults.s3_fault_proxy import FaultProxy
from tests.support.faults.workload import PARTITIONS, Workload
from tests.support.feed import Feed

# make test-full runs only these kill points; some lie between the write of metadata.json and the swap in the catalog.
TELLING = (
    KillPoint("delta", "log entry", "after"),
    KillPoint("iceberg", "table metadata", "after"),
    KillPoint("iceberg", "table metadata", "then", has_checkpoint=False),
    KillPoint("iceberg", "letters' table metadata", "before", has_checkpoint=False),
)

# make test-general-path repeats these kill points with fast_path: off.
GENERAL = (*TELLING, KillPoint("iceberg", "data file", "after"), KillPoint("iceberg", "commits entry", "before"))
CASES = [
    *(pytest.param(each, "auto", id=str(each), marks=() if each in TELLING else pytest.mark.slow) for each in POINTS),
    *(pytest.param(each, "off", id=f"{each}, general path", marks=pytest.mark.slow) for each in GENERAL),
]


@pytest.mark.parametrize(("point", "path"), CASES)
def test_each_record_lands_once_after_the_feed_was_killed_at_a_step(
    feed: Feed, stack_proxy: FaultProxy, successor: Driver, point: KillPoint, path: str
) -> None:
    feed.fast_path = feed.fast_path or path
    landing = Landing(feed, point.sink, has_checkpoint=point.has_checkpoint)
    work = Workload(feed)
    feed.create_topic(partitions=PARTITIONS)
    work.send(90)
    work.transaction(60, end="abort")
    work.transaction(60, end="commit")
    work.send(90)
    open_one = work.transaction(30, end="open", partition=2)
    file = landing.write_file()

    stack_proxy.heal()
    fault = point.arm(stack_proxy, landing, batch=1)
    assert_killed(feed, file, stack_proxy, fault)
    assert_nothing_wrong(landing, work)

    assert open_one is not None
    open_one.commit()
    work.send(30)
    successor.run(file)
    assert_all_landed(landing, work)
