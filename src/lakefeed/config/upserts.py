"""Rules between ``mode: upsert`` and other blocks of the file, and the settings that the mode adds."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakefeed.config.base import ConfigProblem
from lakefeed.config.blocks import PipelineBlocks
from lakefeed.config.keyed import DELETED, ONLY_CHANGES, POSITION, POSITION_COLUMNS, TIMESTAMP_COLUMN, KeyedSink
from lakefeed.config.values import TOPIC_MARK


def upsert_problems(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    """Yield a problem for each setting in other blocks that contradicts the sink's ``mode: upsert``."""
    keyed = config.sink.chosen.keyed
    if keyed is None:
        return
    if config.output_mode == "append":
        yield from _changes(config, keyed)
        return
    for name in ONLY_CHANGES:
        if name in keyed.model_fields_set:
            what = f"sink.{config.sink.kind}.{name} needs output_mode: append, where a record changes a row"
            yield ConfigProblem(
                what,
                hint=f"remove {name}: with output_mode: {config.output_mode} a batch has the newest rows of its groups",
            )


def _changes(config: PipelineBlocks, sink: KeyedSink) -> Iterator[ConfigProblem]:
    decode = config.decode
    history: str | None = getattr(sink, "history", None)
    if history is not None and (TOPIC_MARK in history) != (TOPIC_MARK in sink.table):
        what = f"only one of table and history has {TOPIC_MARK}, and each table requires its own history"
        yield ConfigProblem(what, hint=f"write {TOPIC_MARK} in both or in none")
    if not sink.keys and TOPIC_MARK in sink.table and (without := _topic_without_keys(config)):
        what = f"mode: upsert requires keys, the columns that identify a row, and {without}"
        yield ConfigProblem(
            what, hint=f"write keys: [id] in sink.{config.sink.kind}, or in tables.topics for each topic"
        )
    letters = config.dead_letters.table if config.dead_letters else None
    for name, table in (("table", sink.table), ("history", history)):
        if letters is not None and table is not None and letters.lower() == table.lower():
            what = f"sink.{config.sink.kind}.{name} and dead_letters name the same table"
            yield ConfigProblem(what, hint="name two tables")
    if sink.delete.tombstones and decode.key is None and [key.lower() for key in sink.keys] != ["kafka_key"]:
        what = "a tombstone has only the record's key, and decode.key is missing"
        hint = "set the format of keys, as in decode: {key: {json: {schema_ddl: 'id BIGINT'}}}; or write "
        hint += "delete.tombstones: false in the sink"
        yield ConfigProblem(what, hint=hint)
    if tombstones_delete(config):
        if "on_null" in decode.model_fields_set:
            what = "decode.on_null has no effect: a null value deletes the row of the record's key"
            yield ConfigProblem(what, hint="remove decode.on_null, or write delete.tombstones: false in the sink")
        for column in sink.order_by:
            if column.lower() != TIMESTAMP_COLUMN:
                hint = f"write order_by: [{TIMESTAMP_COLUMN}], or delete.tombstones: false and decode.on_null: skip"
                yield ConfigProblem(f"order_by has {column}, and tombstones have no {column}", hint=hint)
    sql = config.transform.sql if config.transform is not None else None
    # SQL without * has to name the columns that it keeps, so search for the names. A start checks the rows' columns.
    if sql is not None and "*" not in sql:
        words = {word.lower() for word in re.findall(r"[A-Za-z_][A-Za-z0-9_]*", sql)}
        columns = (*sink.keys, *sink.order_by, *POSITION_COLUMNS, DELETED)
        for column in columns:
            if column.lower() not in words:
                what = f"transform.sql drops {column}, which an upsert needs"
                yield ConfigProblem(what, hint=f"write SELECT {', '.join(columns)}, … in transform.sql")


def _topic_without_keys(config: PipelineBlocks) -> str | None:
    own = {topic for topic, special in config.table_rules.topics.items() if special.keys}
    kafka = config.source.kafka
    if kafka is not None and kafka.topics is not None:
        return next((f"topic {topic} has no keys" for topic in kafka.topics if topic not in own), None)
    # Only the brokers know the topics of a pattern.
    return None if own else "no topic has keys"


def tombstones_delete(config: PipelineBlocks) -> bool:
    """Return whether a null value deletes the row of the record's key."""
    sink = config.upserting
    if sink is None:
        return False
    return config.decode.key is not None if sink.delete.tombstones is None else sink.delete.tombstones


def kept_metadata(config: PipelineBlocks) -> tuple[str, ...]:
    """Return ``decode.metadata``, and the metadata that the sink needs to order or identify rows."""
    sink = config.upserting
    needed: list[str] = list(config.decode.metadata)
    if sink is not None or (config.sink.chosen.record_positions != "unused" and not config.sinks):
        needed += POSITION
    if sink is not None:
        named = {column.lower() for column in (*sink.keys, *sink.order_by)}
        needed += [name for name in ("key", "timestamp") if f"kafka_{name}" in named]
    return tuple(dict.fromkeys(needed))
