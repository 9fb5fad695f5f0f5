"""The model of ``pipeline.yaml``: its blocks, and the rules between them.

tools/generate_docs.py makes the reference of settings and the JSON Schema for editors from this model.
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
from lakefeed.config.routes import own_name
from lakefeed.config.values import REAL_TIME, TOPIC_MARK, interval_of

CHECKPOINT_HINT = "write checkpoint: s3a://bucket/path, or /path on this machine"
CROSS_BLOCK_ERRORS = "cross_block_errors"
"""The key of a list in the validation's context that collects errors between blocks; without it, errors are raised."""


class PipelineConfig(PipelineBlocks):
    """A pipeline: it reads topics and writes a table."""

    @model_validator(mode="wrap")
    @classmethod
    def _with_added_blocks(cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Any:
        """Validate the file by the subclass that has fields for the blocks of installed packages."""
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
    """Return the model of a pipeline file: ``PipelineConfig`` with fields for the blocks of installed packages."""
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
    settings = ("on_null", "on_unknown_field", "on_encrypted")
    makers += [f"decode.{name}" for name in settings if getattr(config.decode, name) == "dead_letter"]
    if letters is None and makers:
        what = f"{makers[0]} makes dead letters, and the block dead_letters is missing"
        yield ConfigProblem(what, hint="write dead_letters: {table: catalog.namespace.table}")
    if letters is not None and kafka is not None and letters.topic is not None and kafka.reads(letters.topic):
        what = f"dead_letters.topic is {letters.topic}, which the source reads"
        yield ConfigProblem(f"{what}: the feed would read its own dead letters", hint="name another topic")


def _real_time(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    """Yield a problem for each setting that requires micro-batches in a pipeline with the trigger real-time."""
    if interval_of(config.trigger) is None:
        return
    why = f"trigger: {REAL_TIME} forwards single records from Kafka to Kafka"
    source = config.source.kafka
    if source is None or config.sink.refusal("real_time") is not None or config.sinks:
        what = f"source.{config.source.kind}" if source is None else f"sink.{config.sink.kind}"
        what = "the block sinks" if config.sinks else what
        yield ConfigProblem(f"{why}; {what} requires batches", hint="write trigger: 1 second")
        return
    blocks = {
        "dead_letters": "dead_letters are written with a batch",
        "expect": "expect counts the records of a batch",
        "schema_": "schema.on_change acts between two batches",
    }
    for name, what in blocks.items():
        if name in config.model_fields_set and getattr(config, name):
            yield ConfigProblem(f"{why}; {what}", hint="remove the block, or write trigger: 1 second")
    if config.output_mode != "append":
        what = f"output_mode: {config.output_mode} writes the groups that a batch has changed"
        yield ConfigProblem(f"{why}; {what}", hint="write trigger: 1 second")
    for setting in ("deduplicate", "max_records_per_batch", "min_records_per_batch", "monitoring_group"):
        if setting in source.model_fields_set and getattr(source, setting):
            hint = "remove the setting, or write trigger: 1 second"
            yield ConfigProblem(f"{why}; source.kafka.{setting} needs batches", hint=hint)
    if config.decode.is_sampled:
        what = "decode.json.schema: sample infers the schema with a batch"
        yield ConfigProblem(f"{why}; {what}", hint="declare the columns with decode.json.schema_ddl")
    if config.decode.on_encrypted == "stop":
        what = "decode.on_encrypted: stop reads a schema's rules before a batch is written"
        yield ConfigProblem(f"{why}; {what}", hint="remove on_encrypted, or write trigger: 1 second")


def _sinks_take_the_output(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    for place, block in config.sink_blocks:
        sink = block.chosen
        if config.output_mode not in sink.modes:
            what = f"transform.output_mode: {config.output_mode} does not fit {place}.{block.kind}, which accepts "
            hint = sink.other_modes or "change output_mode, or use another sink"
            yield ConfigProblem(what + " and ".join(sink.modes), hint=hint)
        yield from sink.problems(place, config.source.kafka)
    if config.sinks and config.has_many_tables:
        what = f"sinks cannot be combined with {TOPIC_MARK} in sink.iceberg.table"
        yield ConfigProblem(what, hint="remove sinks, or name one table in sink.iceberg.table")
    for name, beside in config.sinks.items():
        if TOPIC_MARK in (beside.chosen.snapshot_table or ""):
            what = f"sinks.{name} has {TOPIC_MARK} in its table, which only the feed's own sink may have"
            yield ConfigProblem(what, hint="name one table")
        if beside.chosen.landing_branch is not None:
            what = f"sinks.{name} has a branch, which only the feed's own sink may have"
            yield ConfigProblem(what, hint="remove branch")
        if beside.chosen.keyed is not None and config.output_mode == "append":
            what = f"sinks.{name} changes rows by key, which only the feed's own sink may do"
            yield ConfigProblem(what, hint=f"remove mode: upsert from sinks.{name}, or make this sink the feed's own")


def _streams_of_topics(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    streams = config.transform.streams if config.transform is not None else {}
    if not streams:
        return
    topics = config.source.kafka.topics if config.source.kafka is not None else None
    if topics is None or sorted(stream.topic for stream in streams.values()) != sorted(topics):
        what = "transform.streams must have each topic of source.kafka.topics once, and no other topic"
        yield ConfigProblem(
            what, hint="change source.kafka.topics or transform.streams, so that each record is read once"
        )
    if config.has_many_tables or any(beside.can_lag for beside in config.sinks.values()):
        what = "transform.streams keeps state, so it excludes a table for each topic and sinks that pause"
        yield ConfigProblem(what, hint="write to one table, and write on_failure: stop in sinks")


def _installed_source(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    """Yield a problem for each setting that is for Kafka topics only, if the source is of another package."""
    source, kind = config.source.installed, config.source.kind
    if source is None:
        return
    if config.decode.is_sampled:
        what = "decode.json.schema: sample reads topics of Kafka only"
        yield ConfigProblem(what, hint="declare the columns with decode.json.schema_ddl")
    if config.dead_letters is not None and config.dead_letters.topic is not None:
        yield ConfigProblem("dead_letters.topic requires source.kafka", hint="use dead_letters.table")
    for name, beside in config.sinks.items():
        if beside.can_lag:
            what = f"sinks.{name} cannot catch up after a pause: records of source.{kind} cannot be read again"
            yield ConfigProblem(what, hint="write on_failure: stop")
    yield from source.problems(config)


def _records_or_rows(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    """Yield a problem if a source of records lacks ``decode``, or a source of rows has settings for records."""
    kind = config.source.kind
    if kind == "kafka" and "sequence_number" in config.decode.metadata:
        what = "decode.metadata: records of Kafka have no sequence_number"
        yield ConfigProblem(what, hint="write offset instead")
    if config.source.numbered is not None:
        if "decode" not in config.model_fields_set:
            what = "decode is required: it sets how records become columns"
            yield ConfigProblem(what, hint="write, for instance, decode: raw")
        return
    for name in ("decode", "schema_", "expect", "dead_letters"):
        if name in config.model_fields_set:
            what = f"{name.rstrip('_')} is for records of topics and streams, and rows of {kind} are decoded already"
            yield ConfigProblem(what, hint=f"remove {name.rstrip('_')}")
    if config.upserting is not None:
        what = f"mode: upsert orders changes by their offset, and rows of {kind} have no offset"
        yield ConfigProblem(what, hint="use a source of topics, or mode: append")
    for place, sink in config.sink_blocks:
        if sink.chosen.record_positions == "required":
            what = f"{place}.{sink.kind} identifies rows by their records' offsets, and rows of {kind} have no offsets"
            hint = "group the rows: transform.output_mode: update, and in the sink mode: upsert and keys"
            yield ConfigProblem(what, hint=hint)


def _one_table_or_many(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    mark, kafka = f"{TOPIC_MARK} in sink.iceberg.table", config.source.kafka
    if config.has_many_tables:
        if kafka is None:
            yield ConfigProblem(f"{mark} requires source.kafka", hint="name one table")
        elif kafka.deduplicate:
            what = f"source.kafka.deduplicate keeps state, so it excludes a table for each topic ({TOPIC_MARK})"
            yield ConfigProblem(what, hint="remove deduplicate, or name one table")
        if config.checkpoint:
            what = f"checkpoint has no effect with {mark}: each table's ledger stores where its topic resumes"
            yield ConfigProblem(what, key="checkpoint", hint="remove checkpoint")
        return
    if config.tables is not None:
        yield ConfigProblem(f"tables has no effect without {mark}", key="tables", hint="remove tables")
    if kafka is not None and kafka.new_topics != "earliest":
        what = f"source.kafka.new_topics: {kafka.new_topics} requires a table for each topic ({TOPIC_MARK})"
        yield ConfigProblem(what, hint="remove new_topics: one table gets all records of new topics")
    if config.dead_letters is not None and TOPIC_MARK in (config.dead_letters.table or ""):
        what = f"dead_letters.table has {TOPIC_MARK}, and sink.iceberg.table does not"
        yield ConfigProblem(what, hint=f"write {TOPIC_MARK} in both tables or in none")


def _routes(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    """Yield a problem for each block that contradicts a table for each value of a field."""
    iceberg = config.sink.iceberg
    routed = iceberg.routed_by if iceberg is not None else None
    if iceberg is None or routed is None:
        return
    mark = f"{{{routed.field}}} in sink.iceberg.table"
    if config.source.kafka is None:
        yield ConfigProblem(f"{mark} requires source.kafka", hint="name one table")
    elif config.source.kafka.deduplicate:
        yield ConfigProblem(f"{mark} excludes source.kafka.deduplicate", hint="remove deduplicate")
    if config.sinks:
        yield ConfigProblem(f"{mark} excludes sinks", hint="remove sinks, or name one table")
    if routed.header is not None and "headers" not in config.decode.metadata:
        what = f"{mark} reads the records' headers, and decode.metadata does not keep them"
        yield ConfigProblem(what, hint="write decode: {metadata: [headers]}")
    if iceberg.routes.default is None and config.decode.on_null == "keep":
        what = f"{mark}: decode.on_null: keep makes rows without a table's name"
        yield ConfigProblem(what, hint="write sink.iceberg.routes.default, or another on_null")
    if "upkeep" in config.added_blocks:
        what = f"{mark} excludes upkeep, which would maintain only the ledger table"
        yield ConfigProblem(what, key="upkeep", hint="remove upkeep, and maintain the tables with another tool")
    letters = config.dead_letters.table if config.dead_letters is not None else None
    taken = own_name(letters or "", routed.before, routed.after)
    if taken is not None and (taken in iceberg.routes.names or taken == iceberg.routes.default):
        what = "a table of sink.iceberg.routes is the table of the dead letters"
        yield ConfigProblem(what, hint="name two tables")


def _checkpoint(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    """Yield a problem if the checkpoint is missing and the feed cannot resume from the sink's ledger alone."""
    if not config.resumes_by_ledger:
        return
    source, refusal = config.source, config.sink.refusal("no_checkpoint")
    if source.numbered is None:
        why = f"rows of {source.kind} have no offsets, so only the checkpoint stores which rows were read"
    elif refusal is not None:
        why = refusal.what
    elif config.output_mode != "append" or (source.kafka is not None and source.kafka.deduplicate):
        why = "the query keeps state, which the checkpoint stores between batches"
    elif config.sinks:
        why = "only the checkpoint stores which of several sinks have begun"
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
    _routes,
    _checkpoint,
    _spark_ui,
)


_OWN_KEYS = frozenset(field.alias or name for name, field in PipelineBlocks.model_fields.items())


@cache
def added_models() -> dict[str, type[Block]]:
    """Return the models of the blocks of installed packages by their keys.

    A package cannot replace a key of lakefeed. If a package cannot be imported, a model in its place refuses the block
    and names the package; files without the block work.
    """
    entries = [entry for entry in plugins.installed(plugins.SETTINGS_GROUP) if entry.name not in _OWN_KEYS]
    return {key: _model_of(list(found)) for key, found in groupby(entries, key=lambda entry: entry.name)}


def keys_for_runs() -> tuple[str, ...]:
    """Return the keys of the blocks that only a run needs, including blocks of extras that are not installed."""
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
