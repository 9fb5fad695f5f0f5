"""A driver is killed between a batch, its audit and its publication; after a restart each record is published once.

The rows of a batch and their publication are two catalog commits, each after a ``metadata.json``.
"""

from typing import Any, Literal, get_args

import pytest

from tests.support.faults.drivers import Driver
from tests.support.faults.kill_points import batch_begun
from tests.support.faults.landed import Landing, assert_all_landed, assert_killed, assert_nothing_wrong
from tests.support.faults.s3_fault_proxy import FaultProxy, put
from tests.support.faults.workload import PARTITIONS, Workload
from tests.support.feed import Feed

pytestmark = pytest.mark.slow

Moment = Literal["before the audit", "before the publication", "in the publication", "after the publication"]
MOMENTS = get_args(Moment)
SETTINGS: dict[str, Any] = {
    "branch": "staging",
    "publish": {"expect": {"rows": {"at_least": 1}, "null_share": {"id": 0}, "unique": [["id"]]}},
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(("version", "has_checkpoint"), [(2, True), (3, True), (2, False)])
def test_each_record_is_published_once_after_the_feed_was_killed(
    feed: Feed, stack_proxy: FaultProxy, successor: Driver, version: int, has_checkpoint: bool, moment: Moment
) -> None:
    landing = Landing(feed, "iceberg", has_checkpoint=has_checkpoint, settings={**SETTINGS, "format_version": version})
    work = Workload(feed)
    feed.create_topic(partitions=PARTITIONS)
    work.send(90)
    work.transaction(60, end="commit")
    work.send(90)
    file = landing.write_file()

    stack_proxy.heal()
    metadata = put(f"/{feed.name}/rows/metadata/[^/]*[.]metadata[.]json$")
    batch = batch_begun(landing, 1) if has_checkpoint else batch_begun(landing)
    begun = [batch] if has_checkpoint else [batch, metadata, metadata, batch]
    match moment:
        case "before the audit":
            fault = stack_proxy.spoil("kill before", lambda request: True, after=[*begun, metadata])
        case "before the publication":
            fault = stack_proxy.spoil("kill before", metadata, after=[*begun, metadata])
        case "in the publication":
            fault = stack_proxy.spoil("kill after", metadata, after=[*begun, metadata])
        case "after the publication":
            fault = stack_proxy.spoil("kill before", lambda request: True, after=[*begun, metadata, metadata])
    assert_killed(feed, file, stack_proxy, fault)
    assert_nothing_wrong(landing, work)

    work.send(30)
    successor.run(file)
    assert_all_landed(landing, work)
