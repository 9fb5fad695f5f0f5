"""The newest records of a pipeline's topics, to guess a schema from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.connections import Connections
from lakefeed.config.kafka_source import KafkaSource
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import ResourceMissing
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.records.sources.source import read_batch


def newest_values(
    config: PipelineConfig, *, records: int, connections: Connections, log_file: Path | None = None
) -> list[bytes]:
    """The values of the newest records, about as many of each partition; null values are left out.

    Starts Spark, in this process and on one thread.

    Args:
        config: the pipeline.
        records: at most so many.
        connections: store and catalogs for the session.
        log_file: where the JVM writes its log, instead of this process's stderr.

    Raises:
        ResourceMissing: no such topic, or no records in it.
        Unreachable: no broker answers.
    """
    from lakefeed.clients.spark.session import session

    source = config.kafka
    ranges = list(newest(source, records))
    if not any(each.records for each in ranges):
        topics = ", ".join(sorted({each.topic for each in ranges})) or source.topics_pattern
        raise ResourceMissing(f"there are no records to look at in {topics}", where=source.bootstrap_servers)
    spark = session(f"{config.name}-infer", connections=connections, master="local[1]", log_file=log_file)
    rows = read_batch(spark, source, ranges=ranges).select("value").where("value IS NOT NULL").collect()
    return [bytes(row.value) for row in rows]


def newest(source: KafkaSource, records: int) -> Iterator[OffsetRange]:
    """The ends of the topics' partitions: at most so many records in all, about as many of each."""
    options = {key.removeprefix("kafka."): value for key, value in source.options.items()}
    cluster = Topics(source.bootstrap_servers, options=options)
    names = source.topics or [name for name in cluster.list() if re.fullmatch(source.topics_pattern or "", name)]
    found = [(name, each) for name in names for each in cluster.describe(name).partitions]
    filled = sum(each.end_offset > each.start_offset for _, each in found)
    share = max(1, records // max(1, filled))
    left = records
    for name, each in found:
        take = min(share, left, each.end_offset - each.start_offset)
        left -= take
        yield OffsetRange(name, each.id, each.end_offset - take, each.end_offset)
