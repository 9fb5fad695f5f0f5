"""While an open transaction is about to change a group's offsets, lakefeed does not use the old offsets."""

import uuid

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from lakefeed.clients.kafka.groups import group_offsets
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import Unreachable
from lakefeed.operations.status import group_lag
from lakefeed_local.stack import Endpoints


def test_offsets_in_an_open_transaction_are_refused_as_a_start_and_left_out_of_the_lag(stack: Endpoints) -> None:
    topic = group = f"held-{uuid.uuid4().hex[:8]}"
    servers = stack.bootstrap_servers
    Topics(servers).create(topic, partitions=1)
    plain = Producer({"bootstrap.servers": servers})
    for _ in range(5):
        plain.produce(topic, b"x", partition=0)
    assert plain.flush(30) == 0
    source = KafkaSource(bootstrap_servers=servers, topics=[topic])
    reader = Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False})
    producer = Producer({"bootstrap.servers": servers, "transactional.id": group})
    try:
        reader.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        assert group_offsets(source, group) == {(topic, 0): 1}
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 4)], reader.consumer_group_metadata(), 30)
        assert group_offsets(source, group, stable=False) == {(topic, 0): 1}
        with pytest.raises(Unreachable, match="an open transaction has locked offsets of the group"):
            group_offsets(source, group)
        assert group_lag(source, group).records == 4
        producer.commit_transaction(30)
        assert group_offsets(source, group) == {(topic, 0): 4}
    finally:
        reader.close()
