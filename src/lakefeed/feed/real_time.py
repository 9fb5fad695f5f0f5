"""Runs a pipeline in real time: Spark forwards each record from topic to topic without waiting for a batch.

Spark's real-time mode runs a batch's tasks as long as the interval says, and notes at its end how far they have come.
Guarantee: at-least-once. What was sent since the last note is sent again after a crash or a stop; its headers are those
of the Kafka sink, and a reader recognizes the copies (docs/kafka-sink.md). No batch can be judged before
it is written: a record that cannot be read stops the query, and what was sent before it stays.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from lakefeed.clients.kafka.topics import TopicDescription
from lakefeed.clients.spark import jvm
from lakefeed.config.keyed import POSITION_COLUMNS
from lakefeed.config.models import PipelineConfig
from lakefeed.config.values import interval_of
from lakefeed.errors import ConfigError
from lakefeed.feed.feed import Feed
from lakefeed.feed.open import FeedStart
from lakefeed.feed.progress import s3_requests
from lakefeed.feed.run import MicroBatches, RunOptions, RunSummary, watch
from lakefeed.records.decode.resolve import put_credentials
from lakefeed.records.sources.kafka import SourceTopics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CATALOG, CATALOG_CLASS = "lakefeed_batch", "io.lakefeed.copies.BatchCatalog"


def run_real_time(feed: Feed, spark: SparkSession, options: RunOptions) -> RunSummary:
    """Run a feed from topic to topic until it is stopped; see ``Pipeline.run``.

    Raises:
        ConfigError: the transform is more than columns and filters, or the session has too few task slots.
        LakefeedError: see ``lakefeed.errors``.
    """
    from pyspark.sql import functions as sf

    config, before = feed.config, s3_requests(spark)
    put_credentials(spark, config.decode)
    spark.conf.set(f"spark.sql.catalog.{CATALOG}", CATALOG_CLASS)
    topics = SourceTopics(config.kafka).describe()
    _require_slots(spark, topics)
    require_fit(feed.rows(feed.source.read_stream(spark)))
    claim = feed.claim(spark)
    sink = feed.sink_definition.open_real_time(spark, claim)
    # require_fit has refused a transform with state.
    start = FeedStart(
        feed.identity, sink, checkpoint=claim, topics=topics, stateful=False, accept_loss=options.accept_loss
    )
    if message := start.decision.message:
        options.on_note(message)
    rows = feed.rows(feed.source.read_stream(spark, starting=start.starting, bounded=False))
    sink.apply_schema(rows.schema)
    start.apply(fence=None)
    interval = str(interval_of(config.trigger))
    options.on_note(
        f"in real time, at-least-once: what was sent in the last {interval} is sent again after a stop or a crash; the "
        "records' headers tell it, and source.kafka.deduplicate leaves it out"
    )
    batches = MicroBatches(options.stop)
    call = sf.call_function(f"{CATALOG}.batch", sf.concat_ws("/", *POSITION_COLUMNS))
    began = time.monotonic()
    query = _start_query(spark, sink.records(rows, batch=call), sink.options, config=config, interval=interval)
    watch(query, batches, on_batch=options.on_batch)
    requests = s3_requests(spark) - before
    return RunSummary(
        batches=batches.finished,
        records=batches.records,
        rows=batches.sent,
        seconds=round(time.monotonic() - began, 3),
        s3_requests=requests.by_operation,
        requests=requests,
    )


def require_fit(rows: DataFrame) -> None:
    """Refuse a transform that is not computed record by record, or drops the record's position.

    Raises:
        ConfigError: the rows of the stream do not fit.
    """
    frame: Any = rows
    if not jvm.java(rows.sparkSession).query.StreamingPlan.onePerRecord(frame._jdf):
        raise ConfigError(
            "in real time each record makes one row or none: the transform has to be columns and a WHERE, without "
            "joins, groups and explode",
            where="transform, trigger: real-time",
            hint="trigger: 1 second runs it in batches",
        )
    if missing := [name for name in POSITION_COLUMNS if name not in rows.columns]:
        raise ConfigError(
            f"the rows do not say which record they are made of: they lack {', '.join(missing)}",
            where="transform, trigger: real-time",
            hint="keep these columns: SELECT *, … or by name; they go into the headers",
        )


def _require_slots(spark: SparkSession, topics: dict[str, TopicDescription | None]) -> None:
    """Refuse a session with fewer task slots than partitions, because each partition occupies a task."""
    partitions = sum(len(topic.partitions) for topic in topics.values() if topic is not None)
    slots = spark.sparkContext.defaultParallelism
    if partitions > slots:
        raise ConfigError(
            f"in real time each partition keeps a task at work: there are {partitions} partitions, and {slots} tasks "
            "at a time",
            where="trigger: real-time",
            hint=f"a master with as many cores, as --master 'local[{partitions + 1}]'; or trigger: 1 second",
        )


def _start_query(
    spark: SparkSession, records: DataFrame, options: dict[str, str], *, config: PipelineConfig, interval: str
) -> StreamingQuery:
    # Spark's real-time mode requires update, which is append where there are no groups.
    writer: Any = records.writeStream.format("kafka").options(**options).outputMode("update").queryName(config.name)
    gateway: Any = spark._jvm
    # PySpark 4.1 has no word for this trigger.
    writer._jwrite.trigger(gateway.org.apache.spark.sql.streaming.Trigger.RealTime(interval))
    query: StreamingQuery = writer.option("checkpointLocation", config.checkpoint).start()
    return query
