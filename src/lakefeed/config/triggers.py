"""``trigger``: when records are read; and what a real-time one can do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakefeed.config.models import PipelineConfig

AVAILABLE_NOW = "available-now"
REAL_TIME = "real-time"
INTERVAL = "1 minute"
"""Between two notes of how far a real-time query has come."""
LEAST_SECONDS = 5
"""Spark's ``spark.sql.streaming.realTimeMode.minBatchDuration``."""
_TIME = re.compile(r"\s*(\d{1,9})\s*(second|minute|hour)s?\s*", re.ASCII)
LONGEST_SECONDS = 366 * 86_400
_SECONDS = {"second": 1, "minute": 60, "hour": 3600}


def known(trigger: str) -> str:
    """The trigger as it is written.

    Raises:
        ValueError: it is none.
    """
    interval = interval_of(trigger)
    if trigger == AVAILABLE_NOW:
        return trigger
    if not (found := _TIME.fullmatch(trigger if interval is None else interval)):
        raise ValueError(
            f"a trigger is '<n> seconds|minutes|hours', '{AVAILABLE_NOW}', '{REAL_TIME}' or '{REAL_TIME}, <n> seconds'"
        )
    seconds = int(found[1]) * _SECONDS[found[2]]
    if seconds > LONGEST_SECONDS:
        raise ValueError("a trigger is a year at most")
    if interval is not None and seconds < LEAST_SECONDS:
        raise ValueError(f"{REAL_TIME}: its progress is noted every {LEAST_SECONDS} seconds at most")
    return trigger


def interval_of(trigger: str) -> str | None:
    """How often a real-time query notes how far it has come; None if the trigger is another."""
    name, _, interval = trigger.partition(",")
    return (interval.strip() or INTERVAL) if name.strip() == REAL_TIME else None


def misfits(config: PipelineConfig) -> Iterator[str]:
    """Why the pipeline cannot run in real time; nothing if it can, or is not to."""
    if interval_of(config.trigger) is None:
        return
    why = f"trigger: {REAL_TIME} hands each record on by itself, from Kafka to Kafka"
    if config.source.kafka is None or config.sink.kafka is None or config.sinks:
        what = f"source.{config.source.kind}" if config.source.kafka is None else f"sink.{config.sink.kind}"
        yield f"{why}; {'several sinks' if config.sinks else what} wants batches: trigger: 1 second"
        return
    blocks = {
        "dead_letters": "are written when a batch is judged",
        "expect": "counts what a batch has",
        "schema_": "on_change adapts between two batches; in real time the columns are those of the start",
    }
    for name, does in blocks.items():
        if name in config.model_fields_set and getattr(config, name):
            yield f"{why}; {name.rstrip('_')} {does}"
    if config.output_mode != "append":
        yield f"{why}; output_mode: {config.output_mode} is for groups, which change with a batch"
    source = config.source.kafka
    for setting in ("deduplicate", "max_records_per_batch", "min_records_per_batch", "monitoring_group"):
        if setting in source.model_fields_set and getattr(source, setting):
            yield f"{why}; source.kafka.{setting} is for batches"
    if config.decode.is_sampled:
        yield f"{why}; decode.json.schema: sample is settled with a batch: give schema_ddl"
