"""The block ``tests`` of a pipeline file; files of cases have the same content."""

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
"""Matches pairs of hexadecimal digits, also with the prefix 0x, as ``lakefeed topics sample`` prints them."""


class CaseSchema(Model):
    """A schema of the cases' registry, in the format of the block that decodes its records."""

    subject: str | None = Field(
        None, description="Subject of the schema. Default: the subject of the pipeline's values."
    )
    schema_: dict[str, Any] | list[Any] | str | None = Field(None, alias="schema")
    """The schema: for Avro and JSON Schema as YAML or text, for Protobuf the text of a .proto file."""
    schema_file: Path | None = None
    """File with the schema, instead of schema. Relative paths start at the pipeline file's folder."""

    def _contradictions(self) -> Iterator[str]:
        if (self.schema_ is None) == (self.schema_file is None):
            yield "a schema requires either schema or schema_file"


class CaseTable(Model):
    """Rows for a table that the transform joins with: one of transform.tables."""

    schema_ddl: Ddl
    """The columns, such as 'id BIGINT, name STRING'."""
    rows: list[dict[str, Any]] = Field(default_factory=list)
    """The table's rows, by column."""


class CaseRecord(Model):
    """An input record of a case. It has one of value, text and hex."""

    value: Any = None
    """The value as YAML, encoded in the pipeline's format with the schema of schema_id; null is a tombstone."""
    text: str | None = Field(None, description="Instead of value: the value as UTF-8 text.")
    hex: HexBytes | None = Field(None, description="Instead of value: its bytes, such as '00 00 00 00 07 0a'.")
    schema_id: SchemaId | None = None
    """Schema id of value. Default: the case's initial schema."""
    key: Any = None
    """The key as YAML; as text if decode.key does not set the keys' format."""
    key_hex: HexBytes | None = Field(None, description="Instead of key: the key's bytes.")
    key_schema_id: SchemaId | None = None
    """Schema id of key. Default: the newest schema of the keys' subject."""
    headers: dict[str, str | None] = Field(default_factory=dict, description="Headers, by name.")
    topic: TopicName | None = Field(None, description="Topic of the record. Default: the first topic of the source.")
    partition: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(0, description="Partition of the record.")
    offset: Annotated[int, Field(ge=0, le=2**62)] | None = Field(
        None, description="Offset of the record. Default: the next one of its partition."
    )
    timestamp: datetime | int | None = None
    """Timestamp of the record: ISO 8601, by default UTC, or milliseconds. Default: 2026-01-01 00:00:00."""
    batch: Count | None = None
    """The number of the record's micro-batch, from 1. Default: the number of the previous record's."""

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        given = [name for name in ("value", "text", "hex") if name in self.model_fields_set]
        if len(given) != 1:
            yield f"a record requires one of value, text and hex; this one has {' and '.join(given) or 'none'}"
        if "key" in self.model_fields_set and self.key_hex is not None:
            yield ConfigProblem("key and key_hex both set the key", key="key_hex", hint="give one of them")
        for name in ("hex", "key_hex"):
            try:
                bytes.fromhex(getattr(self, name) or "")
            except ValueError:
                hint = "write pairs of 0 to 9 and a to f, such as '00 00 00 00 07 0a'"
                yield ConfigProblem(f"{name} is not hexadecimal", key=name, hint=hint)


class ExpectedDeadLetter(Model):
    """An expected dead letter; fields that are omitted are not compared."""

    reason: str | None = Field(None, description="Text that the reason contains.")
    topic: str | None = None
    """Topic of the record."""
    partition: int | None = Field(None, ge=0, le=2**31 - 1, description="Partition of the record.")
    offset: int | None = Field(None, ge=0, le=1 << 62, description="Offset of the record.")


class Case(Model):
    """Records, and their expected result."""

    records: list[CaseRecord] = Field(min_length=1)
    """The records, in the order of sending."""
    rows: list[dict[str, Any]] | None = None
    """The expected rows of the table, in any order, by column. Default: not compared."""
    columns: Literal["named", "exact"] = "named"
    """named: compare only the columns that the expected rows name. exact: the rows must have no other columns."""
    dead_letters: list[ExpectedDeadLetter] = Field(default_factory=list)
    """The expected dead letters, in any order. Default: none."""
    skipped: Annotated[int, Field(ge=0)] = 0
    """The number of records that the pipeline file makes the feed skip."""
    error: str | None = None
    """Text of the error that stops the feed. Default: the feed does not stop."""
    latest: SchemaId | None = None
    """The newest schema of the values' subject when the feed starts. Default: the first value's schema_id if set,
    else the lowest id. Other schemas are looked up by id when records arrive."""

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        batch = 1
        for number, record in enumerate(self.records):
            if record.batch is not None and record.batch not in (batch, batch + 1):
                yield ConfigProblem(
                    f"records[{number}] is in batch {record.batch}, after one in batch {batch}",
                    key="records",
                    hint="batches count from 1, in the order of the records",
                )
            batch = record.batch or batch


class PipelineTests(Block):
    """Cases for lakefeed test, which needs no brokers, registry or store. lakefeed run ignores them."""

    schemas: dict[SchemaId, CaseSchema] = Field(default_factory=dict)
    """The registry's schemas, by id."""
    tables: dict[str, CaseTable] = Field(default_factory=dict)
    """Rows of the tables in transform.tables, by the tables' names."""
    cases: dict[str, Case] = Field(default_factory=dict)
    """The cases, by name."""
