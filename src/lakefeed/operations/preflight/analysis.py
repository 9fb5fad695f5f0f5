"""Let Spark find mistakes in a pipeline's SQL, transform and sink before a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.config.checks import refusals
from lakefeed.config.connections import Connections, Registry
from lakefeed.config.models import PipelineConfig
from lakefeed.config.problem import Problem
from lakefeed.config.topic_tables import config_of
from lakefeed.config.values import interval_of
from lakefeed.errors import ConfigError, LakefeedError, ResourceMissing, Unreachable
from lakefeed.lazy import DataFrame, SparkSession, py4j, sf, spark_errors
from lakefeed.records.schema.fit import paths

if TYPE_CHECKING:
    from lakefeed.feed.feed import Feed

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
"""SQL expressions that make the columns of Spark's Kafka source from those of its rate source, ``timestamp, value``."""


def parse_sql(config: PipelineConfig, *, spark: Callable[[], SparkSession]) -> list[Problem]:
    """Return a problem for each SQL text that Spark's parser refuses, without looking up tables."""
    problems = []
    texts = list(_sql_texts(config))
    session: Any = spark() if texts else None
    for key, kind, sql in texts:
        parser = session._jsparkSession.sessionState().sqlParser()
        parse = parser.parsePlan if kind == "SQL" else parser.parseExpression
        if (why := _refusal(parse, sql)) is not None:
            hint = f"correct the {kind} of this setting: it is Spark SQL"
            problems.append(Problem(what=f"Spark cannot parse this {kind}: {why}", key=key, hint=hint))
    return problems


def _sql_texts(config: PipelineConfig) -> Iterator[tuple[str, str, str]]:
    """Yield the setting, the kind and the text of all SQL statements and expressions."""
    blocks = [("", config.transform, config.expect)]
    for topic, own in config.table_rules.topics.items():
        blocks.append((f"tables.topics.{topic}.", own.transform, own.expect or {}))
    for place, transform, expect in blocks:
        if transform is not None:
            if transform.sql is not None:
                yield f"{place}transform.sql", "SQL", transform.sql
            for name, step in transform.steps.items():
                if step.sql is not None:
                    yield f"{place}transform.steps.{name}.sql", "SQL", step.sql
        for name, rule in expect.items():
            yield f"{place}expect.{name}.rule", "expression", rule.rule
    for place, sink in config.sink_blocks:
        for option, text in sink.chosen.sql_expressions():
            yield f"{place}.{sink.kind}.{option}", "expression", text


def _refusal(parse: Callable[[str], object], sql: str) -> str | None:
    try:
        parse(sql)
    except spark_errors.ParseException as error:
        lines = str(error).split("\n== SQL", maxsplit=1)[0].split("\n\nJVM stacktrace", maxsplit=1)[0]
        return re.sub(r"\s+", " ", re.sub(r"^\[[\w.]+\]\s*|SQLSTATE: \w+", "", lines)).strip().rstrip(".")
    except (spark_errors.PySparkException, py4j.Py4JJavaError) as error:
        return str(error).splitlines()[0]
    return None


def analyze(
    config: PipelineConfig,
    *,
    connections: Connections,
    spark: Callable[[], SparkSession],
    folder: Path | None = None,
    connect: bool = False,
) -> list[Problem]:
    """Return problems of transform and sink: columns, functions, operations that cannot run as a stream. No query runs.

    With ``connect``, also ask the registry and the catalog; otherwise a warning names each check that needs them.
    """
    # Import late: the module imports the code of a whole run, and most checks end before this line.
    from lakefeed.sinks.factory import sinks_of

    found: list[Problem] = []
    for definition in sinks_of(config, connections, folder=folder):
        found += definition.check_settings()
    for part, place in _parts(config, connections, connect=connect):
        why = _why_not_analyzed(part)
        if why is not None and not connect:
            key = place if part.transform is not None else "sink"
            what = f"the {key.rpartition('.')[2]} was not checked: {why}"
            hint = "lakefeed check --connect checks it, too"
            found.append(Problem(what=what, key=key, hint=hint, severity="warning"))
            continue
        from lakefeed.feed.feed import Feed

        feed = Feed(config=part, connections=connections, view=config.name, folder=folder)
        try:
            frame, stateful = _analyze_rows(feed, spark, has_many_tables=config.has_many_tables)
        except LakefeedError as error:
            passing = isinstance(error, (Unreachable, ResourceMissing))
            found.append(Problem.of(error, key="decode" if passing else _key(part, place, error)))
        else:
            for sink in sinks_of(part, connections, folder=folder):
                found += sink.check_rows(frame, stateful=stateful)
            if part.transform is not None or _needs_spark(part):  # Other columns need no Spark.
                maker = f"decode.{part.decode.kind}" if part.transform is None else place
                known = refusals(part, list(paths(frame.schema)), place=maker)
                found += [replace(each, severity="warning") if part.decode.registry else each for each in known]
    return list(dict.fromkeys(found))


def _parts(config: PipelineConfig, connections: Connections, *, connect: bool) -> list[tuple[PipelineConfig, str]]:
    """Return the single-table pipelines that need analysis, with the dotted path of their transform in the file.

    Of the topics without separate settings, only the first is checked; with ``connect`` all of them are, since
    their schemas differ.
    """
    if not config.has_many_tables:
        from lakefeed.sinks.definition import SinkDefinition
        from lakefeed.sinks.factory import sinks_of

        sinks = sinks_of(config, connections)
        checks_rows = any(type(sink).check_rows is not SinkDefinition.check_rows for sink in sinks)
        checks_rows = checks_rows or config.transform is not None or (connect and _needs_spark(config))
        return [(config, "transform")] if checks_rows else []
    from lakefeed.records.sources import SourceTopics

    special = config.table_rules.topics
    topics = list(config.kafka.topics or (SourceTopics(config.kafka).names() if connect else ()))
    plain = [topic for topic in topics if topic not in special] or ["topic"] * (not topics)
    places = [(topic, "transform") for topic in (plain if connect else plain[:1])]
    for topic, settings in special.items():
        places.append((topic, "transform" if settings.transform is None else f"tables.topics.{topic}.transform"))
    parts = ((config_of(config, topic), place) for topic, place in places)
    return [(part, place) for part, place in parts if part.transform is not None]


def _needs_spark(config: PipelineConfig) -> bool:
    json = config.decode.json_
    return config.decode.protobuf is not None or (json is not None and json.schema_file is not None)


def _analyze_rows(feed: Feed, spark: Callable[[], SparkSession], *, has_many_tables: bool) -> tuple[DataFrame, bool]:
    """Let Spark analyze the rows of one table; return the rows, and whether the transform keeps state."""
    from lakefeed.feed.feed import state_without_checkpoint
    from lakefeed.feed.real_time import require_fit
    from lakefeed.records.decode.resolve import put_credentials

    _ = feed.transform  # Report a mistake in a Python function before Spark starts.
    session = spark()
    put_credentials(session, feed.config.decode)
    frame = feed.rows(_records(session, feed.config))
    plan = feed.plan_of(frame)
    if has_many_tables and plan.stateful:
        raise ConfigError(
            "the transform keeps state from batch to batch, which a pipeline with many tables cannot store",
            where="transform",
            hint="give each topic that you group, window or deduplicate a separate pipeline",
        )
    if plan.stateful and feed.config.resumes_by_ledger:
        raise state_without_checkpoint()
    _require_columns(feed.config, frame)
    if interval_of(feed.config.trigger) is not None:
        require_fit(frame)
    return frame, plan.stateful


def _records(spark: SparkSession, config: PipelineConfig) -> DataFrame:
    """Return a stream with the source's columns; for files, with the columns that the pipeline file declares."""
    from lakefeed.records.sources import read_rows

    source = config.source
    rate = spark.readStream.format("rate").load()
    columns = source.files.schema_ddl if source.files else source.format.schema_ddl if source.format else None
    if source.numbered is not None:
        return rate.selectExpr(*RECORDS)
    if columns is not None:
        return rate.select(sf.from_json(sf.lit(None).cast("string"), columns).alias("row")).select("row.*")
    return rate.selectExpr("'' AS value") if source.files is not None else read_rows(spark, source)


def _why_not_analyzed(config: PipelineConfig) -> str | None:
    decode, transform, source = config.decode, config.transform, config.source
    if source.iceberg is not None or (source.format is not None and source.format.schema_ddl is None):
        return "only the source knows the columns"
    if decode.registry is not None or (decode.key is not None and decode.key.registry is not None):
        return "only the registry knows the columns"
    if decode.is_sampled:
        return "only records of the topic show the columns"
    if transform is not None and transform.tables:
        return "only its tables know their columns"
    return None


_PLAIN = ("keys", "partition_by")
"""Sink options that name columns. Other code checks Iceberg's ``partition_by``, which has partition transforms."""


def _require_columns(config: PipelineConfig, frame: DataFrame) -> None:
    have = {name.lower() for name in frame.columns}
    for place, sink in config.sink_blocks:
        named = [(setting, column) for setting in _PLAIN for column in getattr(sink.chosen, setting, ())]
        for setting, column in named:
            if isinstance(column, str) and column.lower() not in have:
                raise ConfigError(
                    f"{setting} names the column '{column}', which the rows do not have",
                    where=f"{place}.{sink.kind}.{setting}",
                    hint=f"the rows have {', '.join(frame.columns)}",
                )


def _key(config: PipelineConfig, place: str, error: LakefeedError) -> str:
    if error.where is not None and error.where.startswith("sink"):
        return error.where
    steps = config.transform.steps if config.transform is not None else {}
    named = (f"{place}.steps.{name}" for name in steps if f"transform.steps.{name}" in f"{error.what} {error.where}")
    return next(named, place if steps else f"{place}.sql")


def encrypted_fields(registry: Registry, subject: str, *, part: str, key: str) -> list[Problem]:
    """Return a warning if the rules of a subject's newest version encrypt fields of the records' keys or values.

    A subject that cannot be read is reported by another check.
    """
    from lakefeed.records.decode.registry import SchemaRegistry
    from lakefeed.records.decode.resolve import encryption_of

    try:
        what = encryption_of(SchemaRegistry.of(registry).latest(subject))
    except LakefeedError:
        return []
    if what is None:
        return []
    hint = "let the records be decrypted before lakefeed; decode.on_encrypted decides what happens to them"
    text = f"{what} of the {part}s of {subject}, and lakefeed does not decrypt"
    return [Problem(what=text, key=key, about=registry.url, hint=hint, severity="warning")]
