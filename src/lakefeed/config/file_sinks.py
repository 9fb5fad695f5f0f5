"""The blocks of a pipeline file for files below a path."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from lakefeed.config.base import Complaint, Complaints
from lakefeed.config.capabilities import Capabilities, Refusal, SinkFiles
from lakefeed.config.names import Identifier
from lakefeed.config.secrets import Text
from lakefeed.config.sinks import FileFormat, SinkConfig

BATCH_LOG = Capabilities(
    rewind=Refusal(
        "a feed of files cannot be moved: its log is numbered by batches and knows no offsets",
        "name another path and another checkpoint location, which reads the topics again",
    ),
    backfill=Refusal(
        "a feed of files cannot be backfilled: its log knows batch ids, not offsets, and nothing would keep records "
        "from landing twice",
        "lakefeed read writes old records to a path of their own; or land the feed in an Iceberg table",
    ),
    verify=Refusal(
        "a feed of files cannot be verified from outside: _spark_metadata lists files by batch id, and has neither "
        "offsets nor counts to hold them against",
        "land the feed in an Iceberg table; docs/exactly-once.md says what files guarantee",
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


class PathSinkConfig(SinkConfig):
    """Files below a path: what their kinds have in common."""

    definition: ClassVar[str] = "lakefeed.sinks.files:FilesDefinition"
    guarantee: ClassVar[str] = "exactly-once"
    capabilities: ClassVar[Capabilities] = BATCH_LOG

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

    @property
    def bucket_paths(self) -> Mapping[str, str]:
        """The path."""
        return {"path": self.path}

    @property
    def stored_files(self) -> SinkFiles:
        """Files, and in each batch ``_spark_metadata/N``."""
        return SinkFiles(is_partitioned=bool(self.partition_by), commit_puts=1, commit_name="1 of the log")

    @property
    def named_columns(self) -> tuple[str, Sequence[str]]:
        """Those of the directories."""
        return "partition_by", self.partition_by

    @property
    def file_format(self) -> FileFormat:
        """What the files are."""
        return "parquet"

    def writer_options(self) -> dict[str, str]:
        """Options of Spark's writer."""
        return {}


class ParquetSinkConfig(PathSinkConfig):
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


class FilesSinkConfig(PathSinkConfig):
    """Files below a path, in directories by column, listed exactly once in Spark's ``_spark_metadata``."""

    format: FileFormat = Field("parquet", description="What the files are. What CSV has no form for is JSON in it.")
    table: str | None = Field(
        None,
        pattern=rf"^({Identifier}\.)?{Identifier}$",
        description="A table of Spark's session catalog (Hive's, where there is one) over the directories: made if it "
        "is missing, and notified of new partitions after each batch.",
    )
    options: dict[str, Text] = Field(default_factory=dict, description="Spark's options for writing the format.")

    @property
    def file_format(self) -> FileFormat:
        """As the file says."""
        return self.format

    def writer_options(self) -> dict[str, str]:
        """For Spark's writer; CSV has a header."""
        return {**({"header": "true"} if self.format == "csv" else {}), **self.options}


def s3a_path(path: str) -> str:
    """An ``s3a://bucket/key`` path without a slash at its end; ``s3://`` is taken as the same.

    Raises:
        ValueError: if it is no such path.
    """
    match = re.fullmatch(r"s3a?://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(.+)", path)
    if not match or ".." in match[2].split("/"):
        raise ValueError("write it as s3a://bucket/path")
    return f"s3a://{match[1]}/{match[2].rstrip('/')}"
