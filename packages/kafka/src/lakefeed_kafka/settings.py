"""``sink.kafka``: writes rows as records of another topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from lakefeed.config.addresses import DatasetName, Place, PlainTextLogin, over_http, servers_of, topic_name
from lakefeed.config.base import ConfigProblem, Model, OneOf, raise_problems
from lakefeed.config.connections import Registry
from lakefeed.config.kafka_client import KafkaClient, over_plain_sasl, producer_problems
from lakefeed.config.secrets import Scalar
from lakefeed.config.sinks import EVERY_MODE, Capabilities, SinkConfig, SinkFiles
from lakefeed.config.sources import KafkaSource
from lakefeed.config.sql import Sql
from lakefeed.config.transform import OutputMode
from lakefeed.config.values import Brokers, TopicName

_OUR_HEADERS = "lakefeed."
"""The prefix of lakefeed's own headers."""
IdPlace = Literal["prefix", "header"]
_SAFE = {"kafka.acks": ("all", "-1"), "kafka.enable.idempotence": ("true",)}
"""The values of producer settings on which the sink's guarantee depends."""


class AvroValue(Model):
    """Avro; with a registry, Confluent's 5-byte header precedes the value."""

    registry: Registry | None = Field(None, description="Schema Registry that the schema is registered in.")
    subject: str | None = Field(None, description="The schema's subject in the registry. Default: <topic>-value.")
    schema_file: Path | None = None
    """An .avsc file. Default: the subject's latest schema if the rows fit it, else a schema derived from the rows."""
    schema_id: IdPlace = "prefix"
    """prefix: the schema's id precedes the value. header: the header __value_schema_id has the schema's GUID."""

    def _contradictions(self) -> Iterator[str]:
        if self.registry is None and self.subject is not None:
            yield "subject requires a registry"
        if self.registry is None and self.schema_id == "header":
            yield "schema_id: header requires a registry"


class ProtobufValue(AvroValue):
    """Protobuf; with a registry, Confluent's header precedes the value."""

    schema_file: Path | None = None
    """A .proto file. Default: the subject's latest schema if the rows fit it, else a schema derived from the rows."""
    message: str | None = Field(None, description="The message of the values. Default: the schema's first message.")


class JsonSchemaValue(Model):
    """JSON with a JSON Schema in a registry; Confluent's 5-byte header precedes the value."""

    registry: Registry = Field(description="Schema Registry that the schema is registered in.")
    subject: str | None = Field(None, description="The schema's subject in the registry. Default: <topic>-value.")
    schema_file: Path | None = None
    """A JSON Schema. Default: the subject's latest schema if the rows fit it, else a schema derived from the rows."""
    schema_id: IdPlace = "prefix"
    """prefix: the schema's id precedes the value. header: the header __value_schema_id has the schema's GUID."""


class JsonValue(Model):
    """One JSON object for each row, without a registry."""


class ColumnValue(Model):
    """One column as the value: bytes unchanged, other types as text."""

    name: str = Field(description="The column that becomes the value.")


class Value(OneOf):
    """How a row becomes the value of a record: exactly one of these blocks."""

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
        """The settings of the encoding that has a schema; None for JSON and for a single column."""
        return self.avro or self.protobuf or self.json_schema

    @property
    def registry(self) -> Registry | None:
        return self.registered.registry if self.registered is not None else None


class KafkaSinkConfig(KafkaClient, SinkConfig):
    """A topic: each row becomes a record, whose headers name the source record of the row."""

    definition: ClassVar[str] = "lakefeed_kafka.sink:KafkaDefinition"
    capabilities: ClassVar[Capabilities] = Capabilities(real_time=None)
    # A batch adds records in every mode; with update and complete, a reader uses the newest record of a key.
    modes: ClassVar[tuple[OutputMode, ...]] = EVERY_MODE
    stored_files: ClassVar[SinkFiles] = SinkFiles(elsewhere="a topic")

    topic: TopicName = Field(description="The topic's name; the topic must exist.", examples=["orders-by-zip"])
    bootstrap_servers: Brokers | None = None
    """host:port of one or more brokers. Default: the source's brokers, with its login and its security settings."""
    key: Sql | list[str] | None = None
    """The record's key: an SQL expression over the row, or columns that become one JSON object. Default: none."""
    value: Value = Field(default_factory=lambda: Value(json_=JsonValue()))
    """How a row becomes the record's value. Default: json."""
    headers: dict[str, Sql] = Field(default_factory=dict)
    """Further headers by name: SQL expressions over the row, such as "'text'"."""
    options: dict[str, Scalar] = Field(default_factory=dict)
    """Kafka producer settings with the prefix kafka., such as kafka.linger.ms."""

    @field_validator("headers")
    @classmethod
    def _headers_of_the_user(cls, headers: dict[str, str]) -> dict[str, str]:
        what, hint = f"headers that begin with {_OUR_HEADERS} are lakefeed's own", "give the header another name"
        raise_problems(ConfigProblem(what, key=name, hint=hint) for name in headers if name.startswith(_OUR_HEADERS))
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
                what = f"'{key}' must stay {right[0]}: with other values rows can be lost or doubled"
                found.append(ConfigProblem(what, key=key, hint="remove the setting"))
        raise_problems(found)
        return options

    @property
    def target(self) -> str:
        return self.topic

    @property
    def record_positions(self) -> Literal["used"]:
        """Record headers name the source record's topic, partition and offset, if the rows have them."""
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
            what = f"{place}.kafka.bootstrap_servers is required, since the source has no brokers"
            yield ConfigProblem(what, hint="write bootstrap_servers: host:9092")
        if source is None or not source.reads(self.topic):
            return
        if not self.bootstrap_servers or servers_of(self.bootstrap_servers) & servers_of(source.bootstrap_servers):
            what = f"{place} is the topic {self.topic}, which the source reads: the feed would read its own rows"
            yield ConfigProblem(what, hint="name another topic")

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
