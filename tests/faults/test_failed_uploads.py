"""A commit lands only if the store has accepted each of its metadata files; failures of other uploads do not matter."""

import pytest

from tests.support.cli import Running
from tests.support.faults.drivers import SHORT_LIVED, Driver
from tests.support.faults.landed import Landing, assert_all_landed, assert_nothing_wrong
from tests.support.faults.s3_fault_proxy import FaultProxy, put
from tests.support.faults.workload import PARTITIONS, Workload
from tests.support.feed import Feed

ALWAYS = 10**6


@pytest.mark.slow
@pytest.mark.parametrize("file", ["[^/]*-m[0-9]+[.]avro", "snap-[^/]*[.]avro"], ids=["manifest", "list"])
def test_a_commit_does_not_land_if_one_of_its_metadata_files_is_missing(
    feed: Feed, stack_proxy: FaultProxy, successor: Driver, file: str
) -> None:
    landing = Landing(feed, "iceberg", has_checkpoint=False)
    work = Workload(feed)
    feed.create_topic(partitions=PARTITIONS)
    work.send(180)
    pipeline = landing.write_file()

    stack_proxy.heal()
    metadata = f"/{feed.name}/rows/metadata"
    # The first `after` requests succeed, so that the first batch lands.
    fault = stack_proxy.spoil(
        "503", put(f"{metadata}/{file}$"), times=ALWAYS, after=[put("/rows/data/"), put(f"{metadata}/.*[.]json$")]
    )
    through = {**feed.environment, **SHORT_LIVED, "AWS_ENDPOINT_URL_S3": stack_proxy.endpoint}
    refused = Running(["run", pipeline, "--once"], through, feed.folder / "refused.log")
    assert refused.process.wait(500) == 1, refused.said()
    assert fault.done > 0
    assert_nothing_wrong(landing, work)
    assert 0 < len(landing.rows()) < 180

    stack_proxy.heal()
    work.send(30)
    successor.run(pipeline)
    assert_all_landed(landing, work)
