"""The settings that all sinks share, and the blocks of sinks without a ledger of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from lakefeed.config.addresses import FORMS, DatasetName, Place, PlainTextLogin, path_name, spell_path, storage_path
from lakefeed.config.base import ConfigProblem, ConfigProblems, Model, spelled
from lakefeed.config.capabilities import Capabilities, Refusal, SinkFiles
from lakefeed.config.keyed import KeyedSink
from lakefeed.config.secrets import Scalar, Text
from lakefeed.config.sources import KafkaSource
from lakefeed.config.transform import FUNCTION, OutputMode
from lakefeed.config.values import Count, FileFormat, Identifier, catalog_of
from lakefeed.messages.pages import page_command

EVERY_MODE: tuple[OutputMode, ...] = ("append", "update", "complete")
MODES: dict[str, tuple[OutputMode, ...]] = {
    "append": ("append",),
    "upsert": ("append", "update"),
    "overwrite": ("complete",),
}
"""Output modes by a sink's ``mode``. With upsert, changes come from records (append) or from groups (update)."""


class SinkConfig(Model):
    """The settings of a sink, with its declared capabilities.

    A sink of another package derives from this class, or from ``EntrySinkConfig``.
    """

    definition: ClassVar[str]
    """The sink's ``BatchSink`` or ``SinkDefinition``, as ``package.module:Class``; imported at its first use."""
    capabilities: ClassVar[Capabilities] = Capabilities()
    """The operations that the sink supports, with texts for those that it refuses."""
    guarantee: ClassVar[str] = "at-least-once"
    """exactly-once or at-least-once; docs/sinks.md names the conditions."""
    other_modes: ClassVar[str] = ""
    """A text for errors: which settings make the sink accept other output modes; empty if none do."""
    is_lasting: ClassVar[bool] = True
    """Whether rows last longer than the run. If not, a pipeline needs no checkpoint."""

    jars: ClassVar[tuple[str, ...]] = ()
    """Jars of the sink's package, as ``package/name.jar``; they are on the class path of every session."""
    reads_stored_rows: ClassVar[bool] = True
    """Whether a change by key is merged with the stored row; False if it replaces the whole row."""

    @property
    def modes(self) -> tuple[OutputMode, ...]:
        """The output modes that the sink accepts with these settings."""
        return MODES.get(getattr(self, "mode", "append"), ("append",))

    def doubles(self, mode: OutputMode) -> bool:
        """Return whether rows may be there twice after a batch was cut off and repeated."""
        return self.guarantee == "at-least-once" and self.is_lasting

    def problems(self, place: str, source: KafkaSource | None) -> Iterator[ConfigProblem]:
        """Yield contradictions between this sink, at ``place``, and the source, which is None if it is not Kafka."""
        yield from ()

    def refuses(self, columns: Sequence[tuple[str, str]]) -> Iterator[ConfigProblem]:
        """Yield problems with columns that the sink cannot store; a column is a dotted path and a DDL type."""
        yield from ()

    @property
    def keyed(self) -> KeyedSink | None:
        """The settings for one row for each key; None for a sink that keeps all rows."""
        return None

    @property
    def lands_changes(self) -> str | None:
        """A text that says how the sink lands changes of keyed rows; None if it has one way, or no keys."""
        return None

    @property
    def record_positions(self) -> Literal["unused", "used", "required"]:
        """The use of a record's topic, partition and offset: unused, used if the rows have them, or required."""
        return "unused"

    @property
    def target(self) -> str:
        """The sink's target, such as the table or path; with the kind of sink it identifies a checkpoint's target."""
        return ""

    def places(self, *, brokers: str) -> Iterator[Place]:
        """Yield the places of the rows. No other part of the pipeline may use them.

        Args:
            brokers: the source's brokers; empty if the source is not Kafka.
        """
        if self.storage_paths:
            yield Place("", "path", spell_path(self.target))
        elif self.target:
            # Two sinks may have the same class or format; their options make them different places.
            options = [f"{name}={value}" for name, value in sorted(getattr(self, "options", {}).items())]
            yield Place("", "", ", ".join([self.target, *options]))

    def plain_text_logins(self, *, brokers: str) -> Iterator[PlainTextLogin]:
        """Yield each login that would cross a network without TLS; ``brokers`` as for ``places``."""
        return iter(())

    def dataset(self, *, feed: str, brokers: str) -> DatasetName | None:
        """Return the target's dataset name for lineage; None for tables of a catalog and sinks that store nothing.

        Args:
            feed: the pipeline's name.
            brokers: the source's brokers.
        """
        if self.snapshot_tables or not self.target:
            return None
        if self.target.startswith(("s3a://", "s3://", "file:")):
            return path_name(self.target)
        return DatasetName("spark", self.target)

    @property
    def where(self) -> str:
        """The sink's place as errors show it."""
        return self.target

    @property
    def table_name(self) -> str:
        """The table's name as reports show it."""
        return self.target

    @property
    def snapshot_table(self) -> str | None:
        """The Iceberg table whose snapshots are the ledger; None for a sink with another ledger or without one."""
        return None

    @property
    def snapshot_tables(self) -> Mapping[str, str]:
        """All Iceberg tables that the sink writes to, by the options that name them."""
        return {}

    @property
    def names_made(self) -> frozenset[str]:
        """Tables whose names come from a topic, not from the file; they are the feed's only if it has created them."""
        return frozenset()

    @property
    def landing_branch(self) -> str | None:
        """The table's branch that receives rows before they are published; None if readers see rows immediately."""
        return None

    @property
    def catalog_name(self) -> str | None:
        """The Iceberg catalog that the sink needs."""
        return None if self.snapshot_table is None else catalog_of(self.snapshot_table)

    @property
    def storage_paths(self) -> Mapping[str, str]:
        """Places in a store or on this machine, by the options that name them."""
        return {}

    @property
    def stored_files(self) -> SinkFiles:
        """The files and requests of a batch in the object store, for estimates."""
        return SinkFiles(is_unknown=True)

    def columns(self) -> Iterator[tuple[str, str]]:
        """Yield the options that name columns of the rows, such as ``keys.0``, with these columns."""
        for option in ("partition_by", "sort_by", "keys", "order_by"):
            for index, column in enumerate(getattr(self, option, ())):
                yield f"{option}.{index}", column if isinstance(column, str) else column.column.partition(".")[0]

    def functions(self) -> Iterator[tuple[str, str]]:
        """Yield the options that name Python functions or classes, with their ``package.module:Class``."""
        return iter(())

    def sql_expressions(self) -> Iterator[tuple[str, str]]:
        """Yield the options that are SQL expressions over the rows, with their texts."""
        return iter(())


class EntrySinkConfig(SinkConfig):
    """The settings of another package's exactly-once sink; its class has ``entries``."""

    guarantee: ClassVar[str] = "exactly-once"
    capabilities: ClassVar[Capabilities] = Capabilities(
        rewind=Refusal(
            "a feed into sink.{sink} cannot be rewound: its rows would be there twice",
            "name another table and another checkpoint location, which reads the source again",
        ),
        verify=None,
        lag=None,
    )


class MemorySinkConfig(SinkConfig):
    """A view in the Spark session, for SQL queries while the pipeline runs."""

    definition: ClassVar[str] = "lakefeed.sinks.spark_format:MemoryDefinition"
    is_lasting: ClassVar[bool] = False
    modes: ClassVar[tuple[OutputMode, ...]] = EVERY_MODE
    stored_files: ClassVar[SinkFiles] = SinkFiles(elsewhere="the driver's memory")

    view: str | None = Field(None, pattern=f"^{Identifier}$")
    """The view's name. Default: the pipeline's name followed by _rows."""
    keys: list[str] = Field(default_factory=list)
    """With output_mode: update: a newer row replaces the row with the same values in these columns."""
    max_rows: Count = 100_000
    """The most rows in the view. More rows stop the pipeline, since they are in the driver's memory."""

    def dataset(self, *, feed: str, brokers: str) -> DatasetName:
        return DatasetName("inmemory://", feed)


class ConsoleSinkConfig(SinkConfig):
    """Prints the first rows of each batch."""

    definition: ClassVar[str] = "lakefeed.sinks.spark_format:ConsoleDefinition"
    is_lasting: ClassVar[bool] = False
    modes: ClassVar[tuple[OutputMode, ...]] = EVERY_MODE
    stored_files: ClassVar[SinkFiles] = SinkFiles(elsewhere="the console")

    rows: Count = Field(20, description="How many of each batch.")
    width: Count = Field(60, description="Characters of a column at most.")


class FormatSinkConfig(SinkConfig):
    """Any format that Spark can write a batch to, by its name: Cassandra, MongoDB, Delta, ORC, …"""

    definition: ClassVar[str] = "lakefeed.sinks.spark_format:SparkFormatDefinition"
    # complete replaces the stored rows; the other modes append.
    modes: ClassVar[tuple[OutputMode, ...]] = EVERY_MODE

    name: str = Field(description="The format: orc, delta, org.apache.spark.sql.cassandra, …; its jar has to be there.")
    path: str | None = Field(None, description="Where to, for formats that take a path.")
    options: dict[str, Text] = Field(default_factory=dict, description="Options of the format.")
    partition_by: list[str] = Field(default_factory=list, description="Columns, for formats that take them.")

    def doubles(self, mode: OutputMode) -> bool:
        """Return False for complete, with which each batch replaces all rows."""
        return mode != "complete"

    @property
    def target(self) -> str:
        return " ".join(each for each in (self.name, self.path or self.options.get("path", "")) if each)


class PythonSinkConfig(SinkConfig):
    """A Python class of yours that writes batches: see `lakefeed docs sinks`."""

    definition: ClassVar[str] = "lakefeed.sinks.python:PythonDefinition"
    # Only the class knows its modes, and it is not loaded yet.
    modes: ClassVar[tuple[OutputMode, ...]] = EVERY_MODE

    path: Annotated[str, spelled(FUNCTION, "write it as package.module:Class")]
    """The class as package.module:Class, on PYTHONPATH or beside the pipeline file."""
    options: dict[str, Scalar] = Field(default_factory=dict, description="Arguments of the class, by name.")

    @property
    def target(self) -> str:
        return self.path

    def functions(self) -> Iterator[tuple[str, str]]:
        yield "path", self.path


# Files below a path.


class PathSinkConfig(SinkConfig):
    """Files below a path: the settings that sinks of files share."""

    definition: ClassVar[str] = "lakefeed.sinks.files:FilesDefinition"
    guarantee: ClassVar[str] = "exactly-once"
    capabilities: ClassVar[Capabilities] = Capabilities(
        rewind=Refusal(
            "a feed of files cannot be moved: its log is numbered by batches and knows no offsets",
            "name another path and another checkpoint location, which reads the source again",
        ),
        backfill=Refusal(
            "a feed of files cannot be backfilled: its log knows batch ids, not offsets, and nothing would keep "
            "records from landing twice",
            "lakefeed read writes old records to a path of their own; or land the feed in an Iceberg table",
        ),
        verify=Refusal(
            "a feed of files cannot be verified from outside: _spark_metadata lists files by batch id, and has "
            "neither offsets nor counts to compare with",
            f"land the feed in an Iceberg table; {page_command('exactly-once')} says what files guarantee",
        ),
        batch=Refusal(
            "a feed of files cannot be run as a batch: their log is numbered by the stream's batches",
            "lakefeed read pipeline.yaml --to files writes chosen records to a path of their own",
        ),
        stand_beside=Refusal(
            "{sink} cannot be beside another sink: its log knows batch ids, and no offsets",
            "make it the pipeline's sink, and the other one of sinks; or sink.iceberg",
        ),
    )

    path: Annotated[str, AfterValidator(storage_path)] = Field(description=FORMS, examples=["s3a://bucket/orders"])
    partition_by: list[str] = Field(default_factory=list, description="Columns that become directories.")

    @property
    def target(self) -> str:
        return self.path

    @property
    def storage_paths(self) -> Mapping[str, str]:
        return {"path": self.path}

    @property
    def stored_files(self) -> SinkFiles:
        """The files; each batch also writes ``_spark_metadata/N``."""
        return SinkFiles(is_partitioned=bool(self.partition_by), commit_puts=1, commit_name="1 of the log")

    @property
    def file_format(self) -> FileFormat:
        """The format of the files."""
        found: FileFormat = getattr(self, "format", "parquet")
        return found

    def writer_options(self) -> dict[str, str]:
        return {}


class ParquetSinkConfig(PathSinkConfig):
    """Parquet files below a path. Spark's ``_spark_metadata`` lists each of them exactly once."""

    compression: Literal["zstd", "snappy", "lz4_raw", "gzip", "none"] = Field("zstd", description="Codec.")

    @model_validator(mode="before")
    @classmethod
    def _appends(cls, block: Any) -> Any:
        if isinstance(block, dict) and block.get("mode") == "upsert":
            hint = "land the feed in an Iceberg table: sink: {iceberg: {mode: upsert, …}}"
            raise ConfigProblems(ConfigProblem("rows in Parquet files cannot be changed", key="mode", hint=hint))
        return block

    def writer_options(self) -> dict[str, str]:
        return {"compression": self.compression}


class FilesSinkConfig(PathSinkConfig):
    """Files below a path, in directories by column. Spark's ``_spark_metadata`` lists each of them exactly once."""

    format: FileFormat = Field("parquet", description="What the files are. What CSV has no form for is JSON in it.")
    table: str | None = Field(None, pattern=rf"^({Identifier}\.)?{Identifier}$")
    """A table over the directories in Spark's session catalog (Hive's, if there is one). The feed creates it if it is
    missing, and adds new partitions to it after each batch."""
    options: dict[str, Text] = Field(default_factory=dict, description="Spark's options for writing the format.")

    def writer_options(self) -> dict[str, str]:
        return {**({"header": "true"} if self.format == "csv" else {}), **self.options}
