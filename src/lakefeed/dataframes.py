"""Reads topics into DataFrames and writes DataFrames to tables, for applications and notebooks."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from lakefeed.clients.environment import default_environment
from lakefeed.clients.kafka.selection import Selection, first_offsets, offset_ranges
from lakefeed.clients.spark.connect import classic
from lakefeed.config.base import validated
from lakefeed.config.decoding import Accept, Decode
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ConfigError
from lakefeed.feed.batch_writer import BatchResult, BatchWriter
from lakefeed.feed.open import FeedIdentity, FeedStart
from lakefeed.feed.recovery import starting_offsets
from lakefeed.feed.row_builder import RowBuilder
from lakefeed.feed.run import MicroBatches
from lakefeed.lazy import DataFrame, SparkSession, StreamingQuery
from lakefeed.ledger.checkpoint import Claim, Owner
from lakefeed.offsets.ranges import OffsetRange, with_batch
from lakefeed.records.decode import Raw, decoded
from lakefeed.records.decode import rows as decoded_rows
from lakefeed.records.decode.resolve import put_credentials, resolve_decoder
from lakefeed.records.schema.reader import ReaderSchema
from lakefeed.records.sources import SourceTopics, batch_ranges, newest_per_key, query_id, read_batch, read_stream
from lakefeed.records.spec import ResolvedDecoder
from lakefeed.records.transform import QueryPlan
from lakefeed.sinks.iceberg.definition import append_table


def read_topic(
    spark: SparkSession,
    topics: str | Sequence[str],
    *,
    stream: bool | None = None,
    ranges: Sequence[OffsetRange] | None = None,
    since: str | datetime | None = None,
    until: str | datetime | None = None,
    latest_per_key: bool = False,
    decode: Mapping[str, Any] | str | None = None,
    accept: Accept = "same_record",
    start: str = "earliest",
    max_records_per_batch: int = 1_000_000,
    bootstrap_servers: str | None = None,
    options: Mapping[str, str | int | bool] | None = None,
) -> DataFrame:
    """Read a topic's records, decoded, as a streaming or a batch DataFrame.

    Args:
        spark: a session from ``lakefeed.session``.
        topics: one topic or several with one schema.
        stream: True for a stream, False for a batch. Default: a batch if one of the next four arguments is given, else
            a stream.
        ranges: the offset ranges to read. This argument and the next three are for a batch only.
        since: read each partition from its first record at or after this time: ISO 8601, by default UTC.
        until: read each partition up to its first record at or after this time; that record is excluded.
        latest_per_key: read only the newest record of each key in each partition, as in a compacted topic. A key whose
            newest value is null has no row. All records without a key are read.
        decode: how values become columns, as in the ``decode`` block of a pipeline file. Default: Avro by the registry
            that SCHEMA_REGISTRY_URL names (else the local stack's), with ``kafka_partition`` and ``kafka_offset``.
        accept: which writers' records become rows, as in ``schema.accept`` of a pipeline file.
        start: where a new stream begins, as in ``source.kafka.start`` of a pipeline file.
        max_records_per_batch: upper bound for one micro-batch of a stream.
        bootstrap_servers: the brokers. Default: KAFKA_BOOTSTRAP_SERVERS, else the running local stack's.
        options: Kafka client settings with the prefix ``kafka.``.

    Raises:
        ConfigError: an option does not fit, or no broker or registry is named anywhere.
        ResourceMissing: the registry does not have the topic's schema, or the topic does not have all of ``ranges``.

    Example:
        >>> import lakefeed as lf
        >>> spark = lf.session("explore")
        >>> lf.read_topic(spark, "nyc-avro-topic").isStreaming
        True
        >>> ranges = [lf.OffsetRange("nyc-avro-topic", 0, 110, 220), lf.OffsetRange("nyc-avro-topic", 1, 100, 313)]
        >>> lf.read_topic(spark, "nyc-avro-topic", ranges=ranges).count()
        323
    """
    classic(spark)
    chosen = latest_per_key or not (ranges is None and since is None and until is None)
    if stream and chosen:
        what = "ranges, since, until and latest_per_key choose the records of a batch, and stream=True reads a stream"
        raise ConfigError(what, where="read_topic", hint="leave out stream=True, or read from start=…")
    selection = Selection.of(ranges, since=since, until=until)
    environment = default_environment()
    source = validated(
        KafkaSource,
        "read_topic",
        bootstrap_servers=bootstrap_servers or _named(environment, "KAFKA_BOOTSTRAP_SERVERS", "bootstrap_servers"),
        topics=[topics] if isinstance(topics, str) else list(topics),
        start=start,
        max_records_per_batch=max_records_per_batch,
        options=dict(options or {}),
    )
    if decode is None:
        registry = _named(environment, "SCHEMA_REGISTRY_URL", "decode")
        decode = {"avro": {"registry": registry}, "metadata": ["partition", "offset"]}
    how = validated(Decode, "read_topic(decode=…)", **({decode: {}} if isinstance(decode, str) else decode))
    headers = how.reads_headers
    if stream or (stream is None and not chosen):
        begin = None
        if not source.starting.is_word:
            described = SourceTopics(source).describe()
            begin = starting_offsets(first_offsets(source, described), described)
        records = read_stream(spark, source, headers=headers, starting=begin)
    else:
        requested = None if selection == Selection() else offset_ranges(source, selection)
        records = read_batch(spark, source, ranges=requested, headers=headers)
        records = newest_per_key(records) if latest_per_key else records
    put_credentials(spark, how)
    decoder = resolve_decoder(spark, how, source, accept=accept)
    values = decoded(records, decoder.spec, key=decoder.key)
    return decoded_rows(values, keep=list(how.metadata), on_null=how.on_null, on_bad_timestamp=how.on_bad_timestamp)


def write_table(
    frame: DataFrame,
    table: str,
    *,
    checkpoint: str | None = None,
    name: str | None = None,
    trigger: str = "1 minute",
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    bootstrap_servers: str | None = None,
) -> StreamingQuery | None:
    """Append a DataFrame to an Iceberg table, which is created if it is missing.

    A stream is written in micro-batches; as with ``lakefeed run``, each commit also stores the batch's offset ranges. A
    batch DataFrame is written in one commit.

    Args:
        frame: the rows. A stream must read Kafka (``read_topic``); it may have any transformations.
        table: catalog.namespace.table
        checkpoint: for a stream, where Spark stores its progress: s3a://bucket/path
        name: for a stream, the feed's name in its commits. Default: derived from the table's name.
        trigger: for a stream, the time between micro-batches, or ``available-now``.
        partition_by: partition transforms of a new table, as in a pipeline file.
        properties: table properties of a new table.
        bootstrap_servers: for a stream, the brokers that have the topics. Default: as in ``read_topic``.

    Returns the running query of a stream; None for a batch, after its commit.

    Raises:
        ConfigError: a stream has no checkpoint, or the table's name or a partition transform is invalid.
        CheckpointMismatch: the checkpoint belongs to another feed or table, or its offsets differ from the table's.
        RecordsLost: a topic was recreated, or it lost records that the feed had not read.

    Example:
        >>> import lakefeed as lf
        >>> trips = lf.read_topic(lf.session("explore"), "nyc-avro-topic")
        >>> query = lf.write_table(
        ...     trips, "lake.nyc.example", checkpoint="s3a://lake/checkpoints/example", trigger="available-now"
        ... )
        >>> query.awaitTermination()
        >>> lf.open_table("lake.nyc.example").scan().to_arrow().num_rows
        10000
    """
    spark = classic(frame).sparkSession
    feed = name or table.replace(".", "_")
    target = append_table(spark, table, feed=feed, partition_by=partition_by, properties=properties or {})
    if not frame.isStreaming:
        target.apply_schema(frame.schema)
        frame.writeTo(table).append()
        return None
    if checkpoint is None:
        hint = "pass checkpoint='s3a://bucket/path'"
        raise ConfigError("a stream needs a checkpoint location", where="write_table", hint=hint)
    brokers = bootstrap_servers or _named(default_environment(), "KAFKA_BOOTSTRAP_SERVERS", "bootstrap_servers")
    topics = SourceTopics(KafkaSource(bootstrap_servers=brokers, topics_pattern=".*"))
    stateful = QueryPlan.of(frame).stateful
    owner = Owner(feed=feed, sink=f"iceberg {table}")
    identity, claim = FeedIdentity(owner=owner), Claim(spark, checkpoint, owner)
    start = FeedStart(identity, target, checkpoint=claim, describe=topics.describe, stateful=stateful)
    start.require_resume()
    rows = RowBuilder(
        schema=ReaderSchema(ResolvedDecoder(spec=Raw()), keeper=target), transform=lambda rows: rows, is_decoded=True
    )
    writer = BatchWriter.of_rows(spark, rows, target, feed=feed, stateful=stateful).begin(frame)
    start.decide_again()
    start.require_resume()
    start.apply(fence=writer.fence)

    def write(batch: DataFrame, batch_id: int) -> BatchResult:
        ranges = topics.identify(batch_ranges(spark, feed))
        if stateful:
            ranges = with_batch(ranges, batch_id=batch_id, query_id=query_id(spark, feed))
        return writer.write(batch, ranges, batch_id)

    batches = MicroBatches(threading.Event())
    return batches.start(writer.reader.query_frame(frame), write, name=feed, checkpoint=checkpoint, trigger=trigger)


def _named(environment: Mapping[str, str], variable: str, argument: str) -> str:
    if variable not in environment:
        hint = f"give {argument}=…, set {variable}, or start the stack: lakefeed local up"
        raise ConfigError(f"{variable} is not set, and no local stack is running", hint=hint)
    return environment[variable]
