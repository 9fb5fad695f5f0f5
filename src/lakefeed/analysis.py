"""What Spark would say of a pipeline's transform and sink, asked before anything is started: for ``lakefeed check``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lakefeed.assembly import Assembly
from lakefeed.config.connections import Connections
from lakefeed.config.kafka_sink import KafkaSink
from lakefeed.config.models import IcebergSink, PipelineConfig
from lakefeed.config.problem import Problem
from lakefeed.config.sinks import PythonSink
from lakefeed.decode.resolve import put_credentials
from lakefeed.errors import ConfigError, LakefeedError, ResourceMissing, Unreachable
from lakefeed.sinks.own import made
from lakefeed.sinks.records import require_columns
from lakefeed.transform.plan import QueryPlan

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
)
"""The columns of Spark's Kafka source, out of its rate source's ``timestamp, value``."""


def needs_spark(config: PipelineConfig) -> bool:
    """Whether there is anything that only Spark can say."""
    topics = [each for _, each in _topics(config)]
    return (config.transform is not None or bool(topics)) and not config.has_many_tables


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
    sink = config.sink.chosen
    if isinstance(sink, PythonSink):
        try:
            made(sink, output_mode=config.output_mode, folder=folder)
        except ConfigError as error:
            found.append(Problem.of(error, key="sink.python.path"))
    if not needs_spark(config):
        return found
    why = _only_told_by_others(config)
    if why is not None and not connect:
        what = f"the transform was not looked at: {why}"
        return [*found, Problem(what=what, key="transform", hint="--connect asks", severity="warning")]
    feed = Assembly(config, connections=connections, view=config.name, folder=folder)
    try:
        feed.functions()
        session = spark()
        put_credentials(session, config.decode)
        frame = feed.rows(_records(session))
        QueryPlan.of(frame, output_mode=config.output_mode)
        _require_columns(config, frame)
        for place, sink_topic in _topics(config):
            try:
                require_columns(sink_topic, frame)
            except ConfigError as error:
                key = (error.where or "").removeprefix("sink.")
                found.append(Problem.of(error, key=f"{place}.{key}"))
    except LakefeedError as error:
        passing = isinstance(error, (Unreachable, ResourceMissing))
        found.append(Problem.of(error, key="decode" if passing else _key(config, error)))
    return found


def _records(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load().selectExpr(*RECORDS)


def _only_told_by_others(config: PipelineConfig) -> str | None:
    decode, transform = config.decode, config.transform
    if decode.registry is not None or (decode.key is not None and decode.key.registry is not None):
        return "the registry knows the columns"
    if decode.is_sampled:
        return "the columns are those of a sample"
    if transform is not None and transform.tables:
        return "its tables know their columns"
    return None


def _require_columns(config: PipelineConfig, frame: DataFrame) -> None:
    sink = config.sink.iceberg
    if not isinstance(sink, IcebergSink):
        return
    have = {each.lower() for each in frame.columns}
    for key in sink.keys:
        if key.lower() not in have:
            raise ConfigError(
                f"keys names the column '{key}', which the rows do not have",
                where="sink.iceberg.keys",
                hint=f"they have {', '.join(frame.columns)}",
            )


def _topics(config: PipelineConfig) -> list[tuple[str, KafkaSink]]:
    """The sinks that are topics, and their places in the file."""
    blocks = {"sink": config.sink, **{f"sinks.{name}": each for name, each in config.sinks.items()}}
    return [(place, each.kafka) for place, each in blocks.items() if each.kafka is not None]


def _key(config: PipelineConfig, error: LakefeedError) -> str:
    """The setting that an error's text names, so that it is told with its line."""
    told = f"{error.what} {error.where or ''}"
    if "sink.iceberg.keys" in told:
        return "sink.iceberg.keys"
    names = [f"transform.steps.{name}" for name in config.transform.steps] if config.transform else []
    return next((each for each in names if each in told), "transform.sql" if not names else "transform")
