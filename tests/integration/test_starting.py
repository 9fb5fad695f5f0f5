"""A new feed begins at ``source.kafka.start``; a feed that has begun resumes at its position, and ignores the setting.

``offsets show``, ``plan`` and ``run`` must agree on each start: see ``tests/support/starts.py``.
"""

import time
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from lakefeed.errors import ConfigError, RecordsLost, ResourceMissing
from tests.support.feed import Feed, ids
from tests.support.kafka_tools import commit_offsets
from tests.support.shop import Shop, failures
from tests.support.starts import run_as_planned

DECODE = {"json": {"schema_ddl": "id BIGINT"}, "metadata": ["partition", "offset"]}


def run(feed: Feed, lake: SparkSession, start: str, notes: list[str] | None = None) -> int:
    pipeline = feed.pipeline(source=feed.source(start=start), decode=DECODE)
    return run_as_planned(pipeline, lake, [] if notes is None else notes).rows


def test_a_feed_begins_at_the_configured_offsets_and_then_resumes(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=2)
    feed.send_ids(range(10), partition=0)
    feed.send_ids(range(10, 15), partition=1)
    notes: list[str] = []
    assert run(feed, lake, f"{feed.topic}:0:7", notes) == 8
    assert notes == ["begins at the offsets that source.kafka.start names"]
    assert ids(feed) == [7, 8, 9, 10, 11, 12, 13, 14]
    feed.send_ids(range(20, 22), partition=0)
    # The group does not exist. A feed that has begun ignores the setting, so this is no error.
    assert run(feed, lake, "group:is-not-there") == 2
    assert ids(feed)[-2:] == [20, 21]


def test_a_feed_begins_at_the_first_records_since_a_time(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=2)
    feed.send_ids(range(5), partition=0)
    feed.send_ids(range(5), partition=1)
    time.sleep(1.1)
    now = datetime.now(UTC)
    time.sleep(0.1)
    feed.send_ids(range(100, 103), partition=0)
    # Partition 1 has no record since the configured time, so the feed begins at the end of this partition.
    assert run(feed, lake, now.isoformat()) == 3
    assert ids(feed) == [100, 101, 102]
    feed.send_ids(range(200, 201), partition=1)
    assert run(feed, lake, now.isoformat()) == 1


def test_a_feed_begins_at_the_offsets_of_a_consumer_group(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=2)
    feed.send_ids(range(10), partition=0)
    feed.send_ids(range(10, 15), partition=1)
    commit_offsets(feed.stack.bootstrap_servers, f"{feed.name}-etl", {(feed.topic, 0): 6})
    assert run(feed, lake, f"group:{feed.name}-etl") == 9
    assert ids(feed) == [6, 7, 8, 9, 10, 11, 12, 13, 14]


def test_a_missing_start_position_is_refused_before_anything_is_written(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send_ids(range(3), partition=0)
    commit_offsets(feed.stack.bootstrap_servers, f"{feed.name}-etl", {(feed.topic, 0): 9})
    with pytest.raises(RecordsLost, match=f"{feed.topic}-0 ends at 3, before 9"):
        run(feed, lake, f"group:{feed.name}-etl")
    with pytest.raises(ResourceMissing, match="has committed no offsets") as missing:
        run(feed, lake, f"group:{feed.name}-et")
    assert f"{feed.name}-etl" in (missing.value.hint or "")
    with pytest.raises(ConfigError, match="reads no partition other-0"):
        run(feed, lake, "other:0:1")
    with pytest.raises(ConfigError, match="ends at 3, before 4"):
        run(feed, lake, f"{feed.topic}:0:4")
    assert run(feed, lake, f"{feed.topic}:0:3") == 0


def test_a_batch_run_begins_at_the_configured_start(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send_ids(range(5), partition=0)
    pipeline = feed.pipeline(source=feed.source(start=f"{feed.topic}:0:3"), decode=DECODE)
    assert pipeline.run_batch(spark=lake).rows == 2
    assert pipeline.run_batch(spark=lake).rows == 0
    assert ids(feed) == [3, 4]
    assert not pipeline.verify(deep=True).faults


def test_each_table_of_a_job_of_many_topics_begins_at_the_configured_start(lake: SparkSession, feed: Feed) -> None:
    shop = Shop(feed)
    for name in ("orders", "users"):
        shop.create(name, partitions=1)
    shop.send("orders", [{"id": number, "total": 1.0} for number in range(4)])
    time.sleep(1.1)
    now = datetime.now(UTC)
    time.sleep(0.1)
    shop.send("orders", [{"id": 100, "total": 1.0}])
    shop.send("users", [{"name": "u"}])
    pipeline = shop.pipeline(reads={"start": now.isoformat()})
    summary = pipeline.run(spark=lake, once=True)
    assert (failures(summary), summary.rows) == ({}, 2)
    assert [row["id"] for row in shop.rows("orders")] == [100]
    shop.send("orders", [{"id": 101, "total": 1.0}])
    assert pipeline.run(spark=lake, once=True).rows == 1


def test_a_renamed_feed_reports_that_another_feed_has_landed_the_topic(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic()
    feed.send(feed.avro([{"id": 1, "zone": "a"}]))
    notes: list[str] = []
    for name in (feed.name, f"{feed.name}_renamed", feed.name):
        blocks = {"name": name, "checkpoint": f"{feed.checkpoint}-{name}"}
        feed.pipeline(**blocks).run(spark=lake, once=True, on_note=notes.append)
    [note] = [note for note in notes if "rows of this topic" in note]
    assert f"from feed '{feed.name}';" in note
    assert len(feed.rows()) == 2
