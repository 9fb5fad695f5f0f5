"""All blocks of a pipeline file in one model, without the rules between them.

The rules between blocks take ``PipelineBlocks``; its subclass ``models.PipelineConfig`` imports and runs the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, field_validator

from lakefeed import plugins
from lakefeed.config import sinks, sources
from lakefeed.config.addresses import DatasetName, PlainTextLogin, storage_path
from lakefeed.config.base import ConfigProblem, Model, OneOfInstalled, raise_problems, spelled
from lakefeed.config.connections import S3, Catalog, Connections
from lakefeed.config.decoding import DeadLetters, Decode, Expectation, RawDecode, SchemaChange
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.config.keyed import KeyedSink
from lakefeed.config.operation import Metrics, SparkUi
from lakefeed.config.secrets import OPTIONS_OF_THE_JVM, Scalar, SecretText
from lakefeed.config.sinks import Operation, Refusal
from lakefeed.config.transform import OutputMode, Transform
from lakefeed.config.trust import Tls
from lakefeed.config.values import (
    AVAILABLE_NOW,
    INTERVAL,
    REAL_TIME,
    TOPIC_MARK,
    Count,
    Identifier,
    PartitionTransform,
    Period,
    SortColumn,
    TableName,
    Trigger,
)
from lakefeed.errors import ConfigError, LakefeedError

AddedBlock = TypeVar("AddedBlock", bound="Block")

OnFailure = Literal["pause", "stop", "fail"]
FastPath = Literal["auto", "reader", "encoder", "off"]
"""Whether lakefeed's own reader of topics and its own encoder of Parquet files may be used."""


class InstalledSource(Model):
    """The settings of a source that another package adds; its records have topic, partition and offset.

    A derived model must have a field ``max_records_per_batch``.
    """

    reader: ClassVar[str]
    """The source's ``SourceReader``, as ``package.module:Class``; imported at its first use."""
    jar_groups: ClassVar[tuple[str, ...]] = ()
    """Groups of locked jars that a session needs to read the source."""
    failures: ClassVar[Mapping[str, LakefeedError]] = {}
    """Errors to raise instead of Spark's, by the regular expression that Spark's text matches."""
    max_records_per_batch: int
    """Upper bound on the records of one micro-batch."""

    @property
    def topics(self) -> list[str]:
        """The records' topic names, from which the subjects of their schemas are derived."""
        raise NotImplementedError

    @property
    def needs_checkpoint(self) -> str | None:
        """The reason why this source needs a checkpoint even if the sink has a ledger; None if the ledger is enough."""
        return None

    @property
    def dataset(self) -> DatasetName | None:
        """The source's dataset name for lineage; None if the source has no such name."""
        return None

    def completed(self, environment: Mapping[str, str]) -> Self:
        """Fill the settings that the file omits with values from the environment."""
        return self

    def problems(self, config: PipelineBlocks) -> Iterator[ConfigProblem]:
        """Yield a problem for each contradiction between these settings and the rest of the file."""
        return iter(())

    def plain_text_logins(self) -> Iterator[PlainTextLogin]:
        """Yield each login that would cross a network without TLS."""
        return iter(())


class Source(OneOfInstalled):
    """The source of the records."""

    kafka: sources.KafkaSource | None = None
    files: sources.FilesSource | None = None
    rate: sources.RateSource | None = None
    socket: sources.SocketSource | None = None
    iceberg: sources.IcebergSource | None = None
    format: sources.FormatSource | None = None

    group: ClassVar[str] = plugins.SOURCES_GROUP
    noun: ClassVar[str] = "source"
    base: ClassVar[type[InstalledSource]] = InstalledSource

    @property
    def installed(self) -> InstalledSource | None:
        """The source if an installed package adds it; else None."""
        chosen = getattr(self, self.kind)
        return chosen if isinstance(chosen, InstalledSource) else None

    @property
    def numbered(self) -> sources.KafkaSource | InstalledSource | None:
        """The source if its records have a topic, a partition, an offset and bytes to decode; else None."""
        return self.kafka or self.installed


class SinkChoice(OneOfInstalled):
    """The destination of the rows."""

    iceberg: IcebergSinkConfig | None = None
    parquet: sinks.ParquetSinkConfig | None = None
    files: sinks.FilesSinkConfig | None = None
    memory: sinks.MemorySinkConfig | None = None
    console: sinks.ConsoleSinkConfig | None = None
    format: sinks.FormatSinkConfig | None = None
    python: sinks.PythonSinkConfig | None = None

    group: ClassVar[str] = plugins.SINKS_GROUP
    noun: ClassVar[str] = "sink"
    base: ClassVar[type[sinks.SinkConfig]] = sinks.SinkConfig

    @property
    def chosen(self) -> sinks.SinkConfig:
        block: sinks.SinkConfig = getattr(self, self.kind)
        return block

    @property
    def ledger_table(self) -> str:
        """The Iceberg table whose snapshots are the ledger; a ConfigError for other sinks."""
        if (table := self.chosen.snapshot_table) is None:
            what, hint = (
                f"the ledger of sink.{self.kind} is not in an Iceberg table",
                "use sink.iceberg for this operation",
            )
            raise ConfigError(what, where=self.chosen.where, hint=hint)
        return table

    def refusal(self, operation: Operation) -> Refusal | None:
        """Return why the sink does not support an operation; None if it does."""
        return self.chosen.supported.refusal(operation, sink=self.kind)

    def require(self, operation: Operation, *, where: str | None = None) -> None:
        """Raise a ConfigError if the sink does not support an operation; its default ``where`` is the sink's target."""
        if (refusal := self.refusal(operation)) is not None:
            raise ConfigError(refusal.what, where=where or self.chosen.where or None, hint=refusal.hint)


class SecondarySinkChoice(SinkChoice):
    """A sink in addition to the feed's own sink; it receives the same rows."""

    on_failure: Literal["stop", "pause"] = "stop"
    """What happens if a write to this sink fails. stop: stop the feed. pause: continue without the sink, which later
    catches up by itself; it must keep a ledger, as iceberg and jdbc do, and the transform must keep no state."""

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        yield from super()._contradictions()
        if (refusal := self.refusal("stand_beside")) is not None:
            yield ConfigProblem(refusal.what, key=self.kind, hint=refusal.hint)
        elif self.can_lag and (refusal := self.refusal("lag")) is not None:
            yield ConfigProblem(refusal.what, key="on_failure", hint=refusal.hint)

    @property
    def can_lag(self) -> bool:
        """Return whether the feed continues if a write to this sink fails."""
        return self.on_failure == "pause"


class RequestBudget(Model):
    """Limits for a batch. A batch that exceeds a limit causes a warning, but does not stop the feed."""

    s3_requests_per_batch: int | None = Field(None, ge=1, le=2**31 - 1)
    """The most requests to S3 that the driver and the executors together should make for one micro-batch."""


class OneTable(Model):
    """Settings for one topic and its table; they replace the pipeline's."""

    table: TableName | None = Field(None, description="The table, instead of the one that sink.iceberg.table names.")
    partition_by: list[PartitionTransform] | None = Field(None, description="Partition transforms, as in sink.iceberg.")
    sort_by: list[SortColumn] | None = Field(None, description="Order of the rows in each file, as in sink.iceberg.")
    properties: dict[str, str] | None = Field(None, description="Table properties, as in sink.iceberg.")
    keys: list[str] | None = Field(
        None, description="The columns that identify a row, as in sink.iceberg with mode: upsert."
    )
    order_by: list[str] | None = Field(
        None, description="The columns that order the changes of a key, as in sink.iceberg with mode: upsert."
    )
    history: TableName | None = Field(
        None, description="The table of all changes, as in sink.iceberg with mode: upsert."
    )
    decode: Decode | None = None
    schema_: SchemaChange | None = Field(None, alias="schema", description="Replaces the pipeline's block schema.")
    expect: dict[str, Expectation] | None = Field(None, description="Replaces the pipeline's block expect.")
    dead_letters: DeadLetters | None = None
    transform: Transform | None = None
    on_failure: OnFailure | None = Field(None, description="What happens if a write to the table fails, as in tables.")


class Tables(Model):
    """Rules for the tables of a job that writes a table for each topic."""

    on_failure: OnFailure = "pause"
    """What happens if a write to a table fails. pause: retry the table after retry_after. stop: stop the table until
    the next start. With both, the other tables continue. fail: stop the whole job."""
    retry_after: Period = "5 minutes"
    """How long a paused table waits before the next attempt: '<n> seconds|minutes|hours|days'."""
    at_once: Count = Field(4, description="The number of tables that are written at the same time.")
    topics: dict[str, OneTable] = Field(default_factory=dict)
    """Settings for single topics, by the topic's name."""


class Block(Model):
    """A block that another package adds to the pipeline file, under the name of its ``lakefeed.settings`` entry."""

    only_for_runs: ClassVar[bool] = True
    """Whether only a run needs the block; other commands then do not need its secrets."""

    def problems(self, config: PipelineBlocks) -> Iterator[ConfigProblem]:
        """Yield contradictions between this block and the rest of the file. Their default key is this block."""
        return iter(())

    @property
    def shares_the_session(self) -> bool:
        """Return whether this block starts Spark jobs in the feed's session."""
        return False

    @property
    def page_url(self) -> str | None:
        """The address of a page about the feed, for links in messages; None if the block serves no page."""
        return None

    @property
    def open_port(self) -> int | None:
        """The port that this block opens to other machines, and that a cluster must allow; 0 for any free port."""
        return None

    def table(self, kind: Any) -> Any:
        """Return ``kind``, the class of the feed's Iceberg table, or a subclass that adds to the feed's commits."""
        return kind


class PipelineBlocks(Model):
    """All blocks of a pipeline, each valid by itself."""

    name: Annotated[
        str, spelled(Identifier, "a name has up to 200 letters, digits and underscores, and starts with a letter")
    ]
    """The feed's name. Commits and the checkpoint store it, so do not change it later."""
    source: Source
    decode: Decode = Field(default_factory=lambda: Decode(raw=RawDecode()))
    """How records become columns. Required if the source has topics or streams; other sources have decoded rows."""
    schema_: SchemaChange = Field(default_factory=SchemaChange, alias="schema")
    """What happens when the schema of the records changes."""
    expect: dict[str, Expectation] = Field(default_factory=dict)
    """Rules for decoded records, by name; they are checked in this order."""
    dead_letters: DeadLetters | None = None
    """Where unreadable records are stored. Default: none; an unreadable record stops the feed."""
    transform: Transform | None = None
    sink: SinkChoice
    sinks: dict[str, SecondarySinkChoice] = Field(default_factory=dict)
    """Further sinks for the same rows, by name. A batch is read once for all sinks."""
    trigger: Trigger = Field(
        "1 minute",
        description=f"Time between micro-batches, such as '100 milliseconds' or '1 minute'. {AVAILABLE_NOW}: reads the "
        f"present records, then ends. {REAL_TIME}, from Kafka to Kafka: forwards records immediately and stores its "
        f"position every {INTERVAL}, or as in '{REAL_TIME}, 10 seconds'.",
    )
    tables: Tables | None = None
    """With {topic} in the sink's table: what happens if a table fails, and settings for single topics."""
    checkpoint: Annotated[str, AfterValidator(lambda path: path and storage_path(path))] = ""
    """The checkpoint location, s3a://bucket/path or /path on this machine; no other pipeline may use it. Optional for a
    single sink with a ledger, such as iceberg or jdbc, if the source has topics or streams and the query keeps no
    state. Not allowed with a table for each topic. With the sinks memory and console, each run without a checkpoint
    starts over."""
    fast_path: FastPath = "auto"
    """auto: where possible, read topics with lakefeed's reader and write Parquet files with lakefeed's encoder. reader,
    encoder: use only that one. off: use Spark's reader and Iceberg's encoder. All choices give the same rows, and files
    with the same schemas and metrics."""
    budget: RequestBudget | None = Field(
        None, description="Limits for the requests of a batch; a batch above a limit causes a warning."
    )
    metrics: Metrics = Field(default_factory=Metrics)
    """Metrics and health of the feed, at /metrics and /health and in Spark's metrics sinks."""
    spark_ui: SparkUi | None = Field(
        None, description="Opens Spark's web UI: true, or the address that the UI listens on. Default: no UI."
    )
    tls: Tls = Field(default_factory=Tls, description="Certificates for all connections.")
    s3: S3 | None = Field(None, description="The store. Default: from the AWS environment variables.")
    catalogs: dict[str, Catalog] = Field(default_factory=dict)
    """Iceberg catalogs by name. Default: one called lake, from LAKEFEED_CATALOG_URI and LAKEFEED_WAREHOUSE."""
    spark: dict[str, Scalar] = Field(default_factory=dict)
    """Further Spark settings, such as spark.sql.shuffle.partitions. lakefeed adds its own values to those for jars,
    class path, extensions and plugins."""

    @field_validator("fast_path", mode="before")
    @classmethod
    def _fast_path_off(cls, value: Any) -> Any:
        # YAML reads the word off as false.
        return "off" if value is False else value

    @field_validator("spark_ui", mode="before")
    @classmethod
    def _spark_ui_off(cls, block: Any) -> Any:
        return None if block is False else block

    @field_validator("spark", mode="before")
    @classmethod
    def _spark_keys(cls, settings: Any) -> Any:
        found = []
        for key, value in settings.items() if isinstance(settings, dict) else ():
            if not key.startswith("spark."):
                found.append(
                    ConfigProblem(
                        f"'{key}' is not a Spark setting", key=key, hint="a Spark setting starts with 'spark.'"
                    )
                )
            elif isinstance(value, SecretText) and OPTIONS_OF_THE_JVM.fullmatch(key):
                what = f"'{key}' is on the JVM's command line, which all users of the machine can read"
                hint = "write the setting without ${…}, and put a secret into a file that Java reads"
                found.append(ConfigProblem(what, key=key, hint=hint))
        raise_problems(found)
        return settings

    @property
    def added_blocks(self) -> dict[str, Block]:
        """The blocks of installed packages in the file, by their keys."""
        values = {field.alias or name: getattr(self, name) for name, field in type(self).model_fields.items()}
        return {key: value for key, value in values.items() if isinstance(value, Block)}

    def block(self, model: type[AddedBlock]) -> AddedBlock | None:
        """Return the file's block of a model; None if the file has none."""
        return next((block for block in self.added_blocks.values() if isinstance(block, model)), None)

    @property
    def sink_blocks(self) -> list[tuple[str, SinkChoice]]:
        """All sinks with their dotted paths in the file; the feed's own sink is the first."""
        return [("sink", self.sink), *((f"sinks.{name}", sink) for name, sink in self.sinks.items())]

    def iceberg_tables(self, *, beside: bool = False) -> tuple[str, ...]:
        """Return the Iceberg tables of the feed's own sink and its dead letters; with ``beside``, also of ``sinks``."""
        blocks = self.sink_blocks if beside else self.sink_blocks[:1]
        letters = self.dead_letters.table if self.dead_letters is not None else None
        named = [*(table for _, sink in blocks for table in sink.chosen.snapshot_tables.values()), letters]
        return tuple(dict.fromkeys(table for table in named if table is not None))

    @property
    def has_variants(self) -> bool:
        """Return whether a column is a variant with JSON of any form; only Iceberg's format version 3 has variants."""
        return all(getattr(sink.chosen, "format_version", None) == 3 for _, sink in self.sink_blocks)

    @property
    def output_mode(self) -> OutputMode:
        return self.transform.output_mode if self.transform is not None else "append"

    @property
    def upserting(self) -> KeyedSink | None:
        """The sink if records change its rows by key; None if rows are appended or made by a query with state."""
        return self.sink.chosen.keyed if self.output_mode == "append" else None

    @property
    def kafka(self) -> sources.KafkaSource:
        """The source if it is Kafka; else a ConfigError."""
        if self.source.kafka is None:
            what = (
                f"pipeline '{self.name}' reads {self.source.kind}, and this operation needs the offsets of Kafka topics"
            )
            raise ConfigError(what, where=f"source.{self.source.kind}", hint="name a pipeline with source.kafka")
        return self.source.kafka

    @property
    def brokers(self) -> str:
        return self.source.kafka.bootstrap_servers if self.source.kafka is not None else ""

    @property
    def table_rules(self) -> Tables:
        return self.tables or Tables()

    @property
    def has_fast_reader(self) -> bool:
        """Return whether lakefeed's own reader of topics may be used."""
        return self.fast_path in ("auto", "reader")

    @property
    def has_fast_encoder(self) -> bool:
        """Return whether lakefeed's own encoder of Parquet files may be used."""
        return self.fast_path in ("auto", "encoder")

    @property
    def shares_its_session(self) -> bool:
        """Return whether a package's block starts Spark jobs in the feed's session, beside the batches."""
        return any(block.shares_the_session for block in self.added_blocks.values())

    @property
    def resumes_by_ledger(self) -> bool:
        """Return whether the pipeline is a single feed that has no checkpoint and resumes from the sink's ledger."""
        return not self.checkpoint and not self.has_many_tables and self.sink.chosen.is_lasting

    @property
    def has_many_tables(self) -> bool:
        return TOPIC_MARK in (self.sink.chosen.snapshot_table or "")

    def connections(self, environment: Mapping[str, str]) -> Connections:
        """Return the file's connections; the environment has those that the file does not declare."""
        default = Connections.from_environment(environment)
        source = self.source.installed.completed(environment) if self.source.installed is not None else None
        return Connections(s3=self.s3 or default.s3, catalogs={**default.catalogs, **self.catalogs}, source=source)
