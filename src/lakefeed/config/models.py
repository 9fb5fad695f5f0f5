"""``pipeline.yaml`` as a model: its blocks, and the rules that span several of them.

The reference in the documents and the JSON Schema for editors are generated from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint
from itertools import groupby
from typing import Any, Self

from pydantic import ConfigDict, Field, ModelWrapValidatorHandler, ValidationInfo, create_model, model_validator

from lakefeed import plugins
from lakefeed.config import upserts
from lakefeed.config.base import ConfigProblem, ConfigProblems, model_of_package, raise_problems, summary
from lakefeed.config.blocks import Block, PipelineBlocks
from lakefeed.config.places import shared_places
from lakefeed.config.values import REAL_TIME, TOPIC_MARK, interval_of

CHECKPOINT_HINT = "checkpoint: s3a://bucket/path, or /path on this machine"
CROSS_BLOCK_ERRORS = "cross_block_errors"
"""The validation context's key for a list that collects errors of rules between blocks; without it they are raised."""


class PipelineConfig(PipelineBlocks):
    """A pipeline: it reads topics and writes a table."""

    @model_validator(mode="wrap")
    @classmethod
    def _with_added_blocks(cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Any:
        """Validate a file with blocks of installed packages by the model that has fields for them."""
        if cls is PipelineConfig and isinstance(data, dict) and any(key in data for key in added_models()):
            return pipeline_model().model_validate(data, context=info.context)
        return handler(data)

    @model_validator(mode="after")
    def _blocks_fit(self, info: ValidationInfo) -> PipelineConfig:
        found = [problem for rule in _RULES for problem in rule(self)]
        for key, block in self.added_blocks.items():
            found += [replace(problem, key=problem.key or key) for problem in block.problems(self)]
        if info.context is None or CROSS_BLOCK_ERRORS not in info.context:
            raise_problems(found)
        else:
            info.context[CROSS_BLOCK_ERRORS].extend(found)
        return self


@cache
def pipeline_model() -> type[PipelineConfig]:
    """Return the model of a pipeline file: ``PipelineConfig`` with fields for the blocks that packages add."""
    fields: dict[str, Any] = {
        f"{key}_block": (model | None, Field(None, alias=key, description=summary(model)))
        for key, model in added_models().items()
    }
    if not fields:
        return PipelineConfig
    return create_model(PipelineConfig.__name__, __base__=PipelineConfig, __doc__=PipelineConfig.__doc__, **fields)


def _dead_letters(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    kafka, letters = config.source.kafka, config.dead_letters
    makers = [f"expect.{name}" for name, rule in config.expect.items() if rule.on_violation == "dead_letter"]
    makers += ["decode.on_null"] if config.decode.on_null == "dead_letter" else []
    if letters is None and makers:
        yield ConfigProblem(f"{makers[0]} makes dead letters, and dead_letters does not say where they go")
    if letters is not None and kafka is not None and letters.topic is not None and kafka.reads(letters.topic):
        what = f"the dead letters would go to {letters.topic}, which the source reads"
        yield ConfigProblem(f"{what}: they would go in a circle")


def _real_time(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    """Yield problems of settings that need micro-batches in a pipeline in real time, which has none."""
    if interval_of(config.trigger) is None:
        return
    why = f"trigger: {REAL_TIME} hands each record on by itself, from Kafka to Kafka"
    source = config.source.kafka
    if source is None or config.sink.refusal("real_time") is not None or config.sinks:
        what = f"source.{config.source.kind}" if source is None else f"sink.{config.sink.kind}"
        yield ConfigProblem(f"{why}; {'several sinks' if config.sinks else what} requires batches: trigger: 1 second")
        return
    blocks = {
        "dead_letters": "are written when a batch is judged",
        "expect": "counts what a batch has",
        "schema_": "on_change adapts between two batches; in real time the columns are those of the start",
    }
    for name, does in blocks.items():
        if name in config.model_fields_set and getattr(config, name):
            yield ConfigProblem(f"{why}; {name.rstrip('_')} {does}")
    if config.output_mode != "append":
        yield ConfigProblem(f"{why}; output_mode: {config.output_mode} is for groups, which change with a batch")
    for setting in ("deduplicate", "max_records_per_batch", "min_records_per_batch", "monitoring_group"):
        if setting in source.model_fields_set and getattr(source, setting):
            yield ConfigProblem(f"{why}; source.kafka.{setting} is for batches")
    if config.decode.is_sampled:
        yield ConfigProblem(f"{why}; decode.json.schema: sample is settled with a batch: give schema_ddl")


def _sinks_take_the_output(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    letters = config.dead_letters.table if config.dead_letters else None
    if config.upkeep is not None and not config.sink.chosen.snapshot_tables and letters is None:
        yield ConfigProblem("upkeep looks after Iceberg tables, and this pipeline writes to none")
    for place, block in config.sink_blocks:
        sink = block.chosen
        if config.output_mode not in sink.modes:
            other = f" ({sink.other_modes})" if sink.other_modes else ""
            what = f"transform.output_mode: {config.output_mode} does not fit {place}.{block.kind}, which takes "
            yield ConfigProblem(f"{what}{' and '.join(sink.modes)}{other}")
        yield from sink.problems(place, config.source.kafka)
    if config.sinks and config.has_many_tables:
        yield ConfigProblem(f"with {TOPIC_MARK} in sink.iceberg.table there are no sinks beside it")
    for name, beside in config.sinks.items():
        if TOPIC_MARK in (beside.chosen.snapshot_table or ""):
            yield ConfigProblem(f"sinks.{name}: a table for each topic is for sink.iceberg alone")
        if beside.chosen.landing_branch is not None:
            yield ConfigProblem(f"sinks.{name}: a branch is for the feed's own sink alone")
        if beside.chosen.keyed is not None and config.output_mode == "append":
            yield ConfigProblem(f"sinks.{name}: records that change rows by key go to the feed's own sink alone")


def _streams_of_topics(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    streams = config.transform.streams if config.transform is not None else {}
    if not streams:
        return
    topics = config.source.kafka.topics if config.source.kafka is not None else None
    if topics is None or sorted(stream.topic for stream in streams.values()) != sorted(topics):
        what = "transform.streams has each topic of source.kafka.topics once, and no other"
        yield ConfigProblem(f"{what}: a record that is in no stream, or in two, would not be counted once")
    if config.has_many_tables or any(beside.can_lag for beside in config.sinks.values()):
        yield ConfigProblem("transform.streams joins, which keeps state: no table for each topic, no sink that pauses")


def _installed_source(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    """Yield problems of settings that are only for Kafka topics, with a source of another package."""
    source, kind = config.source.installed, config.source.kind
    if source is None:
        return
    if config.decode.is_sampled:
        yield ConfigProblem("json: {schema: sample} samples topics of Kafka", hint="decode.json.schema_ddl")
    if config.dead_letters is not None and config.dead_letters.topic is not None:
        yield ConfigProblem(f"dead letters of source.{kind} are kept in a table", hint="dead_letters.table")
    for name, beside in config.sinks.items():
        if beside.can_lag:
            what = f"sinks.{name} could not be given what it has missed of source.{kind}"
            yield ConfigProblem(what, hint="on_failure: stop")
    yield from source.problems(config)


def _records_or_rows(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    """Yield problems if a source of records lacks ``decode``, or a source of rows has settings for records."""
    kind = config.source.kind
    if kind == "kafka" and "sequence_number" in config.decode.metadata:
        yield ConfigProblem("decode.metadata: records of Kafka have no sequence_number, but an offset")
    if config.source.numbered is not None:
        if "decode" not in config.model_fields_set:
            yield ConfigProblem("decode has to say how the records become columns")
        return
    for name in ("decode", "schema_", "expect", "dead_letters"):
        if name in config.model_fields_set:
            yield ConfigProblem(f"{name.rstrip('_')} is for records of topics and streams; rows of {kind} come decoded")
    if config.upserting is not None:
        yield ConfigProblem(f"mode: upsert orders changes by their offset, and rows of {kind} have none")
    for place, sink in config.sink_blocks:
        if sink.chosen.record_positions == "required":
            what = f"{place}.{sink.kind} knows what it appends by the offset of its record, and rows of {kind}"
            hint = "group them (output_mode: update), with mode: upsert and keys"
            yield ConfigProblem(f"{what} have none", hint=hint)


def _one_table_or_many(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    mark, kafka = f"{TOPIC_MARK} in sink.iceberg.table", config.source.kafka
    if config.has_many_tables:
        if kafka is None:
            yield ConfigProblem(f"{mark} is for topics of Kafka")
        elif kafka.deduplicate:
            what = f"source.kafka.deduplicate keeps state, which a table for each topic ({TOPIC_MARK}) cannot"
            yield ConfigProblem(what)
        if config.checkpoint:
            what = f"means nothing with {mark}: the tables' ledgers say where each resumes"
            yield ConfigProblem(what, key="checkpoint", hint="remove it")
        return
    if config.tables is not None:
        yield ConfigProblem(f"means nothing without {mark}", key="tables")
    if kafka is not None and kafka.new_topics != "earliest":
        what = (
            f"source.kafka.new_topics: {kafka.new_topics} is for a table for each topic ({TOPIC_MARK}); into one table"
        )
        yield ConfigProblem(f"{what}, topics that come later are read from their first record", hint="remove it")
    if config.dead_letters is not None and TOPIC_MARK in (config.dead_letters.table or ""):
        yield ConfigProblem(f"dead_letters.table has {TOPIC_MARK}, and sink.iceberg.table has not")


def _checkpoint(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    """Yield a problem if a checkpoint is missing and the sink's ledger is not enough for a start."""
    if not config.resumes_by_ledger:
        return
    source, refusal = config.source, config.sink.refusal("no_checkpoint")
    if source.numbered is None:
        why = f"rows of {source.kind} have no offsets, and only that knows which were read"
    elif refusal is not None:
        why = refusal.what
    elif config.output_mode != "append" or (source.kafka is not None and source.kafka.deduplicate):
        why = "the query keeps state from batch to batch, which is stored there"
    elif config.sinks:
        why = "only that says which of several sinks have begun"
    elif source.installed is not None and source.installed.needs_checkpoint is not None:
        why = source.installed.needs_checkpoint
    else:
        return
    yield ConfigProblem(f"a pipeline needs a checkpoint: {why}", hint=CHECKPOINT_HINT)


def _spark_ui(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    problem = config.spark_ui.problem(config.spark) if config.spark_ui is not None else None
    if problem is not None:
        yield problem


_RULES: tuple[Callable[[PipelineBlocks], Iterator[ConfigProblem]], ...] = (
    _dead_letters,
    upserts.upsert_problems,
    _real_time,
    _sinks_take_the_output,
    shared_places,
    _streams_of_topics,
    _installed_source,
    _records_or_rows,
    _one_table_or_many,
    _checkpoint,
    _spark_ui,
)


_OWN_KEYS = frozenset(field.alias or name for name, field in PipelineBlocks.model_fields.items())


@cache
def added_models() -> dict[str, type[Block]]:
    """Return the models of the added blocks by their keys.

    The model of a package that cannot be imported refuses the block and names the package, so that files without the
    block still work. A package cannot replace a key of lakefeed itself.
    """
    entries = [entry for entry in plugins.installed(plugins.SETTINGS_GROUP) if entry.name not in _OWN_KEYS]
    return {key: _model_of(list(found)) for key, found in groupby(entries, key=lambda entry: entry.name)}


def keys_for_runs() -> tuple[str, ...]:
    """Return the keys of blocks that only a run needs, also those whose packages are not installed."""
    models = added_models()
    ours = [key for keys in plugins.KEYS_OF_EXTRAS.values() for key in keys if key not in models]
    return (*(key for key, model in models.items() if model.only_for_runs), *ours)


def _model_of(entries: list[EntryPoint]) -> type[Block]:
    entry, *others = entries
    if others:
        what = f"several packages add the block '{entry.name}': {', '.join(each.value for each in entries)}"
        return _refusing(ConfigProblem(what, hint="uninstall all but one of them"))
    try:
        return model_of_package(entry, Block, "block")
    except ConfigProblems as refused:
        return _refusing(*refused.problems)


def _refusing(*problems: ConfigProblem) -> type[Block]:
    class Unusable(Block):
        """A block whose package cannot be used."""

        model_config = ConfigDict(extra="allow")

        @model_validator(mode="before")
        @classmethod
        def _refuse(cls, block: Any) -> Any:
            raise ConfigProblems(*problems)

    return Unusable
