"""The block ``tests`` of a pipeline file, which is also the content of a file of cases: see ``lakefeed test``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from lakefeed.config.base import ConfigProblem, Model
from lakefeed.config.blocks import Block
from lakefeed.config.sql import Ddl
from lakefeed.config.values import Count, TopicName

SchemaId = Annotated[int, Field(ge=0, le=2**31 - 1)]
HexBytes = Annotated[str, BeforeValidator(lambda given: given.removeprefix("0x") if isinstance(given, str) else given)]
"""Pairs of hexadecimal digits; behind 0x, as ``lakefeed topics sample`` prints bytes, or without it."""


class CaseSchema(Model):
    """A schema of the registry that the cases see. Its kind is that of the block which decodes its records."""

    subject: str | None = Field(None, description="Default: that of the pipeline's values.")
    schema_: dict[str, Any] | list[Any] | str | None = Field(None, alias="schema")
    """The schema: for Avro and JSON Schema as YAML or as text, for Protobuf the text of a .proto file."""
    schema_file: Path | None = None
    """Or a file of it; a relative path starts at the pipeline file's folder."""

    def _contradictions(self) -> Iterator[str]:
        if (self.schema_ is None) == (self.schema_file is None):
            yield "a schema requires either schema or schema_file"


class CaseTable(Model):
    """Rows in place of a table that the transform joins with: one of transform.tables."""

    schema_ddl: Ddl
    """The columns, as 'id BIGINT, name STRING'."""
    rows: list[dict[str, Any]] = Field(default_factory=list)
    """Its rows, by column."""


class CaseRecord(Model):
    """A record that a case gives to the feed, with one of value, text and hex."""

    value: Any = None
    """The value as YAML, encoded in the pipeline's format with the schema of schema_id; null is a tombstone."""
    text: str | None = Field(None, description="Or the value as text, whose UTF-8 bytes it is.")
    hex: HexBytes | None = Field(None, description="Or its bytes: '00 00 00 00 07 0a'.")
    schema_id: SchemaId | None = None
    """The schema of value. Default: the one that the case begins with."""
    key: Any = None
    """The key as YAML; bytes as text where decode.key does not say how keys are read."""
    key_hex: HexBytes | None = Field(None, description="Or the key's bytes.")
    key_schema_id: SchemaId | None = None
    """The schema of key. Default: the newest of the keys' subject."""
    headers: dict[str, str | None] = Field(default_factory=dict, description="Headers, by name.")
    topic: TopicName | None = Field(None, description="Default: the first topic of the source.")
    partition: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(0, description="Its partition.")
    offset: Annotated[int, Field(ge=0, le=2**62)] | None = Field(
        None, description="Default: the next of its partition."
    )
    timestamp: datetime | int | None = None
    """When it was sent: ISO 8601, by default UTC, or milliseconds. Default: 2026-01-01 00:00:00."""
    batch: Count | None = None
    """The micro-batch that it is read in, counted from 1. Default: that of the record before."""

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        given = [name for name in ("value", "text", "hex") if name in self.model_fields_set]
        if len(given) != 1:
            yield f"a record requires one of value, text and hex; this one has {' and '.join(given) or 'none'}"
        if "key" in self.model_fields_set and self.key_hex is not None:
            yield ConfigProblem("key and key_hex are two ways to give the key", key="key_hex", hint="give one of them")
        for name in ("hex", "key_hex"):
            try:
                bytes.fromhex(getattr(self, name) or "")
            except ValueError:
                yield ConfigProblem(f"{name} holds something else than pairs of 0 to 9 and a to f", key=name)


class ExpectedDeadLetter(Model):
    """A record that is expected to become a dead letter; what is left out is not compared."""

    reason: str | None = Field(None, description="Text that the reason contains.")
    topic: str | None = None
    """Its topic."""
    partition: int | None = Field(None, ge=0, le=2**31 - 1, description="Its partition.")
    offset: int | None = Field(None, ge=0, le=1 << 62, description="Its offset.")


class Case(Model):
    """Records, and what the feed makes of them."""

    records: list[CaseRecord] = Field(min_length=1)
    """In the order in which they were sent."""
    rows: list[dict[str, Any]] | None = None
    """The rows of the table after them, in any order, by column. Default: not compared."""
    columns: Literal["named", "exact"] = "named"
    """Compare the columns that an expected row names, or require that there are no others."""
    dead_letters: list[ExpectedDeadLetter] = Field(default_factory=list)
    """The records that become dead letters, in any order. Default: none."""
    skipped: Annotated[int, Field(ge=0)] = 0
    """How many records are left out because the pipeline file says so."""
    error: str | None = None
    """Text of the error that stops the feed. Default: it does not stop."""
    latest: SchemaId | None = None
    """The newest schema of the values' subject when the feed starts. Default: that of the first value if it names one,
    else the lowest id. The others are found by their ids, as records come."""

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        batch = 1
        for number, record in enumerate(self.records):
            if record.batch is not None and record.batch not in (batch, batch + 1):
                yield ConfigProblem(
                    f"records[{number}] is in batch {record.batch}, after one in batch {batch}",
                    key="records",
                    hint="batches are counted from 1, in the order of the records",
                )
            batch = record.batch or batch


class PipelineTests(Block):
    """Cases that lakefeed test runs, without brokers, registry and store. A run ignores them."""

    schemas: dict[SchemaId, CaseSchema] = Field(default_factory=dict)
    """The schemas of the registry, by id."""
    tables: dict[str, CaseTable] = Field(default_factory=dict)
    """Rows in place of transform.tables, by the names there."""
    cases: dict[str, Case] = Field(default_factory=dict)
    """The cases, by name."""
