"""The columns that a schema means, said in one of three languages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakefeed.errors import ConfigError, LakefeedError
from lakefeed.records.schema.fit import refuse_same_but_for_case
from lakefeed.records.schema.parse import require_usable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType


def table_type(spark: SparkSession, text: str, *, of: str) -> StructType:
    """The Spark type that ``text`` says as DDL, as an Avro record schema or as the JSON of a StructType.

    Args:
        spark: any session.
        text: the schema.
        of: the format whose values it is for, for messages.

    Raises:
        ConfigError: it is none of them, has no fields, or is too large.
        SchemaIncompatible: names of it differ in case only.
    """
    from pyspark.sql.types import StructType

    try:
        schema: DataType
        if text.lstrip().startswith("{"):
            found = json.loads(text)
            if found.get("type") == "record":
                require_usable(text)
                found = json.loads(_avro_to_spark(spark, text))
            schema = StructType.fromJson(found)
        else:
            schema = StructType.fromDDL(text)
    except LakefeedError as unusable:
        raise ConfigError(
            f"The schema for {of} values cannot be used: {unusable.what}", where=text[:120], hint=unusable.hint
        ) from None
    except Exception as unreadable:
        raise ConfigError(
            f"The schema for {of} values cannot be read: {str(unreadable).splitlines()[0]}",
            where=text[:120],
            hint="give Spark DDL (id BIGINT, name STRING), an Avro record schema or the JSON of a StructType",
        ) from None
    if not isinstance(schema, StructType) or not schema.fields:
        raise ConfigError(f"The schema for {of} values has no fields", where=text[:120])
    refuse_same_but_for_case(schema, where=f"the schema for {of} values")
    return schema


def _avro_to_spark(spark: SparkSession, text: str) -> str:
    gateway: Any = spark._jvm
    # Columns may have names that are none in Avro.
    parser = gateway.org.apache.avro.Schema.Parser(gateway.org.apache.avro.NameValidator.NO_VALIDATION)
    avro = parser.parse(text)
    return str(gateway.org.apache.spark.sql.avro.SchemaConverters.toSqlType(avro).dataType().json())
