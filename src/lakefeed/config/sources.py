"""The blocks of a pipeline file for sources other than Kafka, whose rows come decoded."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from lakefeed.config.base import Complaint, Complaints, Model
from lakefeed.config.ddl import Ddl
from lakefeed.config.names import Count, TableName
from lakefeed.config.secrets import Text
from lakefeed.config.sinks import FileFormat


class FilesSource(Model):
    """Files that come to a directory; each is read once, when it is there."""

    path: str = Field(description="s3a://bucket/path, or a path with * in it.")
    format: FileFormat | Literal["text"] = Field(description="What the files are.")
    schema_ddl: Ddl | None = Field(
        None, description="The columns, as 'id BIGINT, name STRING'. text has one column, value; the others want it."
    )
    max_files_per_batch: Count = Field(1000, description="Upper bound on the files of one micro-batch.")
    done: Literal["keep", "archive", "delete"] = Field("keep", description="What becomes of files that were read.")
    archive: str | None = Field(None, description="With done: archive, where they go: a path outside of `path`.")
    options: dict[str, Text] = Field(default_factory=dict, description="Spark's options of the format.")

    @model_validator(mode="after")
    def _columns_and_archive(self) -> FilesSource:
        if (self.schema_ddl is None) != (self.format == "text"):
            what = "text has one column, value" if self.schema_ddl else f"files of {self.format} want their columns"
            raise Complaints([Complaint(key="schema_ddl", what=what, hint="schema_ddl: 'id BIGINT, name STRING'")])
        if (self.archive is None) == (self.done == "archive"):
            raise Complaints([Complaint(key="archive", what="archive is where files go with done: archive")])
        return self


class RateSource(Model):
    """Rows with a timestamp and a number, so many a second: for trying things out."""

    rows_per_second: Count = Field(1, description="How many.")


class SocketSource(Model):
    """Lines of text from a TCP server: for trying things out. What was not landed at a crash is gone."""

    host: str = Field(description="Where it listens.")
    port: Count = Field(description="Its port.", le=65535)


class FormatSource(Model):
    """Any format that Spark can read as a stream, by its name."""

    name: str = Field(description="The format: delta, rate-micro-batch, …; its jar has to be there.")
    schema_ddl: Ddl | None = Field(None, description="The columns, where the format does not know them.")
    path: str | None = Field(None, description="For formats that take one.")
    options: dict[str, Text] = Field(default_factory=dict, description="Options of the format.")


class IcebergSource(Model):
    """The rows that are appended to an Iceberg table, snapshot by snapshot."""

    table: TableName = Field(description="catalog.namespace.table")
    since: str | None = Field(
        None, description="From the snapshots of this time on, in ISO 8601. Default: from the table's first."
    )
    max_files_per_batch: Count = Field(1000, description="Upper bound on the data files of one micro-batch.")
    skip_overwrites: bool = Field(
        False, description="Pass over snapshots that have changed or deleted rows, instead of stopping at them."
    )
