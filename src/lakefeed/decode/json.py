"""JSON values through Spark's ``from_json``, with whatever it would turn into nulls made an error."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakefeed.decode.avro import function_catalog
from lakefeed.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from lakefeed.decode.spec import Json

_CORRUPT = "_lakefeed_corrupt"
_PARSED = "_lakefeed_parsed"


def with_decoded(records: DataFrame, spec: Json) -> DataFrame:
    """``records`` and the column ``decoded``.

    An error is: bytes that are not UTF-8, text that is not one JSON object, a field of the wrong type, and a
    top-level field missing (or null) that the schema declares not null. Fields that the schema has not are left
    out.

    Raises:
        ConfigError: the schema cannot be read.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructType

    schema = spark_schema(records.sparkSession, spec.schema)
    with_corrupt = StructType([*schema.fields]).add(_CORRUPT, StringType())
    parsed = F.from_json(
        F.col("value").cast("string"),
        with_corrupt,
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
    )
    # Parsed once: without the barrier the optimiser would parse again in each filter.
    once = F.call_function(f"{function_catalog(records.sparkSession)}.once", F.struct(parsed.alias("row")))
    error = _error(schema, F.col("value"), F.col(f"{_PARSED}.row"))
    fields = [F.col(f"{_PARSED}.row")[field.name].alias(field.name) for field in schema.fields]
    decoded = F.struct(
        F.when(F.col("value").isNotNull() & error.isNull(), F.struct(*fields)).alias("value"),
        F.lit(None).cast("int").alias("schema_id"),
        error.alias("error"),
    )
    return records.withColumn(_PARSED, once).withColumn("decoded", decoded).drop(_PARSED)


def spark_schema(spark: SparkSession, text: str) -> StructType:
    """The Spark schema that ``text`` says as DDL, as an Avro record schema or as the JSON of a StructType.

    Raises:
        ConfigError: it is none of them, or has no fields.
    """
    from pyspark.sql.types import StructType

    try:
        if text.lstrip().startswith("{"):
            found = json.loads(text)
            if found.get("type") == "record":
                found = json.loads(_avro_to_spark(spark, text))
            schema = StructType.fromJson(found)
        else:
            schema = StructType.fromDDL(text)
    except Exception as unreadable:
        raise ConfigError(
            f"The schema for JSON values cannot be read: {str(unreadable).splitlines()[0]}",
            where=text[:120],
            hint="give Spark DDL (id BIGINT, name STRING), an Avro record schema or the JSON of a StructType",
        ) from None
    if not schema.fields:
        raise ConfigError("The schema for JSON values has no fields", where=text[:120])
    return schema


def _avro_to_spark(spark: SparkSession, text: str) -> str:
    gateway: Any = spark._jvm
    avro = gateway.org.apache.avro.Schema.Parser().parse(text)
    return str(gateway.org.apache.spark.sql.avro.SchemaConverters.toSqlType(avro).dataType().json())


def _error(schema: StructType, value: Column, row: Column) -> Column:
    """What is wrong with the value as text; null if nothing."""
    from pyspark.sql import functions as F

    text = value.cast("string")
    error = (
        F.when(value.isNull(), F.lit(None).cast("string"))
        .when(F.trim(text) == "", F.lit("empty: no JSON in it"))
        .when(~F.is_valid_utf8(text), F.lit("not UTF-8"))
        .when(row.isNull(), F.lit("not a JSON object"))
        .when(
            row[_CORRUPT].isNotNull(),
            F.concat(F.lit("not a JSON object of the schema: "), F.substring(row[_CORRUPT], 1, 200)),
        )
    )
    for field in schema.fields:
        if not field.nullable:
            error = error.when(row[field.name].isNull(), F.lit(f"field {field.name} is missing or null"))
    return error
