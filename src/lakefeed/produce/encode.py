"""Rows to records: columns become a key, a value and headers, in the shape that Spark's Kafka sink takes.

The value is made by Spark's own ``to_avro`` or ``to_json``. Confluent's wire format is the byte 0, the schema's
id in the registry as 4 bytes, big-endian, and then the Avro bytes:
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lakefeed.decode.registry import RegisteredSchema, SchemaRegistry
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.produce import avro

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Format = Literal["confluent-avro", "avro", "json"]


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """How values are encoded, settled before the first row is sent.

    Attributes:
        format: ``confluent-avro``, ``avro`` without a header, or ``json``.
        schema: the Avro schema (JSON) whose fields the value has; None only with ``json``: all columns.
        subject: where the schema is registered; None without a registry.
        schema_id: its id there.
    """

    format: Format
    schema: str | None = None
    subject: str | None = None
    schema_id: int | None = None


def to_records(
    rows: DataFrame,
    *,
    format: Format = "confluent-avro",  # noqa: A002  (the word that Spark uses)
    topic: str,
    registry: SchemaRegistry | str | None = None,
    subject: str | None = None,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    schema: str | None = None,
) -> DataFrame:
    """Encodes rows: the columns ``key`` (if asked for), ``value`` and ``headers`` (if given).

    Args:
        rows: batch or streaming.
        format: see :class:`Encoding`.
        topic: names the subject, ``<topic>-value``, and a schema that is made from the rows.
        registry: where the schema is registered, or its URL; ``confluent-avro`` needs it.
        subject: another subject.
        key: the column that becomes the record's key: binary as it is, anything else as text. It is part of the
            value only if the schema has it.
        headers: the same headers for each record.
        schema: Avro schema (JSON). Default: the subject's latest if the rows fit it, else one made from the rows.

    Raises:
        ConfigError: the rows do not fit the schema, the registry refuses it, or there is no such column.
        Unreachable: the registry does not answer.
        AccessDenied: the registry refuses the credentials.
    """
    encoding = settle(rows, format=format, topic=topic, registry=registry, subject=subject, key=key, schema=schema)
    return encoded(rows, encoding, key=key, headers=headers)


def settle(
    rows: DataFrame,
    *,
    format: Format = "confluent-avro",  # noqa: A002
    topic: str,
    registry: SchemaRegistry | str | None = None,
    subject: str | None = None,
    key: str | None = None,
    schema: str | None = None,
) -> Encoding:
    """Chooses the schema, checks that the rows fit it, and registers it if it is not registered yet.

    Arguments and errors are those of :func:`to_records`.
    """
    if key is not None:
        require_column(rows, key)
    if schema is not None:
        avro.require_fit(rows, schema, key=key)
    if format == "json":
        return Encoding(format=format, schema=schema)
    if format == "avro":
        return Encoding(format=format, schema=schema or avro.derived(rows, name=_record_name(topic)))
    if registry is None:
        raise ConfigError(
            "confluent-avro needs a schema registry",
            hint="set SCHEMA_REGISTRY_URL, or encode as avro or json",
        )
    if isinstance(registry, str):
        registry = SchemaRegistry(registry)
    subject = subject or f"{topic}-value"
    if schema is None:
        if latest := _latest(registry, subject):
            try:
                avro.require_fit(rows, latest.text, key=key)
                return Encoding(format=format, schema=latest.text, subject=subject, schema_id=latest.schema_id)
            except ConfigError:
                pass  # The rows' own schema may still follow the latest: the registry decides.
        schema = avro.derived(rows, name=_record_name(topic))
    schema_id = registry.register(subject, schema)
    return Encoding(format=format, schema=schema, subject=subject, schema_id=schema_id)


def encoded(
    rows: DataFrame, encoding: Encoding, *, key: str | None = None, headers: Mapping[str, str] | None = None
) -> DataFrame:
    """The records of rows whose encoding is settled; see :func:`to_records`."""
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import to_avro

    columns = avro.columns(rows, encoding.schema)
    if encoding.format == "json":
        value = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).cast("binary")
    else:
        value = to_avro(F.struct(*columns), encoding.schema or "")
        if encoding.schema_id is not None:
            value = F.concat(F.lit(header(encoding.schema_id)), value)
    record = [value.alias("value")]
    if key is not None:
        record.insert(0, _key(rows, key).alias("key"))
    if headers:
        record.append(_headers(headers).alias("headers"))
    return rows.select(*record)


def header(schema_id: int) -> bytearray:
    """Confluent's five bytes before the Avro value."""
    return bytearray(struct.pack(">bI", 0, schema_id))


def require_column(rows: DataFrame, name: str) -> None:
    """Raises ConfigError if ``rows`` has no column of this name."""
    if name not in rows.columns:
        raise ConfigError(
            f"there is no column '{name}' to take the key from",
            where=f"the columns are {', '.join(rows.columns)}",
        )


def _latest(registry: SchemaRegistry, subject: str) -> RegisteredSchema | None:
    try:
        return registry.latest(subject)
    except ResourceMissing:
        return None


def _key(rows: DataFrame, name: str) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType

    column = F.col(avro.quoted(name))
    return column if isinstance(rows.schema[name].dataType, BinaryType) else column.cast("string")


def _headers(headers: Mapping[str, str]) -> Column:
    from pyspark.sql import functions as F

    return F.array(
        *(
            F.struct(F.lit(name).alias("key"), F.lit(bytearray(text.encode())).alias("value"))
            for name, text in headers.items()
        )
    )


def _record_name(topic: str) -> str:
    """A name that Avro allows: letters, digits and underscores, not beginning with a digit."""
    name = re.sub(r"\W", "_", topic, flags=re.ASCII)
    return f"_{name}" if name[0].isdigit() else name
