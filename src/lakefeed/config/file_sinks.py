"""The blocks of a pipeline file for files below a path."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from lakefeed.config.base import Complaint, Complaints
from lakefeed.config.names import Identifier
from lakefeed.config.secrets import Text
from lakefeed.config.sinks import FileFormat, SinkConfig


class PathSinkConfig(SinkConfig):
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
