"""``pipeline.yaml`` as models: what may stand in it, its defaults, and what each setting is for.

The reference in the documents and the JSON Schema for editors are generated from here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveInt, field_validator, model_validator

from lakefeed.config.base import Complaint, Complaints, Model, OneOf
from lakefeed.config.connections import S3, Catalog, Connections
from lakefeed.config.decoding import Decode, RawDecode
from lakefeed.config.failures import DeadLetters, Expectation, SchemaChange, seconds_of
from lakefeed.config.jdbc import JdbcSink
from lakefeed.config.kafka_sink import KafkaSink
from lakefeed.config.kinesis import KinesisSource
from lakefeed.config.many import Tables
from lakefeed.config.names import TOPIC, TOPIC_MARK, Identifier, TableTemplate, catalog_of
from lakefeed.config.partitions import complain, entries, known_transforms
from lakefeed.config.sinks import ConsoleSink, FileFormat, FormatSink, MemorySink, PythonSink, SinkBlock
from lakefeed.config.sorting import known_order
from lakefeed.config.sources import FilesSource, FormatSource, IcebergSource, RateSource, SocketSource
from lakefeed.config.transform import OutputMode, Transform
from lakefeed.config.triggers import AVAILABLE_NOW, INTERVAL, REAL_TIME, known, misfits
from lakefeed.config.upkeep import Duration, Upkeep
from lakefeed.config.upserts import Deletes, in_pipeline, in_sink
from lakefeed.errors import ConfigError
from lakefeed.kafka.client_options import consumer_complaints

Scalar = str | int | float | bool


class KafkaSource(Model):
    """Topics of one Kafka cluster."""

    bootstrap_servers: str = Field(description="host:port of one or more brokers, separated by commas.")
    topics: list[str] | None = Field(None, description="Topics to read.", min_length=1)
    topics_pattern: str | None = Field(None, description="Or a regular expression of topic names.")
    start: Literal["earliest", "latest"] = Field(
        "earliest", description="Where a new feed begins; afterwards it goes on where its last commit ended."
    )
    max_records_per_batch: PositiveInt = Field(
        1_000_000, description="Upper bound on the records of one micro-batch, over all partitions."
    )
    min_records_per_batch: PositiveInt | None = Field(
        None,
        description="Wait until so many records are there, or max_wait is over: larger batches write larger files. "
        "Default: whatever is there when the trigger says.",
    )
    max_wait: Duration = Field(
        "10 minutes", description="No record waits longer than this for min_records_per_batch to come together."
    )
    deduplicate: bool = Field(
        False,
        description="Leave out the copies that lakefeed's Kafka sink has made where it sent a batch again; told by the "
        "records' headers. Makes the feed one with state.",
    )
    monitoring_group: str | None = Field(
        None,
        min_length=1,
        description="Consumer group that is set to the feed's position after each batch, for tools that watch lag. "
        "Nothing reads it back.",
    )
    options: dict[str, Scalar] = Field(
        default_factory=dict,
        description="Kafka client settings with the prefix kafka., for instance kafka.max.poll.records.",
    )

    @field_validator("topics", mode="before")
    @classmethod
    def _topic_names(cls, topics: Any) -> Any:
        topics = [topics] if isinstance(topics, str) else topics
        hint = "write several as a list: [orders, payments]; for a regular expression use topics_pattern"
        complain(
            Complaint(key=index, what=f"'{topic}' can be no topic's name", hint=hint)
            for index, topic in entries(topics)
            if isinstance(topic, str) and (not TOPIC.fullmatch(topic) or topic in (".", ".."))
        )
        return topics

    @field_validator("options", mode="before")
    @classmethod
    def _client_options(cls, options: Any) -> Any:
        complain(consumer_complaints(options) if isinstance(options, dict) else ())
        return options

    @field_validator("topics_pattern")
    @classmethod
    def _pattern_compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"not a regular expression: {error}") from None
        return pattern

    @model_validator(mode="after")
    def _topics_or_pattern(self) -> KafkaSource:
        if (self.topics is None) == (self.topics_pattern is None):
            raise ValueError("give either topics or topics_pattern")
        return self

    @model_validator(mode="after")
    def _bounds_of_a_batch(self) -> KafkaSource:
        least = self.min_records_per_batch
        if least is None and "max_wait" in self.model_fields_set:
            raise ValueError("max_wait is for min_records_per_batch, which is not said")
        if least is not None and least > self.max_records_per_batch:
            raise ValueError("min_records_per_batch is more than max_records_per_batch")
        return self

    @property
    def max_wait_seconds(self) -> int:
        """``max_wait`` as a number."""
        return seconds_of(self.max_wait)

    def reads(self, topic: str) -> bool:
        """Whether a topic of this name is among those to read."""
        if self.topics is not None:
            return topic in self.topics
        return re.fullmatch(self.topics_pattern or "", topic) is not None


class Source(OneOf):
    """Where records come from."""

    __kinds__ = ("kafka", "kinesis", "files", "rate", "socket", "iceberg", "format")
    kafka: KafkaSource | None = None
    kinesis: KinesisSource | None = None
    files: FilesSource | None = None
    rate: RateSource | None = None
    socket: SocketSource | None = None
    iceberg: IcebergSource | None = None
    format: FormatSource | None = None

    @property
    def numbered(self) -> KafkaSource | KinesisSource | None:
        """The source, if its records are bytes that ``decode`` reads, and known by topic, partition and offset."""
        return self.kafka or self.kinesis


class IcebergSink(SinkBlock):
    """An Iceberg table, created from the rows' schema if it is missing."""

    table: TableTemplate = Field(
        description="catalog.namespace.table. With {topic} in it, each topic goes to a table of its own."
    )
    partition_by: list[str] = Field(
        default_factory=list,
        description="Partition transforms: column, years|months|days|hours(column), bucket(n, column), "
        "truncate(n, column).",
    )
    sort_by: list[str] = Field(
        default_factory=list,
        description="Order of the rows in each file: column, column desc, column desc nulls first. If partition_by or "
        "sort_by change here, the table's new files follow at the next start.",
    )
    properties: dict[str, str] = Field(
        default_factory=dict, description="Table properties, set when lakefeed creates the table."
    )
    mode: Literal["append", "upsert", "overwrite"] = Field(
        "append",
        description="Rows are added; or the newest row for each key is kept; or each batch replaces all rows, which "
        "transform.output_mode: complete wants.",
    )
    keys: list[str] = Field(default_factory=list, description="With upsert: the columns that a row is known by.")
    order_by: list[str] = Field(
        default_factory=list,
        description="With upsert: columns that say which change of a key is newer. Default: the offset, so that all "
        "changes of a key have to be in one partition.",
    )
    delete: Deletes = Field(default_factory=Deletes, description="With upsert: which records delete.")
    on_delete: Literal["remove", "mark"] = Field(
        "remove",
        description="With upsert: remove the row, or keep it with lakefeed_deleted = true, so that an older change "
        "that comes late does not bring the key back.",
    )
    write: Literal["merge-on-read", "copy-on-write"] = Field(
        "merge-on-read",
        description="With upsert: write what has changed beside the old files, or write the files anew that it is in.",
    )
    history: TableTemplate | None = Field(
        None, description="With upsert: a table beside it that every change is appended to."
    )

    @model_validator(mode="after")
    def _upserts(self) -> IcebergSink:
        complain(in_sink(self))
        return self

    @field_validator("partition_by", mode="before")
    @classmethod
    def _known_transforms(cls, transforms: Any) -> Any:
        return known_transforms(transforms)

    @field_validator("sort_by", mode="before")
    @classmethod
    def _known_order(cls, columns: Any) -> Any:
        return known_order(columns)

    guarantee: ClassVar[str] = "exactly-once"
    other_modes: ClassVar[str] = "update wants mode: upsert and keys, complete wants mode: overwrite"

    @property
    def modes(self) -> tuple[OutputMode, ...]:
        """One for each ``mode``; changes by key come from records (append) or from groups (update)."""
        modes: dict[str, tuple[OutputMode, ...]] = {"upsert": ("append", "update"), "overwrite": ("complete",)}
        return modes.get(self.mode, ("append",))

    @property
    def target(self) -> str:
        """The table."""
        return self.table

    @property
    def catalog(self) -> str:
        """The catalog's name."""
        return catalog_of(self.table)


class PathSink(SinkBlock):
    """Files below a path: what their kinds have in common."""

    guarantee: ClassVar[str] = "exactly-once"

    path: str = Field(description="s3a://bucket/path")
    partition_by: list[str] = Field(default_factory=list, description="Columns that become directories.")

    @field_validator("path")
    @classmethod
    def _s3a(cls, path: str) -> str:
        return s3a_path(path)

    @property
    def target(self) -> str:
        """The path."""
        return self.path


class ParquetSink(PathSink):
    """Parquet files below a path, listed exactly once in Spark's ``_spark_metadata``."""

    compression: Literal["zstd", "snappy", "lz4_raw", "gzip", "none"] = Field("zstd", description="Codec.")

    @model_validator(mode="before")
    @classmethod
    def _appends(cls, block: Any) -> Any:
        if isinstance(block, dict) and block.get("mode") == "upsert":
            hint = "land the feed in an Iceberg table: sink: {iceberg: {mode: upsert, …}}"
            raise Complaints([Complaint(key="mode", what="rows in Parquet files cannot be changed", hint=hint)])
        return block

    def writer_options(self) -> dict[str, str]:
        """For Spark's writer."""
        return {"compression": self.compression}


class FilesSink(PathSink):
    """Files below a path, in directories by column, listed exactly once in Spark's ``_spark_metadata``."""

    format: FileFormat = Field("parquet", description="What the files are. What CSV has no form for is JSON in it.")
    table: str | None = Field(
        None,
        pattern=rf"^({Identifier}\.)?{Identifier}$",
        description="A table of Spark's session catalog (Hive's, where there is one) over the directories: made if it "
        "is missing, and told of new partitions after each batch.",
    )
    options: dict[str, str] = Field(default_factory=dict, description="Spark's options for writing the format.")

    def writer_options(self) -> dict[str, str]:
        """For Spark's writer; CSV has a header."""
        return {**({"header": "true"} if self.format == "csv" else {}), **self.options}


class Sink(OneOf):
    """Where rows go."""

    __kinds__ = ("iceberg", "parquet", "files", "jdbc", "kafka", "memory", "console", "format", "python")
    iceberg: IcebergSink | None = None
    parquet: ParquetSink | None = None
    files: FilesSink | None = None
    jdbc: JdbcSink | None = None
    kafka: KafkaSink | None = None
    memory: MemorySink | None = None
    console: ConsoleSink | None = None
    format: FormatSink | None = None
    python: PythonSink | None = None

    @property
    def chosen(self) -> SinkBlock:
        """The block of the kind that it is."""
        block: SinkBlock = getattr(self, self.kind)
        return block

    @property
    def logged_path(self) -> str | None:
        """Where files are that Spark's log of batches lists; None for other sinks."""
        block = self.parquet or self.files
        return block.path if block is not None else None


class SideSink(Sink):
    """Another sink of the same rows, beside the feed's own."""

    on_failure: Literal["stop", "pause"] = Field(
        "stop",
        description="When it cannot be written, the feed stops; or goes on without it, and it catches up later by "
        "itself. To pause, a sink has to keep a ledger (iceberg), and the transform no state.",
    )

    @model_validator(mode="after")
    def _can_be_beside(self) -> SideSink:
        if self.logged_path is not None:
            hint = "make it the pipeline's sink, and the other one of sinks; or sink.iceberg"
            what = f"{self.kind} cannot be beside another sink: its log knows batch ids, and no offsets"
            raise Complaints([Complaint(key=self.kind, what=what, hint=hint)])
        if self.on_failure == "pause" and self.iceberg is None:
            what = f"{self.kind} keeps no ledger that it could catch up from"
            raise Complaints([Complaint(key="on_failure", what=what, hint="on_failure: stop")])
        return self


class Budget(Model):
    """What a feed should use at most. More than that warns, and never stops it."""

    s3_requests_per_batch: int | None = Field(
        None, ge=1, description="Requests to S3 in one micro-batch, of driver and executors."
    )


class PipelineConfig(Model):
    """A pipeline: topics in, one table out."""

    name: str = Field(description="The feed's name: it marks commits and the checkpoint. Do not change it later.")
    source: Source
    decode: Decode = Field(
        default_factory=lambda: Decode(raw=RawDecode()),
        description="How records become columns. Wanted for Kafka and Kinesis alone: others' rows come decoded.",
    )
    schema_: SchemaChange = Field(
        default_factory=SchemaChange,
        alias="schema",
        description="What happens when the records' schema becomes another.",
    )
    expect: dict[str, Expectation] = Field(
        default_factory=dict, description="Rules by name that each decoded record has to meet, in this order."
    )
    dead_letters: DeadLetters | None = Field(
        None, description="Where records go that cannot be decoded. Default: such a record stops the feed."
    )
    transform: Transform | None = None
    sink: Sink
    sinks: dict[str, SideSink] = Field(
        default_factory=dict, description="Further sinks of the same rows, by name; each batch is read once for all."
    )
    trigger: str = Field(
        "1 minute",
        description=f"Time between micro-batches ('10 seconds', '1 minute'), or {AVAILABLE_NOW}; or from Kafka to "
        f"Kafka {REAL_TIME}, which hands on each record at once and notes each {INTERVAL} how far it is ('{REAL_TIME}, "
        "10 seconds').",
    )
    tables: Tables | None = Field(
        None,
        description="With {topic} in the sink's table: what becomes of one that fails, and what is special to some.",
    )
    checkpoint: str = Field(
        "",
        description="Checkpoint location: s3a://bucket/path, for this pipeline alone. Wanted, unless each topic has a "
        "table of its own: then the tables' ledgers are all that there is; or the sink is memory or console: then each "
        "run may begin anew.",
    )
    budget: Budget | None = Field(None, description="What a batch should use at most; more than that warns.")
    upkeep: Upkeep | None = Field(
        None, description="Look after the tables while the feed runs. Default: lakefeed tables maintain does it."
    )
    s3: S3 | None = Field(None, description="The store. Default: from the AWS environment variables.")
    catalogs: dict[str, Catalog] = Field(
        default_factory=dict,
        description="Iceberg catalogs by name. Default: 'lake', from LAKEFEED_CATALOG_URI and LAKEFEED_WAREHOUSE.",
    )
    spark: dict[str, Scalar] = Field(
        default_factory=dict, description="Further Spark settings, such as spark.sql.shuffle.partitions."
    )

    @field_validator("name")
    @classmethod
    def _name_is_identifier(cls, name: str) -> str:
        if not re.fullmatch(Identifier, name):
            raise ValueError("a name has letters, digits and underscores, and starts with a letter")
        return name

    @field_validator("trigger")
    @classmethod
    def _known_trigger(cls, trigger: str) -> str:
        return known(trigger)

    @field_validator("checkpoint")
    @classmethod
    def _s3a(cls, path: str) -> str:
        return s3a_path(path) if path else path

    @field_validator("spark", mode="before")
    @classmethod
    def _spark_keys(cls, settings: Any) -> Any:
        complaints = []
        for key in settings if isinstance(settings, dict) else ():
            if not key.startswith("spark."):
                what, hint = f"'{key}' is no Spark setting", "they start with 'spark.'"
                complaints.append(Complaint(key=key, what=what, hint=hint))
            elif re.search(r"(?i)secret|password|token|access[._-]?key|credential", key):
                what, hint = f"'{key}' would show a secret in Spark's UI", "use s3, catalogs or decode for it"
                complaints.append(Complaint(key=key, what=what, hint=hint))
        complain(complaints)
        return settings

    @model_validator(mode="after")
    def _a_place_for_dead_letters(self) -> PipelineConfig:
        if self.dead_letters is None:
            wanted = [f"expect.{name}" for name, each in self.expect.items() if each.on_violation == "dead_letter"]
            wanted += ["decode.on_null"] if self.decode.on_null == "dead_letter" else []
            if wanted:
                raise ValueError(f"{wanted[0]} makes dead letters, and dead_letters does not say where they go")
        return self

    @model_validator(mode="after")
    def _upserts(self) -> PipelineConfig:
        complain(in_pipeline(self))
        return self

    @model_validator(mode="after")
    def _no_circle(self) -> PipelineConfig:
        kafka, topic = self.source.kafka, self.dead_letters.topic if self.dead_letters else None
        if kafka is not None and topic is not None and kafka.reads(topic):
            raise ValueError(f"the dead letters would go to {topic}, which the source reads: they would go in a circle")
        return self

    @model_validator(mode="after")
    def _what_real_time_can(self) -> PipelineConfig:
        for why in misfits(self):
            raise ValueError(why)
        return self

    @model_validator(mode="after")
    def _topics_to_write_to(self) -> PipelineConfig:
        source, blocks = (
            self.source.kafka,
            {"sink": self.sink, **{f"sinks.{name}": s for name, s in self.sinks.items()}},
        )
        for place, sink in ((place, each.kafka) for place, each in blocks.items() if each.kafka is not None):
            if source is None and sink.bootstrap_servers is None:
                raise ValueError(
                    f"{place}.kafka.bootstrap_servers has to say where the topic is: the source is not Kafka"
                )
            same = source is not None and sink.bootstrap_servers in (None, source.bootstrap_servers)
            if source is not None and same and source.reads(sink.topic):
                raise ValueError(
                    f"{place} is the topic {sink.topic}, which the source reads: rows would go in a circle"
                )
        if source is not None and source.deduplicate and self.has_many_tables:
            raise ValueError(
                f"source.kafka.deduplicate keeps state, which a table for each topic ({TOPIC_MARK}) cannot"
            )
        return self

    @model_validator(mode="after")
    def _tables_to_look_after(self) -> PipelineConfig:
        letters = self.dead_letters.table if self.dead_letters else None
        if self.upkeep is not None and self.sink.iceberg is None and letters is None:
            raise ValueError("upkeep looks after Iceberg tables, and this pipeline writes to none")
        return self

    @model_validator(mode="after")
    def _sinks_take_the_output(self) -> PipelineConfig:
        for place, block in (("sink", self.sink), *((f"sinks.{name}", each) for name, each in self.sinks.items())):
            sink = block.chosen
            if self.output_mode not in sink.modes:
                raise ValueError(
                    f"transform.output_mode: {self.output_mode} does not fit {place}.{block.kind}, which takes "
                    f"{' and '.join(sink.modes)}{f' ({sink.other_modes})' if sink.other_modes else ''}"
                )
        return self

    @model_validator(mode="after")
    def _sinks_beside(self) -> PipelineConfig:
        places = {f"{self.sink.kind} {self.sink.chosen.target}"}
        for name, each in self.sinks.items():
            if self.has_many_tables:
                raise ValueError(f"with {TOPIC_MARK} in sink.iceberg.table there are no sinks beside it")
            if each.iceberg is not None and TOPIC_MARK in each.iceberg.table:
                raise ValueError(f"sinks.{name}: a table for each topic is for sink.iceberg alone")
            keyed = each.iceberg or each.jdbc
            if keyed is not None and keyed.mode == "upsert" and self.output_mode == "append":
                raise ValueError(f"sinks.{name}: records that change rows by key go to the feed's own sink alone")
            where = f"{each.kind} {each.chosen.target}"
            if where in places and each.chosen.target:
                raise ValueError(f"sinks.{name} goes where another sink goes: {where}")
            places.add(where)
        return self

    @model_validator(mode="after")
    def _streams_of_topics(self) -> PipelineConfig:
        streams = self.transform.streams if self.transform is not None else {}
        if not streams:
            return self
        wanted = sorted(each.topic for each in streams.values())
        topics = self.source.kafka.topics if self.source.kafka is not None else None
        if topics is None or wanted != sorted(topics):
            raise ValueError(
                "transform.streams has each topic of source.kafka.topics once, and no other: a record that is in no "
                "stream, or in two, would not be counted once"
            )
        if self.has_many_tables or any(each.on_failure == "pause" for each in self.sinks.values()):
            raise ValueError("transform.streams joins, which keeps state: no table for each topic, no sink that pauses")
        return self

    @property
    def output_mode(self) -> OutputMode:
        """What a batch hands to the sink."""
        return self.transform.output_mode if self.transform is not None else "append"

    @property
    def kafka(self) -> KafkaSource:
        """The source, where it is Kafka.

        Raises:
            ConfigError: it is another, of which what is asked for cannot be told.
        """
        if self.source.kafka is None:
            raise ConfigError(
                f"pipeline '{self.name}' reads {self.source.kind}, and this is for topics of Kafka: other sources have "
                "no offsets that could be asked for, chosen or compared",
                where=f"source.{self.source.kind}",
            )
        return self.source.kafka

    @model_validator(mode="after")
    def _what_belongs_to_kafka(self) -> PipelineConfig:
        if self.source.numbered is not None:
            if "decode" not in self.model_fields_set:
                raise ValueError("decode has to say how the records become columns")
            if self.source.kafka is not None and "sequence_number" in self.decode.metadata:
                raise ValueError("decode.metadata: records of Kafka have no sequence_number, but an offset")
            complain(_of_kinesis(self) if self.source.kinesis is not None else ())
            return self
        for name in ("decode", "schema_", "expect", "dead_letters"):
            if name in self.model_fields_set:
                raise ValueError(
                    f"{name.rstrip('_')} is for records of Kafka and Kinesis; rows of {self.source.kind} come decoded"
                )
        if self.has_many_tables:
            raise ValueError(f"{TOPIC_MARK} in sink.iceberg.table is for topics of Kafka")
        keyed = self.sink.iceberg or self.sink.jdbc
        if keyed is not None and keyed.mode == "upsert" and self.output_mode == "append":
            raise ValueError(f"mode: upsert orders changes by their offset, and rows of {self.source.kind} have none")
        return self

    @model_validator(mode="after")
    def _one_table_or_many(self) -> PipelineConfig:
        if not self.has_many_tables:
            if self.tables is not None:
                raise Complaints(
                    [Complaint(key="tables", what=f"means nothing without {TOPIC_MARK} in sink.iceberg.table")]
                )
            if self.dead_letters is not None and TOPIC_MARK in (self.dead_letters.table or ""):
                raise ValueError(f"dead_letters.table has {TOPIC_MARK}, and sink.iceberg.table has not")
            if not self.checkpoint and self.sink.chosen.is_lasting:
                raise ValueError("a pipeline needs a checkpoint: s3a://bucket/path")
        elif self.checkpoint:
            what = f"means nothing with {TOPIC_MARK} in sink.iceberg.table: the tables' ledgers say where each goes on"
            raise Complaints([Complaint(key="checkpoint", what=what, hint="remove it")])
        return self

    @property
    def has_many_tables(self) -> bool:
        """Whether each topic goes to a table of its own."""
        return self.sink.iceberg is not None and TOPIC_MARK in self.sink.iceberg.table

    def connections(self, environment: Mapping[str, str]) -> Connections:
        """Store and catalogs: as declared, the rest from the environment."""
        default = Connections.from_environment(environment)
        kinesis = self.source.kinesis.completed(environment) if self.source.kinesis is not None else None
        return Connections(s3=self.s3 or default.s3, catalogs={**default.catalogs, **self.catalogs}, kinesis=kinesis)


def _of_kinesis(config: PipelineConfig) -> Iterator[Complaint]:
    """What goes with topics of Kafka, and not with a stream of Kinesis."""
    if config.has_many_tables:
        yield Complaint(what=f"{TOPIC_MARK} in sink.iceberg.table is for topics of Kafka")
    if config.decode.is_sampled:
        yield Complaint(what="json: {schema: sample} samples topics of Kafka", hint="decode.json.schema_ddl")
    if config.dead_letters is not None and config.dead_letters.topic is not None:
        yield Complaint(what="dead letters of a stream of Kinesis are kept in a table", hint="dead_letters.table")
    keyed = config.sink.iceberg or config.sink.jdbc
    if keyed is not None and keyed.mode == "upsert" and config.output_mode == "append" and not keyed.order_by:
        yield Complaint(
            what="after a split or a merge a key's changes go to another shard, which numbers its records anew: "
            "nothing says then which change is newer",
            hint="order_by: a column of the value that does",
        )
    for name, each in config.sinks.items():
        if each.on_failure == "pause":
            yield Complaint(
                what=f"sinks.{name} could not be given what it has missed of a stream of Kinesis",
                hint="on_failure: stop",
            )


def s3a_path(path: str) -> str:
    """An ``s3a://bucket/key`` path without a slash at its end; ``s3://`` is taken as the same.

    Raises:
        ValueError: if it is no such path.
    """
    match = re.fullmatch(r"s3a?://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(.+)", path)
    if not match or ".." in match[2].split("/"):
        raise ValueError("write it as s3a://bucket/path")
    return f"s3a://{match[1]}/{match[2].rstrip('/')}"
