"""The ``decode`` block of ``pipeline.yaml``: how the bytes of a record become columns."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from lakefeed.config.base import Model, OneOf
from lakefeed.config.connections import Registry

RecordMetadata = Literal["topic", "partition", "offset", "timestamp", "key", "headers"]


class AvroDecode(Model):
    """Avro values: Confluent-framed with a registry, or without a header with a given schema."""

    registry: Registry | None = Field(
        None, description="Schema Registry: values then carry Confluent's 5-byte header with the schema id."
    )
    subject: str | None = Field(
        None, description="Subject whose latest version is the table's schema. Default: <topic>-value."
    )
    schema_file: Path | None = Field(
        None, description="An .avsc file: the reader's schema with a registry, the writer's without."
    )

    @model_validator(mode="after")
    def _a_schema_from_somewhere(self) -> AvroDecode:
        if self.registry is None and self.schema_file is None:
            raise ValueError("avro wants a registry (framed values) or a schema_file (values without header)")
        if self.registry is None and self.subject is not None:
            raise ValueError("subject wants a registry")
        return self


class JsonDecode(Model):
    """JSON values with a given schema."""

    schema_ddl: str | None = Field(None, description="Columns as Spark DDL: 'id BIGINT, name STRING'.")
    schema_file: Path | None = Field(None, description="Or a file: an .avsc, or a Spark schema as .json.")

    @model_validator(mode="after")
    def _one_schema(self) -> JsonDecode:
        if (self.schema_ddl is None) == (self.schema_file is None):
            raise ValueError("json wants either schema_ddl or schema_file")
        return self


class RawDecode(Model):
    """Values as they are: one column ``value`` of bytes."""


class Decode(OneOf):
    """How the bytes of a record become columns."""

    __kinds__ = ("avro", "json", "raw")
    avro: AvroDecode | None = None
    json_: JsonDecode | None = Field(None, alias="json")
    raw: RawDecode | None = None
    metadata: list[RecordMetadata] = Field(
        default_factory=list,
        description="Record metadata kept as columns: _topic, _partition, _offset and so on.",
    )
    on_null: Literal["fail", "skip", "keep"] = Field(
        "fail", description="Null values (tombstones): stop, skip and count them, or keep a row of nulls."
    )
