"""Derives the pipeline of one topic from a pipeline with a table for each topic."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from lakefeed.config.blocks import OneTable, OnFailure, PipelineBlocks
from lakefeed.config.keyed import keyed_problems
from lakefeed.config.upserts import upsert_problems
from lakefeed.config.values import table_of
from lakefeed.errors import ConfigError

Pipeline = TypeVar("Pipeline", bound=PipelineBlocks)

_OF_SINK = ("partition_by", "sort_by", "properties", "keys", "order_by", "history")
"""The sink settings that a topic may override."""


def config_of(config: Pipeline, topic: str) -> Pipeline:
    """Return the pipeline of one topic.

    Its name is the pipeline's name and the topic's, because ledgers and shared dead-letter tables identify feeds by
    name.
    """
    special = config.table_rules.topics.get(topic, OneTable())
    own = {name: setting for name, setting in special if setting is not None}
    kafka, iceberg = config.source.kafka, config.sink.iceberg
    assert kafka is not None
    assert iceberg is not None  # Only this sink can have a table for each topic.
    dead_letters = special.dead_letters or config.dead_letters
    if dead_letters is not None and dead_letters.table is not None:
        dead_letters = dead_letters.model_copy(update={"table": table_of(dead_letters.table, topic)})
    sink: dict[str, Any] = {"table": special.table or table_of(iceberg.table, topic)}
    if iceberg.history is not None:
        sink["history"] = table_of(iceberg.history, topic)
    names_made = [sink[name] for name in ("table", "history") if name in sink and name not in own]
    sink |= {name: own[name] for name in _OF_SINK if name in own}
    iceberg = iceberg.model_copy(update=sink).with_names_made(names_made)
    source = kafka.model_copy(update={"topics": [topic], "topics_pattern": None})
    return config.model_copy(
        update={
            "name": re.sub(r"[^A-Za-z0-9_]", "_", f"{config.name}__{topic}"),
            "source": config.source.model_copy(update={"kafka": source}),
            **{name: own[name] for name in ("decode", "schema_", "expect", "transform") if name in own},
            "dead_letters": dead_letters,
            "sink": config.sink.model_copy(update={"iceberg": iceberg}),
            "tables": None,
        }
    )


def as_new_topic(config: Pipeline) -> Pipeline:
    """Return a topic's pipeline with ``new_topics`` as its start, for a topic that appeared after the first start."""
    source = config.kafka.model_copy(update={"start": config.kafka.new_topics})
    return config.model_copy(update={"source": config.source.model_copy(update={"kafka": source})})


def require_fit(config: PipelineBlocks) -> None:
    """Refuse the pipeline of one topic if the topic's settings contradict the other settings."""
    iceberg = config.sink.iceberg
    assert iceberg is not None  # Only this sink can have a table for each topic.
    for problem in (*keyed_problems(iceberg), *upsert_problems(config)):
        raise ConfigError(problem.what, where=f"topic {', '.join(config.kafka.topics or ())}", hint=problem.hint)


def on_failure(config: PipelineBlocks, topic: str) -> OnFailure:
    """Return the topic's ``on_failure``, or else the pipeline's."""
    return config.table_rules.topics.get(topic, OneTable()).on_failure or config.table_rules.on_failure
