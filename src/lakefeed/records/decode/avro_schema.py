"""Every registered schema as an Avro schema, so that tables and their evolution know one kind of schema."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lakefeed.clients.spark import jvm
from lakefeed.errors import ConfigError, LakefeedError, ResourceMissing, SchemaIncompatible
from lakefeed.lazy import SparkSession, py4j, spark_errors
from lakefeed.records.decode import json_schema
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
    """Return the Avro record schema (JSON) that is equivalent to the schema with this id, whatever its kind.

    Avro schemas are returned as they are, references put in. Of Protobuf and JSON Schema, what a writer may leave
    out is a union with null and has the default null; a proto3 field without presence has zero as its default.

    Args:
        spark: any session; Protobuf is translated in its JVM.
        kind: of the schema in the registry. Default: any.
        message: for Protobuf, the message, with the package or without. Default: the schema's first.
        subject: whose id it is, where a registry has several contexts.

    Raises:
        ResourceMissing: there is no such id, or the schema refers to one that is gone.
        SchemaIncompatible: the schema is of another kind, cannot be read, describes no record, or has no such message.
        Unreachable: the registry does not answer.
    """
    schema, where = registry.schema(schema_id, subject), f"schema id {schema_id} of {registry.url}"
    if kind not in (None, schema.kind):
        raise SchemaIncompatible(f"the schema is of kind {schema.kind}, not {kind}", where=where)
    try:
        return avro_schema_of_schema(spark, schema, message=message)
    except ConfigError as error:
        raise SchemaIncompatible(error.what, where=where, hint=error.hint) from None


def table_schema(
    spark: SparkSession | None, schema: RegisteredSchema, *, registry: str, message: str | None = None
) -> str:
    """Return the Avro schema (JSON) that a table can be made of; an error names subject, version and id."""
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
    """Yield the versions of a subject that a table can be made of, newest first; if none can, raise the newest's error.

    Each comes with its Avro schema, and with what is wrong with the newer ones that cannot be used. ``spark`` may be
    None: Protobuf is not translated then.
    """
    refused: list[LakefeedError] = []
    usable = 0
    for number in _newest_first(client, subject):
        try:
            found = client.latest(subject, block=block, version=number)
            known = spark is None and found.kind == "PROTOBUF"
            text = found.text if known else table_schema(spark, found, registry=client.url, message=message)
        except NotARegistry:
            raise
        except (ConfigError, ResourceMissing) as unusable:
            refused.append(unusable)
        else:
            usable += 1
            yield found, text, [each.what for each in refused]
    if not usable:
        raise refused[0]


def _newest_first(client: SchemaRegistry, subject: str) -> Iterator[int | None]:
    yield None
    yield from reversed(client.version_numbers(subject)[:-1])


def avro_schema_of_schema(spark: SparkSession | None, schema: SchemaText, *, message: str | None = None) -> str:
    """Translate a schema as ``avro_schema_of`` does; ``spark`` may be None for kinds other than Protobuf."""
    if schema.kind == "JSON":
        return _of_json_schema(schema)
    if schema.kind == "AVRO":
        return schema.text
    assert spark is not None  # Protobuf is translated in its JVM.
    references = [reference.text for reference in schema.references]
    return avro_schema_of_text(spark, schema.kind, schema.text, references=references, message=message)


def avro_schema_of_text(
    spark: SparkSession, kind: str, schema: str | bytes, *, references: Sequence[str] = (), message: str | None = None
) -> str:
    """Translate a schema of kind ``AVRO`` or ``PROTOBUF`` given as text, or a Protobuf descriptor set as bytes."""
    if kind == "AVRO":
        return str(schema)
    try:
        schemas = jvm.java(spark).decode.ProtobufSchemas
        if isinstance(schema, bytes):
            types = schemas.typesOfSet(base64.b64encode(schema).decode())
        else:
            types = schemas.types(schema, list(references))
        return str(schemas.avroSchema(types, message))
    except (py4j.Py4JJavaError, spark_errors.PySparkException) as error:
        raise ConfigError(
            f"The Protobuf schema cannot be used: {jvm.cause_of(error)}",
            hint=None if message else "give the files that it imports, and the message if it is not the first",
        ) from None


def _of_json_schema(schema: SchemaText) -> str:
    try:
        references = {reference.name: reference.text for reference in schema.references}
        text = json_schema.avro_schema(schema.text, references)
    except RecursionError:
        raise ConfigError("The JSON Schema has too many levels inside each other") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as malformed:
        raise ConfigError(f"The JSON Schema is malformed: {malformed}") from None
    parse(text)
    return text
