"""Reads Kafka, a package's source of records, or a source of rows; describes the topics of a source of records."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Protocol

from lakefeed.clients.kafka.selection import moment
from lakefeed.clients.kafka.topics import PartitionDescription, TopicDescription, Topics, find_cut_offs, mark_cut_offs
from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.connect import classic
from lakefeed.config.blocks import InstalledSource, Source
from lakefeed.config.kafka_client import CONSUMER_DEFAULTS
from lakefeed.config.sources import FilesSource, FormatSource, IcebergSource, KafkaSource, RateSource, SocketSource
from lakefeed.errors import ConfigError, RecordsLost
from lakefeed.lazy import Column, DataFrame, SparkSession, sf
from lakefeed.ledger.feed_position import Position
from lakefeed.offsets.ranges import OLDEST, OffsetRange, OffsetRanges, Partition, layers, spark_marks, spark_offsets
from lakefeed.plugins import load

FORMAT = "io.lakefeed.kafka.KafkaRecords"
"""Spark's Kafka source, which also accepts records whose timestamp does not fit Spark's type."""
HEADERS_TYPE = "array<struct<key:string,value:binary>>"
BAD_TIMESTAMP = "bad_timestamp"
"""The column for a timestamp that does not fit Spark's type, in ms since 1970; ``timestamp`` is then null."""
RECORDS_PER_TASK = 50_000
"""The fewest records for a task of its own: they take a fraction of a second, and more tasks would write more files."""
COPY = "lakefeed_copy"
"""A boolean column: whether the record is a copy of an earlier record."""
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
    """Return a streaming DataFrame of the undecoded records of the source's topics.

    Columns: key, value, topic, partition, offset, timestamp, timestampType, bad_timestamp, and headers if requested.

    Args:
        starting: the start offsets of all partitions for a query without a checkpoint; -2 is the first record. Default:
            the source's start, if it is earliest or latest.
        gather: wait for ``min_records_per_batch``; False for a query that ends by itself, because Spark would end it
            before it has read the last records.
        bounded: limit batches to ``max_records_per_batch``, which Spark's real-time mode does not support.
        fast_path: read with lakefeed's reader of offset ranges instead of Spark's.
    """
    reader = spark.readStream.format(FORMAT).options(
        **client_options(source), **_subscription(source), fastPath=fast_path
    )
    if gather and source.min_records_per_batch is not None:
        reader = reader.option("minOffsetsPerTrigger", source.min_records_per_batch)
        reader = reader.option("maxTriggerDelay", f"{source.max_wait_seconds}s")
    if bounded:
        reader = reader.option("maxOffsetsPerTrigger", source.max_records_per_batch)
    # If the start is a time or offsets, the caller passes ``starting`` for a query without a checkpoint. For a query
    # with a checkpoint, Spark ignores the start, so "earliest" does no harm.
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
    """Return a batch DataFrame of the undecoded records of offset ranges; default: of all records in the topics.

    If two ranges overlap, the result has the records in both of them twice.
    """
    options: dict[str, bool | str] = {"includeHeaders": headers, "failOnDataLoss": "true", "fastPath": fast_path}
    reader = spark.read.format(FORMAT).options(**client_options(source), **options)
    frames = [reader.options(**_assignment(layer)).load() for layer in layers(ranges or ())]
    if frames:
        return reduce(lambda frame, other: frame.union(other), frames)
    everything = reader.options(**_subscription(source)).load()
    return everything if ranges is None else everything.where("false")


def newest_per_key(records: DataFrame) -> DataFrame:
    """Return the records that compaction would keep: each key's newest record in a partition, if it has a value.

    All records without a key stay.
    """
    key = ("topic", "partition", "key")
    rest = [name for name in records.columns if name not in key]
    alone = sf.when(sf.col("key").isNull(), sf.col("offset")).alias("alone")
    newest = records.groupBy(*key, alone).agg(sf.max_by(sf.struct(*rest), sf.col("offset")).alias("newest"))
    return (
        newest.filter("newest.value IS NOT NULL")
        .select(*(sf.col(name if name in key else f"newest.{name}").alias(name) for name in records.columns))
        # Sort by partition, because the JVM counts the outcomes of consecutive records of a partition together.
        .sortWithinPartitions("topic", "partition", "offset")
    )


def batch_ranges(spark: SparkSession, query_name: str) -> OffsetRanges:
    """Return the offset ranges of a query's current micro-batch, inside the query's ``foreachBatch``.

    Spark writes the ranges to its offset log before the batch, so a repeated batch has the same ranges. The ranges are
    read from the batch's plan (``StreamExecution.lastExecution``), because this needs no request to the checkpoint.
    """
    session: Any = spark
    spans = json.loads(jvm.java(spark).query.RunningBatch.spans(session._jsparkSession, query_name))
    starts, ends = ([span[which] or "{}" for span in spans] for which in ("start", "end"))
    begins = {key: mark for text in starts for key, mark in spark_marks(text).items()}
    marks = {key: (begins.get(key, OLDEST), mark) for text in ends for key, mark in spark_marks(text).items()}
    start, end = ({key: at for text in texts for key, at in spark_offsets(text).items()} for texts in (starts, ends))
    return OffsetRanges.between(start, end, marks=marks)


def query_id(spark: SparkSession, query_name: str) -> str:
    """Return the id of a running query, which Spark stores in the checkpoint."""
    return next(str(query.id) for query in spark.streams.active if query.name == query_name)


def client_options(source: KafkaSource) -> dict[str, str]:
    """Return the options of the Kafka client with their prefixes."""
    given = {"kafka.bootstrap.servers": source.bootstrap_servers, **CONSUMER_DEFAULTS, **source.client_options}
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given.items()}


def _subscription(source: KafkaSource) -> dict[str, str]:
    if source.topics is not None:
        return {"subscribe": ",".join(source.topics)}
    return {"subscribePattern": source.topics_pattern or ""}


def _assignment(ranges: Sequence[OffsetRange]) -> dict[str, str]:
    """Return Spark's options for reading these ranges, at most one range per partition."""
    starts: dict[str, dict[int, int]] = defaultdict(dict)
    ends: dict[str, dict[int, int]] = defaultdict(dict)
    for span in OffsetRanges(tuple(ranges)).ranges:
        starts[span.topic][span.partition], ends[span.topic][span.partition] = span.start, span.end
    assigned = {topic: list(partitions) for topic, partitions in starts.items()}
    offsets = {"assign": assigned, "startingOffsets": starts, "endingOffsets": ends}
    return {key: json.dumps(value) for key, value in offsets.items()}


def task_count(ranges: OffsetRanges, *, most: int) -> int:
    """Return the number of tasks for a batch: one per partition with records; fewer if it is smaller than ``most``."""
    filled = sum(span.records > 0 for span in ranges.ranges)
    if filled <= 1:
        return max(1, filled)
    per_task = max(1, min(RECORDS_PER_TASK, most // filled))
    return min(filled, -(-ranges.records // per_task))


def coalesce_small(batch: DataFrame, ranges: OffsetRanges, *, most: int) -> DataFrame:
    """Return a small batch with fewer tasks than partitions, because every task writes its own files."""
    count = task_count(ranges, most=most)
    return batch.coalesce(count) if count < sum(span.records > 0 for span in ranges.ranges) else batch


def deduplicated(records: DataFrame) -> DataFrame:
    """Return a topic's records without the copies that lakefeed's Kafka sink has sent after a failure.

    Copies are recognized by headers, so all records of other writers stay. A stream keeps in its state, for every
    partition of the topic, the writer's newest batch. A query that groups the result runs only in append mode.

    Args:
        records: a batch or a stream from Spark's Kafka source with ``includeHeaders``, in a session from
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
    """Add the boolean column ``COPY``; see ``deduplicated``."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    if missing := [name for name in REQUIRED if name not in records.columns]:
        hint = 'read them with .format("kafka").option("includeHeaders", True), and select columns afterwards'
        raise ConfigError(f"the records lack the column {missing[0]}", where="deduplicated", hint=hint)
    frame: Any = records
    return ClassicDataFrame(jvm.java(records.sparkSession).copies.OnceOnly.marked(frame._jdf), records.sparkSession)


class SourceTopics:
    """The topics of a source; detects whether a topic was recreated (KIP-516) or cut off since the feed has read it."""

    has_new_leaders = False
    """Whether ``identify`` has found a partition with a new leader, so that prefetched records must be discarded."""

    def __init__(self, source: KafkaSource) -> None:
        self._source = source
        self._topics = Topics(source.bootstrap_servers, options=source.client_options)
        self._ids: dict[str, str] = {}
        self._epochs: dict[Partition, int] = {}

    def names(self) -> list[str]:
        """Return the named topics, or the topics that currently match the pattern."""
        return sorted(self._source.topics or [name for name in self._topics.list() if self._source.reads(name)])

    def describe(self, position: Position | None = None) -> dict[str, TopicDescription | None]:
        """Return the descriptions of all topics; None for a named topic that does not exist.

        If a partition's log was cut off before ``position``, its description has the offset of the cut.
        """
        names = self.names()
        existing = self._topics.describe_all(names)
        self._ids = {name: topic.topic_id for name, topic in existing.items()}
        self._epochs = {key: epoch for topic in existing.values() for key, epoch in topic.epochs.items()}
        topics = {name: existing.get(name) for name in names}
        return topics if position is None else mark_cut_offs(self._source, topics, position.ranges.ranges)

    def identify(self, ranges: OffsetRanges) -> OffsetRanges:
        """Add topic ids and leader epochs to the ranges; refuse a topic that was recreated or cut off."""
        ids, epochs = self._topics.identify([span.key for span in ranges.ranges])
        for name, topic_id in ids.items():
            if self._ids.setdefault(name, topic_id) != topic_id:
                raise self._lost(
                    f"the topic {name} was recreated while the feed was reading it (its id was {self._ids[name]}, now "
                    f"it is {topic_id})"
                )
        known = {key: self._epochs.get(key, epoch) for key, epoch in epochs.items()}
        changed = {span.key: (span.start, known[span.key]) for span in ranges.ranges if span.key in known}
        changed = {key: place for key, place in changed.items() if place[1] != epochs[key]}
        for (topic, number), agreed in find_cut_offs(self._source, changed).items():
            raise self._lost(
                f"{topic}-{number} was cut off at offset {agreed} because a replica without all records became its "
                f"leader; the feed has read it up to offset {changed[topic, number][0]}"
            )
        self._epochs |= epochs
        self.has_new_leaders = bool(changed)
        return OffsetRanges(ranges.ranges, ids).in_epochs(epochs)

    def _lost(self, what: str) -> RecordsLost:
        hint = "start the feed again: it then names the lost records and the ways to resume"
        return RecordsLost(f"{what}; this batch is not written", where=self._source.bootstrap_servers, hint=hint)


def header(name: str, value: Column) -> Column:
    """Return a header in the form that Spark's Kafka sink expects."""
    return sf.struct(sf.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


__all__ = ["PartitionDescription", "Position", "SourceReader", "TopicDescription", "open_reader"]


class SourceReader(Protocol):
    """Reads one source in one session; the core passes the session and the validated settings to the constructor."""

    has_new_leaders: bool
    """Whether ``identify`` has found a partition with a new leader: see ``SourceTopics``."""

    def read_stream(
        self, *, starting: Mapping[str, Mapping[int, int]] | None = None, marks: Mapping[Partition, str] | None = None
    ) -> DataFrame:
        """Return a streaming DataFrame of undecoded records with the columns of Spark's Kafka source.

        Args:
            starting: the first offsets by topic and partition, for a query without a checkpoint. Default: the start
                in the settings.
            marks: the source's own names for these offsets, such as sequence numbers.
        """

    def read_batch(self, spans: Sequence[OffsetRange], *, of: OffsetRanges) -> DataFrame:
        """Return ranges of a commit again, as a batch DataFrame with the same columns; ``of`` has all its ranges."""

    def describe(self, position: Position | None = None) -> dict[str, TopicDescription | None]:
        """Return ids and partitions of all topics, None for a topic that does not exist; called at a run's start.

        If a partition's log was cut off before ``position``, its description has the offset of the cut.
        """

    def identify(self, ranges: OffsetRanges) -> OffsetRanges:
        """Add the topics' ids to the ranges of a batch, before the batch is written.

        Raises:
            RecordsLost: a topic was recreated since ``describe``, so the batch must not be written.
        """


def open_reader(spark: SparkSession, settings: InstalledSource) -> SourceReader:
    reader: SourceReader = load(settings.reader, "the source's code")(spark, settings)
    return reader


def read_rows(spark: SparkSession, source: Source) -> DataFrame:
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
