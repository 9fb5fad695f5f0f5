"""What ``mode: upsert`` of the Iceberg sink means, and what in a pipeline file does not go with it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakefeed.config.base import Complaint
from lakefeed.config.blocks import PipelineBlocks, SinkChoice
from lakefeed.config.elasticsearch import ElasticsearchSinkConfig
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.config.jdbc import JdbcSinkConfig
from lakefeed.config.keyed import DELETED, ONLY_CHANGES, POSITION, POSITION_COLUMNS, TIMESTAMP_COLUMN
from lakefeed.config.names import TOPIC_MARK

KeyedSinkConfig = IcebergSinkConfig | JdbcSinkConfig | ElasticsearchSinkConfig
"""The blocks that have ``mode: upsert``."""


def upserting(config: PipelineBlocks) -> KeyedSinkConfig | None:
    """The sink, where each record is a change of the row of its key; not where a query with state makes the rows."""
    return by_key(config.sink) if config.output_mode == "append" else None


def by_key(sink: SinkChoice) -> KeyedSinkConfig | None:
    """The sink's block, where it keeps one row for each key."""
    block = sink.iceberg or sink.jdbc or sink.elasticsearch
    return block if block is not None and block.mode == "upsert" else None


def in_pipeline(config: PipelineBlocks) -> Iterator[Complaint]:
    """What does not go together in the whole file."""
    if config.output_mode != "append":
        yield from _of_groups(config)
    sink, decode = upserting(config), config.decode
    if sink is None:
        return
    history: str | None = getattr(sink, "history", None)
    if history is not None and (TOPIC_MARK in history) != (TOPIC_MARK in sink.table):
        yield Complaint(
            what=f"each table has a history of its own: {TOPIC_MARK} belongs in both of table and history, or in none"
        )
    if not sink.keys and TOPIC_MARK in sink.table and (without := _without_keys(config)):
        what = f"mode: upsert requires keys, the columns that a row is known by, and {without}"
        yield Complaint(what=what, hint="keys: [id] in sink.iceberg, or in tables.topics for each topic")
    letters = config.dead_letters.table if config.dead_letters else None
    for name, table in (("table", sink.table), ("history", history)):
        if letters is not None and table is not None and letters.lower() == table.lower():
            yield Complaint(
                what=f"sink.{config.sink.kind}.{name} is the dead letters' table", hint="give each a table of its own"
            )
    if sink.delete.tombstones and decode.key is None and [key.lower() for key in sink.keys] != ["kafka_key"]:
        yield Complaint(
            what="a tombstone has nothing but the record's key, and decode.key does not say how that is read",
            hint="decode: {key: {json: {schema_ddl: 'id BIGINT'}}} or the like, or the sink's delete.tombstones: false",
        )
    if tombstones_delete(config):
        if "on_null" in decode.model_fields_set:
            yield Complaint(
                what="null values delete the row of their key here, and decode.on_null says otherwise",
                hint="leave decode.on_null out, or set the sink's delete.tombstones: false",
            )
        for column in sink.order_by:
            if column.lower() != TIMESTAMP_COLUMN:
                yield Complaint(
                    what=f"tombstones have no {column} that they could be ordered by",
                    hint=f"order_by: [{TIMESTAMP_COLUMN}], or delete.tombstones: false and decode.on_null: skip",
                )
    if config.transform is not None and config.transform.sql is not None:
        yield from _transform(config.transform.sql, sink)


def _without_keys(config: PipelineBlocks) -> str | None:
    """A topic that names no keys of its own, where the sink names none; of those that are known before a start."""
    own = {topic for topic, special in (config.tables.topics if config.tables else {}).items() if special.keys}
    kafka = config.source.kafka
    if kafka is not None and kafka.topics is not None:
        return next((f"topic {topic} has none" for topic in kafka.topics if topic not in own), None)
    return None if own else "no topic has any"


def _transform(sql: str, sink: KeyedSinkConfig) -> Iterator[Complaint]:
    """A guess from the text: without ``*`` it has to name what it keeps. The feed's start looks at the rows."""
    if "*" in sql:
        return
    words = {word.lower() for word in re.findall(r"[A-Za-z_][A-Za-z0-9_]*", sql)}
    for column in (*sink.keys, *sink.order_by, *POSITION_COLUMNS, DELETED):
        if column.lower() not in words:
            yield Complaint(
                what=f"transform.sql drops {column}, which an upsert needs",
                hint=f"SELECT {', '.join((*sink.keys, *sink.order_by, *POSITION_COLUMNS, DELETED))}, …",
            )


def _of_groups(config: PipelineBlocks) -> Iterator[Complaint]:
    """What means nothing where each batch has its groups' newest rows."""
    sink = by_key(config.sink)
    for name in ONLY_CHANGES:
        if sink is not None and name in sink.model_fields_set:
            yield Complaint(
                what=f"sink.{config.sink.kind}.{name} is for changes that records tell of; with output_mode: update "
                "each batch has its groups' newest rows"
            )


def tombstones_delete(config: PipelineBlocks) -> bool:
    """Whether null values delete the row of their key."""
    sink = upserting(config)
    if sink is None:
        return False
    return config.decode.key is not None if sink.delete.tombstones is None else sink.delete.tombstones


def kept_metadata(config: PipelineBlocks) -> tuple[str, ...]:
    """``decode.metadata``, and what else the sink requires: an upsert keeps it; headers or a document's id carry it."""
    requested: list[str] = list(config.decode.metadata)
    sink = upserting(config)
    if (config.sink.kafka is not None or is_named_by_position(config.sink)) and not config.sinks:
        requested += [name for name in POSITION if name not in requested]
    if sink is not None:
        requested += [name for name in POSITION if name not in requested]
        named = {column.lower() for column in (*sink.keys, *sink.order_by)}
        requested += [name for name in ("key", "timestamp") if f"kafka_{name}" in named and name not in requested]
    return tuple(requested)


def is_named_by_position(sink: SinkChoice) -> bool:
    """Whether the sink knows each row by the record that it is made of."""
    return sink.elasticsearch is not None and sink.elasticsearch.mode == "append"
