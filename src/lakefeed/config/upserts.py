"""Rules of ``mode: upsert`` for the whole pipeline file, and the settings that follow from the mode."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakefeed.config.base import ConfigProblem
from lakefeed.config.blocks import PipelineBlocks
from lakefeed.config.keyed import DELETED, ONLY_CHANGES, POSITION, POSITION_COLUMNS, TIMESTAMP_COLUMN, KeyedSink
from lakefeed.config.values import TOPIC_MARK


def upsert_problems(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    """Yield a problem for each setting of the file that contradicts the sink's ``mode: upsert``."""
    keyed = config.sink.chosen.keyed
    if keyed is None:
        return
    if config.output_mode == "append":
        yield from _changes(config, keyed)
        return
    for name in ONLY_CHANGES:
        if name in keyed.model_fields_set:
            yield ConfigProblem(
                f"sink.{config.sink.kind}.{name} is for changes that records tell of; with output_mode: update "
                "each batch has its groups' newest rows"
            )


def _changes(config: PipelineBlocks, sink: KeyedSink) -> Iterator[ConfigProblem]:
    decode = config.decode
    history: str | None = getattr(sink, "history", None)
    if history is not None and (TOPIC_MARK in history) != (TOPIC_MARK in sink.table):
        what = "each table has a history of its own"
        yield ConfigProblem(f"{what}: {TOPIC_MARK} belongs in both of table and history, or in none")
    if not sink.keys and TOPIC_MARK in sink.table and (without := _topic_without_keys(config)):
        what = f"mode: upsert requires keys, the columns that a row is known by, and {without}"
        yield ConfigProblem(what, hint=f"keys: [id] in sink.{config.sink.kind}, or in tables.topics for each topic")
    letters = config.dead_letters.table if config.dead_letters else None
    for name, table in (("table", sink.table), ("history", history)):
        if letters is not None and table is not None and letters.lower() == table.lower():
            what = f"sink.{config.sink.kind}.{name} is the dead letters' table"
            yield ConfigProblem(what, hint="give each a table of its own")
    if sink.delete.tombstones and decode.key is None and [key.lower() for key in sink.keys] != ["kafka_key"]:
        what = "a tombstone has nothing but the record's key, and decode.key does not say how that is read"
        hint = "decode: {key: {json: {schema_ddl: 'id BIGINT'}}} or the like, or the sink's delete.tombstones: false"
        yield ConfigProblem(what, hint=hint)
    if tombstones_delete(config):
        if "on_null" in decode.model_fields_set:
            what = "null values delete the row of their key here, and decode.on_null says otherwise"
            yield ConfigProblem(what, hint="leave decode.on_null out, or set the sink's delete.tombstones: false")
        for column in sink.order_by:
            if column.lower() != TIMESTAMP_COLUMN:
                hint = f"order_by: [{TIMESTAMP_COLUMN}], or delete.tombstones: false and decode.on_null: skip"
                yield ConfigProblem(f"tombstones have no {column} that they could be ordered by", hint=hint)
    sql = config.transform.sql if config.transform is not None else None
    # The check guesses from the text: SQL without * must name the columns that it keeps. The start checks the rows.
    if sql is not None and "*" not in sql:
        words = {word.lower() for word in re.findall(r"[A-Za-z_][A-Za-z0-9_]*", sql)}
        columns = (*sink.keys, *sink.order_by, *POSITION_COLUMNS, DELETED)
        for column in columns:
            if column.lower() not in words:
                what = f"transform.sql drops {column}, which an upsert needs"
                yield ConfigProblem(what, hint=f"SELECT {', '.join(columns)}, …")


def _topic_without_keys(config: PipelineBlocks) -> str | None:
    own = {topic for topic, special in config.table_rules.topics.items() if special.keys}
    kafka = config.source.kafka
    if kafka is not None and kafka.topics is not None:
        return next((f"topic {topic} has none" for topic in kafka.topics if topic not in own), None)
    # The topics of a pattern are known only at the start.
    return None if own else "no topic has any"


def tombstones_delete(config: PipelineBlocks) -> bool:
    """Return whether a null value deletes the row of its key."""
    sink = config.upserting
    if sink is None:
        return False
    return config.decode.key is not None if sink.delete.tombstones is None else sink.delete.tombstones


def kept_metadata(config: PipelineBlocks) -> tuple[str, ...]:
    """Return ``decode.metadata``, with further metadata that the sink needs to order or identify rows."""
    sink = config.upserting
    needed: list[str] = list(config.decode.metadata)
    if sink is not None or (config.sink.chosen.record_positions != "unused" and not config.sinks):
        needed += POSITION
    if sink is not None:
        named = {column.lower() for column in (*sink.keys, *sink.order_by)}
        needed += [name for name in ("key", "timestamp") if f"kafka_{name}" in named]
    return tuple(dict.fromkeys(needed))
