"""Spark's Kafka source: as a stream, or as a batch of explicit offset ranges."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakefeed.commit.ranges import OffsetRange, OffsetRanges, spark_offsets
from lakefeed.config.models import KafkaSource
from lakefeed.kafka.client_options import CONSUMER_DEFAULTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_stream(
    spark: SparkSession,
    source: KafkaSource,
    *,
    headers: bool = False,
    starting: Mapping[str, Mapping[int, int]] | None = None,
) -> DataFrame:
    """The records of the source's topics as a streaming DataFrame, undecoded.

    Columns: key, value, topic, partition, offset, timestamp, timestampType, and headers if asked for.

    Args:
        spark: the session.
        source: the topics.
        headers: whether headers are wanted.
        starting: where a query without a checkpoint begins, for every partition; -2 is its first record. Default: where
            the source says.
    """
    reader = spark.readStream.format("kafka").options(**_client(source)).options(**_subscription(source))
    return (
        reader.option("startingOffsets", source.start if starting is None else json.dumps(starting))
        .option("maxOffsetsPerTrigger", source.max_records_per_batch)
        .option("failOnDataLoss", "true")
        .option("includeHeaders", headers)
        .load()
    )


def read_batch(
    spark: SparkSession,
    source: KafkaSource,
    *,
    ranges: Sequence[OffsetRange] | None = None,
    headers: bool = False,
) -> DataFrame:
    """The records of explicit offset ranges, or all that the topics hold now, as a batch DataFrame, undecoded.

    Raises:
        ConfigError: if a partition has more than one range.
    """
    reader = spark.read.format("kafka").options(**_client(source)).option("includeHeaders", headers)
    reader = reader.option("failOnDataLoss", "true")
    if ranges is None:
        return reader.options(**_subscription(source)).load()
    wanted = OffsetRanges(tuple(ranges)).ranges

    def by_topic(value_of: Any) -> str:
        topics: dict[str, dict[str, int]] = {}
        for each in wanted:
            topics.setdefault(each.topic, {})[str(each.partition)] = value_of(each)
        return json.dumps(topics)

    partitions: dict[str, list[int]] = {}
    for each in wanted:
        partitions.setdefault(each.topic, []).append(each.partition)
    return (
        reader.option("assign", json.dumps(partitions))
        .option("startingOffsets", by_topic(lambda each: each.start))
        .option("endingOffsets", by_topic(lambda each: each.end))
        .load()
    )


def batch_ranges(spark: SparkSession, query_name: str) -> OffsetRanges:
    """The offset ranges of the micro-batch that a query is working on, from inside its ``foreachBatch``.

    Spark decides them before the batch begins and has written them to its offset log; a replay has the same.
    They are taken from the batch's own plan (``StreamExecution.lastExecution``), the only place that has both
    ends without reading the checkpoint again.
    """
    queries = [query for query in spark.streams.active if query.name == query_name]
    execution: Any = queries[0]._jsq.streamingQuery().lastExecution()
    leaves = execution.logical().collectLeaves().iterator()
    starts: dict[str, dict[int, int]] = {}
    ends: dict[str, dict[int, int]] = {}
    while leaves.hasNext():
        leaf = leaves.next()
        if leaf.getClass().getSimpleName() != "StreamingDataSourceV2ScanRelation":
            continue
        for option, into in ((leaf.startOffset(), starts), (leaf.endOffset(), ends)):
            if option.isDefined():
                into.update(spark_offsets(option.get().json()))
    return OffsetRanges.between(starts, ends)


def _client(source: KafkaSource) -> dict[str, str]:
    options: dict[str, Any] = {"kafka.bootstrap.servers": source.bootstrap_servers}
    given = {**CONSUMER_DEFAULTS, **source.options}
    options |= {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given.items()}
    return options


def _subscription(source: KafkaSource) -> dict[str, str]:
    if source.topics is not None:
        return {"subscribe": ",".join(source.topics)}
    return {"subscribePattern": source.topics_pattern or ""}
