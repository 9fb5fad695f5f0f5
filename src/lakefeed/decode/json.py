"""JSON values through Spark's ``from_json``, with whatever it would turn into nulls made an error."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakefeed.decode.avro import function_catalog
from lakefeed.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from lakefeed.decode.spec import Json

_CORRUPT = "_lakefeed_corrupt"
_PARSED = "_lakefeed_parsed"


def with_decoded(records: DataFrame, spec: Json) -> DataFrame:
    """``records`` and the column ``decoded``.

    An error is: bytes that are not exactly one JSON object in UTF-8, a field twice, a field of the wrong type,
    and a top-level field missing (or null) that the schema declares not null. Fields that the schema has not
    are left out.

    Raises:
        ConfigError: the schema cannot be read.
    """
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StringType, StructType

    schema = spark_schema(records.sparkSession, spec.schema)
    with_corrupt = StructType([*schema.fields]).add(_CORRUPT, StringType())
    parsed = sf.from_json(
        sf.col("value").cast("string"),
        with_corrupt,
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
    )
    catalog = function_catalog(records.sparkSession)
    fault = sf.call_function(f"{catalog}.json_fault", sf.col("value"))
    # Computed once: without the barrier the optimiser would parse again in each filter.
    both = sf.struct(parsed.alias("row"), fault.alias("fault"))
    once = sf.call_function(f"{catalog}.once", both)
    error = _error(schema, sf.col(_PARSED))
    fields = [sf.col(f"{_PARSED}.row")[field.name].alias(field.name) for field in schema.fields]
    decoded = sf.struct(
        sf.when(sf.col("value").isNotNull() & sf.isnull(error), sf.struct(*fields)).alias("value"),
        sf.lit(None).cast("int").alias("schema_id"),
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
        schema: DataType
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
    if not isinstance(schema, StructType) or not schema.fields:
        raise ConfigError("The schema for JSON values has no fields", where=text[:120])
    return schema


def _avro_to_spark(spark: SparkSession, text: str) -> str:
    gateway: Any = spark._jvm
    avro = gateway.org.apache.avro.Schema.Parser().parse(text)
    return str(gateway.org.apache.spark.sql.avro.SchemaConverters.toSqlType(avro).dataType().json())


def _error(schema: StructType, parsed: Column) -> Column:
    """What is wrong with the value as text; null if nothing."""
    from pyspark.sql import functions as sf

    row = parsed["row"]
    error = sf.when(parsed["fault"].isNotNull(), parsed["fault"]).when(
        row[_CORRUPT].isNotNull(),
        sf.concat(sf.lit("a field has not the type of the schema: "), sf.substring(row[_CORRUPT], 1, 200)),
    )
    for field in schema.fields:
        if not field.nullable:
            missing = sf.lit(f"field {field.name} is missing or null")
            error = error.when(row.isNotNull() & row[field.name].isNull(), missing)
    return error
