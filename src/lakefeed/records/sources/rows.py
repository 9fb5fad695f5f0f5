"""Reads sources without records to decode: files, rate, socket, Iceberg tables, and any format of Spark's streams."""

from __future__ import annotations

from lakefeed.clients.kafka.selection import moment
from lakefeed.config.blocks import Source
from lakefeed.config.sources import FilesSource, FormatSource, IcebergSource, RateSource, SocketSource
from lakefeed.lazy import DataFrame, SparkSession


def read_rows(spark: SparkSession, source: Source) -> DataFrame:
    """Return the rows of a source as a streaming DataFrame."""
    reader = spark.readStream
    match getattr(source, source.kind):
        case RateSource() as rate:
            return reader.format("rate").option("rowsPerSecond", rate.rows_per_second).load()
        case SocketSource() as socket:
            return reader.format("socket").options(host=socket.host, port=socket.port, includeTimestamp=True).load()
        case IcebergSource() as iceberg:
            reader = reader.format("iceberg")
            reader = reader.option("streaming-max-files-per-micro-batch", iceberg.max_files_per_batch)
            if iceberg.since is not None:
                reader = reader.option("stream-from-timestamp", int(moment(iceberg.since).timestamp() * 1000))
            if iceberg.skip_overwrites:
                reader = reader.option("streaming-skip-overwrite-snapshots", True)
                reader = reader.option("streaming-skip-delete-snapshots", True)
            return reader.load(iceberg.table)
        case FilesSource() as files:
            reader = reader.format(files.format).options(**files.options)
            reader = reader.option("maxFilesPerTrigger", files.max_files_per_batch)
            reader = reader.option("cleanSource", {"keep": "off"}.get(files.done, files.done))
            if files.archive is not None:
                reader = reader.option("sourceArchiveDir", files.archive)
            path: str | None = files.path
            schema_ddl = files.schema_ddl
        case FormatSource() as other:
            reader = reader.format(other.name).options(**other.options)
            path, schema_ddl = other.path, other.schema_ddl
        case _:
            raise AssertionError(source.kind)
    if schema_ddl is not None:
        reader = reader.schema(schema_ddl)
    return reader.load(path)
