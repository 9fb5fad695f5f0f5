"""The settings that all sinks share, and the blocks of sinks without a ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from lakefeed.config.addresses import FORMS, DatasetName, Place, PlainTextLogin, path_name, spell_path, storage_path
from lakefeed.config.base import ConfigProblem, ConfigProblems, Model, spelled
from lakefeed.config.keyed import KeyedSink
from lakefeed.config.secrets import Scalar, Text
from lakefeed.config.sources import KafkaSource
from lakefeed.config.transform import FUNCTION, OutputMode
from lakefeed.config.values import Count, FileFormat, Identifier, TableField, catalog_of
from lakefeed.messages.pages import page_command

Operation: TypeAlias = Literal[
    "rewind", "adopt", "backfill", "replay", "verify", "batch", "lag", "stand_beside", "real_time", "no_checkpoint"
]


@dataclass(frozen=True)
class Refusal:
    """The reason why a sink cannot do an operation.

    Attributes:
        what: the reason in one sentence without a full stop; ``{sink}`` stands for the kind of sink.
        hint: what to do next.
    """

    what: str
    hint: str | None = None


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """The operations of a sink; a field is None if the sink supports the operation, else the reason why not.

    The defaults are those of a sink without a ledger.

    Attributes:
        rewind: move the feed to other offsets.
        adopt: continue another tool's table from the position of that tool.
        backfill: add old records while the feed runs.
        replay: write rows from dead letters.
        verify: compare the ledger with the broker to prove that each record was committed once.
        batch: write one batch without a streaming query.
        lag: fall behind the feed while the sink is unavailable, and catch up later.
        stand_beside: be one of ``sinks``, beside the feed's own sink.
        real_time: write single records, without batches.
        no_checkpoint: resume from the sink's ledger alone, which has the offsets, the topics' ids and the schema.
    """

    rewind: Refusal | None = Refusal(
        "a feed into sink.{sink} cannot be moved: the sink stores no offsets",
        "to read the source again, set another path and another checkpoint location",
    )
    adopt: Refusal | None = Refusal(
        "sink.{sink} cannot continue from another tool's position: only an Iceberg table can store that position",
        "set source.kafka.start to the position, and name a new table or path",
    )
    backfill: Refusal | None = Refusal(
        "a feed into sink.{sink} cannot be backfilled: old records could be written twice",
        "write old records to another path with lakefeed read, or land the feed in an Iceberg table",
    )
    replay: Refusal | None = Refusal(
        "dead letters of a feed into sink.{sink} cannot be replayed: only an Iceberg table can store their rows",
        "land the feed in an Iceberg table",
    )
    verify: Refusal | None = Refusal(
        "sink.{sink} keeps no ledger of its commits that could be verified",
        f"land the feed in an Iceberg table; {page_command('sinks')} lists the guarantees of the sinks",
    )
    batch: Refusal | None = None
    lag: Refusal | None = Refusal("{sink} keeps no ledger from which it could catch up", "write on_failure: stop")
    stand_beside: Refusal | None = None
    real_time: Refusal | None = Refusal("sink.{sink} writes whole batches only", "write trigger: 1 second")
    no_checkpoint: Refusal | None = Refusal("sink.{sink} does not store where the feed resumes, and with which schema")

    def refusal(self, operation: Operation, *, sink: str) -> Refusal | None:
        """Return why a sink of this kind cannot do an operation; None if it can."""
        found: Refusal | None = getattr(self, operation)
        return None if found is None else replace(found, what=found.what.replace("{sink}", sink))


@dataclass(frozen=True, kw_only=True)
class SinkFiles:
    """The files and requests of a batch, for the estimates of ``lakefeed plan``.

    Attributes:
        elsewhere: the destination of the rows if a batch writes no files; else None.
        is_unknown: whether the files cannot be estimated.
        merges: whether the number of files depends on which rows a batch replaces.
        reads_rows: if ``merges``, whether a batch reads the table's files.
        is_partitioned: whether a batch writes to several directories or partitions.
        commit_puts: the number of PUT requests of a batch besides those for its files.
        commit_name: what these requests write, such as "3 of metadata".
    """

    elsewhere: str | None = None
    is_unknown: bool = False
    merges: bool = False
    reads_rows: bool = True
    is_partitioned: bool = False
    commit_puts: int = 0
    commit_name: str = ""


EVERY_MODE: tuple[OutputMode, ...] = ("append", "update", "complete")
MODES: dict[str, tuple[OutputMode, ...]] = {
    "append": ("append",),
    "upsert": ("append", "update"),
    "overwrite": ("complete",),
}
"""Output modes by a sink's ``mode``. With upsert, a change is a record (append) or a changed group (update)."""


class SinkConfig(Model):
    """The settings and the capabilities of a sink; a sink of another package derives from it or ``EntrySinkConfig``."""

    definition: ClassVar[str]
    """The sink's ``BatchSink`` or ``SinkDefinition``, as ``package.module:Class``; imported at its first use."""
    capabilities: ClassVar[Capabilities] = Capabilities()
    """The operations that the sink supports, with texts for those that it refuses."""
    guarantee: ClassVar[str] = "at-least-once"
    """exactly-once or at-least-once; docs/sinks.md names the conditions."""
    other_modes: ClassVar[str] = ""
    """The hint of errors about the output mode: the settings with which the sink accepts other modes, if any."""
    is_lasting: ClassVar[bool] = True
    """Whether the rows outlive the run. If not, the pipeline needs no checkpoint."""
    spark_settings: ClassVar[Mapping[str, str]] = {}
    """Spark settings of a session that writes to this sink; values that are lists, such as jars, are appended."""
    reads_stored_rows: ClassVar[bool] = True
    """Whether an upsert reads the stored row, to keep values that the change lacks, and does not replace all of it."""

    @property
    def supported(self) -> Capabilities:
        """The operations that the sink supports with these settings."""
        return self.capabilities

    @property
    def routed_by(self) -> TableField | None:
        """The field whose value names the table of each row; None if the rows have one destination."""
        return None

    @property
    def modes(self) -> tuple[OutputMode, ...]:
        """The output modes that the sink accepts with these settings."""
        return MODES.get(getattr(self, "mode", "append"), ("append",))

    def doubles(self, mode: OutputMode) -> bool:
        """Return whether rows of a batch that is interrupted and repeated may be stored twice."""
        return self.guarantee == "at-least-once" and self.is_lasting

    def problems(self, place: str, source: KafkaSource | None) -> Iterator[ConfigProblem]:
        """Yield contradictions between this sink, at the key ``place``, and the source, which is None unless Kafka."""
        return iter(())

    def refuses(self, columns: Sequence[tuple[str, str]]) -> Iterator[ConfigProblem]:
        """Yield a problem for each column that the sink cannot store; a column is its dotted path and its DDL type."""
        return iter(())

    @property
    def keyed(self) -> KeyedSink | None:
        """The settings of a sink that keeps one row for each key; None for a sink that keeps all rows."""
        return None

    @property
    def record_positions(self) -> Literal["unused", "used", "required"]:
        """How the sink uses the records' topic, partition and offset: not at all, if the rows have them, or always."""
        return "unused"

    @property
    def target(self) -> str:
        """The table, path or other destination; together with the kind of sink, the checkpoint stores it."""
        return ""

    def places(self, *, brokers: str) -> Iterator[Place]:
        """Yield the places where the sink stores rows; no other part of the pipeline may write there.

        Args:
            brokers: the source's brokers; empty if the source is not Kafka.
        """
        if self.storage_paths:
            yield Place("", "path", spell_path(self.target))
        elif self.target:
            # Two sinks of the same class or format are different places if their options differ.
            options = [f"{name}={value}" for name, value in sorted(getattr(self, "options", {}).items())]
            yield Place("", "", ", ".join([self.target, *options]))

    def plain_text_logins(self, *, brokers: str) -> Iterator[PlainTextLogin]:
        """Yield each login that would cross a network without TLS; ``brokers`` as in ``places``."""
        return iter(())

    def dataset(self, *, feed: str, brokers: str) -> DatasetName | None:
        """Return the destination's dataset name for lineage; None for tables of a catalog or if nothing is stored."""
        if self.snapshot_tables or not self.target:
            return None
        if self.target.startswith(("s3a://", "s3://", "file:")):
            return path_name(self.target)
        return DatasetName("spark", self.target)

    @property
    def where(self) -> str:
        """The destination as errors show it."""
        return self.target

    @property
    def table_name(self) -> str:
        """The destination as reports show it."""
        return self.target

    @property
    def snapshot_table(self) -> str | None:
        """The Iceberg table whose snapshots are the ledger; None for other sinks."""
        return None

    @property
    def snapshot_tables(self) -> Mapping[str, str]:
        """All Iceberg tables that the sink writes to, by the options that name them."""
        return {}

    @property
    def names_made(self) -> frozenset[str]:
        """The tables whose names come from a topic; a feed refuses such a table if another feed has created it."""
        return frozenset()

    @property
    def landing_branch(self) -> str | None:
        """The branch that receives the rows before they are published; None if readers see rows immediately."""
        return None

    @property
    def catalog_name(self) -> str | None:
        """The Iceberg catalog that the sink needs, or None."""
        return None if self.snapshot_table is None else catalog_of(self.snapshot_table)

    @property
    def storage_paths(self) -> Mapping[str, str]:
        """Paths in a store or on this machine, by the options that name them."""
        return {}

    @property
    def stored_files(self) -> SinkFiles:
        """The files that a batch writes and its requests to the store, as estimates."""
        return SinkFiles(is_unknown=True)

    def columns(self) -> Iterator[tuple[str, str]]:
        """Yield the options that name columns of the rows, such as ``keys.0``, each with its column."""
        for option in ("partition_by", "sort_by", "keys", "order_by"):
            for index, column in enumerate(getattr(self, option, ())):
                yield f"{option}.{index}", column if isinstance(column, str) else column.column.partition(".")[0]

    def functions(self) -> Iterator[tuple[str, str]]:
        """Yield the options that name Python functions or classes, each with its ``package.module:Class``."""
        return iter(())

    def sql_expressions(self) -> Iterator[tuple[str, str]]:
        """Yield the options that are SQL expressions over the rows, each with its text."""
        return iter(())


class EntrySinkConfig(SinkConfig):
    """The settings of another package's exactly-once sink; its class has ``entries``."""

    guarantee: ClassVar[str] = "exactly-once"
    capabilities: ClassVar[Capabilities] = Capabilities(
        rewind=Refusal(
            "a feed into sink.{sink} cannot be rewound: rows would be written twice",
            "to read the source again, set another table and another checkpoint location",
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
    """With output_mode: update: the columns that identify a row; a newer row replaces the older one."""
    max_rows: Count = 100_000
    """The most rows in the view, which is in the driver's memory. More rows stop the pipeline."""

    def dataset(self, *, feed: str, brokers: str) -> DatasetName:
        return DatasetName("inmemory://", feed)


class ConsoleSinkConfig(SinkConfig):
    """Prints the first rows of each batch."""

    definition: ClassVar[str] = "lakefeed.sinks.spark_format:ConsoleDefinition"
    is_lasting: ClassVar[bool] = False
    modes: ClassVar[tuple[OutputMode, ...]] = EVERY_MODE
    stored_files: ClassVar[SinkFiles] = SinkFiles(elsewhere="the console")

    rows: Count = Field(20, description="The number of printed rows of each batch.")
    width: Count = Field(60, description="The most characters to print of a value.")


class FormatSinkConfig(SinkConfig):
    """Any format to which Spark can write a batch, by its name: Cassandra, MongoDB, Delta, ORC, …"""

    definition: ClassVar[str] = "lakefeed.sinks.spark_format:SparkFormatDefinition"
    # With complete, a batch replaces the stored rows; with the other modes, it appends.
    modes: ClassVar[tuple[OutputMode, ...]] = EVERY_MODE

    name: str = Field(description="The format: orc, delta, org.apache.spark.sql.cassandra, …; Spark must have its jar.")
    path: str | None = Field(None, description="The path, for formats that need one.")
    options: dict[str, Text] = Field(default_factory=dict, description="Options of the format.")
    partition_by: list[str] = Field(
        default_factory=list, description="Columns that become directories, for formats that support this."
    )

    def doubles(self, mode: OutputMode) -> bool:
        return mode != "complete"

    @property
    def target(self) -> str:
        return " ".join(each for each in (self.name, self.path or self.options.get("path", "")) if each)


class PythonSinkConfig(SinkConfig):
    """Your own Python class, which writes batches: see `lakefeed docs sinks`."""

    definition: ClassVar[str] = "lakefeed.sinks.python:PythonDefinition"
    # Only the class knows the modes that it supports, and the check does not import it.
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
            "a feed into files cannot be moved: _spark_metadata has batch ids but no offsets",
            "to read the source again, set another path and another checkpoint location",
        ),
        backfill=Refusal(
            "a feed into files cannot be backfilled: _spark_metadata has no offsets, so records could be written twice",
            "write old records to another path with lakefeed read, or land the feed in an Iceberg table",
        ),
        verify=Refusal(
            "a feed into files cannot be verified: _spark_metadata has batch ids, but no offsets and counts",
            f"land the feed in an Iceberg table; {page_command('exactly-once')} explains the guarantee for files",
        ),
        batch=Refusal(
            "a feed into files cannot run as a batch: _spark_metadata is numbered by the batches of a stream",
            "write the records to another path: lakefeed read pipeline.yaml --to files",
        ),
        stand_beside=Refusal(
            "{sink} cannot be under sinks: _spark_metadata has batch ids but no offsets",
            "exchange it with the pipeline's own sink, or use an Iceberg table",
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
        """The files of a batch, which also writes ``_spark_metadata/N``."""
        return SinkFiles(is_partitioned=bool(self.partition_by), commit_puts=1, commit_name="1 of the log")

    @property
    def file_format(self) -> FileFormat:
        found: FileFormat = getattr(self, "format", "parquet")
        return found

    def writer_options(self) -> dict[str, str]:
        return {}


class ParquetSinkConfig(PathSinkConfig):
    """Parquet files below a path. Spark's ``_spark_metadata`` lists each file once."""

    compression: Literal["zstd", "snappy", "lz4_raw", "gzip", "none"] = Field(
        "zstd", description="The compression of the files."
    )

    @model_validator(mode="before")
    @classmethod
    def _appends(cls, block: Any) -> Any:
        if isinstance(block, dict) and block.get("mode") == "upsert":
            hint = "land the feed in an Iceberg table: sink: {iceberg: {mode: upsert, …}}"
            raise ConfigProblems(ConfigProblem("an upsert cannot change rows in Parquet files", key="mode", hint=hint))
        return block

    def writer_options(self) -> dict[str, str]:
        return {"compression": self.compression}


class FilesSinkConfig(PathSinkConfig):
    """Files below a path, in a directory for each value of the partition columns. Spark's ``_spark_metadata`` lists
    each file once."""

    format: FileFormat = Field("parquet", description="The files' format. In CSV, arrays, maps and structs are JSON.")
    table: str | None = Field(None, pattern=rf"^({Identifier}\.)?{Identifier}$")
    """A table over the directories in Spark's session catalog (Hive's, if there is one). The feed creates it if it is
    missing, and adds new partitions to it after each batch."""
    options: dict[str, Text] = Field(default_factory=dict, description="Spark's options for writing the format.")

    def writer_options(self) -> dict[str, str]:
        return {**({"header": "true"} if self.format == "csv" else {}), **self.options}
