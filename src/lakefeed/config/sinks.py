"""The blocks of a pipeline file for sinks that keep no ledger of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from lakefeed.config.base import Model
from lakefeed.config.capabilities import STATELESS, Capabilities, SinkFiles
from lakefeed.config.names import Count, Identifier
from lakefeed.config.secrets import Scalar, Text
from lakefeed.config.transform import FUNCTION, OutputMode

EVERY_MODE: tuple[OutputMode, ...] = ("append", "update", "complete")
MODES: dict[str, tuple[OutputMode, ...]] = {
    "append": ("append",),
    "upsert": ("append", "update"),
    "overwrite": ("complete",),
}
"""By a sink's ``mode``; changes by key come from records (append) or from groups (update)."""


class SinkConfig(Model):
    """The settings of a sink, and what the sink declares about itself.

    A sink of another package derives from this class, and names its ``SinkDefinition``.
    """

    definition: ClassVar[str]
    """The sink's code, the ``package.module:Class`` of a ``SinkDefinition``; imported when it is needed."""
    capabilities: ClassVar[Capabilities] = STATELESS
    """What the sink can do, with the text of each refusal."""

    guarantee: ClassVar[str] = "at-least-once"
    """Exactly-once or at-least-once; docs/sinks.md says under which condition."""
    other_modes: ClassVar[str] = ""
    """How the sink takes other output modes, if it can be configured to."""
    is_lasting: ClassVar[bool] = True
    """Whether what has landed is there after the run. If not, a pipeline needs no checkpoint."""

    @property
    def modes(self) -> tuple[OutputMode, ...]:
        """The output modes that it takes as it is set."""
        return ("append",)

    def doubles(self, mode: OutputMode) -> bool:
        """Whether the rows of a batch that was cut off may be there twice."""
        return self.guarantee == "at-least-once" and self.is_lasting

    @property
    def target(self) -> str:
        """What a checkpoint is for, beside the kind: the table, the path."""
        return ""

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
    def catalog_name(self) -> str | None:
        """The Iceberg catalog that the sink needs."""
        return None

    @property
    def bucket_paths(self) -> Mapping[str, str]:
        """Paths in the object store, by the option that names each."""
        return {}

    @property
    def stored_files(self) -> SinkFiles:
        """What a batch writes to the object store."""
        return SinkFiles(is_unknown=True)

    @property
    def named_columns(self) -> tuple[str, Sequence[str]]:
        """An option, and the columns of the rows that it names."""
        return "keys", tuple(getattr(self, "keys", ()))

    def sql_expressions(self) -> Iterator[tuple[str, str]]:
        """Yield each option that is an SQL expression over the rows, with its text."""
        return iter(())


class MemorySinkConfig(SinkConfig):
    """A view in the running Spark session, to be asked by SQL while the pipeline runs."""

    definition: ClassVar[str] = "lakefeed.sinks.spark_format:MemoryDefinition"
    is_lasting: ClassVar[bool] = False

    view: str | None = Field(
        None, pattern=f"^{Identifier}$", description="Its name. Default: the pipeline's with _rows behind it."
    )
    keys: list[str] = Field(
        default_factory=list, description="With output_mode: update: a newer row replaces the one with these columns."
    )
    max_rows: Count = Field(
        100_000, description="More rows than that stop the pipeline: they are kept in the driver's memory."
    )

    @property
    def modes(self) -> tuple[OutputMode, ...]:
        """All."""
        return EVERY_MODE

    @property
    def stored_files(self) -> SinkFiles:
        """None."""
        return SinkFiles(elsewhere="the driver's memory")


class ConsoleSinkConfig(SinkConfig):
    """The first rows of each batch, printed."""

    definition: ClassVar[str] = "lakefeed.sinks.spark_format:ConsoleDefinition"
    is_lasting: ClassVar[bool] = False

    rows: Count = Field(20, description="How many of each batch.")
    width: Count = Field(60, description="Characters of a column at most.")

    @property
    def modes(self) -> tuple[OutputMode, ...]:
        """All."""
        return EVERY_MODE

    @property
    def stored_files(self) -> SinkFiles:
        """None."""
        return SinkFiles(elsewhere="the console")


class FormatSinkConfig(SinkConfig):
    """Any format that Spark can write a batch to, by its name: Cassandra, MongoDB, Delta, ORC, …"""

    definition: ClassVar[str] = "lakefeed.sinks.spark_format:SparkFormatDefinition"

    name: str = Field(description="The format: orc, delta, org.apache.spark.sql.cassandra, …; its jar has to be there.")
    path: str | None = Field(None, description="Where to, for formats that take a path.")
    options: dict[str, Text] = Field(default_factory=dict, description="Options of the format.")
    partition_by: list[str] = Field(default_factory=list, description="Columns, for formats that take them.")

    @property
    def modes(self) -> tuple[OutputMode, ...]:
        """All; complete replaces what is there, the others are appended."""
        return EVERY_MODE

    def doubles(self, mode: OutputMode) -> bool:
        """Not where each batch replaces all."""
        return mode != "complete"

    @property
    def target(self) -> str:
        """The format, and where it goes."""
        return " ".join(each for each in (self.name, self.path or self.options.get("path", "")) if each)

    @property
    def named_columns(self) -> tuple[str, Sequence[str]]:
        """Those of the directories."""
        return "partition_by", self.partition_by


class PythonSinkConfig(SinkConfig):
    """A class of one's own: see docs/sinks.md."""

    definition: ClassVar[str] = "lakefeed.sinks.python:PythonDefinition"

    path: str = Field(description="package.module:Class, on PYTHONPATH or beside the pipeline file.")
    options: dict[str, Scalar] = Field(default_factory=dict, description="Arguments of the class, by name.")

    @field_validator("path")
    @classmethod
    def _class(cls, path: str) -> str:
        if not FUNCTION.fullmatch(path):
            raise ValueError("write it as package.module:Class")
        return path

    @property
    def modes(self) -> tuple[OutputMode, ...]:
        """All that the class says; looked at when it is loaded."""
        return EVERY_MODE

    @property
    def target(self) -> str:
        """The class."""
        return self.path


FileFormat = Literal["parquet", "orc", "avro", "json", "csv"]
