"""The blocks of a pipeline file together, without the rules between them.

The rules take these blocks, and ``models.PipelineConfig`` runs the rules: so neither imports the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    Field,
    field_validator,
)

from lakefeed import plugins
from lakefeed.config import sinks, sources
from lakefeed.config.addresses import DatasetName, PlainTextLogin, storage_path
from lakefeed.config.base import ConfigProblem, Model, raise_problems, spelled
from lakefeed.config.capabilities import Operation, Refusal
from lakefeed.config.connections import S3, Catalog, Connections
from lakefeed.config.decoding import DeadLetters, Decode, Expectation, RawDecode, SchemaChange
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.config.installed import OneOfInstalled
from lakefeed.config.kafka_sink import KafkaSinkConfig
from lakefeed.config.keyed import KeyedSink
from lakefeed.config.operation import Metrics, SparkUi, Upkeep
from lakefeed.config.secrets import OPTIONS_OF_THE_JVM, Scalar, SecretText
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
"""Which of lakefeed's own reader of topics and encoder of Parquet files may be used; each applies where it can."""


class InstalledSource(Model):
    """The settings of a source that another package adds, of records with topic, partition and offset.

    A model that derives from it has a field ``max_records_per_batch``.
    """

    reader: ClassVar[str]
    """The source's code, the ``package.module:Class`` of a ``SourceReader``; imported when it is needed."""
    jars: ClassVar[tuple[str, ...]] = ()
    """Jars of the source's package, as ``package/name.jar``; they are on the class path of every session."""
    jar_groups: ClassVar[tuple[str, ...]] = ()
    """Groups of the locked jars, for sessions that read the source."""
    failures: ClassVar[Mapping[str, LakefeedError]] = {}
    """What texts of Spark's errors mean, by regular expressions."""
    max_records_per_batch: int
    """Upper bound on the records of one micro-batch."""

    @property
    def topics(self) -> list[str]:
        """The names that the records have as their topic, which schemas are registered for."""
        raise NotImplementedError

    @property
    def needs_checkpoint(self) -> str | None:
        """Why a feed of it cannot resume from the sink's ledger alone; None if it can."""
        return None

    @property
    def dataset(self) -> DatasetName | None:
        """The name of the source for lineage."""
        return None

    def completed(self, environment: Mapping[str, str]) -> Self:
        """Return the same with the environment's settings where the file has none."""
        return self

    def problems(self, config: PipelineBlocks) -> Iterator[ConfigProblem]:
        """Yield each mistake between these settings and the rest of the file."""
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
        """The source, if another package has added it."""
        chosen = getattr(self, self.kind)
        return chosen if isinstance(chosen, InstalledSource) else None

    @property
    def numbered(self) -> sources.KafkaSource | InstalledSource | None:
        """The source, if its records are bytes that ``decode`` reads, and known by topic, partition and offset."""
        return self.kafka or self.installed


class SinkChoice(OneOfInstalled):
    """The destination of the rows."""

    iceberg: IcebergSinkConfig | None = None
    parquet: sinks.ParquetSinkConfig | None = None
    files: sinks.FilesSinkConfig | None = None
    kafka: KafkaSinkConfig | None = None
    memory: sinks.MemorySinkConfig | None = None
    console: sinks.ConsoleSinkConfig | None = None
    format: sinks.FormatSinkConfig | None = None
    python: sinks.PythonSinkConfig | None = None

    group: ClassVar[str] = plugins.SINKS_GROUP
    noun: ClassVar[str] = "sink"
    base: ClassVar[type[sinks.SinkConfig]] = sinks.SinkConfig

    @property
    def chosen(self) -> sinks.SinkConfig:
        """The block of the chosen kind."""
        block: sinks.SinkConfig = getattr(self, self.kind)
        return block

    @property
    def ledger_table(self) -> str:
        """The Iceberg table with the ledger, for operations that a sink without one refuses."""
        if (table := self.chosen.snapshot_table) is None:
            raise ConfigError(f"the ledger of sink.{self.kind} is not in an Iceberg table", where=self.chosen.where)
        return table

    def refusal(self, operation: Operation) -> Refusal | None:
        """Return why the sink cannot do something; None if it can."""
        return self.chosen.capabilities.refusal(operation, sink=self.kind)

    def require(self, operation: Operation, *, where: str | None = None) -> None:
        """Refuse an operation that the sink cannot do; the error names ``where``, by default the sink's own place."""
        if (refusal := self.refusal(operation)) is not None:
            raise ConfigError(refusal.what, where=where or self.chosen.where or None, hint=refusal.hint)


class SecondarySinkChoice(SinkChoice):
    """Another sink of the same rows, beside the feed's own."""

    on_failure: Literal["stop", "pause"] = "stop"
    """When it cannot be written, the feed stops; or continues without it, and it catches up later by itself. To pause,
    a sink has to keep a ledger, such as iceberg or jdbc, and the transform no state."""

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        yield from super()._contradictions()
        if (refusal := self.refusal("stand_beside")) is not None:
            yield ConfigProblem(refusal.what, key=self.kind, hint=refusal.hint)
        elif self.can_lag and (refusal := self.refusal("lag")) is not None:
            yield ConfigProblem(refusal.what, key="on_failure", hint=refusal.hint)

    @property
    def can_lag(self) -> bool:
        """Check that the feed continues without it when it fails."""
        return self.on_failure == "pause"


class RequestBudget(Model):
    """The most that a batch should use. More than that warns, and never stops the feed."""

    s3_requests_per_batch: int | None = Field(None, ge=1, le=2**31 - 1)
    """Requests to S3 in one micro-batch, of driver and executors."""


class OneTable(Model):
    """Settings of one topic and its table, which replace the pipeline's."""

    table: TableName | None = Field(None, description="Another table than the template makes of the topic's name.")
    partition_by: list[PartitionTransform] | None = Field(None, description="As in sink.iceberg.")
    sort_by: list[SortColumn] | None = Field(None, description="As in sink.iceberg.")
    properties: dict[str, str] | None = Field(None, description="As in sink.iceberg.")
    keys: list[str] | None = Field(None, description="As in sink.iceberg, with mode: upsert there.")
    order_by: list[str] | None = Field(None, description="As in sink.iceberg, with mode: upsert there.")
    history: TableName | None = Field(None, description="As in sink.iceberg, with mode: upsert there.")
    decode: Decode | None = None
    schema_: SchemaChange | None = Field(None, alias="schema", description="As the pipeline's schema block.")
    expect: dict[str, Expectation] | None = Field(None, description="As the pipeline's expect block.")
    dead_letters: DeadLetters | None = None
    transform: Transform | None = None
    on_failure: OnFailure | None = Field(None, description="As in tables.")


class Tables(Model):
    """Rules for the tables of a job that writes several."""

    on_failure: OnFailure = "pause"
    """When a table cannot be written, the others continue: it waits for retry_after (pause) or for the next start
    (stop). Or the whole job ends (fail)."""
    retry_after: Period = "5 minutes"
    """How long a paused table waits: '<n> seconds|minutes|hours|days'."""
    at_once: Count = Field(4, description="How many tables are written at the same time.")
    topics: dict[str, OneTable] = Field(default_factory=dict)
    """What is special to some, by the topic's name."""


class Block(Model):
    """A block that another package adds to the pipeline file: an entry point of ``lakefeed.settings`` names its key."""

    only_for_runs: ClassVar[bool] = True
    """Whether only a run needs it: commands that look at a feed, or move it, leave the block out with its secrets."""

    def problems(self, config: PipelineBlocks) -> Iterator[ConfigProblem]:
        """Yield each mistake between this block and the rest of the file; without a key, it is about this block."""
        return iter(())

    @property
    def shares_the_session(self) -> bool:
        """Check that other jobs than batches run in the feed's session for this block."""
        return False

    @property
    def page_url(self) -> str | None:
        """The address of a page about the feed, for messages that link to one."""
        return None

    @property
    def open_port(self) -> int | None:
        """The port that this block opens to other machines, which a cluster has to let through; 0 for any."""
        return None


class PipelineBlocks(Model):
    """All blocks of a pipeline, each valid by itself."""

    name: Annotated[
        str, spelled(Identifier, "a name has up to 200 letters, digits and underscores; it starts with a letter")
    ]
    """The feed's name: it marks commits and the checkpoint. Do not change it later."""
    source: Source
    decode: Decode = Field(default_factory=lambda: Decode(raw=RawDecode()))
    """How records become columns. Required for records of topics and streams only: others' rows come decoded."""
    schema_: SchemaChange = Field(default_factory=SchemaChange, alias="schema")
    """What happens when the records' schema becomes another."""
    expect: dict[str, Expectation] = Field(default_factory=dict)
    """Rules by name that each decoded record has to meet, in this order."""
    dead_letters: DeadLetters | None = None
    """Where records go that cannot be decoded. Default: such a record stops the feed."""
    transform: Transform | None = None
    sink: SinkChoice
    sinks: dict[str, SecondarySinkChoice] = Field(default_factory=dict)
    """Further sinks of the same rows, by name; each batch is read once for all."""
    trigger: Trigger = Field(
        "1 minute",
        description=f"Time between micro-batches ('100 milliseconds', '1 minute'), or {AVAILABLE_NOW}; or from Kafka "
        f"to Kafka {REAL_TIME}, which forwards records immediately and stores its position every {INTERVAL} ('"
        f"{REAL_TIME}, 10 seconds').",
    )
    tables: Tables | None = None
    """With {topic} in the sink's table: what becomes of one that fails, and what is special to some."""
    checkpoint: Annotated[str, AfterValidator(lambda path: path and storage_path(path))] = ""
    """Checkpoint location, for this pipeline only: s3a://bucket/path, or /path on this machine. Optional where the
    sink's ledger is enough to resume: from topics or a stream without state into one sink, such as iceberg or jdbc.
    Not allowed where each topic has a table of its own. Into memory or the console, without it each run starts
    over."""
    fast_path: FastPath = "auto"
    """auto: read topics and write Parquet files with lakefeed's own reader and encoder, where they apply; off: with
    Spark's and Iceberg's; reader, encoder: only one of the two. Rows, the files' schemas and their metrics are the
    same."""
    budget: RequestBudget | None = Field(None, description="What a batch should use at most; more than that warns.")
    upkeep: Upkeep | None = None
    """Look after the tables while the feed runs. Default: lakefeed tables maintain does it."""
    metrics: Metrics = Field(default_factory=Metrics)
    """Metrics and health of the feed: /metrics, /health, Spark's sinks."""
    spark_ui: SparkUi | None = Field(None, description="true, or an address: Spark's own pages. Default: none.")
    tls: Tls = Field(default_factory=Tls, description="Certificates for all connections.")
    s3: S3 | None = Field(None, description="The store. Default: from the AWS environment variables.")
    catalogs: dict[str, Catalog] = Field(default_factory=dict)
    """Iceberg catalogs by name. Default: 'lake', from LAKEFEED_CATALOG_URI and LAKEFEED_WAREHOUSE."""
    spark: dict[str, Scalar] = Field(default_factory=dict)
    """Further Spark settings, such as spark.sql.shuffle.partitions. Jars, class path, extensions and plugins are added
    to lakefeed's own."""

    @field_validator("fast_path", mode="before")
    @classmethod
    def _fast_path_off(cls, value: Any) -> Any:
        # YAML reads off as false.
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
                found.append(ConfigProblem(f"'{key}' is no Spark setting", key=key, hint="they start with 'spark.'"))
            elif isinstance(value, SecretText) and OPTIONS_OF_THE_JVM.fullmatch(key):
                what = f"'{key}' stands on the JVM's command line, which everybody on the machine can read"
                hint = "write it without ${…}; a secret goes into a file that Java reads"
                found.append(ConfigProblem(what, key=key, hint=hint))
        raise_problems(found)
        return settings

    @property
    def added_blocks(self) -> dict[str, Block]:
        """The blocks of installed packages that the file has, by their keys."""
        values = {field.alias or name: getattr(self, name) for name, field in type(self).model_fields.items()}
        return {key: value for key, value in values.items() if isinstance(value, Block)}

    def block(self, model: type[AddedBlock]) -> AddedBlock | None:
        """Return the block of an installed package; None if the file has none."""
        return next((block for block in self.added_blocks.values() if isinstance(block, model)), None)

    @property
    def sink_blocks(self) -> list[tuple[str, SinkChoice]]:
        """Each sink with its place in the file, the feed's own first."""
        return [("sink", self.sink), *((f"sinks.{name}", sink) for name, sink in self.sinks.items())]

    @property
    def written_topics(self) -> list[str]:
        """The topics that the feed writes to, with dead letters or rows."""
        letters = self.dead_letters.topic if self.dead_letters is not None else None
        places = (place for _, sink in self.sink_blocks for place in sink.chosen.places(brokers=self.brokers))
        sinks = [place.name for place in places if place.kind == "topic"]
        return [*([letters] if letters is not None else []), *sinks]

    @property
    def output_mode(self) -> OutputMode:
        """The rows that a batch hands to the sink."""
        return self.transform.output_mode if self.transform is not None else "append"

    @property
    def upserting(self) -> KeyedSink | None:
        """The sink if each record changes the row of its key; None if a query with state makes the rows."""
        return self.sink.chosen.keyed if self.output_mode == "append" else None

    @property
    def kafka(self) -> sources.KafkaSource:
        """The source, where it is Kafka."""
        if self.source.kafka is None:
            raise ConfigError(
                f"pipeline '{self.name}' reads {self.source.kind}, and this is for topics of Kafka: other sources have "
                "no offsets that could be asked for, chosen or compared",
                where=f"source.{self.source.kind}",
            )
        return self.source.kafka

    @property
    def brokers(self) -> str:
        """The brokers of the source; empty if it is not Kafka."""
        return self.source.kafka.bootstrap_servers if self.source.kafka is not None else ""

    @property
    def table_rules(self) -> Tables:
        """The block ``tables``, or its defaults."""
        return self.tables or Tables()

    @property
    def has_fast_reader(self) -> bool:
        """Check that lakefeed's own reader of topics may be used."""
        return self.fast_path in ("auto", "reader")

    @property
    def has_fast_encoder(self) -> bool:
        """Check that lakefeed's own encoder of Parquet files may be used."""
        return self.fast_path in ("auto", "encoder")

    @property
    def shares_its_session(self) -> bool:
        """Check that other jobs than batches run in the session: upkeep, or those of an added block."""
        return self.upkeep is not None or any(block.shares_the_session for block in self.added_blocks.values())

    @property
    def resumes_by_ledger(self) -> bool:
        """Check that one feed has no checkpoint, and its sink's ledger says where it resumes."""
        return not self.checkpoint and not self.has_many_tables and self.sink.chosen.is_lasting

    @property
    def has_many_tables(self) -> bool:
        """Check that each topic goes to a table of its own."""
        return TOPIC_MARK in (self.sink.chosen.snapshot_table or "")

    def connections(self, environment: Mapping[str, str]) -> Connections:
        """Return store and catalogs as declared, the rest from the environment."""
        default = Connections.from_environment(environment)
        source = self.source.installed.completed(environment) if self.source.installed is not None else None
        return Connections(s3=self.s3 or default.s3, catalogs={**default.catalogs, **self.catalogs}, source=source)
