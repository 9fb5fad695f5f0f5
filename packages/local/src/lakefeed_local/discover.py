"""Find out how to decode a topic, from its registered schema or one of its records."""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from lakefeed.config.connections import Registry
from lakefeed.config.kafka_client import KafkaLogin, client_options
from lakefeed.config.sources import KafkaSource
from lakefeed.config.sql import columns_of_ddl
from lakefeed.errors import ConfigError, LakefeedError, ResourceMissing, Unreachable
from lakefeed.records.decode.avro_schema import table_schema
from lakefeed.records.decode.registry import RegisteredSchema, SchemaRegistry
from lakefeed.records.schema.avro import DEEPEST
from lakefeed_local.topics import reading_plan
from lakefeed_local.topics.reading_plan import IdHeader, id_header, prefix_of

PAGE = "pipeline-files"


SAMPLE_SECONDS = 5.0
# A JSON object with more fields is probably a map with ids as keys.
MAX_COLUMNS = 1_000
# The most subjects whose latest version init requests to find the subject of a schema id.
_MAX_SUBJECTS = 200
_TIME_NAME = re.compile(r"(?i)(^|_)(at|ts|time|date|datetime|timestamp)($|_)|(time|date|stamp)$|At$")


@dataclass(frozen=True, kw_only=True)
class Column:
    """A top-level field of the values; ``time`` is ``text`` if the field is a text whose name suggests a time."""

    name: str
    type: str
    time: Literal["instant", "text"] | None = None


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """The decode block that fits a topic.

    Attributes:
        how: a sentence for the user about how the block was found.
        certain: False if the block is a guess.
        subject: None for the usual ``<topic>-value``.
        ddl: the columns of JSON values.
    """

    kind: Literal["avro", "protobuf", "json_schema", "json", "raw"]
    how: str
    certain: bool = True
    columns: tuple[Column, ...] = ()
    subject: str | None = None
    ddl: str | None = None


def discover(topic: str, *, bootstrap_servers: str, registry_url: str | None) -> Discovery:
    """Find the decode block from the topic's value schema in the registry, or else from one record.

    The login comes from the environment.
    """
    from lakefeed.clients.kafka.librdkafka import missing_topic
    from lakefeed.clients.kafka.topics import Topics

    login = KafkaLogin.from_environment(os.environ)
    existing = Topics(bootstrap_servers, options=client_options(login, {})).list()
    if topic not in existing:
        raise missing_topic(topic, existing, where=bootstrap_servers)
    if registry_url is not None:
        with suppress(ResourceMissing):
            found = SchemaRegistry.of(Registry.from_environment(registry_url, os.environ)).latest(f"{topic}-value")
            how = f"the registered schema of subject {found.subject}, version {found.version}"
            if known := _registered(found, how, registry=registry_url):
                return known
            how = f"subject {found.subject} has a {found.kind} schema, which lakefeed does not decode"
            return Discovery(kind="raw", how=how, certain=False)
    value, header = sample(topic, bootstrap_servers=bootstrap_servers, login=login)
    return _from_record(value, header, registry_url, topic)


def _registered(found: RegisteredSchema, how: str, *, registry: str, subject: str | None = None) -> Discovery | None:
    """Return the decode block for a registered schema; None if the schema gives no columns."""
    if found.kind == "PROTOBUF":
        return Discovery(kind="protobuf", how=how, subject=subject)
    try:
        columns = _avro_columns(table_schema(None, found, registry=registry))
    except ConfigError:
        if found.kind == "AVRO":
            raise
        return None
    return Discovery(kind="avro" if found.kind == "AVRO" else "json_schema", how=how, subject=subject, columns=columns)


def _from_record(value: bytes | None, header: IdHeader | None, registry_url: str | None, topic: str) -> Discovery:
    if value is None:
        how = f"no schema is registered for {topic}-value, and the topic has no records"
        return Discovery(kind="raw", how=how, certain=False)
    if registry_url is not None and (header is not None or (len(value) > 5 and value[0] == 0)):
        framed = _framed(value, header, registry_url)
        if framed is not None:
            return framed
    in_header = "" if header is None else f"; its schema's id is in the header {header.name}: give its registry"
    if columns := _json_columns(value):
        how = f"no schema is registered; the columns are guessed from one JSON record{in_header}"
        return Discovery(kind="json", how=how, certain=False, columns=columns, ddl=_ddl(columns))
    if header is not None:
        return Discovery(kind="raw", how=f"no schema of a record of the topic is known{in_header}", certain=False)
    how = "no schema is registered, and a record of the topic is neither framed Avro nor a JSON object"
    return Discovery(kind="raw", how=how, certain=False)


def _framed(value: bytes, header: IdHeader | None, registry_url: str) -> Discovery | None:
    """Return the decode block for a value with a schema's id; None if the registry lacks the value's schema."""
    registry = SchemaRegistry.of(Registry.from_environment(registry_url, os.environ))
    try:
        schema_id = reading_plan.schema_id(value if header is None else prefix_of(header, registry))
        registry.schema(schema_id)
        for subject in registry.subjects()[:_MAX_SUBJECTS]:
            found = registry.latest(subject)
            if found.schema_id == schema_id:
                how = f"a record's schema id {schema_id}, which is the latest version of subject {subject}"
                return _registered(found, how, registry=registry_url, subject=subject)
    except Unreachable:
        raise
    except LakefeedError:
        return None
    return None


def sample(
    topic: str, *, bootstrap_servers: str, login: KafkaLogin | None = None
) -> tuple[bytes | None, IdHeader | None]:
    """Return the value of one of the topic's first records, and the record's header with a schema id, if any.

    Commits nothing, and joins no consumer group.
    """
    from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

    from lakefeed.clients.kafka.librdkafka import open_consumer

    # Do not validate the source here: template.check later refuses a wrong address, and names the option.
    source = KafkaSource.model_construct(bootstrap_servers=bootstrap_servers, topics=[topic], login=login)
    with open_consumer(source, "lakefeed-init", {"enable.partition.eof": True}) as consumer:
        partitions = consumer.list_topics(topic, timeout=SAMPLE_SECONDS).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        end = time.monotonic() + SAMPLE_SECONDS
        ended = 0
        while time.monotonic() < end and ended < len(partitions):
            message = consumer.poll(0.2)
            error = message.error() if message is not None else None
            ended += error is not None and error.code() == KafkaError._PARTITION_EOF
            if message is not None and error is None and (value := message.value()) is not None:
                data = value if isinstance(value, bytes) else str(value).encode()
                headers: Any = message.headers() or ()
                return data, id_header(headers)
    return None, None


def _avro_columns(text: str) -> tuple[Column, ...]:
    schema = json.loads(text)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return ()
    return tuple(
        Column(name=field["name"], type=_avro_type(field["type"]), time=_avro_time(field["name"], field["type"]))
        for field in schema["fields"]
    )


def _avro_type(schema: Any) -> str:
    if isinstance(schema, list):
        return " or ".join(_avro_type(each) for each in schema)
    if not isinstance(schema, dict):
        return str(schema)
    if "logicalType" in schema:
        return str(schema["logicalType"])
    if schema["type"] == "array":
        return f"array of {_avro_type(schema['items'])}"
    if schema["type"] == "map":
        return f"map of {_avro_type(schema['values'])}"
    return str(schema.get("name", schema["type"])) if schema["type"] == "record" else _avro_type(schema["type"])


def _avro_time(name: str, schema: Any) -> Literal["instant", "text"] | None:
    words = _avro_type(schema).split(" or ")
    if any(re.fullmatch(r"(local-)?timestamp-(millis|micros|nanos)|date", word) for word in words):
        return "instant"
    return _text_time(name) if "string" in words else None


def _json_columns(value: bytes) -> tuple[Column, ...]:
    """Return the columns of a JSON object; none if it has too many fields, or a field that DDL cannot name."""
    try:
        document = json.loads(value)
        if not isinstance(document, dict) or "" in document or len(document) > MAX_COLUMNS:
            return ()
        columns = tuple(
            Column(name=name, type=_ddl_type(field), time=_text_time(name) if isinstance(field, str) else None)
            for name, field in document.items()
        )
        columns_of_ddl(_ddl(columns))
    except (ValueError, RecursionError):
        return ()
    return columns


def _ddl(columns: tuple[Column, ...]) -> str:
    return ", ".join(f"{_ddl_name(column.name)} {column.type}" for column in columns)


def _text_time(name: str) -> Literal["text"] | None:
    return "text" if _TIME_NAME.search(name) else None


def _ddl_type(value: Any, depth: int = 1) -> str:
    if depth > DEEPEST - 2:
        return "STRING"  # A nested value is JSON within the text. The record and the text count as levels, too.
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "BIGINT" if -(2**63) <= value < 2**63 else "DECIMAL(38,0)" if abs(value) < 10**38 else "STRING"
    if isinstance(value, float):
        return "DOUBLE"
    if isinstance(value, list):
        return f"ARRAY<{_ddl_type(value[0], depth + 1) if value else 'STRING'}>"
    if isinstance(value, dict) and value:
        return f"STRUCT<{', '.join(f'{_ddl_name(key)}: {_ddl_type(each, depth + 1)}' for key, each in value.items())}>"
    return "STRING"


def _ddl_name(name: str) -> str:
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        return name
    return "`" + name.replace("`", "``") + "`"
