"""The block of a pipeline file for the steps between decoding and the sink."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from lakefeed.config.base import ConfigProblem, Model, spelled
from lakefeed.config.secrets import Scalar, Text
from lakefeed.config.sql import Ddl, Sql
from lakefeed.config.values import Duration, Identifier

OutputMode = Literal["append", "update", "complete"]
FUNCTION = rf"{Identifier}(\.{Identifier})*:{Identifier}"


class Watermark(Model):
    """How late rows may be, by their event time. A row that is later is dropped if its window is closed."""

    column: str = Field(description="The timestamp column with the event time of the rows.")
    delay: Duration = Field(description="How late a row may be: '<n> seconds|minutes|hours|days'.")


class StaticTable(Model):
    """A table to join with the stream: an Iceberg table, or any format that Spark can read as a batch."""

    table: str | None = Field(None, description="catalog.namespace.table")
    format: str | None = Field(
        None, description="Instead of table: a format that Spark can read, such as parquet, csv, json or jdbc."
    )
    path: str | None = Field(None, description="With format: where the files are.")
    schema_ddl: Ddl | None = Field(None, description="With format: the columns, as 'id BIGINT, name STRING'.")
    options: dict[str, Text] = Field(default_factory=dict, description="With format: Spark's options of the format.")

    def _contradictions(self) -> Iterator[str]:
        if (self.table is None) == (self.format is None):
            yield "give either table or format"
        if self.table is not None and (self.path or self.schema_ddl or self.options):
            yield "path, schema_ddl and options belong to format: remove them for a table"


class Step(Model):
    """One step of a transform: a SELECT, a Python function, or the first row of each key."""

    sql: Sql | None = Field(None, description="One SELECT from the records, earlier steps and tables, by their names.")
    python: Annotated[str, spelled(FUNCTION, "write it as package.module:function")] | None = None
    """A function instead of sql: package.module:function, on PYTHONPATH or beside the file. It takes DataFrames and
    returns one."""
    options: dict[str, Scalar] = Field(default_factory=dict)
    """With python: further arguments for the function, by name."""
    deduplicate: list[str] | None = Field(None, min_length=1)
    """Columns, instead of sql: keep only the first row of each combination of these columns' values. Requires a
    watermark, which sets how long the query remembers the values."""
    watermark: Watermark | None = Field(None, description="How late the rows of this step may be.")

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        if [self.sql, self.python, self.deduplicate].count(None) != 2:
            yield "a step requires exactly one of sql, python and deduplicate"
        if self.options and self.python is None:
            what = "options are arguments of a Python function, and this step has no function"
            yield ConfigProblem(what, key="options", hint="remove options")


class StreamOfTopic(Model):
    """One topic's records as a stream, to join with other topics' streams."""

    topic: str = Field(description="One of source.kafka.topics.")
    watermark: Watermark | None = Field(None, description="How late the records of the stream may be.")


class Transform(Model):
    """The steps between decoding and the sink: one SELECT, or several steps. The sink gets the last step's rows."""

    sql: Sql | None = None
    """One SELECT over the decoded records, from the view with the pipeline's name."""
    steps: dict[str, Step] = Field(default_factory=dict)
    """Several steps, instead of sql, by name and in this order. Later steps read a step's rows from a view with the
    step's name; the view with the pipeline's name has the decoded records."""
    tables: dict[str, StaticTable] = Field(default_factory=dict)
    """Tables to join with, by the names of their views."""
    streams: dict[str, StreamOfTopic] = Field(default_factory=dict)
    """Streams to join with each other, by the names of their views; a view has the records of one topic. They replace
    the view with the pipeline's name. Each topic of the source must be in exactly one stream."""
    watermark: Watermark | None = Field(None, description="How late the decoded records may be.")
    output_mode: OutputMode = "append"
    """The rows that a batch passes to the sink: final rows (append), changed rows (update), or the whole result
    (complete). update and complete are for aggregates."""

    @field_validator("steps", "tables", "streams")
    @classmethod
    def _views(cls, named: dict[str, Any]) -> dict[str, Any]:
        if unfit := next((name for name in named if not re.fullmatch(Identifier, name)), None):
            raise ValueError(f"'{unfit}' cannot be the name of a view: use letters, digits and underscores")
        return named

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        if (self.sql is None) == (not self.steps):
            yield "give either sql or steps"
        if self.streams and self.watermark is not None:
            hint = "write watermark in each stream, and remove the common one"
            yield ConfigProblem(
                "with streams, each stream needs its own watermark, not a common one", key="watermark", hint=hint
            )
        if len(self.streams) == 1:
            hint = "remove streams, or add another one"
            yield ConfigProblem("streams has only one stream, which joins nothing", key="streams", hint=hint)
        names = [name.lower() for views in (self.streams, self.tables, self.steps) for name in views]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            yield f"two of streams, tables and steps have the name {twice[0]}: rename one"

    @property
    def all_steps(self) -> dict[str, Step]:
        """The steps by name; a single SELECT is the step ``sql``."""
        return self.steps if self.sql is None else {"sql": Step(sql=self.sql)}
