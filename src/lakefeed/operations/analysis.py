"""What Spark would say of a pipeline's transform and sink, asked before anything is started: for ``lakefeed check``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.config.problem import Problem
from lakefeed.config.topic_tables import config_of
from lakefeed.config.triggers import interval_of
from lakefeed.errors import ConfigError, LakefeedError, ResourceMissing, Unreachable
from lakefeed.feed.feed import Feed
from lakefeed.feed.real_time import require_fit
from lakefeed.records.decode.resolve import put_credentials
from lakefeed.records.sources.kafka import SourceTopics
from lakefeed.records.sources.rows import read_rows
from lakefeed.sinks.definition import SinkDefinition
from lakefeed.sinks.factory import sinks_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = (
    "CAST(NULL AS BINARY) AS key",
    "CAST(NULL AS BINARY) AS value",
    "'' AS topic",
    "0 AS partition",
    "value AS offset",
    "timestamp",
    "0 AS timestampType",
    "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
    "'' AS sequence_number",
)
"""The columns of Spark's Kafka source, and of ours for Kinesis, out of its rate source's ``timestamp, value``."""


@dataclass(frozen=True)
class _Part:
    """What one table's rows are class_of by.

    Attributes:
        config: the pipeline; of one topic, where each has a table of its own.
        place: where its transform stands.
    """

    config: PipelineConfig
    place: str = "transform"


def analysed(
    config: PipelineConfig,
    *,
    connections: Connections,
    spark: Callable[[], SparkSession],
    folder: Path | None = None,
    connect: bool = False,
) -> list[Problem]:
    """What is wrong with transform and sink: SQL, columns, functions, what cannot run as a stream. Runs nothing.

    Args:
        config: the pipeline.
        connections: store and catalogs.
        spark: makes a session, if one is needed.
        folder: where the pipeline file is.
        connect: registry and catalog may be asked. If not, what only they know is left unsaid, with a warning.
    """
    found: list[Problem] = []
    for definition in sinks_of(config, connections, folder=folder):
        found += definition.check_settings()
    for part in _parts(config, connections, connect=connect):
        why = _why_not_analysed(part.config)
        if why is not None and not connect:
            key = part.place if part.config.transform is not None else "sink"
            what = f"the {key.rpartition('.')[2]} was not looked at: {why}"
            found.append(Problem(what=what, key=key, hint="--connect asks", severity="warning"))
        else:
            found += _problems_of(part, config, connections=connections, spark=spark, folder=folder)
    return list(dict.fromkeys(found))


def _parts(config: PipelineConfig, connections: Connections, *, connect: bool) -> list[_Part]:
    """What has a transform. Of topics with nothing special one, or with ``connect`` all, whose schemas differ."""
    if not config.has_many_tables:
        checks_rows = any(
            type(sink).check_rows is not SinkDefinition.check_rows for sink in sinks_of(config, connections)
        )
        return [_Part(config)] if config.transform is not None or checks_rows else []
    special = config.tables.topics if config.tables is not None else {}
    kafka = config.kafka
    topics = list(kafka.topics or (SourceTopics(kafka).names() if connect else ()))
    plain = [each for each in topics if each not in special] or ["topic"] * (not topics)
    parts = [_Part(config_of(config, each)) for each in (plain if connect else plain[:1])]
    for topic, each in special.items():
        own = "" if each.transform is None else f"tables.topics.{topic}."
        parts.append(_Part(config_of(config, topic), f"{own}transform"))
    return [each for each in parts if each.config.transform is not None]


def _problems_of(
    part: _Part,
    config: PipelineConfig,
    *,
    connections: Connections,
    spark: Callable[[], SparkSession],
    folder: Path | None,
) -> list[Problem]:
    """What is wrong with one table's transform, and with what sinks name of its rows."""
    feed = Feed(config=part.config, connections=connections, view=config.name, folder=folder)
    try:
        _ = feed.transform  # Loads its Python functions, before Spark starts.
        session = spark()
        put_credentials(session, part.config.decode)
        frame = feed.rows(_records(session, part.config))
        plan = feed.plan_of(frame)
        if config.has_many_tables and plan.stateful:
            raise ConfigError(
                "the transform keeps state from batch to batch, and tables of many topics are written without it",
                where="transform",
                hint="a pipeline of its own for each topic that is grouped, windowed or deduplicated",
            )
        _require_columns(part.config, frame)
        if interval_of(part.config.trigger) is not None:
            require_fit(frame)
    except LakefeedError as error:
        passing = isinstance(error, (Unreachable, ResourceMissing))
        return [Problem.of(error, key="decode" if passing else _key(part, error))]
    sinks = sinks_of(part.config, connections, folder=folder)
    return [problem for sink in sinks for problem in sink.check_rows(frame, stateful=plan.stateful)]


def _records(spark: SparkSession, config: PipelineConfig) -> DataFrame:
    """A stream with the columns that the source has; of files no more is looked at than what the pipeline says."""
    source = config.source
    rate = spark.readStream.format("rate").load()
    columns = source.files.schema_ddl if source.files else source.format.schema_ddl if source.format else None
    if source.numbered is not None:
        return rate.selectExpr(*RECORDS)
    if columns is not None:
        escaped = columns.replace("\\", "\\\\").replace("'", "\\'")
        return rate.selectExpr(f"from_json(CAST(NULL AS STRING), '{escaped}') AS row").select("row.*")
    return rate.selectExpr("'' AS value") if source.files is not None else read_rows(spark, source)


def _why_not_analysed(config: PipelineConfig) -> str | None:
    decode, transform, source = config.decode, config.transform, config.source
    if source.iceberg is not None or (source.format is not None and source.format.schema_ddl is None):
        return "the source knows the columns"
    if decode.registry is not None or (decode.key is not None and decode.key.registry is not None):
        return "the registry knows the columns"
    if decode.is_sampled:
        return "the columns are those of a sample"
    if transform is not None and transform.tables:
        return "its tables know their columns"
    return None


def _require_columns(config: PipelineConfig, frame: DataFrame) -> None:
    have = {each.lower() for each in frame.columns}
    for place, sink in config.sink_blocks:
        setting, columns = sink.chosen.named_columns
        where = f"{place}.{sink.kind}.{setting}"
        for column in columns:
            if column.lower() not in have:
                raise ConfigError(
                    f"{setting} names the column '{column}', which the rows do not have",
                    where=where,
                    hint=f"they have {', '.join(frame.columns)}",
                )


def _key(part: _Part, error: LakefeedError) -> str:
    """The setting that an error's text names, so that it is reported with its line."""
    message = f"{error.what} {error.where or ''}"
    if error.where is not None and error.where.startswith("sink"):
        return error.where
    steps = part.config.transform.steps if part.config.transform is not None else {}
    step = next((each for each in steps if f"transform.steps.{each}" in message), None)
    if step is not None:
        return f"{part.place}.steps.{step}"
    return part.place if steps else f"{part.place}.sql"
