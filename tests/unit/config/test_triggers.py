"""``trigger``: what it may be, and what cannot be in real time."""

from __future__ import annotations

from typing import Any

import pytest

from lakefeed.config.values import interval_of, require_trigger
from tests.support.pipeline_text import topic_to_topic


@pytest.mark.parametrize("trigger", ["1 second", "10 minutes", "available-now", "real-time", "real-time, 5 seconds"])
def test_triggers(trigger: str) -> None:
    assert require_trigger(trigger) == trigger


@pytest.mark.parametrize(
    "trigger", ["now", "1 s", "real-time 5", "real-time, soon", "real-time, 4 seconds", "realtime"]
)
def test_what_is_none(trigger: str) -> None:
    with pytest.raises(ValueError, match=r"trigger is|every 5 seconds"):
        require_trigger(trigger)


def test_intervals() -> None:
    assert interval_of("1 second") is None
    assert interval_of("real-time") == "1 minute"
    assert interval_of("real-time, 10 seconds") == "10 seconds"


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ({"sink": {"iceberg": {"table": "lake.a.b"}}}, r"sink\.iceberg requires batches"),
        ({"sinks": {"shown": {"console": {}}}}, "several sinks"),
        ({"dead_letters": {"topic": "letters"}}, "dead_letters are written when"),
        ({"expect": {"a": {"rule": "true", "on_violation": "drop"}}}, "expect counts"),
        ({"schema": {"on_change": "fail"}}, "columns are those of the start"),
        ({"decode": {"json": {"schema": "sample"}}}, "give schema_ddl"),
        ({"transform": {"sql": "SELECT count(*) FROM hits", "output_mode": "update"}}, "is for groups"),
        (
            {"source": {"kafka": {"bootstrap_servers": "host:9092", "topics": ["hits"], "deduplicate": True}}},
            "deduplicate is for batches",
        ),
    ],
)
def test_what_requires_batches_is_refused_in_real_time(blocks: dict[str, Any], message: str) -> None:
    assert topic_to_topic(trigger="real-time").trigger == "real-time"
    with pytest.raises(ValueError, match=message):
        topic_to_topic(**{"trigger": "real-time", **blocks})
