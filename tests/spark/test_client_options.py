"""Compare lakefeed's list of allowed Kafka settings with the settings of the kafka-clients jar that Spark loads."""

from typing import Any

import pytest
from py4j.java_gateway import get_field
from pyspark.sql import SparkSession

from lakefeed.config.kafka_client import (
    CONSUMER,
    CONSUMER_DEFAULTS,
    PREFIX,
    PRODUCER,
    PRODUCER_DEFAULTS,
    REFUSED_CONSUMER,
    REFUSED_PRODUCER,
    Option,
)

SIDES = {
    "consumer.ConsumerConfig": (CONSUMER, REFUSED_CONSUMER),
    "producer.ProducerConfig": (PRODUCER, REFUSED_PRODUCER),
}
# Kafka's types and lakefeed's; settings of the types PASSWORD, LIST and CLASS are text.
TYPES = {"INT": "int", "SHORT": "int", "LONG": "int", "DOUBLE": "number", "BOOLEAN": "bool"}


def keys(spark: SparkSession, name: str) -> dict[str, Any]:
    """Return Kafka's definitions of a client's settings, by name."""
    gateway: Any = spark.sparkContext._gateway
    definition = getattr(gateway.jvm, f"org.apache.kafka.clients.{name}").configDef()
    return dict(definition.configKeys())


@pytest.mark.parametrize("name", SIDES)
def test_every_kafka_setting_is_listed_as_allowed_or_refused(spark: SparkSession, name: str) -> None:
    allowed, refused = SIDES[name]
    known = set(keys(spark, name))
    assert allowed.keys() - known == set(), "allowed, but Kafka knows no such setting"
    assert known - allowed.keys() - refused.keys() == set(), "neither allowed nor refused"


@pytest.mark.parametrize("name", SIDES)
def test_option_types_equal_those_of_kafka(spark: SparkSession, name: str) -> None:
    allowed, _ = SIDES[name]
    theirs = {key: TYPES.get(kind(known), "text") for key, known in keys(spark, name).items()}
    assert {key: option.type for key, option in allowed.items()} == {key: theirs[key] for key in allowed}


def kind(known: Any) -> str:
    """Return the name of a setting's type in Kafka."""
    return str(get_field(known, "type").toString())


def written(known: Any) -> str | None:
    """Return a setting's default value as a pipeline file would have it; None if there is no default."""
    value = get_field(known, "defaultValue")
    if value is None or kind(known) in ("CLASS", "PASSWORD"):
        return None
    return ",".join(map(str, value)) if kind(known) == "LIST" else str(value)


@pytest.mark.parametrize("name", SIDES)
def test_lakefeed_accepts_the_defaults_of_kafka(spark: SparkSession, name: str) -> None:
    allowed: dict[str, Option] = SIDES[name][0]
    refused = {}
    for key, option in allowed.items():
        default = written(keys(spark, name)[key])
        # Skip defaults that are empty: an empty value means the same as no setting.
        if default and (expected := option.expected_value(default)):
            refused[key] = (default, expected)
    assert refused == {}


@pytest.mark.parametrize(
    ("name", "defaults"),
    [("consumer.ConsumerConfig", CONSUMER_DEFAULTS), ("producer.ProducerConfig", PRODUCER_DEFAULTS)],
)
def test_kafka_accepts_the_defaults_of_lakefeed(spark: SparkSession, name: str, defaults: dict[str, str]) -> None:
    gateway: Any = spark.sparkContext._gateway
    definition = getattr(gateway.jvm, f"org.apache.kafka.clients.{name}").configDef()
    settings = gateway.jvm.java.util.HashMap()
    settings.put("bootstrap.servers", "127.0.0.1:1")
    side = name.partition(".")[0]
    coder = "deserializer" if side == "consumer" else "serializer"
    for part in ("key", "value"):
        settings.put(f"{part}.{coder}", f"org.apache.kafka.common.serialization.String{coder.capitalize()}")
    for key, value in defaults.items():
        settings.put(key.removeprefix(PREFIX), value)
    parsed = definition.parse(settings)
    for key, value in defaults.items():
        assert str(parsed.get(key.removeprefix(PREFIX))).lower() == value
