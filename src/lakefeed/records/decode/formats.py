"""Values of every format but Avro through the JVM decoder; see ``io.lakefeed.decode.DecodeFunction``."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, assert_never

from lakefeed.clients.spark import jvm
from lakefeed.errors import ConfigError
from lakefeed.records.decode.avro import function_catalog, registry_options
from lakefeed.records.decode.avro_schema import avro_schema_of_text
from lakefeed.records.decode.table_type import table_type
from lakefeed.records.spec import ConfluentJson, ConfluentProtobuf, Csv, Json, PlainProtobuf, String

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FormatSpec = ConfluentProtobuf | ConfluentJson | PlainProtobuf | Json | Csv | String
"""The encodings that this module decodes."""


def with_decoded(records: DataFrame, spec: FormatSpec) -> DataFrame:
    """``records`` and the column ``decoded``.

    Raises:
        ConfigError: a schema that cannot be used, or credentials that were not put.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as sf

    spark = records.sparkSession
    catalog = function_catalog(spark, {**_options(spark, spec), "time-zone": str(spark.conf.get(_TIME_ZONE))})
    try:
        return records.withColumn("decoded", sf.expr(f"{catalog}.decode(value)"))
    except (PySparkException, Py4JJavaError) as refused:
        raise ConfigError(f"The schema cannot be used: {jvm.cause_of(refused)}", where=type(spec).__name__) from None


_TIME_ZONE = "spark.sql.session.timeZone"


def _options(spark: SparkSession, spec: FormatSpec) -> dict[str, str]:
    match spec:
        case ConfluentProtobuf():
            return {"format": "protobuf", **registry_options(spark, spec)}
        case ConfluentJson():
            return {"format": "json", **registry_options(spark, spec), "lenient": json.dumps(spec.lenient)}
        case PlainProtobuf():
            return {"format": "protobuf", **_writer(spark, spec)}
        case Json():
            return {
                "format": "json",
                "reader-type": table_type(spark, spec.schema, of="JSON").json(),
                "lenient": json.dumps(spec.lenient),
            }
        case Csv():
            return {
                "format": "csv",
                "reader-type": table_type(spark, spec.schema, of="CSV").json(),
                "delimiter": spec.delimiter,
                "quote": spec.quote,
                "escape": spec.escape,
                "null-value": spec.null_value,
            }
        case String():
            return {"format": "string"}
    assert_never(spec)


def _writer(spark: SparkSession, spec: PlainProtobuf) -> dict[str, str]:
    reader = spec.reader_schema or avro_schema_of_text(
        spark, "PROTOBUF", spec.schema, references=spec.references, message=spec.message
    )
    options = {"reader-schema": reader}
    if spec.message is not None:
        options["message"] = spec.message
    if isinstance(spec.schema, bytes):
        return {**options, "writer-set": base64.b64encode(spec.schema).decode()}
    return {**options, "writer-schema": spec.schema, "writer-references": json.dumps(spec.references)}
