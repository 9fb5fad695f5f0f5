"""Pipelines that may omit the checkpoint, and the reasons why others may not."""

from typing import Any

import pytest
from pydantic import ValidationError

from lakefeed.config.models import PipelineConfig
from tests.support.pipeline_text import feed_config

KAFKA: dict[str, Any] = {"bootstrap_servers": "localhost:9092", "topics": ["orders"]}
KINESIS: dict[str, Any] = {"stream": "orders", "region": "eu-west-1"}
TABLE = {"iceberg": {"table": "lake.shop.orders"}}


def pipeline(**blocks: Any) -> PipelineConfig:
    return feed_config(**{"decode": "raw", "sink": TABLE, "checkpoint": None, **blocks})


@pytest.mark.parametrize(
    "blocks",
    [
        {},
        {"source": {"kafka": {**KAFKA, "start": "latest"}}, "sink": {"iceberg": {**TABLE["iceberg"]}}},
        {"source": {"kinesis": KINESIS}},
    ],
)
def test_a_checkpoint_is_optional_if_the_ledger_is_enough(blocks: dict[str, Any]) -> None:
    assert pipeline(**blocks).resumes_by_ledger
    assert not pipeline(**blocks, checkpoint="s3a://lake/c").resumes_by_ledger


@pytest.mark.parametrize(
    ("blocks", "why"),
    [
        ({"sink": {"parquet": {"path": "s3a://lake/orders"}}}, "sink.parquet does not store"),
        ({"sink": {"kafka": {"topic": "out"}}}, "sink.kafka does not store"),
        ({"sink": {"python": {"path": "shop:Sink"}}}, "sink.python does not store"),
        ({"source": {"kafka": {**KAFKA, "deduplicate": True}}}, "keeps state"),
        (
            {
                "sink": {"iceberg": {**TABLE["iceberg"], "mode": "upsert", "keys": ["id"]}},
                "transform": {"sql": "SELECT id, count(*) AS n FROM orders GROUP BY id", "output_mode": "update"},
            },
            "keeps state",
        ),
        ({"sinks": {"copy": {"iceberg": {"table": "lake.shop.copy"}}}}, "which of several sinks have begun"),
        ({"source": {"kinesis": {**KINESIS, "start": "latest"}}}, "start: latest"),
    ],
)
def test_the_error_for_a_missing_checkpoint_has_the_reason(blocks: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        pipeline(**blocks)
    pipeline(**blocks, checkpoint="s3a://lake/c")


def test_rows_without_offsets_require_a_checkpoint() -> None:
    settings = {"name": "rows", "source": {"rate": {}}, "sink": TABLE}
    with pytest.raises(ValidationError, match="rows of rate have no offsets"):
        PipelineConfig.model_validate(settings)
