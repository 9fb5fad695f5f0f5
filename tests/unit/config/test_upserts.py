"""Settings of ``mode: upsert``, and combinations that are refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefeed.config.upserts import kept_metadata, tombstones_delete
from lakefeed.records.decode.changes import delete_rule
from tests.support.pipeline_text import GOOD, Acceptor, Reader, feed_config

UPSERT = GOOD.replace("    table: lake.nyc.trips\n", "    table: lake.nyc.trips\n    mode: upsert\n    keys: [id]\n")
KEYED = UPSERT.replace("decode:\n", "decode:\n  key: {json: {schema_ddl: id BIGINT}}\n")


def test_an_upsert_deletes_by_tombstones_and_by_a_column(accepted: Acceptor) -> None:
    text = KEYED.replace("keys: [id]\n", "keys: [id]\n    delete: {column: op, equals: [d]}\n    history: lake.nyc.h\n")
    config = accepted(text)
    assert tombstones_delete(config)
    assert kept_metadata(config) == ("topic", "partition", "offset")
    rule = delete_rule(config)
    assert rule is not None
    assert (rule.tombstones, rule.columns, rule.keys) == (True, (("op", ("d",)),), ("id",))


def test_debezium_without_decode_key_deletes_by_op_and_not_by_tombstones(accepted: Acceptor) -> None:
    rule = delete_rule(accepted(UPSERT.replace("decode:\n", "decode:\n  envelope: debezium\n  on_null: skip\n")))
    assert rule is not None
    assert (rule.tombstones, rule.columns) == (False, (("debezium_op", ("d",)),))


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("    keys: [id]\n", "", "requires keys"),
        ("    keys: [id]\n", "    keys: [id, ID]\n", "twice"),
        ("    keys: [id]\n", "    keys: [kafka_offset]\n", "cannot be a key"),
        ("    mode: upsert\n", "", "keys needs mode: upsert"),
        ("keys: [id]\n", "keys: [id]\n    history: lake.nyc.TRIPS\n", "name the same table"),
        ("keys: [id]\n", "keys: [id]\n    order_by: [ts]\n", "on_delete: mark"),
        ("keys: [id]\n", "keys: [id]\n    on_delete: mark\n    order_by: [ts]\n", "tombstones have no ts"),
        ("keys: [id]\n", "keys: [id]\n    delete: {column: op}\n", "column and equals together"),
        ("decode:\n", "decode:\n  on_null: skip\n", "decode.on_null has no effect"),
        ("checkpoint:", "transform: {sql: SELECT kafka_topic FROM taxi}\ncheckpoint:", "drops id"),
        ("checkpoint:", "dead_letters: {table: lake.nyc.trips}\ncheckpoint:", "name the same table"),
        ("keys: [id]\n", "keys: [id]\n    write: fast\n", "merge-on-read"),
    ],
)
def test_a_wrong_setting_of_an_upsert_is_reported(reading: Reader, old: str, new: str, what: str) -> None:
    config, found = reading(KEYED.replace(old, new))
    assert config is None
    assert what in " ".join(f"{each.what} {each.hint}" for each in found)


def test_an_upsert_needs_decode_key_only_if_tombstones_delete_rows(accepted: Acceptor, reading: Reader) -> None:
    accepted(UPSERT)
    _, found = reading(UPSERT.replace("keys: [id]\n", "keys: [id]\n    delete: {tombstones: true}\n"))
    assert "only the record's key" in found[0].what


def test_mode_upsert_is_refused_for_parquet(reading: Reader) -> None:
    sink = "  iceberg:\n    table: lake.nyc.trips\n"
    _, found = reading(GOOD.replace(sink, "  parquet: {path: s3a://lake/x, mode: upsert, keys: [id]}\n"))
    assert "cannot change rows in Parquet files" in found[0].what


names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)


@settings(deadline=None)
@given(keys=st.lists(names, min_size=1, max_size=4, unique=True), metadata=st.sets(st.sampled_from(["key", "offset"])))
def test_an_upsert_always_adds_the_offset_to_the_metadata(keys: list[str], metadata: set[str]) -> None:
    decode = {"json": {"schema_ddl": "id INT"}, "metadata": sorted(metadata)}
    sink = {"iceberg": {"table": "lake.a.b", "mode": "upsert", "keys": keys}}
    names = kept_metadata(feed_config(decode=decode, sink=sink))
    assert {"topic", "partition", "offset", *metadata} <= set(names)
    assert len(names) == len(set(names))
