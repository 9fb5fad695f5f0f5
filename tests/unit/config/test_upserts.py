"""Settings of upserts in a pipeline file, and combinations that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.config.models import PipelineConfig
from lakefeed.config.upserts import kept_metadata, tombstones_delete
from lakefeed.records.decode.changes import delete_rule
from tests.support.pipeline_text import ENVIRONMENT, GOOD, Reader, problems

UPSERT = GOOD.replace("    table: lake.nyc.trips\n", "    table: lake.nyc.trips\n    mode: upsert\n    keys: [id]\n")
KEYED = UPSERT.replace("decode:\n", "decode:\n  key: {json: {schema_ddl: id BIGINT}}\n")


def test_it_knows_its_keys_deletes_and_history(reading: Reader) -> None:
    text = KEYED.replace("keys: [id]\n", "keys: [id]\n    delete: {column: op, equals: [d]}\n    history: lake.nyc.h\n")
    config, found = reading(text)
    assert found == []
    assert config is not None
    assert tombstones_delete(config)
    assert kept_metadata(config) == ("topic", "partition", "offset")
    rule = delete_rule(config)
    assert rule is not None
    assert (rule.tombstones, rule.columns, rule.keys) == (True, (("op", ("d",)),), ("id",))


def test_debezium_deletes_by_its_own_op_and_tombstones_only_with_a_key(reading: Reader) -> None:
    config, found = reading(UPSERT.replace("decode:\n", "decode:\n  envelope: debezium\n  on_null: skip\n"))
    assert found == []
    assert config is not None
    rule = delete_rule(config)
    assert rule is not None
    assert (rule.tombstones, rule.columns) == (False, (("debezium_op", ("d",)),))


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("    keys: [id]\n", "", "requires keys"),
        ("    keys: [id]\n", "    keys: [id, ID]\n", "twice"),
        ("    keys: [id]\n", "    keys: [kafka_offset]\n", "cannot be a key"),
        ("    mode: upsert\n", "", "keys is for mode: upsert"),
        ("keys: [id]\n", "keys: [id]\n    history: lake.nyc.TRIPS\n", "a table of its own"),
        ("keys: [id]\n", "keys: [id]\n    order_by: [ts]\n", "on_delete: mark"),
        ("keys: [id]\n", "keys: [id]\n    on_delete: mark\n    order_by: [ts]\n", "tombstones have no ts"),
        ("keys: [id]\n", "keys: [id]\n    delete: {column: op}\n", "column and equals together"),
        ("decode:\n", "decode:\n  on_null: skip\n", "decode.on_null says otherwise"),
        ("  key: {json: {schema_ddl: id BIGINT}}\n", "", ""),
        ("checkpoint:", "transform: {sql: SELECT kafka_topic FROM taxi}\ncheckpoint:", "drops id"),
        ("checkpoint:", "dead_letters: {table: lake.nyc.trips}\ncheckpoint:", "is the dead letters' table"),
        ("keys: [id]\n", "keys: [id]\n    write: fast\n", "merge-on-read"),
    ],
)
def test_what_it_may_not_say(reading: Reader, old: str, new: str, what: str) -> None:
    config, found = reading(KEYED.replace(old, new))
    if not what:
        assert config is not None
        return
    assert config is None
    assert what in " ".join(f"{each.what} {each.hint}" for each in found)


def test_tombstones_want_a_key(reading: Reader) -> None:
    _, found = reading(UPSERT.replace("keys: [id]\n", "keys: [id]\n    delete: {tombstones: true}\n"))
    assert "nothing but the record's key" in found[0].what


def test_parquet_cannot_be_upserted(reading: Reader) -> None:
    sink = "  iceberg:\n    table: lake.nyc.trips\n"
    _, found = reading(GOOD.replace(sink, "  parquet: {path: s3a://lake/x, mode: upsert, keys: [id]}\n"))
    assert "Parquet files cannot be changed" in found[0].what


def test_the_example_has_no_mistakes() -> None:
    path = Path(__file__).parents[3] / "examples" / "upserts" / "pipeline.yaml"
    config, found = problems(path, environment={**ENVIRONMENT, "SCHEMA_REGISTRY_URL": "http://127.0.0.1:1"})
    assert found == []
    assert config is not None


names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)


@settings(deadline=None)
@given(keys=st.lists(names, min_size=1, max_size=4, unique=True), metadata=st.sets(st.sampled_from(["key", "offset"])))
def test_the_position_is_kept_whatever_else_is(keys: list[str], metadata: set[str]) -> None:
    config = PipelineConfig.model_validate(
        {
            "name": "f",
            "source": {"kafka": {"bootstrap_servers": "b:1", "topics": ["t"]}},
            "decode": {"json": {"schema_ddl": "id INT"}, "metadata": sorted(metadata)},
            "sink": {"iceberg": {"table": "lake.a.b", "mode": "upsert", "keys": keys}},
            "checkpoint": "s3a://lake/c",
        }
    )
    kept = kept_metadata(config)
    assert {"topic", "partition", "offset"} <= set(kept)
    assert len(kept) == len(set(kept))
    assert metadata <= set(kept)
    appending = IcebergSinkConfig(table="lake.a.b")
    assert appending.mode == "append"
