"""``verify --content`` reports no fault in tables whose rows are as written, whatever else has happened to them."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.errors import ConfigError
from lakefeed.ledger.snapshots import ancestors
from lakefeed.pipeline import Pipeline
from lakefeed_receipts.content import verify_content
from lakefeed_repair.backfill import backfill
from lakefeed_repair.rewind import plan_rewind, rewind
from packages.receipts.tests.receipted import pipeline, proven, values
from tests.support.feed import Feed


def land(feed: Feed, lake: SparkSession, part: Pipeline, numbers: range) -> None:
    feed.send(values(numbers))
    part.run(spark=lake, once=True)


def expire(feed: Feed, lake: SparkSession) -> None:
    older = "older_than => TIMESTAMP '2999-01-01 00:00:00'"
    lake.sql(f"CALL {feed.catalog}.system.expire_snapshots(table => '{feed.name}.rows', {older})")


def roll_back(feed: Feed, lake: SparkSession, *, commits: int) -> None:
    line, _ = ancestors(open_table(feed.table, connections=feed.connections), feed.name)
    to = line[-1 - commits].snapshot_id
    lake.sql(f"CALL {feed.catalog}.system.rollback_to_snapshot('{feed.name}.rows', {to})")


def finds_a_change(feed: Feed, lake: SparkSession, part: Pipeline, number: int) -> bool:
    lake.sql(f"UPDATE {feed.table} SET name = 'another' WHERE id = {number}")
    return "content-changed" in {each.kind for each in verify_content(part, spark=lake).faults}


@pytest.mark.quick
def test_rows_that_were_read_again_are_proven_after_the_first_commits_have_expired(
    lake: SparkSession, feed: Feed
) -> None:
    feed.create_topic(partitions=1)
    part = pipeline(feed, limit=10)
    land(feed, lake, part, range(30))
    rewind(part, plan_rewind(part, "earliest", partition=0, delete_rows=False), spark=lake)
    part.run(spark=lake, once=True)
    assert proven(part, lake).rows == 60
    expire(feed, lake)
    land(feed, lake, part, range(30, 40))
    assert proven(part, lake).rows == 70
    rewind(part, plan_rewind(part, f"{feed.topic}:0:5", partition=0, delete_rows=True), spark=lake)
    assert proven(part, lake).rows == 10
    part.run(spark=lake, once=True)
    assert proven(part, lake).rows == 45
    assert finds_a_change(feed, lake, part, 2)


def test_a_rewind_over_changed_rows_repairs_the_table(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    part = pipeline(feed, limit=10)
    land(feed, lake, part, range(30))
    assert finds_a_change(feed, lake, part, 25)
    rewind(part, plan_rewind(part, f"{feed.topic}:0:20", partition=0, delete_rows=True), spark=lake)
    part.run(spark=lake, once=True)
    expire(feed, lake)
    assert proven(part, lake).rows == 30


def test_backfills_are_proven_after_their_snapshots_have_expired(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send(values(range(30)))
    part = pipeline(feed, source=feed.source(max_records_per_batch=100, start="latest"))
    part.run(spark=lake, once=True)
    land(feed, lake, part, range(30, 40))
    backfill(part, spark=lake)
    expire(feed, lake)
    assert proven(part, lake).rows == 40
    land(feed, lake, part, range(40, 50))
    assert proven(part, lake).rows == 50


@pytest.mark.quick
def test_receipts_follow_a_rollback(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send(values(range(30)))
    part = pipeline(feed, source=feed.source(max_records_per_batch=10, start="latest"))
    part.run(spark=lake, once=True)
    land(feed, lake, part, range(30, 50))
    backfill(part, spark=lake)
    roll_back(feed, lake, commits=2)
    assert proven(part, lake).rows > 0
    part.run(spark=lake, once=True)
    backfill(part, spark=lake)
    assert proven(part, lake).rows == 50
    roll_back(feed, lake, commits=1)
    expire(feed, lake)
    part.run(spark=lake, once=True)
    assert proven(part, lake).rows_unproven == 0


def test_receipts_begin_again_after_commits_without_them(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=2)
    part, without = pipeline(feed, limit=10), pipeline(feed, limit=10, receipts=False)
    land(feed, lake, part, range(30))
    land(feed, lake, without, range(30, 40))
    assert (proven(part, lake).rows, proven(part, lake).rows_unproven) == (40, 10)
    land(feed, lake, part, range(40, 60))
    assert (proven(part, lake).rows, proven(part, lake).rows_unproven) == (60, 40)
    expire(feed, lake)
    part = pipeline(feed, limit=10)
    land(feed, lake, part, range(60, 80))
    assert (proven(part, lake).rows, proven(part, lake).rows_unproven) == (80, 40)
    assert finds_a_change(feed, lake, part, 70)


@pytest.mark.quick
def test_rows_of_others_are_no_faults(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    part = pipeline(feed, limit=10)
    land(feed, lake, part, range(30))
    position = "kafka_topic, kafka_partition, kafka_offset, id"
    lake.sql(f"INSERT INTO {feed.table} ({position}) VALUES ('other', 0, 5, 1), (NULL, NULL, NULL, 2)")
    assert "2 rows of other topics" in str([each.what for each in proven(part, lake).findings])
    lake.sql(f"INSERT INTO {feed.table} ({position}) VALUES ('{feed.topic}', 0, 500, 1)")
    assert [each.kind for each in verify_content(part, spark=lake).faults] == ["content-doubled"]


def test_rows_that_a_table_had_before_the_feed_are_not_proven(lake: SparkSession, feed: Feed, tmp_path: Path) -> None:
    feed.create_topic(partitions=1)
    land(feed, lake, pipeline(feed, receipts=False), range(20))
    properties = open_table(feed.table, connections=feed.connections).properties
    ours = [name for name in properties if name.endswith(f".{feed.name}")]
    names = ", ".join(f"'{name}'" for name in ours)
    lake.sql(f"ALTER TABLE {feed.table} UNSET TBLPROPERTIES ({names})")
    other = Feed(feed.stack, tmp_path)
    part = pipeline(other, source=feed.source(start="earliest"), sink={"iceberg": {"table": feed.table}})
    part.run(spark=lake, once=True)
    proof = proven(part, lake)
    assert (proof.rows, proof.rows_unproven) == (40, 40)


def test_columns_that_changed_after_the_last_commit_are_compared(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    part = pipeline(feed)
    land(feed, lake, part, range(30))
    lake.sql(f"ALTER TABLE {feed.table} RENAME COLUMN name TO title")
    lake.sql(f"ALTER TABLE {feed.table} DROP COLUMN good")
    lake.sql(f"ALTER TABLE {feed.table} ADD COLUMN more STRING")
    assert proven(part, lake).rows == 30


def test_a_table_with_files_of_another_format_is_refused(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    part = pipeline(feed)
    land(feed, lake, part, range(10))
    lake.sql(f"ALTER TABLE {feed.table} SET TBLPROPERTIES ('write.format.default' = 'orc')")
    feed.send(values(range(10, 20)))
    with pytest.raises(ConfigError, match="the table has files of orc"):
        part.run(spark=lake, once=True)
