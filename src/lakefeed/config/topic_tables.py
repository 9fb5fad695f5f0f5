"""One topic's settings out of those of a pipeline whose topics go to a table each."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from lakefeed.config.blocks import OneTable, OnFailure, PipelineBlocks, Tables
from lakefeed.config.keyed import keyed_problems
from lakefeed.config.upserts import upsert_problems
from lakefeed.config.values import seconds_of, table_of
from lakefeed.errors import ConfigError

Pipeline = TypeVar("Pipeline", bound=PipelineBlocks)

_OF_SINK = ("partition_by", "sort_by", "properties", "keys", "order_by", "history")
"""The settings of the sink that a topic may have of its own."""


def config_of(config: Pipeline, topic: str) -> Pipeline:
    """Return the pipeline of one topic alone.

    Its name is the feed's in the ledgers, so it has the topic's in it: tables of dead letters may be shared.
    """
    special = _tables(config).topics.get(topic, OneTable())
    kafka, iceberg = config.source.kafka, config.sink.iceberg
    assert kafka is not None
    assert iceberg is not None  # Else it would not have many tables.
    dead_letters = special.dead_letters or config.dead_letters
    if dead_letters is not None and dead_letters.table is not None:
        dead_letters = dead_letters.model_copy(update={"table": table_of(dead_letters.table, topic)})
    sink: dict[str, Any] = {"table": special.table or table_of(iceberg.table, topic)}
    if iceberg.history is not None:
        sink["history"] = table_of(iceberg.history, topic)
    names_made = [sink[name] for name in ("table", "history") if name in sink and getattr(special, name) is None]
    sink |= {name: given for name in _OF_SINK if (given := getattr(special, name)) is not None}
    return config.model_copy(
        update={
            "name": re.sub(r"[^A-Za-z0-9_]", "_", f"{config.name}__{topic}"),
            "source": config.source.model_copy(
                update={"kafka": kafka.model_copy(update={"topics": [topic], "topics_pattern": None})}
            ),
            "decode": special.decode or config.decode,
            "schema_": special.schema_ or config.schema_,
            "expect": config.expect if special.expect is None else special.expect,
            "transform": special.transform or config.transform,
            "dead_letters": dead_letters,
            "sink": config.sink.model_copy(
                update={"iceberg": iceberg.model_copy(update=sink).with_names_made(names_made)}
            ),
            "tables": None,
        }
    )


def require_fit(config: PipelineBlocks) -> None:
    """Refuse the pipeline of one topic if the topic's own settings contradict the others."""
    iceberg = config.sink.iceberg
    assert iceberg is not None  # Else there would not be many tables.
    for problem in (*keyed_problems(iceberg), *upsert_problems(config)):
        raise ConfigError(problem.what, where=f"topic {', '.join(config.kafka.topics or ())}", hint=problem.hint)


def on_failure(config: PipelineBlocks, topic: str) -> OnFailure:
    """Return what happens when the topic's table cannot be written."""
    tables = _tables(config)
    special = tables.topics.get(topic)
    return (special.on_failure if special else None) or tables.on_failure


def retry_seconds(config: PipelineBlocks) -> int:
    """Return how long a paused table waits."""
    return seconds_of(_tables(config).retry_after)


def at_once(config: PipelineBlocks) -> int:
    """Return how many tables are written at the same time."""
    return _tables(config).at_once


def _tables(config: PipelineBlocks) -> Tables:
    return config.tables or Tables()
