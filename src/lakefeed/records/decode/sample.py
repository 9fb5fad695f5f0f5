"""A schema for JSON values, guessed from the newest records of the topics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.records.sources.kafka import read_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def sampled_schema(spark: SparkSession, source: KafkaSource, *, records: int) -> str:
    """The Avro record schema (JSON) of the columns that the newest records show, all of them nullable.

    Args:
        spark: any session.
        source: the topics.
        records: how many are looked at, at most.

    Raises:
        ResourceMissing: no such topic, or no records in it.
        ConfigError: the records are no JSON objects, or have too many different fields.
        SchemaIncompatible: names of two fields differ in case only.
        Unreachable: no broker answers.
    """
    from lakefeed.records.schema.inference import infer_schema, newest_ranges
    from lakefeed.records.schema.parse import require_usable

    ranges = [each for each in newest_ranges(source, records) if each.records]
    if not ranges:
        raise ResourceMissing(
            "there are no records yet to guess a schema from",
            where=", ".join(source.topics or [str(source.topics_pattern)]),
            hint="start the feed when there are some, or give schema_ddl",
        )
    rows = read_batch(spark, source, ranges=ranges).select("value").where("value IS NOT NULL").collect()
    guess = infer_schema(bytes(row.value) for row in rows)
    if not guess.ddl:
        raise ConfigError(
            f"no columns can be guessed from {guess.records} record(s): they are no JSON objects with fields",
            where=", ".join(source.topics or [str(source.topics_pattern)]),
            hint="lakefeed schema infer shows what was found; or give schema_ddl",
        )
    text = json.dumps(guess.avro)
    require_usable(text)
    return text
