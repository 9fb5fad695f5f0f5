"""``sink.kafka``: writes rows as records of another topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from lakefeed.config.addresses import DatasetName, Place, PlainTextLogin, over_http, servers_of, topic_name
from lakefeed.config.base import ConfigProblem, Model, OneOf, raise_problems
from lakefeed.config.capabilities import Capabilities, SinkFiles
from lakefeed.config.connections import Registry
from lakefeed.config.kafka_client import KafkaClient, over_plain_sasl, producer_problems
from lakefeed.config.secrets import Scalar
from lakefeed.config.sinks import EVERY_MODE, SinkConfig
from lakefeed.config.sources import KafkaSource
from lakefeed.config.sql import Sql
from lakefeed.config.transform import OutputMode
from lakefeed.config.values import Brokers, TopicName

_OUR_HEADERS = "lakefeed."
"""The prefix of lakefeed's own headers."""
_SAFE = {"kafka.acks": ("all", "-1"), "kafka.enable.idempotence": ("true",)}
"""The values without which the sink's guarantee would not hold."""


class AvroValue(Model):
    """Avro; with a registry, Confluent's 5-byte header precedes the value."""

    registry: Registry | None = Field(None, description="Schema Registry that the schema is registered in.")
    subject: str | None = Field(None, description="Its subject. Default: <topic>-value.")
    schema_file: Path | None = None
    """An .avsc file. Default: the subject's latest schema if the rows fit it, else a schema made from the rows."""

    def _contradictions(self) -> Iterator[str]:
        if self.registry is None and self.subject is not None:
            yield "subject requires a registry"


class ProtobufValue(AvroValue):
    """Protobuf; with a registry, Confluent's header precedes the value."""

    schema_file: Path | None = None
    """A .proto file. Default: the subject's latest schema if the rows fit it, else a schema made from the rows."""
    message: str | None = Field(None, description="The message. Default: the schema's first.")


class JsonSchemaValue(Model):
    """JSON with a JSON Schema in a registry; Confluent's 5-byte header precedes the value."""

    registry: Registry = Field(description="Schema Registry that the schema is registered in.")
    subject: str | None = Field(None, description="Its subject. Default: <topic>-value.")
    schema_file: Path | None = None
    """A JSON Schema. Default: the subject's latest schema if the rows fit it, else a schema made from the rows."""


class JsonValue(Model):
    """One JSON object for each row, without a registry."""


class ColumnValue(Model):
    """One column as the value: bytes unchanged, other types as text."""

    name: str = Field(description="The column.")


class Value(OneOf):
    """The encoding of a row as the record's value."""

    avro: AvroValue | None = None
    protobuf: ProtobufValue | None = None
    json_schema: JsonSchemaValue | None = None
    json_: JsonValue | None = Field(None, alias="json")
    column: ColumnValue | None = None

    @model_validator(mode="before")
    @classmethod
    def _column_by_name(cls, block: Any) -> Any:
        if isinstance(block, dict) and isinstance(block.get("column"), str):
            return {**block, "column": {"name": block["column"]}}
        return block

    @property
    def registered(self) -> AvroValue | JsonSchemaValue | None:
        """The block of an encoding with a schema; None for the others."""
        return self.avro or self.protobuf or self.json_schema

    @property
    def registry(self) -> Registry | None:
        """The registry of the schema; None without one."""
        return self.registered.registry if self.registered is not None else None


class KafkaSinkConfig(KafkaClient, SinkConfig):
    """A topic: each row becomes a record; its headers name the record that the row comes from."""

    definition: ClassVar[str] = "lakefeed.sinks.kafka:KafkaDefinition"
    capabilities: ClassVar[Capabilities] = Capabilities(real_time=None)
    # In every mode a batch adds records; with update and complete, readers take the newest record of a key.
    modes: ClassVar[tuple[OutputMode, ...]] = EVERY_MODE
    stored_files: ClassVar[SinkFiles] = SinkFiles(elsewhere="a topic")

    topic: TopicName = Field(description="Its name; it has to be there.", examples=["orders-by-zip"])
    bootstrap_servers: Brokers | None = None
    """host:port of one or more brokers. Default: the source's brokers and its way to connect to them."""
    key: Sql | list[str] | None = None
    """The record's key: an SQL expression over the row, or columns that become one JSON object. Default: none."""
    value: Value = Field(default_factory=lambda: Value(json_=JsonValue()))
    """The encoding of a row as the record's value. Default: json."""
    headers: dict[str, Sql] = Field(default_factory=dict)
    """Further headers by name: SQL expressions over the row, such as "'text'"."""
    options: dict[str, Scalar] = Field(default_factory=dict)
    """Kafka producer settings with the prefix kafka., such as kafka.linger.ms."""

    @field_validator("headers")
    @classmethod
    def _headers_of_the_user(cls, headers: dict[str, str]) -> dict[str, str]:
        what = f"headers that begin with {_OUR_HEADERS} are lakefeed's own"
        raise_problems(ConfigProblem(what, key=name) for name in headers if name.startswith(_OUR_HEADERS))
        return headers

    @field_validator("options", mode="before")
    @classmethod
    def _client_options(cls, options: Any) -> Any:
        if not isinstance(options, dict):
            return options
        found = producer_problems(options)
        reported = {problem.key for problem in found}
        for key, right in _SAFE.items():
            if key in options and key not in reported and str(options[key]).strip().lower() not in right:
                what = f"'{key}' has to stay {right[0]}: that no row is lost rests on it"
                found.append(ConfigProblem(what, key=key))
        raise_problems(found)
        return options

    @property
    def target(self) -> str:
        return self.topic

    @property
    def record_positions(self) -> Literal["used"]:
        """The headers need the record's position if the rows have it."""
        return "used"

    def places(self, *, brokers: str) -> Iterator[Place]:
        yield Place("topic", "topic", self.topic, servers=servers_of(self.bootstrap_servers or brokers))

    def plain_text_logins(self, *, brokers: str) -> Iterator[PlainTextLogin]:
        registry = self.value.registry
        if registry is not None and registry.credentials is not None:
            yield from over_http(f"value.{self.value.kind}.registry.url", registry.url.split(","))
        yield from over_plain_sasl(self.bootstrap_servers or brokers, self.options)

    def problems(self, place: str, source: KafkaSource | None) -> Iterator[ConfigProblem]:
        if source is None and self.bootstrap_servers is None:
            what = f"{place}.kafka.bootstrap_servers has to say where the topic is: the source is not Kafka"
            yield ConfigProblem(what)
        if source is None or not source.reads(self.topic):
            return
        if not self.bootstrap_servers or servers_of(self.bootstrap_servers) & servers_of(source.bootstrap_servers):
            what = f"{place} is the topic {self.topic}, which the source reads: rows would go in a circle"
            yield ConfigProblem(what)

    def columns(self) -> Iterator[tuple[str, str]]:
        if isinstance(self.key, list):
            yield from ((f"key.{index}", column) for index, column in enumerate(self.key))
        if self.value.column is not None:
            yield "value.column", self.value.column.name

    def dataset(self, *, feed: str, brokers: str) -> DatasetName:
        return topic_name(self.bootstrap_servers or brokers, self.topic)

    def sql_expressions(self) -> Iterator[tuple[str, str]]:
        if isinstance(self.key, str):
            yield "key", self.key
        for name, text in self.headers.items():
            yield f"headers.{name}", text
