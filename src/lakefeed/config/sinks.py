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
"""By a sink's ``mode``; changes by key come from records (append) or from groups (update)."""


class SinkConfig(Model):
    """The settings of a sink, and what the sink declares about itself.

    A sink of another package derives from this class, or from ``EntrySinkConfig``.
    """

    definition: ClassVar[str]
    """The sink's code, ``package.module:Class``: a ``BatchSink``, or a ``SinkDefinition``; imported when needed."""
    capabilities: ClassVar[Capabilities] = Capabilities()
    """What the sink can do, with the text of each refusal."""
    guarantee: ClassVar[str] = "at-least-once"
    """Exactly-once or at-least-once; docs/sinks.md says under which condition."""
    other_modes: ClassVar[str] = ""
    """How the sink takes other output modes, if it can be configured to."""
    is_lasting: ClassVar[bool] = True
    """Whether what has landed is there after the run. If not, a pipeline needs no checkpoint."""

    jars: ClassVar[tuple[str, ...]] = ()
    """Jars of the sink's package, as ``package/name.jar``; they are on the class path of every session."""
    reads_stored_rows: ClassVar[bool] = True
    """False if a change by key replaces the stored row whole, and is not merged with it."""

    @property
    def modes(self) -> tuple[OutputMode, ...]:
        """The output modes that it takes as it is set."""
        return MODES.get(getattr(self, "mode", "append"), ("append",))

    def doubles(self, mode: OutputMode) -> bool:
        """Return whether the rows of a batch that was cut off may be there twice."""
        return self.guarantee == "at-least-once" and self.is_lasting

    def problems(self, place: str, source: KafkaSource | None) -> Iterator[ConfigProblem]:
        """Yield each mistake between this sink, at ``place`` in the file, and the source; None if that is not Kafka."""
        yield from ()

    def refuses(self, columns: Sequence[tuple[str, str]]) -> Iterator[ConfigProblem]:
        """Yield why rows of these columns cannot land: paths with dots, and types as DDL names them."""
        yield from ()

    @property
    def keyed(self) -> KeyedSink | None:
        """The settings of one row for each key; None for a sink that keeps all rows."""
        return None

    @property
    def record_positions(self) -> Literal["unused", "used", "required"]:
        """Return whether rows need topic, partition and offset of their record: where they have them, or always."""
        return "unused"

    @property
    def target(self) -> str:
        """Return the target of a checkpoint, beside the kind: the table, the path."""
        return ""

    def places(self, *, brokers: str) -> Iterator[Place]:
        """Yield the places of the rows, which nothing else of the pipeline may use.

        Args:
            brokers: of the source; empty if that is not Kafka.
        """
        if self.storage_paths:
            yield Place("", "path", spell_path(self.target))
        elif self.target:
            # Two sinks may have one class, or one format, with different options.
            options = [f"{name}={value}" for name, value in sorted(getattr(self, "options", {}).items())]
            yield Place("", "", ", ".join([self.target, *options]))

    def plain_text_logins(self, *, brokers: str) -> Iterator[PlainTextLogin]:
        """Yield each login that would cross a network without TLS; ``brokers`` as for ``places``."""
        return iter(())

    def dataset(self, *, feed: str, brokers: str) -> DatasetName | None:
        """Name the sink's target for lineage; None for tables of a catalog, and where nothing stays.

        Args:
            feed: the pipeline's name.
            brokers: of the source.
        """
        if self.snapshot_tables or not self.target:
            return None
        if self.target.startswith(("s3a://", "s3://", "file:")):
            return path_name(self.target)
        return DatasetName("spark", self.target)

    @property
    def where(self) -> str:
        """The place that errors name."""
        return self.target

    @property
    def table_name(self) -> str:
        """The table, in reports."""
        return self.target

    @property
    def snapshot_table(self) -> str | None:
        """The Iceberg table whose snapshots are the ledger; None for a sink with another ledger, or without."""
        return None

    @property
    def snapshot_tables(self) -> Mapping[str, str]:
        """All Iceberg tables that the sink writes to, by the option that names each."""
        return {}

    @property
    def names_made(self) -> frozenset[str]:
        """The tables that the file does not name; such a table is the feed's only if the feed has made it."""
        return frozenset()

    @property
    def landing_branch(self) -> str | None:
        """The branch of the table that rows land in before readers see them; None where they see them at once."""
        return None

    @property
    def catalog_name(self) -> str | None:
        """The Iceberg catalog that the sink needs."""
        return None if self.snapshot_table is None else catalog_of(self.snapshot_table)

    @property
    def storage_paths(self) -> Mapping[str, str]:
        """Places in the store or on this machine, by the option that names each."""
        return {}

    @property
    def stored_files(self) -> SinkFiles:
        """The files and requests of a batch in the object store."""
        return SinkFiles(is_unknown=True)

    def columns(self) -> Iterator[tuple[str, str]]:
        """Yield each option that names a column of the rows, as ``keys.0``, with the column."""
        for option in ("partition_by", "sort_by", "keys", "order_by"):
            for index, column in enumerate(getattr(self, option, ())):
                yield f"{option}.{index}", column if isinstance(column, str) else column.column.partition(".")[0]

    def functions(self) -> Iterator[tuple[str, str]]:
        """Yield each option that names a Python function or class, with ``package.module:Class``."""
        return iter(())

    def sql_expressions(self) -> Iterator[tuple[str, str]]:
        """Yield each option that is an SQL expression over the rows, with its text."""
        return iter(())


class EntrySinkConfig(SinkConfig):
    """The settings of a sink of another package that is exactly-once: its class has ``entries``."""

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
    """A view in the running Spark session, to be asked by SQL while the pipeline runs."""

    definition: ClassVar[str] = "lakefeed.sinks.spark_format:MemoryDefinition"
    is_lasting: ClassVar[bool] = False
    modes: ClassVar[tuple[OutputMode, ...]] = EVERY_MODE
    stored_files: ClassVar[SinkFiles] = SinkFiles(elsewhere="the driver's memory")

    view: str | None = Field(None, pattern=f"^{Identifier}$")
    """Its name. Default: the pipeline's with _rows behind it."""
    keys: list[str] = Field(default_factory=list)
    """With output_mode: update: a newer row replaces the one with these columns."""
    max_rows: Count = 100_000
    """More rows than that stop the pipeline: they are kept in the driver's memory."""

    def dataset(self, *, feed: str, brokers: str) -> DatasetName:
        return DatasetName("inmemory://", feed)


class ConsoleSinkConfig(SinkConfig):
    """The first rows of each batch, printed."""

    definition: ClassVar[str] = "lakefeed.sinks.spark_format:ConsoleDefinition"
    is_lasting: ClassVar[bool] = False
    modes: ClassVar[tuple[OutputMode, ...]] = EVERY_MODE
    stored_files: ClassVar[SinkFiles] = SinkFiles(elsewhere="the console")

    rows: Count = Field(20, description="How many of each batch.")
    width: Count = Field(60, description="Characters of a column at most.")


class FormatSinkConfig(SinkConfig):
    """Any format that Spark can write a batch to, by its name: Cassandra, MongoDB, Delta, ORC, …"""

    definition: ClassVar[str] = "lakefeed.sinks.spark_format:SparkFormatDefinition"
    # complete replaces what is there, the others are appended.
    modes: ClassVar[tuple[OutputMode, ...]] = EVERY_MODE

    name: str = Field(description="The format: orc, delta, org.apache.spark.sql.cassandra, …; its jar has to be there.")
    path: str | None = Field(None, description="Where to, for formats that take a path.")
    options: dict[str, Text] = Field(default_factory=dict, description="Options of the format.")
    partition_by: list[str] = Field(default_factory=list, description="Columns, for formats that take them.")

    def doubles(self, mode: OutputMode) -> bool:
        """Return False where each batch replaces all."""
        return mode != "complete"

    @property
    def target(self) -> str:
        return " ".join(each for each in (self.name, self.path or self.options.get("path", "")) if each)


class PythonSinkConfig(SinkConfig):
    """A class of one's own: see `lakefeed docs sinks`."""

    definition: ClassVar[str] = "lakefeed.sinks.python:PythonDefinition"
    # The class says which it takes, when it is loaded.
    modes: ClassVar[tuple[OutputMode, ...]] = EVERY_MODE

    path: Annotated[str, spelled(FUNCTION, "write it as package.module:Class")]
    """package.module:Class, on PYTHONPATH or beside the pipeline file."""
    options: dict[str, Scalar] = Field(default_factory=dict, description="Arguments of the class, by name.")

    @property
    def target(self) -> str:
        return self.path

    def functions(self) -> Iterator[tuple[str, str]]:
        yield "path", self.path


# Files below a path.


class PathSinkConfig(SinkConfig):
    """Files below a path: the settings that their kinds share."""

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
        """Files, and in each batch ``_spark_metadata/N``."""
        return SinkFiles(is_partitioned=bool(self.partition_by), commit_puts=1, commit_name="1 of the log")

    @property
    def file_format(self) -> FileFormat:
        """The format of the files."""
        found: FileFormat = getattr(self, "format", "parquet")
        return found

    def writer_options(self) -> dict[str, str]:
        return {}


class ParquetSinkConfig(PathSinkConfig):
    """Parquet files below a path, listed exactly once in Spark's ``_spark_metadata``."""

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
    """Files below a path, in directories by column, listed exactly once in Spark's ``_spark_metadata``."""

    format: FileFormat = Field("parquet", description="What the files are. What CSV has no form for is JSON in it.")
    table: str | None = Field(None, pattern=rf"^({Identifier}\.)?{Identifier}$")
    """A table of Spark's session catalog (Hive's, where there is one) over the directories: made if it is missing, and
    notified of new partitions after each batch."""
    options: dict[str, Text] = Field(default_factory=dict, description="Spark's options for writing the format.")

    def writer_options(self) -> dict[str, str]:
        return {**({"header": "true"} if self.format == "csv" else {}), **self.options}
