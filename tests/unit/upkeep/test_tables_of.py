"""Which tables upkeep is for."""

from __future__ import annotations

from typing import Any

from lakefeed.config.models import PipelineConfig
from lakefeed.upkeep.schedule import tables_of


def config(**sink: Any) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": {"kafka": {"bootstrap_servers": "localhost:9092", "topics": ["a"]}},
            "decode": "raw",
            "dead_letters": {"table": "lake.shop.dead"},
            "sink": {"iceberg": {"table": "lake.shop.a", **sink}},
            "checkpoint": "s3a://lake/c",
            "upkeep": {"every": "1 second"},
        }
    )


def test_the_tables_of_pipelines_are_named_once() -> None:
    with_history = config(mode="upsert", keys=["kafka_key"], history="lake.shop.a_history")
    assert tables_of(config(), with_history) == ("lake.shop.a", "lake.shop.dead", "lake.shop.a_history")
