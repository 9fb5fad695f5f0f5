"""On three brokers, a feed refuses loss by an unclean leader, and survives failed leaders and partition changes."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]
from pyspark.sql import SparkSession

from lakefeed.clients.kafka.topics import Topics
from lakefeed.errors import RecordsLost, Unreachable
from lakefeed.pipeline import Pipeline
from lakefeed_local.stack import Endpoints
from tests.support.background import Background, running
from tests.support.feed import Feed, until
from tests.support.lake import spark_on
from tests.support.servers.kafka_cluster import BROKERS, Cluster, kafka_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WAYS = ("direct", "general", "many tables")


@pytest.fixture(scope="module", params=["kafka"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run the cluster from a group of locked jars; ``test-kafka-4.4`` has the next version of Kafka."""
    with kafka_cluster(tmp_path_factory.mktemp("cluster"), jars=request.param) as running:
        yield running


@pytest.fixture(scope="module")
def lake(stack: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_on(stack, name="lakefeed-tests", folder=tmp_path_factory.mktemp("spark")) as running:
        yield running


def _pipeline(stack: Endpoints, cluster: Cluster, tmp_path: Any, way: str, topic: str) -> Pipeline:
    """Return a feed that reads the topic in one of ``WAYS``."""
    folder = tmp_path / uuid.uuid4().hex
    folder.mkdir()
    feed = Feed(replace(stack, bootstrap_servers=cluster.addresses), folder)
    table = f"{feed.catalog}.{feed.name}.{{topic}}" if way == "many tables" else feed.table
    many = {"tables": {"on_failure": "fail"}, "checkpoint": ""}
    return feed.pipeline(
        source=feed.source(topics=[topic]),
        decode={"json": {"schema_ddl": "id INT"}, "metadata": ["topic", "partition", "offset"]},
        sink={"iceberg": {"table": table}},
        fast_path="off" if way == "general" else "auto",
        **(many if way == "many tables" else {}),
    )


def eventually(holds: Callable[[], bool], *, seconds: float = 60) -> None:
    """Wait until the condition holds; ignore errors of a cluster that is electing leaders."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(Unreachable):
            if holds():
                return
        time.sleep(0.3)
    raise AssertionError("not in time")


def _values(first: int, last: int) -> list[bytes]:
    return [b'{"id": %d}' % number for number in range(first, last)]


def _kinds(pipeline: Pipeline, topic: str) -> list[str]:
    one = pipeline.of_topic(topic) if pipeline.config.has_many_tables else pipeline
    return [finding.kind for finding in one.verify(deep=True).faults]


def test_a_feed_refuses_a_topic_that_an_unclean_leader_truncated_until_the_loss_is_accepted(
    stack: Endpoints, lake: SparkSession, cluster: Cluster, tmp_path: Any
) -> None:
    topic = "cut-off"
    cluster.create_topic(topic, [[1, 2], [1, 2]])
    cluster.send(topic, _values(0, 100))
    cluster.send(topic, _values(1000, 1040), partition=1)
    time.sleep(1)
    cluster.servers[2].kill()
    cluster.send(topic, _values(100, 150), acks="1")
    eventually(lambda: Topics(cluster.addresses).describe(topic).ends == {0: 150, 1: 40})
    pipelines = {way: _pipeline(stack, cluster, tmp_path, way, topic) for way in WAYS}
    for way, pipeline in pipelines.items():
        assert pipeline.run(spark=lake, once=True).rows == 190, way
        assert _kinds(pipeline, topic) == []
    run = Background(_pipeline(stack, cluster, tmp_path, "direct", topic), lake)
    try:
        until(lambda: run.batches, seconds=60)
        cluster.cut_off(topic, keeps=2, gone=1)
        cluster.send(topic, _values(200, 280))
        run.thread.join(90)
    finally:
        run.stop.set()
        run.thread.join(60)
    assert isinstance(run.failure, RecordsLost)
    assert f"{topic}-0 was cut off at offset 100" in run.failure.what
    for way, pipeline in pipelines.items():
        assert _kinds(pipeline, topic) == ["cut-off"], way
        with pytest.raises(RecordsLost) as refused:
            pipeline.run(spark=lake, once=True)
        text = str(refused.value)
        assert f"{topic}-0: the feed has read it up to 150, but a replica" in text
        assert "the topic was cut off at 100" in text
        assert f"{topic}-1" not in text
        assert "--accept-loss" in text
        assert pipeline.run(spark=lake, once=True, accept_loss=True).rows == 80, way
        assert _kinds(pipeline, topic) == [], way
        assert pipeline.run(spark=lake, once=True).rows == 0
    cluster.servers[1].start_again()


@pytest.mark.parametrize("way", WAYS)
def test_a_feed_survives_a_rolling_restart_of_the_brokers(
    stack: Endpoints, lake: SparkSession, cluster: Cluster, tmp_path: Any, way: str
) -> None:
    topic = f"rolling-{way.replace(' ', '-')}"
    cluster.create_topic(topic, [[1, 2], [2, 3], [3, 1]])
    cluster.send(topic, _values(0, 10))
    pipeline = _pipeline(stack, cluster, tmp_path, way, topic)
    sent = 10
    with running(pipeline, lake) as run:
        for number in BROKERS:
            cluster.stop(number)
            for _ in range(3):
                cluster.send(topic, _values(sent, sent + 30), partition=number % 3)
                sent += 30
                time.sleep(1.5)
            cluster.servers[number].start_again()
        run.until_records(sent)
    assert Topics(cluster.addresses).describe(topic).offsets == sent
    assert sum(batch.rows or 0 for batch in run.batches) == sent, run.notes
    assert _kinds(pipeline, topic) == []


@pytest.mark.parametrize("cluster", ["kafka", "test-kafka-4.4"], indirect=True)
@pytest.mark.parametrize("way", WAYS)
def test_a_feed_survives_a_killed_leader_and_moved_and_added_partitions(
    stack: Endpoints, lake: SparkSession, cluster: Cluster, tmp_path: Any, way: str
) -> None:
    topic = f"events-{way.replace(' ', '-')}"
    cluster.create_topic(topic, [[1, 2], [2, 3]])
    pipeline = _pipeline(stack, cluster, tmp_path, way, topic)
    sent = 0

    def send(*partitions: int) -> None:
        nonlocal sent
        for partition in partitions:
            cluster.send(topic, _values(sent, sent + 40), partition=partition)
            sent += 40

    send(0, 1)
    with running(pipeline, lake) as run:
        run.until_records(sent)
        cluster.servers[1].kill()
        send(1, 0)
        eventually(lambda: cluster.leaders(topic) == [2, 2])
        send(0)
        run.until_records(sent)
        cluster.servers[1].start_again()
        _move(lake, cluster, topic, partition=1, replicas=[3, 1])
        send(1, 0)
        eventually(lambda: cluster.leaders(topic)[1] in (1, 3))
        send(1)
        run.until_records(sent)
        admin = cluster.admin()
        admin.create_partitions([NewPartitions(topic, 4, [[3, 1], [1, 2]])])[topic].result(20)
        eventually(lambda: len(cluster.leaders(topic)) == 4)
        send(2, 3, 0)
        run.until_records(sent)
    assert sum(batch.rows or 0 for batch in run.batches) == sent, run.notes
    assert Topics(cluster.addresses).describe(topic).offsets == sent
    assert _kinds(pipeline, topic) == []


def test_a_feed_does_not_wait_for_a_broker_that_has_left_the_cluster(cluster: Cluster) -> None:
    topic = "controllers"
    cluster.create_topic(topic, [[1, 2], [2, 3]])
    topics = Topics(cluster.addresses)
    partitions = [(topic, 0), (topic, 1)]
    for number in BROKERS:
        topics.identify(partitions)
        cluster.servers[number].kill()
        # Repeat until librdkafka's metadata has named each broker as the controller.
        started = time.monotonic()
        assert set(topics.identify(partitions)[1]) == set(partitions)
        assert set(topics.describe_all([topic])) == {topic}
        assert time.monotonic() - started < 25
        cluster.servers[number].start_again()
        eventually(lambda: number in cluster.admin().list_topics(timeout=5).brokers)  # noqa: B023
        eventually(lambda: min(cluster.leaders(topic)) > 0)


def _move(lake: SparkSession, cluster: Cluster, topic: str, *, partition: int, replicas: list[int]) -> None:
    """Reassign a partition to other brokers by Kafka's Java client, because confluent-kafka lacks this call."""
    jvm: Any = lake._jvm
    java = jvm.java.util
    settings = java.Properties()
    settings.put("bootstrap.servers", cluster.addresses)
    moved = java.HashMap()
    clients = jvm.org.apache.kafka
    target = java.Optional.of(clients.clients.admin.NewPartitionReassignment(replicas))
    moved.put(clients.common.TopicPartition(topic, partition), target)
    admin = clients.clients.admin.Admin.create(settings)
    try:
        admin.alterPartitionReassignments(moved).all().get()
    finally:
        admin.close()
