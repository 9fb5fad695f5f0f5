"""The pipeline of one topic, and settings that contradict a table for each topic."""

import json
from pathlib import Path
from typing import Any

import pytest

from lakefeed.config.loading.load import load
from lakefeed.config.models import PipelineConfig
from lakefeed.config.topic_tables import config_of, on_failure, require_fit
from lakefeed.errors import ConfigError
from tests.support.pipeline_text import problems

ENVIRONMENT = {"LAKEFEED_CATALOG_URI": "jdbc:sqlite:/tmp/catalog.db", "LAKEFEED_WAREHOUSE": "s3://lake/w"}


def document(**blocks: Any) -> dict[str, Any]:
    return {
        "name": "shop",
        "source": {"kafka": {"bootstrap_servers": "localhost:9092", "topics_pattern": "shop[.].*"}},
        "decode": {"avro": {"registry": {"url": "http://localhost:8081"}}},
        "sink": {"iceberg": {"table": "lake.shop.{topic}", "partition_by": ["days(at)"]}},
        **blocks,
    }


def written(folder: Path, **blocks: Any) -> Path:
    path = folder / "pipeline.yaml"
    path.write_text(json.dumps({key: value for key, value in document(**blocks).items() if value is not None}))
    return path


def loaded(folder: Path, **blocks: Any) -> PipelineConfig:
    return load(written(folder, **blocks), environment=ENVIRONMENT)


def table(config: PipelineConfig) -> str:
    assert config.sink.iceberg is not None
    return config.sink.iceberg.table


def test_each_topic_has_its_own_feed_table_and_subject(tmp_path: Path) -> None:
    config = config_of(loaded(tmp_path), "shop.orders-v1")
    assert config.name == "shop__shop_orders_v1"
    assert table(config) == "lake.shop.shop_orders_v1"
    assert config.source.kafka is not None
    assert config.source.kafka.topics == ["shop.orders-v1"]
    assert config.source.kafka.topics_pattern is None
    assert not config.has_many_tables


def test_settings_of_a_topic_replace_those_of_the_pipeline(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        dead_letters={"table": "lake.shop.{topic}_dead"},
        tables={
            "on_failure": "stop",
            "topics": {
                "shop.clicks": {"table": "lake.web.clicks", "partition_by": [], "decode": "raw", "on_failure": "fail"}
            },
        },
    )
    special, plain = config_of(config, "shop.clicks"), config_of(config, "shop.orders")
    assert (table(special), table(plain)) == ("lake.web.clicks", "lake.shop.shop_orders")
    assert (special.decode.kind, plain.decode.kind) == ("raw", "avro")
    assert special.sink.iceberg is not None
    assert special.sink.iceberg.partition_by == []
    assert (on_failure(config, "shop.clicks"), on_failure(config, "shop.orders")) == ("fail", "stop")
    assert special.dead_letters is not None
    assert special.dead_letters.table == "lake.shop.shop_clicks_dead"


UPSERT = {"iceberg": {"table": "lake.shop.{topic}", "mode": "upsert"}}


def test_a_topic_may_have_its_own_keys_and_history(tmp_path: Path) -> None:
    sink = {"iceberg": {**UPSERT["iceberg"], "keys": ["id"], "history": "lake.shop.{topic}_history"}}
    own = {"keys": ["order_id", "line"], "history": "lake.old.lines"}
    config = loaded(tmp_path, sink=sink, tables={"topics": {"shop.lines": own}})
    special, plain = config_of(config, "shop.lines").sink.iceberg, config_of(config, "shop.orders").sink.iceberg
    assert special is not None
    assert plain is not None
    assert (special.keys, special.history) == (["order_id", "line"], "lake.old.lines")
    assert (plain.keys, plain.history) == (["id"], "lake.shop.shop_orders_history")


def test_only_the_topic_without_keys_is_refused(tmp_path: Path) -> None:
    config = loaded(tmp_path, sink=UPSERT, tables={"topics": {"shop.lines": {"keys": ["line"]}}})
    require_fit(config_of(config, "shop.lines"))
    with pytest.raises(ConfigError, match="requires keys") as refused:
        require_fit(config_of(config, "shop.orders"))
    assert refused.value.where == "topic shop.orders"


def test_keys_of_a_topic_are_refused_without_mode_upsert(tmp_path: Path) -> None:
    config = loaded(tmp_path, tables={"topics": {"shop.lines": {"keys": ["line"]}}})
    with pytest.raises(ConfigError, match="keys needs mode: upsert"):
        require_fit(config_of(config, "shop.lines"))


KAFKA = {"bootstrap_servers": "localhost:9092"}
ONE_TABLE = {"iceberg": {"table": "lake.shop.orders"}}


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ({"checkpoint": "s3a://lake/c"}, "has no effect with {topic}"),
        ({"sink": {"parquet": {"path": "s3a://lake/orders"}}}, "a pipeline needs a checkpoint"),
        ({"sink": ONE_TABLE, "checkpoint": "s3a://lake/c", "tables": {"at_once": 2}}, "has no effect without {topic}"),
        ({"tables": {"retry_after": "soon"}}, "a duration is"),
        ({"tables": {"topics": {"shop.a": {"tabel": "lake.a.b"}}}}, "tabel"),
        ({"sink": {"iceberg": {"table": "lake.shop.{topics}"}}}, "write catalog.namespace.table"),
        ({"sink": UPSERT}, "no topic has keys"),
        (
            {
                "sink": UPSERT,
                "source": {"kafka": {**KAFKA, "topics": ["shop.a", "shop.b"]}},
                "tables": {"topics": {"shop.a": {"keys": ["id"]}}},
            },
            "topic shop.b has no keys",
        ),
        ({"source": {"kafka": {**KAFKA, "topics": ["a"], "max_wait": "1 minute"}}}, "max_wait requires"),
        (
            {"source": {"kafka": {**KAFKA, "topics": ["a"], "min_records_per_batch": 11, "max_records_per_batch": 10}}},
            "is more than",
        ),
    ],
)
def test_a_contradiction_with_a_table_for_each_topic_is_found(
    tmp_path: Path, blocks: dict[str, Any], message: str
) -> None:
    config, found = problems(written(tmp_path, **blocks), environment=ENVIRONMENT)
    assert config is None
    assert message in "; ".join(each.what for each in found)
