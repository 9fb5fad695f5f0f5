"""Triggers, and settings whose text the models parse."""

from typing import Any

import pytest

from lakefeed.config.base import ParsedText
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.config.values import PartitionTransform, SortColumn, interval_of, require_trigger, trigger_seconds
from tests.support.pipeline_text import topic_to_topic


@pytest.mark.parametrize(
    "trigger", ["100 milliseconds", "1 second", "10 minutes", "available-now", "real-time", "real-time, 5 seconds"]
)
def test_a_trigger_is_accepted(trigger: str) -> None:
    assert require_trigger(trigger) == trigger


@pytest.mark.parametrize(
    "trigger",
    [
        "now",
        "1 s",
        "realtime",
        "real-time 5",
        "real-time, soon",
        "real-time, 4 seconds",
        "real-time, 9000 milliseconds",
    ],
)
def test_a_wrong_trigger_is_refused(trigger: str) -> None:
    with pytest.raises(ValueError, match=r"trigger is|every 5 seconds"):
        require_trigger(trigger)


def test_a_trigger_is_converted_to_seconds() -> None:
    times = ("0 seconds", "1 millisecond", "100 milliseconds", "1 second", "2 hours")
    assert [trigger_seconds(time) for time in times] == [0, 0.001, 0.1, 1, 7200]
    with pytest.raises(ValueError, match="duration is"):
        trigger_seconds("available-now")


def test_only_the_trigger_real_time_has_an_interval() -> None:
    assert interval_of("1 second") is None
    assert interval_of("real-time") == "1 minute"
    assert interval_of("real-time, 10 seconds") == "10 seconds"


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ({"sink": {"iceberg": {"table": "lake.a.b"}}}, r"sink\.iceberg requires batches"),
        ({"sinks": {"shown": {"console": {}}}}, "the block sinks requires batches"),
        ({"dead_letters": {"topic": "letters"}}, "dead_letters are written with"),
        ({"expect": {"a": {"rule": "true", "on_violation": "drop"}}}, "expect counts"),
        ({"schema": {"on_change": "fail"}}, "acts between two batches"),
        ({"decode": {"json": {"schema": "sample"}}}, "infers the schema with a batch"),
        (
            {"decode": {"avro": {"registry": "http://127.0.0.1:1"}, "on_encrypted": "stop"}},
            "reads a schema's rules before a batch",
        ),
        (
            {"transform": {"sql": "SELECT count(*) FROM hits", "output_mode": "update"}},
            "the groups that a batch has changed",
        ),
        (
            {"source": {"kafka": {"bootstrap_servers": "host:9092", "topics": ["hits"], "deduplicate": True}}},
            "deduplicate needs batches",
        ),
    ],
)
def test_a_setting_for_batches_is_refused_in_real_time(blocks: dict[str, Any], message: str) -> None:
    assert topic_to_topic(trigger="real-time").trigger == "real-time"
    with pytest.raises(ValueError, match=message):
        topic_to_topic(**{"trigger": "real-time", **blocks})


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (PartitionTransform, "city"),
        (PartitionTransform, "days(stop.at)"),
        (PartitionTransform, "bucket(16, id)"),
        (PartitionTransform, "truncate(3, name)"),
        (SortColumn, "at asc nulls first"),
        (SortColumn, "stop.at desc nulls last"),
        (SortColumn, "at desc nulls first"),
    ],
)
def test_a_parsed_value_is_written_as_the_same_text(kind: type[ParsedText], text: str) -> None:
    assert str(kind.parse(text)) == text


def test_parsed_values_are_texts_in_json() -> None:
    settings = {"table": "lake.a.b", "partition_by": ["day(at)", "id"], "sort_by": ["id"]}
    sink = IcebergSinkConfig.model_validate(settings)
    assert sink.partition_by[0] == PartitionTransform(name="days", column="at")
    document = sink.model_dump_json(exclude_unset=True)
    assert '"partition_by":["days(at)","id"],"sort_by":["id asc nulls first"]' in document
    assert IcebergSinkConfig.model_validate_json(document) == sink
