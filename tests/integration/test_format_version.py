"""Feeds write tables of format version 3: upserts with history and dead letters, the upgrade of a table, its plan."""

import pytest
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.errors import ConfigError
from lakefeed.pipeline import Pipeline
from lakefeed_repair.backfill import BackfillRequest, backfill
from lakefeed_repair.rewind import plan_rewind, rewind
from tests.support.changes import Model, differences, rows_of, write_pipeline
from tests.support.feed import Feed


def version(feed: Feed, table: str) -> int:
    return int(open_table(table, connections=feed.connections).format_version)


def test_an_upsert_feed_equals_its_model_after_its_table_is_upgraded_to_version_3(
    lake: SparkSession, feed: Feed
) -> None:
    history = f"{feed.table}_history"
    feed.create_topic(partitions=2)
    model = Model(keys=100, partitions=2)
    model.send(300, topic=feed.topic, servers=feed.stack.bootstrap_servers)
    file = write_pipeline(feed, batch=150, history=history)
    Pipeline.from_file(file, environment=feed.environment).run(spark=lake, once=True)
    assert [version(feed, table) for table in (feed.table, history)] == [2, 2]

    file = write_pipeline(feed, batch=150, history=history, format_version=3)
    pipeline = Pipeline.from_file(file, environment=feed.environment)
    model.send(300, topic=feed.topic, servers=feed.stack.bootstrap_servers)
    plan = pipeline.plan(spark=lake).tables[0]
    assert len([each for each in plan.statements if "'format-version' = '3'" in each]) == 2
    assert any("is upgraded to format version 3 for good" in note for note in plan.notes)
    assert version(feed, feed.table) == 2
    pipeline.run(spark=lake, once=True)
    assert [version(feed, table) for table in (feed.table, history)] == [3, 3]
    assert differences(rows_of(feed, feed.table), model.table()) == []
    assert differences(rows_of(feed, history), model.history()) == []
    proof = pipeline.verify(deep=True)
    assert proof.faults == ()
    assert proof.records == 600

    back = write_pipeline(feed, batch=150, history=history, format_version=2)
    with pytest.raises(ConfigError, match="Iceberg cannot downgrade a table"):
        Pipeline.from_file(back, environment=feed.environment).run(spark=lake, once=True)


@pytest.mark.slow
def test_rewinds_backfills_and_dead_letters_work_on_a_table_of_version_3(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send_ids(range(30))
    merges = {"write.delete.mode": "merge-on-read"}
    pipeline = feed.pipeline(
        source=feed.source(start=f"{feed.topic}:0:10"),
        decode={"json": {"schema_ddl": "id BIGINT"}, "metadata": ["topic", "partition", "offset"]},
        expect={"small": {"rule": "id <> 25", "on_violation": "dead_letter"}},
        dead_letters={"table": f"{feed.table}_letters"},
        sink={"iceberg": {"table": feed.table, "format_version": 3, "properties": merges}},
    )
    pipeline.run(spark=lake, once=True)
    assert sorted(row["id"] for row in feed.rows()) == [each for each in range(10, 30) if each != 25]
    rewind(pipeline, plan_rewind(pipeline, f"{feed.topic}:0:20", delete_rows=True), spark=lake)
    assert sorted(row["id"] for row in feed.rows()) == list(range(10, 20))
    backfill(pipeline, BackfillRequest(), spark=lake)
    pipeline.run(spark=lake, once=True)
    assert sorted(row["id"] for row in feed.rows()) == [each for each in range(30) if each != 25]
    assert len(feed.rows(f"{feed.table}_letters")) == 1
    assert version(feed, feed.table) == 3
    assert pipeline.verify(deep=True).faults == ()
