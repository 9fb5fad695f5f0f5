"""Translates schemas of all kinds to Avro schemas, so that the code for tables and their evolution handles one kind."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lakefeed.clients.spark import jvm
from lakefeed.errors import ConfigError, LakefeedError, ResourceMissing, SchemaIncompatible
from lakefeed.lazy import SparkSession, py4j, spark_errors
from lakefeed.records.decode.registry import NotARegistry
from lakefeed.records.schema.parse import parse, require_usable

if TYPE_CHECKING:
    from lakefeed.records.decode.registry import RegisteredSchema, SchemaRegistry, SchemaText


def avro_schema_of(
    spark: SparkSession,
    registry: SchemaRegistry,
    schema_id: int,
    *,
    kind: str | None = None,
    message: str | None = None,
    subject: str | None = None,
) -> str:
    """Translate the registered schema with an id to an Avro record schema (JSON).

    An Avro schema stays as it is, except that the schemas that it refers to are inserted. Optional fields of Protobuf
    and JSON Schema become unions with null and the default null; a proto3 field without presence has the default zero.

    Args:
        spark: any session; its JVM translates Protobuf.
        kind: the kind that the schema must have in the registry. Default: any kind.
        message: for Protobuf, the message's name, with or without the package. Default: the schema's first message.
        subject: a subject of the schema, which selects the registry's context, because each context has its own ids.

    Raises:
        ResourceMissing: the registry does not have the id, or a schema that the schema refers to.
        SchemaIncompatible: the schema has another kind, is unreadable, describes no record, or lacks the message.
        Unreachable: the registry does not answer.
    """
    schema, where = registry.schema(schema_id, subject), f"schema id {schema_id} of {registry.url}"
    if kind not in (None, schema.kind):
        what, hint = f"the schema is of kind {schema.kind}, not {kind}", "register it under a subject of another topic"
        raise SchemaIncompatible(what, where=where, hint=hint)
    try:
        return avro_schema_of_schema(spark, schema, message=message)
    except ConfigError as error:
        raise SchemaIncompatible(error.what, where=where, hint=error.hint) from None


def table_schema(
    spark: SparkSession | None, schema: RegisteredSchema, *, registry: str, message: str | None = None
) -> str:
    """Translate a schema to an Avro schema (JSON) that can become a table; errors name subject, version and id."""
    try:
        text = avro_schema_of_schema(spark, schema, message=message)
        require_usable(text)
    except (ConfigError, SchemaIncompatible) as error:
        name = f"subject {schema.subject}, version {schema.version}, id {schema.schema_id}"
        raise ConfigError(
            f"the schema of {name} cannot be used: {error.what}", where=registry, hint=error.hint
        ) from None
    return text


def usable_versions(
    spark: SparkSession | None, client: SchemaRegistry, subject: str, *, block: str, message: str | None = None
) -> Iterator[tuple[RegisteredSchema, str, list[str]]]:
    """Yield a subject's versions that can become a table, newest first; if none can, raise the newest version's error.

    Each result has a version, its Avro schema, and the errors of newer versions that cannot be used. If ``spark`` is
    None, Protobuf is not translated.
    """
    refused: list[LakefeedError] = []
    is_usable = False
    for number in _newest_first(client, subject):
        try:
            schema = client.latest(subject, block=block, version=number)
            known = spark is None and schema.kind == "PROTOBUF"
            text = schema.text if known else table_schema(spark, schema, registry=client.url, message=message)
        except NotARegistry:
            raise
        except (ConfigError, ResourceMissing) as unusable:
            refused.append(unusable)
        else:
            is_usable = True
            yield schema, text, [each.what for each in refused]
    if not is_usable:
        raise refused[0]


def _newest_first(client: SchemaRegistry, subject: str) -> Iterator[int | None]:
    yield None  # ``None`` is the newest version: to read it, the numbers of the versions need not be requested.
    yield from reversed(client.version_numbers(subject)[:-1])


def avro_schema_of_schema(spark: SparkSession | None, schema: SchemaText, *, message: str | None = None) -> str:
    """Translate a schema like ``avro_schema_of``; ``spark`` may be None for all kinds except Protobuf."""
    if schema.kind == "AVRO":
        return schema.text
    if schema.kind == "JSON":
        from lakefeed.records.decode import json_schema
        from lakefeed.records.decode.json_schema_document import MALFORMED, too_deep

        try:
            text = json_schema.avro_schema(schema.text, {each.name: each.text for each in schema.references})
        except RecursionError:
            raise too_deep() from None
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as malformed:
            raise ConfigError(f"The JSON Schema is malformed: {malformed}", hint=MALFORMED) from None
        parse(text)
        return text
    assert spark is not None  # Protobuf is translated in the session's JVM.
    references = [reference.text for reference in schema.references]
    return avro_schema_of_protobuf(spark, schema.text, references=references, message=message)


def avro_schema_of_protobuf(
    spark: SparkSession, schema: str | bytes, *, references: Sequence[str] = (), message: str | None = None
) -> str:
    """Translate a ``.proto`` text or the bytes of a descriptor set."""
    try:
        schemas = jvm.java(spark).decode.ProtobufSchemas
        if isinstance(schema, bytes):
            types = schemas.typesOfSet(base64.b64encode(schema).decode())
        else:
            types = schemas.types(schema, list(references))
        return str(schemas.avroSchema(types, message))
    except (py4j.Py4JJavaError, spark_errors.PySparkException) as error:
        hint = "give the files that the schema imports, and the message if it is not the first"
        raise ConfigError(f"The Protobuf schema cannot be used: {jvm.cause_of(error)}", hint=hint) from None
