"""Rows as Protobuf messages, by ``io.lakefeed.produce.ProtobufEncode``."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from lakefeed.records.decode.registry import SchemaText

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

CATALOG_CLASS = "io.lakefeed.produce.EncodeCatalog"


def encode_call(
    spark: SparkSession, fields: Column, schema: SchemaText, message: str | None, schema_id: int | None
) -> Column:
    """The column of messages made of a struct; with Confluent's header if there is a schema id."""
    from pyspark.sql import functions as F

    options = {"schema": schema.text}
    options |= {f"references.{number}": each.text for number, each in enumerate(schema.references)}
    if message is not None:
        options["message"] = message
    if schema_id is not None:
        options["schema-id"] = str(schema_id)
    digest = hashlib.sha256(repr(sorted(options.items())).encode()).hexdigest()[:16]
    catalog = f"lakefeed_encode_{digest}"
    for option, value in options.items():
        spark.conf.set(f"spark.sql.catalog.{catalog}.{option}", value)
    spark.conf.set(f"spark.sql.catalog.{catalog}", CATALOG_CLASS)
    return F.call_function(f"{catalog}.encode", fields)
