"""The block ``sink.kafka``."""

from typing import Any

import pytest

from lakefeed.config.base import validated
from lakefeed.config.models import PipelineConfig
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ConfigError
from lakefeed_kafka.settings import KafkaSinkConfig
from lakefeed_kafka.sink import producer_settings
from tests.support.pipeline_text import topic_to_topic

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ({"options": {"kafka.ackss": "all"}}, "unknown Kafka producer setting 'kafka.ackss'"),
        ({"options": {"aks": "all"}}, "did you mean 'kafka.acks'"),
        ({"options": {"kafka.acks": "1"}}, "requires acks=all"),
        ({"options": {"kafka.enable.idempotence": False}}, "must stay true"),
        ({"options": {"kafka.enable.idempotence": "false", "kafka.acks": "1"}}, "must stay all"),
        ({"options": {"kafka.transactional.id": "x"}}, "begins no transactions"),
        ({"headers": {"lakefeed.batch": "'1'"}}, "lakefeed's own"),
        ({"value": {"avro": {"subject": "x"}}}, "subject requires a registry"),
        ({"value": {"json": {}, "column": "a"}}, "exactly one of"),
        ({"topic": "a b"}, "cannot be a topic"),
        ({"topic": "hits"}, "would read its own"),
    ],
)
def test_a_mistake_in_the_kafka_sink_is_refused(sink: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        topic_to_topic(sink={"kafka": {"topic": "out", **sink}})


def test_the_value_of_the_kafka_sink_has_short_forms_and_is_json_by_default() -> None:
    assert validated(KafkaSinkConfig, "test", topic="out").value.kind == "json"
    named = validated(KafkaSinkConfig, "test", topic="out", value={"column": "payload"})
    assert named.value.column is not None
    assert named.value.column.name == "payload"
    framed = validated(KafkaSinkConfig, "test", topic="out", value={"avro": {"registry": "http://host:8081"}})
    assert framed.value.registry is not None


def test_the_kafka_sink_uses_the_brokers_and_login_of_the_source_by_default() -> None:
    source = KafkaSource(
        bootstrap_servers="host:9092",
        topics=["hits"],
        options={"kafka.sasl.jaas.config": PLAIN, "kafka.max.poll.records": 7},
    )
    shared = producer_settings(KafkaSinkConfig(topic="out", options={"kafka.linger.ms": 1}), source)
    assert shared["kafka.bootstrap.servers"] == "host:9092"
    assert shared["kafka.sasl.jaas.config"] == PLAIN
    assert shared["kafka.linger.ms"] == "1"
    assert (shared["kafka.acks"], shared["kafka.enable.idempotence"]) == ("all", "true")
    assert "kafka.max.poll.records" not in shared
    other = producer_settings(KafkaSinkConfig(topic="out", bootstrap_servers="other:9092"), source)
    assert "kafka.sasl.jaas.config" not in other
    with pytest.raises(ConfigError, match="bootstrap_servers is required"):
        producer_settings(KafkaSinkConfig(topic="out"), None)
    with pytest.raises(ValueError, match="bootstrap_servers is required"):
        PipelineConfig.model_validate(
            {"name": "x", "source": {"rate": {}}, "sink": {"kafka": {"topic": "o"}}, "checkpoint": "s3a://lake/c"}
        )


def test_deduplicate_is_refused_with_a_table_for_each_topic() -> None:
    source = {"kafka": {"bootstrap_servers": "host:9092", "topics": ["hits"], "deduplicate": True}}
    with pytest.raises(ValueError, match="deduplicate keeps state"):
        topic_to_topic(source=source, sink={"iceberg": {"table": "lake.web.{topic}"}}, checkpoint="")
