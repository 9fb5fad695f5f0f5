"""A feed without a checkpoint resumes at the position in the ledger of its sink, and saves the checkpoint's requests.

``offsets show``, ``plan`` and ``run`` must agree on each start: see ``tests/support/starts.py``.
``tests/faults/test_kill_points.py`` kills a driver without a checkpoint at each step.
"""

import threading
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.clients.spark.session import copy_of
from lakefeed.errors import CheckpointMismatch, ConfigError, RecordsLost
from lakefeed.feed.progress import FinishedBatch
from lakefeed.feed.s3_requests import S3Requests
from lakefeed.pipeline import Pipeline, RunSummary
from lakefeed_repair.rewind import plan_rewind, rewind
from tests.support.feed import Feed, ids
from tests.support.starts import run_as_planned

DECODE = {"json": {"schema_ddl": "id BIGINT"}, "metadata": ["partition", "offset"]}


def pipeline(feed: Feed, *, kafka: dict[str, Any] | None = None, **blocks: Any) -> Pipeline:
    return feed.pipeline(**{"source": feed.source(**(kafka or {})), "decode": DECODE, "checkpoint": "", **blocks})


def run(feed: Feed, lake: SparkSession, notes: list[str] | None = None, **blocks: Any) -> RunSummary:
    return run_as_planned(pipeline(feed, **blocks), lake, [] if notes is None else notes, counts=True)


def test_a_feed_resumes_at_the_tables_position_and_a_batch_makes_three_requests_besides_its_files(
    lake: SparkSession, feed: Feed
) -> None:
    feed.create_topic(partitions=2)
    for partition in range(2):
        feed.send_ids(range(partition * 100, partition * 100 + 60), partition=partition)
    batches: list[FinishedBatch] = []
    small = pipeline(feed, kafka={"max_records_per_batch": 20})
    summary = small.run(spark=lake, once=True, on_batch=batches.append)
    assert len(batches) == 6
    for batch in batches[1:]:
        assert batch.requests is not None
        # A commit puts three metadata objects: the manifest, the manifest list and the metadata file.
        assert S3Requests(batch.requests.counts).calls == {"data": {"PutObject": 2}, "metadata": {"PutObject": 3}}
    places = {place for call in summary.requests.counts for place in [call.location]}
    assert not [place for place in places if "checkpoint" in place]
    assert summary.files == 12

    feed.send_ids(range(60, 70))
    notes: list[str] = []
    assert run(feed, lake, notes).rows == 10
    assert notes == []
    assert run(feed, lake).rows == 0
    assert ids(feed) == [*range(70), *range(100, 160)]
    assert not small.verify(deep=True).faults


def test_the_start_position_is_stored_in_the_ledger_before_the_first_batch(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=2)
    feed.send_ids(range(10))
    assert run(feed, lake, kafka={"start": "latest"}).rows == 0
    # The first start stored its position, so later records are not lost, although no batch was committed.
    feed.send_ids(range(10, 15))
    feed.send_ids(range(15, 20), partition=1)
    assert run(feed, lake, kafka={"start": "latest"}).rows == 10
    assert ids(feed) == list(range(10, 20))


def test_a_stop_before_the_first_commit_loses_no_record(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send_ids(range(10))
    stop = threading.Event()
    stop.set()
    pipeline(feed).run(spark=lake, once=True, stop=stop)
    assert run(feed, lake).rows == 10
    assert ids(feed) == list(range(10))


def test_a_feed_resumes_without_doubles_after_a_rewind_and_after_an_accepted_loss(
    lake: SparkSession, feed: Feed
) -> None:
    feed.create_topic(partitions=1)
    feed.send_ids(range(10))
    run(feed, lake)
    moved = pipeline(feed)
    rewind(moved, plan_rewind(moved, f"{feed.topic}:0:4", delete_rows=True), spark=lake)
    assert ids(feed) == list(range(4))
    notes: list[str] = []
    assert run(feed, lake, notes).rows == 6
    feed.send_ids(range(10, 12))
    assert run(feed, lake, notes).rows == 2
    assert notes == []
    assert plan_rewind(moved, "table").moves == ()

    feed.recreate_topic()
    feed.send_ids(range(20, 23))
    with pytest.raises(RecordsLost, match="recreated"):
        run(feed, lake)
    assert moved.run(spark=lake, once=True, accept_loss=True).rows == 3
    assert run(feed, lake).rows == 0
    assert ids(feed) == [*range(12), *range(20, 23)]


def test_a_second_driver_replaces_the_first(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send_ids(range(10))
    rival, stop = pipeline(feed), threading.Event()

    def take_over(batch: FinishedBatch) -> None:
        if batch.batch_id == 0:
            rival.run(spark=copy_of(lake), once=True)
            feed.send_ids(range(10, 20))
        else:
            stop.set()

    # Run without once, so that the first driver still runs when the second driver starts.
    with pytest.raises(CheckpointMismatch, match="another driver has taken over"):
        pipeline(feed).run(spark=lake, on_batch=take_over, stop=stop)
    assert ids(feed) == list(range(10))
    assert run(feed, lake).rows == 10
    assert ids(feed) == list(range(20))


def test_a_transform_with_state_is_refused_before_any_change(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send_ids(range(5))
    steps = {"steps": {"once": {"deduplicate": ["id"]}}, "watermark": {"column": "at", "delay": "1 minute"}}
    grouped = pipeline(feed, decode={"json": {"schema_ddl": "id BIGINT, at TIMESTAMP"}}, transform=steps)
    with pytest.raises(ConfigError, match="only a checkpoint can store it"):
        grouped.run(spark=lake, once=True)
    [plan] = grouped.plan(spark=lake).tables
    assert plan.refusal is not None
    assert "only a checkpoint" in plan.refusal.what
    assert not lake.catalog.tableExists(feed.table)
