"""A feed's monitor, ``status`` and ``lag`` show the true progress, with a real Kafka, S3 store and catalog."""

import json
import time

import pytest
from pyspark.sql import SparkSession

from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.base import validated
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ResourceMissing
from lakefeed.feed.progress import FinishedBatch, RunningBatch
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.operations.live_status import LiveStatus, live_status
from lakefeed.operations.status import Lag, group_lag
from lakefeed.pipeline import Pipeline
from tests.support.background import running
from tests.support.feed import JSON_ROWS, Feed, records, until
from tests.support.kafka_tools import commit_offsets


def look(pipeline: Pipeline) -> LiveStatus:
    return live_status(pipeline.config, connections=pipeline.connections)


def lag_of(pipeline: Pipeline) -> Lag:
    lag = look(pipeline).lag
    assert lag is not None
    return lag


@pytest.mark.quick
def test_the_monitor_has_the_figures_of_each_batch(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=2)
    feed.send([*records(290), *[b"not json"] * 10])
    monitor = FeedMonitor(feed.name)
    seen: list[FinishedBatch] = []
    pipeline = feed.pipeline(
        source=feed.source(max_records_per_batch=100, monitoring_group=f"{feed.name}-group"),
        decode=JSON_ROWS,
        dead_letters={"table": f"lake.{feed.name}.letters"},
    )
    summary = pipeline.run(
        spark=lake, once=True, monitor=monitor, on_batch=lambda progress: seen.append(monitor.batches()[-1])
    )
    progress, batches = monitor.snapshot(), monitor.batches()
    assert seen == list(batches)
    assert summary.batches == len(batches) == progress.totals.batches
    assert (progress.totals.records, progress.totals.rows, progress.totals.dead_letters) == (300, 290, 10)
    assert sum(reason.count for batch in batches for reason in batch.reasons) == 10
    assert progress.last_dead_letters
    assert (progress.state, progress.lag, progress.unread, progress.lag_seconds) == ("ended", 0, 0, 0.0)
    assert progress.fence is not None
    assert progress.sink == f"iceberg {feed.table}"
    assert progress.last_commit_at is not None
    for batch in batches:
        assert {"plan", "check", "write", "commit", "publish", "add", "log"} <= batch.phases.keys()
        assert 0 < batch.phases["commit"] <= batch.phases["write"]
        assert batch.phases["write"] <= batch.phases["add"] + 0.1 <= batch.seconds + 0.2
        assert batch.requests is not None
        assert batch.requests.data_files >= bool(batch.rows)
        assert sum(span.records for span in batch.ranges) == batch.records
    assert sum(batch.requests.total for batch in batches if batch.requests) <= summary.requests.total
    committed = {(part.topic, part.partition): part.committed for part in progress.partitions}
    assert committed == {(part.topic, part.partition): part.table for part in pipeline.status().partitions}
    json.dumps(progress.as_dict())


@pytest.mark.quick
def test_lag_agrees_with_the_broker_while_nothing_runs(lake: SparkSession, feed: Feed) -> None:
    """Compare feed, monitoring group and ``offsets show`` with the broker's numbers, in records and in seconds."""
    feed.create_topic(partitions=3)
    feed.send(records(100))
    group = f"{feed.name}-group"
    commit_offsets(feed.stack.bootstrap_servers, group, {(feed.topic, 0): 0})
    pipeline = feed.pipeline(source=feed.source(monitoring_group=group), decode=JSON_ROWS)
    pipeline.run(spark=lake, once=True)
    at_rest = lag_of(pipeline)
    assert (at_rest.records, at_rest.seconds) == (0, 0.0)
    sent_at = time.time()
    feed.send(records(50, first=100))
    of_feed = lag_of(pipeline)
    of_group = group_lag(pipeline.config.kafka, group)
    assert of_feed.records == of_group.records == 50
    shown = {(part.topic, part.partition): part.lag for part in pipeline.status().partitions}
    for lag in (of_feed, of_group):
        assert {(part.topic, part.partition): part.lag for part in lag.partitions} == shown
        assert lag.seconds is not None
        assert abs(lag.seconds - (time.time() - sent_at)) < 5


def test_the_lag_of_any_group_is_computed_from_its_committed_offsets(feed: Feed) -> None:
    """The next record of the group has 1 MB, and the group has no committed offset in the second partition."""
    feed.create_topic(partitions=2)
    feed.send([b"x" * 900_000] * 3, partition=0)
    feed.send(records(5), partition=1)
    cluster = validated(KafkaSource, "test", bootstrap_servers=feed.stack.bootstrap_servers, topics=[feed.topic])
    commit_offsets(cluster.bootstrap_servers, feed.name, {(feed.topic, 0): 1})
    lag = group_lag(cluster, feed.name)
    assert [(part.partition, part.committed, part.lag) for part in lag.partitions] == [(0, 1, 2), (1, None, None)]
    assert lag.partitions[0].seconds is not None
    with pytest.raises(ResourceMissing, match="has committed no offsets") as missing:
        group_lag(cluster, f"{feed.name}x", topics=[feed.topic])
    assert feed.name in str(missing.value.hint)


def test_the_lag_of_a_group_is_right_in_empty_transactional_and_deleted_topics(feed: Feed) -> None:
    """One topic is empty, one has transaction markers, and one was deleted after the group had committed its offset."""
    servers = feed.stack.bootstrap_servers
    empty, transactions, deleted = (f"{feed.topic}-{kind}" for kind in ("empty", "transactions", "deleted"))
    for topic in (empty, transactions, deleted):
        feed.create_topic(partitions=1, topic=topic)
    feed.send_transactions("ca", count=1, topic=transactions)
    feed.send(records(3), topic=deleted)
    commit_offsets(servers, feed.name, {(empty, 0): 0, (transactions, 0): 1, (deleted, 0): 1})
    cluster = validated(KafkaSource, "test", bootstrap_servers=servers, topics_pattern=".*")
    Topics(servers).delete(deleted)
    until(lambda: deleted not in Topics(servers).list())
    lag = group_lag(cluster, feed.name)
    # The group has read the committed record. After it come its marker, an aborted record and the marker of the abort.
    # None of them is a record to read, so the lag in seconds is 0.
    assert [(part.topic, part.lag, part.seconds) for part in lag.partitions] == [
        (empty, 0, 0.0),
        (transactions, 3, 0.0),
    ]
    assert lag.seconds == 0.0
    with pytest.raises(ResourceMissing, match="there is no topic"):
        group_lag(cluster, feed.name, topics=[deleted])


def test_after_retention_the_lag_in_seconds_is_that_of_the_first_remaining_record(feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send(records(10), partition=0)
    cluster = validated(KafkaSource, "test", bootstrap_servers=feed.stack.bootstrap_servers, topics=[feed.topic])
    commit_offsets(cluster.bootstrap_servers, feed.name, {(feed.topic, 0): 2})
    feed.remove_records(6)
    until(lambda: Topics(feed.stack.bootstrap_servers).describe(feed.topic).partitions[0].start_offset == 6)
    [part] = group_lag(cluster, feed.name, topics=[feed.topic]).partitions
    assert (part.committed, part.end, part.lag) == (2, 10, 8)
    assert part.seconds is not None


def test_a_long_batch_shows_its_tasks_and_records(lake: SparkSession, feed: Feed) -> None:
    """The batch has four tasks of 50,000 records; each task takes three seconds longer than the one before."""
    feed.create_topic(partitions=4)
    for partition in range(4):
        feed.send(records(50_000, first=50_000 * partition), partition=partition)
    naps = "reflect('java.lang.Thread', 'sleep', 300L * (1L + id div 50000L))"
    sleeps = f"CASE WHEN id % 5000 = 0 THEN {naps} IS NULL ELSE true END"
    sql = f"SELECT * FROM {feed.name} WHERE {sleeps}"
    pipeline = feed.pipeline(source=feed.source(), decode=JSON_ROWS, transform={"sql": sql})
    seen: list[RunningBatch] = []
    with running(pipeline, lake) as run:
        end = time.monotonic() + 120
        while not run.batches and time.monotonic() < end:
            if (now := run.monitor.snapshot().running) is not None:
                seen.append(now)
            time.sleep(0.05)
    assert {now.offsets for now in seen} == {200_000}
    assert 4 in {now.tasks for now in seen}
    read = [now.records or 0 for now in seen]
    assert read == sorted(read)
    assert read[-1] <= 200_000
    halfway = [now for now in seen if 0 < now.tasks_done < 4 and now.records]
    assert halfway, sorted({(now.tasks_done, now.tasks, now.records or 0) for now in seen})
    assert min(now.records or 0 for now in halfway) < 200_000
    assert all(now.seconds_left is not None for now in halfway)
    assert run.monitor.snapshot().running is None


def test_a_job_with_a_table_for_each_topic_is_monitored_as_one_feed(lake: SparkSession, feed: Feed) -> None:
    topics = [f"{feed.topic}-{letter}" for letter in "ab"]
    for topic in topics:
        feed.create_topic(partitions=1, topic=topic)
        feed.send(records(10), topic=topic)
    pipeline = feed.pipeline(
        source=feed.source(topics=topics),
        decode=JSON_ROWS,
        sink={"iceberg": {"table": f"lake.{feed.name}.{{topic}}"}},
        checkpoint="",
    )
    monitor = FeedMonitor(feed.name)
    pipeline.run(spark=lake, once=True, monitor=monitor)
    progress = monitor.snapshot()
    assert (progress.state, progress.lag, progress.totals.records) == ("ended", 0, 20)
    assert progress.last_commit_at is not None
    assert {part.topic for part in progress.partitions} == set(topics)


def test_for_a_sink_without_a_ledger_the_position_is_that_of_the_checkpoint(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send(records(10))
    path = f"s3a://{feed.stack.bucket}/files/{feed.name}"
    pipeline = feed.pipeline(sink={"parquet": {"path": path}}, decode=JSON_ROWS)
    pipeline.run(spark=lake, once=True)
    feed.send(records(5, first=10))
    assert lag_of(pipeline).records == 5
    status = look(pipeline)
    # The feed counts as running because the newest entry in the checkpoint is recent.
    assert (status.state, status.lag.records if status.lag else None) == ("probably running", 5)
    assert status.last_batch == 0


def test_each_of_several_sinks_has_separate_figures(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send(records(10))
    pipeline = feed.pipeline(sinks={"copy": {"iceberg": {"table": f"lake.{feed.name}.copy"}}}, decode=JSON_ROWS)
    monitor = FeedMonitor(feed.name)
    pipeline.run(spark=lake, once=True, monitor=monitor)
    [batch] = monitor.batches()
    parts = [batch.phases[name] for name in ("rows", "write copy", "write sink")]
    assert all(seconds > 0 for seconds in parts)
    assert sum(parts) <= batch.phases["write"]
    assert 0 < batch.phases["commit copy"] <= batch.phases["write copy"]
    assert 0 < batch.phases["commit"] <= batch.phases["write sink"]


def test_the_progress_of_a_query_with_state_includes_the_state(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send(records(10))
    sql = f"SELECT id % 3 AS rest, count(*) AS n FROM {feed.name} GROUP BY id % 3"
    pipeline = feed.pipeline(
        decode=JSON_ROWS,
        transform={"sql": sql, "output_mode": "update"},
        sink={"iceberg": {"table": feed.table, "mode": "upsert", "keys": ["rest"]}},
    )
    monitor = FeedMonitor(feed.name)
    pipeline.run(spark=lake, once=True, monitor=monitor)
    progress = monitor.snapshot()
    assert progress.last_batch is not None
    assert progress.last_batch.state.rows == 3
    # A query with state stores Spark's batch numbers in the ledger, as offsets of a topic; the progress must not show
    # them.
    assert {part.topic for part in progress.partitions} == {feed.topic}
    assert progress.lag == 0
    assert lag_of(pipeline).records == 0
