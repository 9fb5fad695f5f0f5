"""A valid pipeline file, and the environment that it needs."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lakefeed.config.loading.load import read
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
Acceptor = Callable[..., Any]


def problems(
    path: Path, *, overrides: Sequence[str] = (), environment: Mapping[str, str] = os.environ
) -> tuple[PipelineConfig | None, list[Problem]]:
    """Read a pipeline file; return the pipeline, or None if it has an error, and all problems, including warnings."""
    reading = read(path, overrides=overrides, environment=environment)
    return reading.config, reading.problems


def feed_config(**blocks: Any) -> PipelineConfig:
    """Return a pipeline from a Kafka topic into an Iceberg table, or with other blocks; None leaves a block out."""
    usual = {
        "name": "hits",
        "source": {"kafka": {"bootstrap_servers": "127.0.0.1:1", "topics": ["hits"]}},
        "decode": {"json": {"schema_ddl": "id BIGINT"}},
        "sink": {"iceberg": {"table": "lake.web.hits"}},
        "checkpoint": "s3a://lake/c",
    }
    given = {**usual, **blocks}
    return PipelineConfig.model_validate({name: block for name, block in given.items() if block is not None})


def topic_to_topic(**blocks: Any) -> PipelineConfig:
    """Return a pipeline from one Kafka topic into another."""
    return feed_config(**{"sink": {"kafka": {"topic": "out"}}, **blocks})
