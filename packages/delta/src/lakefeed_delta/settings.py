"""The block ``sink.delta``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, model_validator

from lakefeed.config.addresses import FORMS, is_local, storage_path
from lakefeed.config.base import ConfigProblem, ConfigProblems
from lakefeed.config.sinks import Capabilities, EntrySinkConfig, Refusal, SinkFiles

_STORE = "io.lakefeed.delta.ExclusiveLogStore"
_MAPPED = frozenset(" ,;{}()\n\t=")
"""Characters that need ``delta.columnMapping.mode: name`` if a column's name has them."""


class DeltaSinkConfig(EntrySinkConfig):
    """A Delta table at a path. If it is missing, the feed creates it with the schema of the rows."""

    definition: ClassVar[str] = "lakefeed_delta.definition:DeltaDefinition"
    capabilities: ClassVar[Capabilities] = Capabilities(
        rewind=Refusal(
            "a feed into sink.delta cannot be rewound: the rows of the offsets would be written twice",
            "to read the source again, set another path and another checkpoint location",
        ),
        verify=None,
        lag=None,
    )
    spark_settings: ClassVar[Mapping[str, str]] = {
        # Without Delta's extension, whose parser refuses statements with parameters; a sink that appends needs no SQL.
        **{f"spark.delta.logStore.{scheme}.impl": _STORE for scheme in ("s3a", "s3", "file")},
        # With it, Delta reads the whole log after each commit, if the session's time zone is not UTC.
        "spark.databricks.delta.allFilesInCrc.enabled": "false",
        # The sink opens tables by path, so it does not need Delta's session catalog.
        "spark.databricks.delta.requiredSparkConfsCheck.enabled": "false",
        # The tasks that compute a table's state. Delta's 50 take a second of each start.
        "spark.databricks.delta.snapshotPartitions": "4",
    }

    path: Annotated[str, AfterValidator(storage_path)] = Field(description=FORMS, examples=["s3a://lake/tables/orders"])
    partition_by: list[str] = Field(default_factory=list)
    """Columns that become directories, for a table that the feed creates."""
    properties: dict[str, str] = Field(default_factory=dict)
    """Table properties, such as delta.enableTypeWidening. lakefeed sets them when it creates the table."""
    comment: str | None = Field(None, description="The comment of a table that the feed creates.")

    @model_validator(mode="before")
    @classmethod
    def _appends(cls, block: Any) -> Any:
        if isinstance(block, dict) and block.get("mode", "append") != "append":
            what = f"sink.delta appends rows: mode {block['mode']} is not offered"
            hint = "land the feed in an Iceberg table: sink: {iceberg: {mode: upsert, …}}; or remove mode"
            raise ConfigProblems(ConfigProblem(what, key="mode", hint=hint))
        return block

    def refuses(self, columns: Sequence[tuple[str, str]]) -> Iterator[ConfigProblem]:
        maps = self.properties.get("delta.columnMapping.mode", "none") != "none"
        for path, type_ in columns:
            if type_.startswith("TIME("):
                hint = f"write {path} BIGINT for the time's microseconds, or STRING; transform.sql converts it"
                yield ConfigProblem(f"the column {path} is a {type_}, which Delta does not have", hint=hint)
            if not maps and _MAPPED & set(path):
                hint = "write properties: {delta.columnMapping.mode: name}, or rename the column in transform.sql"
                yield ConfigProblem(f"the column's name '{path}' has a sign that Parquet files do not allow", hint=hint)

    @property
    def target(self) -> str:
        return self.path

    @property
    def where(self) -> str:
        return f"the Delta table {self.path}"

    @property
    def is_local(self) -> bool:
        """True for a table on a disk of this machine."""
        return is_local(self.path)

    @property
    def storage_paths(self) -> Mapping[str, str]:
        return {"path": self.path}

    @property
    def stored_files(self) -> SinkFiles:
        """Estimate a batch's files; a commit also writes a version of the log and a checksum, and lists the log."""
        return SinkFiles(is_partitioned=bool(self.partition_by), commit_puts=2, commit_name="2 of the log")
