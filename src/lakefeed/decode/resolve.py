"""From the ``decode:`` block to what decodes: reads schema files and asks the registry for the table's schema."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lakefeed import jvm
from lakefeed.config.connections import Registry
from lakefeed.config.decoding import AvroDecode, Decode, JsonDecode
from lakefeed.config.models import KafkaSource
from lakefeed.decode.registry import SchemaRegistry
from lakefeed.decode.spec import ConfluentAvro, DecodeSpec, Json, PlainAvro, Raw
from lakefeed.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spec_of(decode: Decode, source: KafkaSource) -> DecodeSpec:
    """What decodes the values of a source.

    Raises:
        ConfigError: if no subject is named for topics that are given by a pattern.
        ResourceMissing: if the registry does not know the subject.
        Unreachable: if the registry does not answer.
    """
    if decode.avro is not None:
        return _avro(decode.avro, source)
    if decode.json_ is not None:
        return Json(schema=_json_schema(decode.json_))
    return Raw()


def _avro(avro: AvroDecode, source: KafkaSource) -> DecodeSpec:
    given = avro.schema_file.read_text("utf-8") if avro.schema_file else None
    if avro.registry is None:
        assert given is not None  # The model wants a schema where there is no registry.
        return PlainAvro(writer_schema=given)
    registry = SchemaRegistry(avro.registry.url, username=avro.registry.username, password=avro.registry.password)
    reader = given or registry.latest(_subject(avro, source)).text
    return ConfluentAvro(
        registry_url=avro.registry.url, reader_schema=reader, credentials=_credentials_name(avro.registry)
    )


def put_credentials(spark: SparkSession, decode: Decode) -> None:
    """Makes the registry's credentials known to the JVM functions that ``spec_of`` names them to."""
    registry = decode.avro.registry if decode.avro else None
    if registry and registry.username and registry.password:
        jvm.put_credentials(
            spark, _credentials_name(registry) or "", username=registry.username, password=registry.password
        )


def _credentials_name(registry: Registry) -> str | None:
    return f"{registry.username}@{registry.url}" if registry.username else None


def _subject(avro: AvroDecode, source: KafkaSource) -> str:
    if avro.subject:
        return avro.subject
    if source.topics:
        return f"{source.topics[0]}-value"
    raise ConfigError(
        "with topics_pattern it has to be said whose schema the table has",
        where="decode.avro.subject",
        hint="subject: <topic>-value of one of the topics, or a schema_file",
    )


def _json_schema(json: JsonDecode) -> str:
    if json.schema_ddl is not None:
        return json.schema_ddl
    assert json.schema_file is not None  # The model holds exactly one of the two.
    return Path(json.schema_file).read_text("utf-8")
