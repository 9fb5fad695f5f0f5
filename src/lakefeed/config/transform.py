"""The block of a pipeline file that says what happens between decoding and the sink."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from lakefeed.config.base import ConfigProblem, ConfigProblems, Model
from lakefeed.config.secrets import Scalar, Text
from lakefeed.config.sql import Ddl, Sql
from lakefeed.config.values import Duration, Identifier

OutputMode = Literal["append", "update", "complete"]
FUNCTION = re.compile(rf"{Identifier}(\.{Identifier})*:{Identifier}")


class Watermark(Model):
    """The limit for late rows, by their own time. Later ones are left out of windows that are closed."""

    column: str = Field(description="The rows' own time (event time), a timestamp.")
    delay: Duration = Field(description="How late they may be: '<n> seconds|minutes|hours|days'.")


class StaticTable(Model):
    """Rows that do not stream, to join with: an Iceberg table, or whatever Spark can read as a batch."""

    table: str | None = Field(None, description="catalog.namespace.table")
    format: str | None = Field(None, description="Or a format that Spark can read: parquet, csv, json, jdbc, …")
    path: str | None = Field(None, description="With format: where the files are.")
    schema_ddl: Ddl | None = Field(None, description="With format: the columns, as 'id BIGINT, name STRING'.")
    options: dict[str, Text] = Field(default_factory=dict, description="With format: Spark's options of it.")

    @model_validator(mode="after")
    def _table_or_format(self) -> StaticTable:
        if (self.table is None) == (self.format is None):
            raise ValueError("give either table or format")
        if self.table is not None and (self.path or self.schema_ddl or self.options):
            raise ValueError("path, schema_ddl and options belong to format; a table knows them itself")
        return self


class Step(Model):
    """One step of a transform: a SELECT, a Python function, or the first row of each key."""

    sql: Sql | None = Field(None, description="One SELECT over the rows, the steps before and the tables, by name.")
    python: str | None = None
    """Or package.module:function, on PYTHONPATH or beside the pipeline file. It takes DataFrames and returns one."""
    options: dict[str, Scalar] = Field(default_factory=dict)
    """With python: further arguments of the function, by name."""
    deduplicate: list[str] | None = Field(None, min_length=1)
    """Or columns: of rows with the same values in them only the first is kept. Needs a watermark, which says how long
    they are remembered."""
    watermark: Watermark | None = Field(None, description="How late the rows of this step may be.")

    @field_validator("python")
    @classmethod
    def _function(cls, path: str | None) -> str | None:
        if path is not None and not FUNCTION.fullmatch(path):
            raise ValueError("write it as package.module:function")
        return path

    @model_validator(mode="after")
    def _one_kind(self) -> Step:
        if [self.sql, self.python, self.deduplicate].count(None) != 2:
            raise ValueError("a step requires exactly one of sql, python and deduplicate")
        if self.options and self.python is None:
            raise ConfigProblems(ConfigProblem("options are the arguments of a Python function", key="options"))
        return self


class StreamOfTopic(Model):
    """One topic's records as a stream of their own, to join with another's."""

    topic: str = Field(description="One of source.kafka.topics.")
    watermark: Watermark | None = Field(None, description="How late its records may be.")


class Transform(Model):
    """The steps between decoding and the sink: one SELECT, or several steps, the last of which goes to the sink."""

    sql: Sql | None = None
    """One SELECT over the decoded records; their view has the pipeline's name."""
    steps: dict[str, Step] = Field(default_factory=dict)
    """Or several, by name and in this order. Each is a view for those behind it; the decoded records have the
    pipeline's name."""
    tables: dict[str, StaticTable] = Field(default_factory=dict)
    """Views of rows that do not stream, by name, to join with."""
    streams: dict[str, StreamOfTopic] = Field(default_factory=dict)
    """Streams to join with each other: views of one topic's records each, by name, in place of the one that has the
    pipeline's name. Each topic of the source is in one of them, and each is read once."""
    watermark: Watermark | None = Field(None, description="How late the decoded records may be.")
    output_mode: OutputMode = "append"
    """What a batch hands to the sink: rows that are final (append), those that have changed (update), or the whole
    result (complete). The last two are for aggregates."""

    @field_validator("steps", "tables", "streams")
    @classmethod
    def _views(cls, named: dict[str, Any]) -> dict[str, Any]:
        for name in named:
            if not re.fullmatch(Identifier, name):
                raise ValueError(f"'{name}' can be no view's name: letters, digits and underscores")
        return named

    @model_validator(mode="after")
    def _sql_or_steps(self) -> Transform:
        if (self.sql is None) == (not self.steps):
            raise ValueError("give either sql or steps")
        if self.streams and self.watermark is not None:
            raise ConfigProblems(ConfigProblem("with streams each of them has a watermark of its own", key="watermark"))
        if len(self.streams) == 1:
            raise ConfigProblems(ConfigProblem("one stream is none to join: leave streams out", key="streams"))
        names = [name.lower() for views in (self.streams, self.tables, self.steps) for name in views]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{twice[0]} is the name of two, of streams, tables and steps")
        return self

    @property
    def all_steps(self) -> dict[str, Step]:
        """The steps by name; one SELECT is called ``sql``."""
        return self.steps if self.sql is None else {"sql": Step(sql=self.sql)}
