"""Streams whose rows come decoded: files, rate, socket, Iceberg tables, and any format that Spark reads as a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefeed.clients.kafka.selection import moment
from lakefeed.config.blocks import Source
from lakefeed.config.sources import FilesSource, FormatSource, IcebergSource, RateSource, SocketSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_rows(spark: SparkSession, source: Source) -> DataFrame:
    """The source's rows as a streaming DataFrame.

    Args:
        spark: the session.
        source: of another kind than Kafka.

    Raises:
        ConfigError: a point in time that is none.
    """
    match getattr(source, source.kind):
        case FilesSource() as files:
            return _files(spark, files)
        case RateSource() as rate:
            return spark.readStream.format("rate").option("rowsPerSecond", rate.rows_per_second).load()
        case SocketSource() as socket:
            return (
                spark.readStream.format("socket")
                .options(host=socket.host, port=socket.port, includeTimestamp=True)
                .load()
            )
        case IcebergSource() as iceberg:
            return _table(spark, iceberg)
        case FormatSource() as some:
            reader = spark.readStream.format(some.name).options(**some.options)
            reader = reader.schema(some.schema_ddl) if some.schema_ddl is not None else reader
            return reader.load(some.path) if some.path is not None else reader.load()
    raise AssertionError(source.kind)


def _files(spark: SparkSession, source: FilesSource) -> DataFrame:
    reader = (
        spark.readStream.format(source.format)
        .options(**source.options)
        .option("maxFilesPerTrigger", source.max_files_per_batch)
        .option("cleanSource", {"keep": "off"}.get(source.done, source.done))
    )
    if source.archive is not None:
        reader = reader.option("sourceArchiveDir", source.archive)
    if source.schema_ddl is not None:
        reader = reader.schema(source.schema_ddl)
    return reader.load(source.path)


def _table(spark: SparkSession, source: IcebergSource) -> DataFrame:
    reader = spark.readStream.format("iceberg").option(
        "streaming-max-files-per-micro-batch", source.max_files_per_batch
    )
    if source.since is not None:
        reader = reader.option("stream-from-timestamp", int(moment(source.since).timestamp() * 1000))
    if source.skip_overwrites:
        reader = reader.option("streaming-skip-overwrite-snapshots", True).option(
            "streaming-skip-delete-snapshots", True
        )
    return reader.load(source.table)
