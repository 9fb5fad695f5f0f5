"""Read and describe a Kinesis stream with Spark; a start compares the description with the feed's offsets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lakefeed.clients.spark import jvm
from lakefeed.errors import ConfigError, RecordsLost
from lakefeed.lazy import DataFrame, SparkSession
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition
from lakefeed.records.sources import PartitionDescription, Position, TopicDescription
from lakefeed_kinesis.settings import KinesisSource

FORMAT = "io.lakefeed.kinesis.KinesisSource"
CLIENT = "software/amazon/awssdk/services/kinesis/KinesisClient.class"
ENDLESS = 2**63 - 1
"""The end offset of every shard: a number that no feed reaches, because Kinesis reports no end."""


class KinesisStream:
    """One stream, in a Spark session whose class path has the client for Kinesis."""

    has_new_leaders = False

    def __init__(self, spark: SparkSession, source: KinesisSource) -> None:
        self._spark = spark
        self._source = source
        self._id: str | None = None
        self._options = {"stream": source.stream, "region": source.region or "us-east-1"}
        if source.endpoint is not None:
            self._options["endpoint"] = source.endpoint
        gateway: Any = spark._jvm
        if gateway.java.lang.Thread.currentThread().getContextClassLoader().getResource(CLIENT) is None:
            what = "the class path of the running Spark session has no client for Kinesis"
            hint = "stop that session, and let the pipeline start another: lakefeed run, or Pipeline.session()"
            raise ConfigError(what, where=CLIENT.removesuffix(".class"), hint=hint)
        if source.access_key is not None and source.secret_key is not None:
            secrets = (source.access_key, source.secret_key, source.session_token)
            keys = [secret.get_secret_value() for secret in secrets if secret]
            # The name depends on the access key, because another feed in the same session may use other keys.
            name = f"kinesis {keys[0]}@{source.endpoint or source.region}"
            jvm.java(spark).Secrets.put(name, "\n".join(keys))
            self._options["credentials"] = name

    def read_stream(
        self, *, starting: Mapping[str, Mapping[int, int]] | None = None, marks: Mapping[Partition, str] | None = None
    ) -> DataFrame:
        """Return the records as a streaming DataFrame, without decoding.

        The columns are those of the Kafka source, plus ``sequence_number``. ``offset`` numbers the records of a shard
        in the order of reading; ``partition`` is the shard's number, and ``key`` the partition key. A query without a
        checkpoint begins at the sequence numbers (``marks``) of the starting offsets, or else at the source's start.
        """
        reader = self._spark.readStream.format(FORMAT).options(**self._options)
        reader = reader.option("max-records", self._source.max_records_per_batch).option("start", self._source.start)
        if starting is not None:
            reader = reader.option("starting", self._offset(starting.get(self._source.stream, {}), marks or {}))
        return reader.load()

    def read_batch(self, spans: Sequence[OffsetRange], *, of: OffsetRanges) -> DataFrame:
        """Return records of an earlier commit as a batch DataFrame, without decoding."""
        committed = {span.key: span for span in of.ranges}
        ranges = []
        for span in spans:
            whole = committed[span.topic, span.partition]
            if whole.marks is not None:
                place = {"shard": span.partition, "at": whole.start, "mark": whole.marks[0]}
                ranges.append({**place, "from": span.start, "to": span.end})
        return self._spark.read.format(FORMAT).options(**self._options).option("ranges", json.dumps(ranges)).load()

    def describe(self, position: Position | None = None) -> dict[str, TopicDescription | None]:
        """Describe the stream's shards as partitions, and whether they still have the records that the feed needs."""
        stream = self._source.stream
        offset = None
        if position is not None and any(span.marks for span in position.ranges.ranges):
            at = {span.partition: span.end for span in position.ranges.ranges if span.topic == stream}
            marks = {span.key: span.marks[1] for span in position.ranges.ranges if span.marks}
            if position.ranges.topic_ids.get(stream) == self._current_id():
                offset = self._offset(at, marks)
        found = json.loads(str(jvm.java(self._spark).kinesis.StreamState.of(self._options, offset)))
        self._id = str(found["id"])
        shards = tuple(
            PartitionDescription(id=int(number), leader=None, start_offset=0, end_offset=ENDLESS, lost=lost)
            for number, lost in found["shards"].items()
        )
        return {stream: TopicDescription(name=stream, topic_id=self._id, partitions=shards, noun="stream")}

    def identify(self, ranges: OffsetRanges) -> OffsetRanges:
        """Add the stream's current id to the ranges; refuse a stream that was recreated."""
        now = self._current_id()
        if self._id is not None and self._id != now:
            raise RecordsLost(
                f"the stream {self._source.stream} was recreated while the feed was reading it (its id was {self._id} "
                f"and is {now}); this batch is not written",
                where=self._source.stream,
                hint="start the feed again: it names the lost records, and the way to resume",
            )
        return OffsetRanges(ranges.ranges, {self._source.stream: now})

    def _offset(self, positions: Mapping[int, int], marks: Mapping[Partition, str]) -> str:
        stream = self._source.stream
        known = {n: {"at": at, "mark": marks[stream, n]} for n, at in positions.items() if (stream, n) in marks}
        return json.dumps({stream: known})

    def _current_id(self) -> str:
        return str(jvm.java(self._spark).kinesis.StreamState.id(self._options))
