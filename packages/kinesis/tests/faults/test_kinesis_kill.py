"""A driver that reads Kinesis is killed during a batch; every record lands once, even after a split of a shard."""

import pytest

from lakefeed.pipeline import Pipeline
from tests.support.cli import Running, lakefeed
from tests.support.faults.drivers import SHORT_LIVED
from tests.support.faults.kill_points import KillPoint
from tests.support.faults.landed import Landing
from tests.support.faults.s3_fault_proxy import FaultProxy
from tests.support.feed import Feed
from tests.support.servers.kinesis import kinesis

POINTS = (
    KillPoint("iceberg", "data file", "after"),
    KillPoint("iceberg", "table metadata", "then"),
    KillPoint("iceberg", "commits entry", "before"),
)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS, ids=str)
def test_each_record_lands_once_after_a_kill_and_a_restart(
    feed: Feed, stack_proxy: FaultProxy, point: KillPoint
) -> None:
    with kinesis() as server:
        server.create(feed.name)
        server.put(feed.name, ({"id": each} for each in range(120)))
        source = {"kinesis": {"stream": feed.name, "max_records_per_batch": 40}}
        decode = {"json": {"schema_ddl": "id BIGINT"}, "metadata": ["topic", "partition", "offset"]}
        file = feed.write_file(source=source, decode=decode)
        environment = {**feed.environment, **SHORT_LIVED, **server.environment}

        stack_proxy.heal()
        fault = point.arm(stack_proxy, Landing(feed, "iceberg"), batch=1)
        through = {**environment, "AWS_ENDPOINT_URL_S3": stack_proxy.endpoint}
        victim = Running(["run", file, "--once"], through, feed.folder / "killed.log")
        stack_proxy.victim = victim.kill
        assert victim.process.wait(500) < 0, victim.said()
        assert fault.done == 1

        server.split(feed.name)
        server.put(feed.name, ({"id": each} for each in range(120, 140)))
        done = lakefeed("run", file, "--once", environment=environment, timeout=500)
        assert done.returncode == 0, done.stderr
        assert sorted(each["id"] for each in feed.rows()) == list(range(140))
        assert Pipeline.from_file(file, environment=environment).verify(deep=True).faults == ()
