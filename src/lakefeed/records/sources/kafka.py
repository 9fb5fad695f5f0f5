"""Spark's Kafka source, as a stream or as a batch of explicit offset ranges; and the topics that it reads."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from lakefeed.clients.kafka.topics import TopicDescription, Topics
from lakefeed.clients.kafka.truncation import find_cut_offs, mark_cut_offs
from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.connect import classic
from lakefeed.config.kafka_client import CONSUMER_DEFAULTS
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ConfigError, RecordsLost
from lakefeed.lazy import DataFrame, SparkSession, sf
from lakefeed.ledger.feed_position import Position
from lakefeed.offsets.ranges import OLDEST, OffsetRange, OffsetRanges, Partition, layers, spark_marks, spark_offsets

FORMAT = "io.lakefeed.kafka.KafkaRecords"
"""Spark's Kafka source, but for records whose timestamp it cannot hold: those stop Spark's own."""
BAD_TIMESTAMP = "bad_timestamp"
"""The timestamp in milliseconds of a record where Spark cannot hold it; its ``timestamp`` is null."""
RECORDS_PER_TASK = 50_000
"""A fraction of a second's work: with fewer records, more tasks save no time, and write more and smaller files."""
COPY = "lakefeed_copy"
"""Whether a record is a copy of an earlier one."""
REQUIRED = ("key", "value", "topic", "partition", "headers")


def read_stream(
    spark: SparkSession,
    source: KafkaSource,
    *,
    headers: bool = False,
    starting: Mapping[str, Mapping[int, int]] | None = None,
    gather: bool = True,
    bounded: bool = True,
    fast_path: bool = False,
) -> DataFrame:
    """Read the records of the source's topics as a streaming DataFrame, undecoded.

    Columns: key, value, topic, partition, offset, timestamp, timestampType, bad_timestamp, and headers if requested.

    Args:
        starting: where a query without a checkpoint begins, for every partition; -2 is its first record. Default: where
            the source says, if that is earliest or latest.
        gather: wait for ``min_records_per_batch``. A bounded query does not: Spark would leave the rest unread.
        bounded: let no batch have more than ``max_records_per_batch``. Spark's real-time mode has no such bound.
        fast_path: read with lakefeed's reader of offset ranges, not Spark's.
    """
    reader = spark.readStream.format(FORMAT).options(
        **client_options(source), **_subscription(source), fastPath=fast_path
    )
    if gather and source.min_records_per_batch is not None:
        reader = reader.option("minOffsetsPerTrigger", source.min_records_per_batch)
        reader = reader.option("maxTriggerDelay", f"{source.max_wait_seconds}s")
    if bounded:
        reader = reader.option("maxOffsetsPerTrigger", source.max_records_per_batch)
    # Other places than these two are found before: a query that has a checkpoint must not ask for them again.
    word = source.start if source.starting.is_word else "earliest"
    start = word if starting is None else json.dumps(starting)
    return reader.options(startingOffsets=start, failOnDataLoss="true", includeHeaders=headers).load()


def read_batch(
    spark: SparkSession,
    source: KafkaSource,
    *,
    ranges: Sequence[OffsetRange] | None = None,
    headers: bool = False,
    fast_path: bool = False,
) -> DataFrame:
    """Read the records of explicit offset ranges, or all that the topics hold now, as a batch, undecoded.

    Records of offsets that are in two ranges come twice.
    """
    options: dict[str, bool | str] = {"includeHeaders": headers, "failOnDataLoss": "true", "fastPath": fast_path}
    reader = spark.read.format(FORMAT).options(**client_options(source), **options)
    frames = [reader.options(**_assignment(layer)).load() for layer in layers(ranges or ())]
    if frames:
        return reduce(lambda frame, other: frame.union(other), frames)
    everything = reader.options(**_subscription(source)).load()
    return everything if ranges is None else everything.where("false")


def newest_per_key(records: DataFrame) -> DataFrame:
    """Keep of each key in each partition the newest record of a batch, unless its value is null: then the key is gone.

    A topic that is compacted to its end has the same records. Records without a key stay as they are.
    """
    key = ("topic", "partition", "key")
    rest = [name for name in records.columns if name not in key]
    alone = sf.when(sf.col("key").isNull(), sf.col("offset")).alias("alone")
    newest = records.groupBy(*key, alone).agg(sf.max_by(sf.struct(*rest), sf.col("offset")).alias("newest"))
    return (
        newest.filter("newest.value IS NOT NULL")
        .select(*(sf.col(name if name in key else f"newest.{name}").alias(name) for name in records.columns))
        # Outcomes are counted for each stretch of one partition: not one for each record.
        .sortWithinPartitions("topic", "partition", "offset")
    )


def batch_ranges(spark: SparkSession, query_name: str) -> OffsetRanges:
    """Return the offset ranges of the micro-batch that a query is working on, from inside its ``foreachBatch``.

    Spark decides them before the batch begins and has written them to its offset log; a replay has the same.
    They are taken from the batch's own plan (``StreamExecution.lastExecution``), the only place that has both
    ends without reading the checkpoint again.
    """
    session: Any = spark
    spans = json.loads(jvm.java(spark).query.RunningBatch.spans(session._jsparkSession, query_name))
    starts, ends = ([span[which] or "{}" for span in spans] for which in ("start", "end"))
    begins = {key: mark for text in starts for key, mark in spark_marks(text).items()}
    marks = {key: (begins.get(key, OLDEST), mark) for text in ends for key, mark in spark_marks(text).items()}
    start, end = ({key: at for text in texts for key, at in spark_offsets(text).items()} for texts in (starts, ends))
    return OffsetRanges.between(start, end, marks=marks)


def query_id(spark: SparkSession, query_name: str) -> str:
    """Return Spark's id of a running query, which is the checkpoint's."""
    return next(str(query.id) for query in spark.streams.active if query.name == query_name)


def client_options(source: KafkaSource) -> dict[str, str]:
    """Return the options of Kafka's client, each with its prefix."""
    given = {"kafka.bootstrap.servers": source.bootstrap_servers, **CONSUMER_DEFAULTS, **source.client_options}
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given.items()}


def _subscription(source: KafkaSource) -> dict[str, str]:
    if source.topics is not None:
        return {"subscribe": ",".join(source.topics)}
    return {"subscribePattern": source.topics_pattern or ""}


def _assignment(ranges: Sequence[OffsetRange]) -> dict[str, str]:
    """Write offsets for the source, which takes one range of each partition."""
    starts: dict[str, dict[int, int]] = defaultdict(dict)
    ends: dict[str, dict[int, int]] = defaultdict(dict)
    for span in OffsetRanges(tuple(ranges)).ranges:
        starts[span.topic][span.partition], ends[span.topic][span.partition] = span.start, span.end
    assigned = {topic: list(partitions) for topic, partitions in starts.items()}
    offsets = {"assign": assigned, "startingOffsets": starts, "endingOffsets": ends}
    return {key: json.dumps(value) for key, value in offsets.items()}


def task_count(ranges: OffsetRanges, *, most: int) -> int:
    """Return how many tasks read and write a batch: one for each partition at most, and few where it is small.

    A batch of ``most`` records is spread over all partitions, whatever its records weigh; a smaller one over its share.
    """
    filled = sum(span.records > 0 for span in ranges.ranges)
    if filled <= 1:
        return max(1, filled)
    per_task = max(1, min(RECORDS_PER_TASK, most // filled))
    return min(filled, -(-ranges.records // per_task))


def coalesce_small(batch: DataFrame, ranges: OffsetRanges, *, most: int) -> DataFrame:
    """Read a small batch with fewer tasks than one for each partition, because each task writes files of its own."""
    count = task_count(ranges, most=most)
    return batch.coalesce(count) if count < sum(span.records > 0 for span in ranges.ranges) else batch


def deduplicated(records: DataFrame) -> DataFrame:
    """Leave out the duplicates of a topic's records: of those that lakefeed's Kafka sink has sent twice, one stays.

    They are recognized by their headers; records of other writers stay as they are. A stream remembers, for each
    partition of the topic, the rows of the writer's newest batch: the state is as large as that. A query that groups
    after it runs in append mode only.

    Args:
        records: from Spark's Kafka source with ``includeHeaders``; a batch or a stream, in a session from
            ``lakefeed.session``.

    Raises:
        ConfigError: a column is missing.

    Example:
        >>> import lakefeed as lf
        >>> reader = lf.session("explore").readStream.format("kafka").option("includeHeaders", True)
        >>> records = reader.option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "hits").load()
        >>> lf.deduplicated(records).isStreaming
        True
    """
    return mark_copies(classic(records)).filter(~sf.col(COPY)).drop(COPY)


def mark_copies(records: DataFrame) -> DataFrame:
    """Add the boolean column ``COPY`` to the records; see ``deduplicated``."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    if missing := [name for name in REQUIRED if name not in records.columns]:
        hint = 'read them with .format("kafka").option("includeHeaders", True), and select columns after this'
        raise ConfigError(f"the records lack the column {missing[0]}", where="deduplicated", hint=hint)
    frame: Any = records
    return ClassicDataFrame(jvm.java(records.sparkSession).copies.OnceOnly.marked(frame._jdf), records.sparkSession)


class SourceTopics:
    """The topics that a source reads: a recreated topic (KIP-516), and one that was cut off, is not what was read.

    Attributes:
        has_new_leaders: whether a partition of the ranges that were identified last has another leader than before:
            what was fetched ahead of the old one must not be used.
    """

    has_new_leaders = False

    def __init__(self, source: KafkaSource) -> None:
        self._source = source
        self._topics = Topics(source.bootstrap_servers, options=source.client_options)
        self._ids: dict[str, str] = {}
        self._epochs: dict[Partition, int] = {}

    def names(self) -> list[str]:
        """List the topics that are named, or else match now, in one request."""
        return sorted(self._source.topics or [name for name in self._topics.list() if self._source.reads(name)])

    def describe(self, position: Position | None = None) -> dict[str, TopicDescription | None]:
        """Describe each topic now; None for one that is named and does not exist.

        Partitions that no longer have all records up to the position have the offset from which on they differ.
        """
        names = self.names()
        existing = self._topics.describe_all(names)
        self._ids = {name: topic.topic_id for name, topic in existing.items()}
        self._epochs = {key: epoch for topic in existing.values() for key, epoch in topic.epochs.items()}
        found = {name: existing.get(name) for name in names}
        return found if position is None else mark_cut_offs(self._source, found, position.ranges.ranges)

    def identify(self, ranges: OffsetRanges) -> OffsetRanges:
        """Add the topics' ids and the leaders' epochs to the ranges; refuse a topic that was recreated or cut off."""
        ids, epochs = self._topics.identify([span.key for span in ranges.ranges])
        for name, topic_id in ids.items():
            if self._ids.setdefault(name, topic_id) != topic_id:
                raise self._lost(
                    f"the topic {name} was recreated while the feed was reading it (its id was {self._ids[name]}, and "
                    f"is {topic_id})"
                )
        known = {key: self._epochs.get(key, epoch) for key, epoch in epochs.items()}
        changed = {span.key: (span.start, known[span.key]) for span in ranges.ranges if span.key in known}
        changed = {key: place for key, place in changed.items() if place[1] != epochs[key]}
        for (topic, number), agreed in find_cut_offs(self._source, changed).items():
            raise self._lost(
                f"{topic}-{number} was cut off at {agreed} while the feed was reading it, as a replica without all "
                f"records became its leader; the feed has read it up to {changed[topic, number][0]}"
            )
        self._epochs |= epochs
        self.has_new_leaders = bool(changed)
        return OffsetRanges(ranges.ranges, ids).in_epochs(epochs)

    def _lost(self, what: str) -> RecordsLost:
        return RecordsLost(
            f"{what}; nothing of this batch is written",
            where=self._source.bootstrap_servers,
            hint="start the feed again: it says what is lost, and how to resume",
        )
