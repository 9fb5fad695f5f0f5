"""Records in the form of Spark's Kafka source, and Avro encoded by the reference library."""

import io
from collections.abc import Sequence
from typing import Any

import fastavro
from pyspark.sql import DataFrame, Row, SparkSession


def avro_bytes(schema: Any, datum: Any) -> bytes:
    """Encode ``datum`` with fastavro, without a header."""
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), datum)
    return buffer.getvalue()


def records(spark: SparkSession, values: Sequence[bytes | None], *, topic: str = "t") -> DataFrame:
    """Return records of one partition of a topic with these values, from offset 0."""
    rows = [(topic, 0, offset, bytearray(value) if value is not None else None) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, "topic STRING, partition INT, offset BIGINT, value BINARY").coalesce(1)


def results(decoded: DataFrame) -> list[Row]:
    """Return the decoded structs in the order of their offsets."""
    return [row.decoded for row in decoded.orderBy("offset").select("decoded").collect()]
