"""Another Spark takes a feed's table back, or changes its rows: the feed continues, or is refused with the reason.

Refused are RESTORE and REPLACE, after which the ledger may name rows that the table does not have.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefeed.errors import CheckpointMismatch
from lakefeed_local.stack import Endpoints
from packages.delta.tests.delta_feed import POSITIONS, ids_of, path_of, pipeline_of, table_of
from packages.delta.tests.other_spark import OtherSpark
from tests.support.faults.drivers import SHORT_LIVED, Driver, driver
from tests.support.faults.s3_fault_proxy import FaultProxy, fault_proxy, put
from tests.support.feed import Feed

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def proxy(stack: Endpoints) -> Iterator[FaultProxy]:
    with fault_proxy(stack.s3_endpoint) as running:
        yield running


@pytest.fixture(scope="module")
def late(stack: Endpoints, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Yield a driver whose requests go through the proxy."""
    environment = {**stack.as_environment(), **SHORT_LIVED, "AWS_ENDPOINT_URL_S3": proxy.endpoint}
    log = tmp_path_factory.mktemp("late") / "driver.log"
    with driver("tests.support.faults.driver_child", environment=environment, log=log) as running:
        yield running


def land(feed: Feed, late: Driver, ids: range) -> str | None:
    """Land ids through the proxy; return the error of the run, if there is one."""
    decode = {"json": {"schema_ddl": "id BIGINT"}, **POSITIONS}
    file = feed.write_file(decode=decode, sink={"delta": {"path": path_of(feed)}})
    feed.send_ids(ids)
    late.prepare(file)
    late.tell("0")
    return late.ended()


def test_a_table_that_was_restored_to_a_version_before_the_last_batch_is_refused(
    feed: Feed, lake: SparkSession, other: OtherSpark
) -> None:
    feed.create_topic(partitions=1)
    pipeline, table = pipeline_of(feed), f"delta.`{path_of(feed)}`"
    feed.send_ids(range(10))
    pipeline.run(spark=lake, once=True)
    whole = table_of(feed).version()
    feed.send_ids(range(10, 20))
    pipeline.run(spark=lake, once=True)
    latest = table_of(feed).version()
    other.sql(f"RESTORE TABLE {table} TO VERSION AS OF {whole}")
    # A restore to a version that lacks the rows, too, does not bring them back.
    other.sql(f"INSERT INTO {table} (id) VALUES (-1)")
    other.sql(f"RESTORE TABLE {table} TO VERSION AS OF {latest + 1}")
    assert ids_of(feed) == list(range(10))
    feed.send_ids(range(20, 30))
    for _ in range(2):
        with pytest.raises(CheckpointMismatch, match="of the table is RESTORE") as refused:
            pipeline.run(spark=lake, once=True)
        pipeline.feed.claim(lake).discard()
    assert ids_of(feed) == list(range(10))
    # The hint repairs the table, and the feed resumes.
    assert refused.value.hint is not None
    assert refused.value.hint.startswith(f"run RESTORE TABLE {table} TO VERSION AS OF {latest};")
    other.sql(refused.value.hint.removeprefix("run ").partition(";")[0])
    pipeline.run(spark=lake, once=True)
    assert ids_of(feed) == list(range(30))
    # A restore to a version that has all rows of the feed takes nothing back.
    other.sql(f"INSERT INTO {table} (id) VALUES (-1)")
    other.sql(f"RESTORE TABLE {table} TO VERSION AS OF {table_of(feed).version() - 1}")
    feed.send_ids(range(30, 40))
    pipeline.run(spark=lake, once=True)
    assert ids_of(feed) == list(range(40))
    other.sql(f"CREATE OR REPLACE TABLE {table} USING delta AS SELECT * FROM {table} WHERE id < 5")
    with pytest.raises(CheckpointMismatch, match="is CREATE OR REPLACE TABLE AS SELECT"):
        pipeline.run(spark=lake, once=True)


@pytest.mark.parametrize(
    ("statement", "kept"),
    [
        ("RESTORE TABLE {table} TO VERSION AS OF 1", None),
        ("CREATE OR REPLACE TABLE {table} USING delta AS SELECT * FROM {table} WHERE id < 5", None),
        ("INSERT INTO {table} (id) VALUES (-1)", [-1, *range(20)]),
        ("DELETE FROM {table} WHERE id < 5", [*range(5, 20)]),
        ("INSERT OVERWRITE {table} SELECT * FROM {table} WHERE id = 7", [7]),
        ("INSERT INTO {table} REPLACE WHERE id < 10 SELECT * FROM {table} WHERE id = 3", [3, *range(10, 20)]),
        ("OPTIMIZE {table}", [*range(20)]),
        ("ALTER TABLE {table} ADD COLUMNS (note STRING)", [*range(20)]),
    ],
)
def test_a_commit_of_another_writer_between_read_and_commit_is_noticed(
    feed: Feed, late: Driver, proxy: FaultProxy, other: OtherSpark, statement: str, kept: list[int] | None
) -> None:
    feed.create_topic(partitions=1)
    table = f"delta.`{path_of(feed)}`"
    proxy.heal()
    for ids in (range(10), range(10, 20)):
        assert land(feed, late, ids) is None
    whole = table_of(feed).version()
    proxy.meanwhile = lambda: other.do(statement.format(table=table))
    # The driver has based its commit on a version, and the other writer's commit comes first.
    fault = proxy.spoil("late", put(f"/{feed.name}/_delta_log/[0-9]+[.]json$"), after=[put(f"/{feed.name}/part-")])
    error = land(feed, late, range(20, 30))
    assert fault.done == 1
    assert other.errors == []
    if kept is not None:
        assert error is None
        assert ids_of(feed) == [*kept, *range(20, 30)]
        # Of these versions, one does not have the last batch, though it is newer than the version before the batch.
        other.sql(f"RESTORE TABLE {table} TO VERSION AS OF {table_of(feed).version() - 1}")
        error = land(feed, late, range(30, 40))
        assert error is not None
        assert "of the table is RESTORE" in error
        return
    assert error is not None
    assert f"version {whole + 2} of the table is {' '.join(statement.split()[:1])}" in error
    other.sql(f"RESTORE TABLE {table} TO VERSION AS OF {whole + 1}")
    assert land(feed, late, range(30, 40)) is None
    assert ids_of(feed) == list(range(40))


def test_a_table_that_another_program_has_created_at_the_same_path_is_refused(
    feed: Feed, lake: SparkSession, other: OtherSpark, tmp_path: Path
) -> None:
    feed.disk = tmp_path / "lake"
    feed.create_topic(partitions=1)
    pipeline = pipeline_of(feed)
    feed.send_ids(range(10))
    pipeline.run(spark=lake, once=True)
    folder = feed.disk / "tables" / feed.name
    folder.rename(folder.with_name("moved"))
    other.sql(f"CREATE TABLE delta.`{path_of(feed)}` (id BIGINT) USING delta")
    feed.send_ids(range(10, 20))
    with pytest.raises(CheckpointMismatch):
        pipeline.run(spark=lake, once=True)
