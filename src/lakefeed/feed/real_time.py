"""Runs a feed from topic to topic in Spark's real-time mode, without batches."""

from __future__ import annotations

import time
from typing import Any

from lakefeed.clients.kafka.topics import TopicDescription
from lakefeed.clients.spark.jvm import java
from lakefeed.config.keyed import POSITION_COLUMNS
from lakefeed.config.values import interval_of
from lakefeed.errors import ConfigError
from lakefeed.feed.feed import Feed
from lakefeed.feed.observer import QueryObserver
from lakefeed.feed.open import FeedStart
from lakefeed.feed.run import MicroBatches, RunOptions, RunSummary, StopRequested, nothing_written, watch
from lakefeed.feed.s3_requests import s3_requests
from lakefeed.feed.steering import REAL_TIME_REFUSALS, Steering
from lakefeed.lazy import DataFrame, SparkSession, StreamingQuery
from lakefeed.ledger.pauses import CheckpointPauses
from lakefeed.records.decode.resolve import put_credentials
from lakefeed.records.sources import SourceTopics


def run_real_time(feed: Feed, spark: SparkSession, options: RunOptions) -> RunSummary:
    """Run a feed from topic to topic until it is stopped; Spark forwards each record without waiting for a batch's end.

    In real-time mode, Spark runs a batch's tasks for the interval, and stores their offsets at the end. The guarantee
    is at-least-once: after a crash or a stop, Spark sends the records since the last stored offsets again. Readers
    recognize the copies by the Kafka sink's headers (docs/kafka-sink.md). lakefeed cannot check a batch before Spark
    sends its records: an unreadable record stops the query, and the records that were sent stay in the topic.

    Raises:
        ConfigError: the transform is more than columns and filters, or the session has too few task slots.
    """
    config, before = feed.config, s3_requests(spark)
    put_credentials(spark, config.decode)
    topics = SourceTopics(config.kafka).describe()
    _require_slots(spark, topics)
    require_fit(feed.rows(feed.source.read_stream(spark)))
    claim = feed.claim(spark)
    steering = Steering(config, options, CheckpointPauses(claim), refusals=REAL_TIME_REFUSALS)
    try:
        if steering.wait_for_start(sink=feed.identity.owner.sink):
            # During the wait, another driver may have advanced the feed, and records may have been removed.
            claim, topics = feed.claim(spark), SourceTopics(config.kafka).describe()
    except StopRequested:
        return nothing_written(s3_requests(spark) - before)
    sink = feed.sink_definition.open_real_time(spark, claim)
    # require_fit has refused a transform with state.
    start = FeedStart(
        feed.identity,
        sink,
        checkpoint=claim,
        describe=lambda position: topics,
        stateful=False,
        accept_loss=options.accept_loss,
        source=config.kafka,
    )
    if message := start.decision.message:
        options.on_note(message)
    rows = feed.rows(feed.source.read_stream(spark, starting=start.starting, bounded=False))
    sink.apply_schema(rows.schema)
    start.apply(fence=None)
    interval = str(interval_of(config.trigger))
    options.on_note(
        f"in real time, at-least-once: after a stop or a crash, Spark sends the records of the last {interval} again; "
        "their headers mark the copies, and source.kafka.deduplicate skips these in a feed that reads the topic"
    )
    batches = MicroBatches(options.stop)
    began = time.monotonic()
    # Real-time mode requires the output mode ``update``, which is the same as ``append`` in a query without groups.
    stream = sink.records(rows).writeStream.format("kafka").options(**sink.options).outputMode("update")
    writer: Any = stream.queryName(config.name).option("checkpointLocation", feed.checkpoint_location)
    gateway: Any = spark._jvm
    # PySpark 4.1 has no API for this trigger.
    writer._jwrite.trigger(gateway.org.apache.spark.sql.streaming.Trigger.RealTime(interval))
    options.monitor.begin(sink=feed.identity.owner.sink, fence=None)
    with steering, QueryObserver(options.monitor, spark, say=options.on_note) as observer:
        query: StreamingQuery = writer.start()
        observer.follow(query)
        watch(query, batches, on_batch=options.on_batch, observer=observer)
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
    """Raise an error if the transform does more than select columns and filter rows, or drops a record's position."""
    frame: Any = rows
    if not java(rows.sparkSession).query.StreamingPlan.onePerRecord(frame._jdf):
        raise ConfigError(
            "in real time, a record becomes one row or none: the transform may select columns and filter rows, but "
            "not join, group or explode them",
            where="transform, trigger: real-time",
            hint="trigger: 1 second runs the transform in batches",
        )
    if missing := [name for name in POSITION_COLUMNS if name not in rows.columns]:
        raise ConfigError(
            f"the transform drops the position of the record: the rows lack {', '.join(missing)}",
            where="transform, trigger: real-time",
            hint="select these columns too, by SELECT *, … or by name; lakefeed writes them into the headers",
        )


def _require_slots(spark: SparkSession, topics: dict[str, TopicDescription | None]) -> None:
    """Raise an error if the session has fewer task slots than partitions, because every partition occupies a slot."""
    partitions = sum(len(topic.partitions) for topic in topics.values() if topic is not None)
    slots = spark.sparkContext.defaultParallelism
    if partitions > slots:
        raise ConfigError(
            f"in real time, every partition occupies a task slot: there are {partitions} partitions and {slots} slots",
            where="trigger: real-time",
            hint=f"give Spark more cores, such as --master 'local[{partitions + 1}]'; or set trigger: 1 second",
        )
