"""Parquet sink: Spark's own file sink, whose log ``_spark_metadata`` lists each batch's files exactly once.

Guarantee: exactly-once for readers that honour ``_spark_metadata``, that is Spark reading the root path. Others
see the files of failed attempts too. The log is keyed by batch id alone, so a path belongs to one checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefeed.config.models import ParquetSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def write_stream(rows: DataFrame, sink: ParquetSink) -> DataStreamWriter:
    """The stream writer for the rows; the caller adds checkpoint and trigger and starts it."""
    return (
        rows.writeStream.format("parquet")
        .option("path", sink.path)
        .option("compression", sink.compression)
        .partitionBy(*sink.partition_by)
        .outputMode("append")
    )
