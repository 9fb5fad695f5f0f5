"""A pipeline file without a mistake, and the environment that it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakefeed.config.models import PipelineConfig
from lakefeed.config.problem import Problem

GOOD = """\
name: taxi
source:
  kafka:
    bootstrap_servers: ${KAFKA_BOOTSTRAP_SERVERS}
    topics: [trips]
decode:
  avro:
    registry: http://127.0.0.1:1
sink:
  iceberg:
    table: lake.nyc.trips
checkpoint: s3a://lake/checkpoints/taxi
"""

TOPICS = "    topics: [trips]\n"
REGISTRY = "    registry: http://127.0.0.1:1\n"

ENVIRONMENT = {
    "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9092",
    "LAKEFEED_CATALOG_URI": "jdbc:sqlite:/tmp/catalog.db",
    "LAKEFEED_WAREHOUSE": "s3://lake/warehouse",
    "THE_SECRET": "hunter2hunter2",
}

Reader = Callable[..., tuple[PipelineConfig | None, list[Problem]]]


def topic_to_topic(**blocks: Any) -> PipelineConfig:
    """A pipeline from a topic of Kafka into another."""
    return PipelineConfig.model_validate(
        {
            "name": "hits",
            "source": {"kafka": {"bootstrap_servers": "host:9092", "topics": ["hits"]}},
            "decode": "raw",
            "sink": {"kafka": {"topic": "out"}},
            "checkpoint": "s3a://lake/c",
            **blocks,
        }
    )
