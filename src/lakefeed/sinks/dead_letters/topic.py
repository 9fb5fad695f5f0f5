"""The dead-letter topic: each record that did not become a row, whole, in a topic of the cluster it came from.

Guarantee: none is lost, in step with the data; none is written twice, unless a Spark task is repeated that had sent
some already, and then both have the same position. The letters of a batch are written right after the commit of its
rows, which says how many there must be; after a crash between or amid the two, those are written that are missing.
They are read from Kafka again, and only where the batch had any: batches without dead letters pay nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer

from lakefeed.clients.kafka.librdkafka import librdkafka_settings
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.kafka_options import PREFIX as KAFKA
from lakefeed.config.kafka_options import PRODUCER, PRODUCER_DEFAULTS
from lakefeed.config.kafka_source import KafkaSource
from lakefeed.errors import CheckpointMismatch, Unreachable
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.records.decode import RECORD
from lakefeed.records.sources.kafka import read_batch
from lakefeed.sinks.dead_letters.filter import DeadLetterFilter
from lakefeed.sinks.dead_letters.store import SourceCommit, TopicCreation, with_bad_timestamp
from lakefeed.sinks.dead_letters.topic_reader import (
    LETTER,
    PREFIX,
    DeadLetter,
    Position,
    State,
    TopicReader,
    note_headers,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MOST_PARTITIONS = 3
ROOM_FOR_HEADERS = 64 * 1024
LARGEST_LETTER = 128 * 1024 * 1024
FLUSH_SECONDS = 60.0
RECORD_TYPES = (
    "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_silence = logging.getLogger("lakefeed.clients.kafka.librdkafka")
HEADERS_TYPE = "array<struct<key:string,value:binary>>"


class DeadLetterTopic:
    """The dead letters of one feed, in a topic that several feeds may share.

    Args:
        spark: the session.
        topic: its name.
        feed: the feed's name.
        source: where the records are read again; the topic is on the same cluster.
    """

    def __init__(self, spark: SparkSession, topic: str, *, feed: str, source: KafkaSource) -> None:
        self._spark = spark
        self._topic = topic
        self._feed = feed
        self._source = source
        self._topics = Topics(source.bootstrap_servers, options=dict(source.options))
        self._reader = TopicReader(topic, cluster=source)

    def ensure(self) -> None:
        """Creates the topic if it is missing, so that it takes whatever the source's topics do, and keeps it.

        Raises:
            AccessDenied: these credentials may not.
            Unreachable: no broker answers.
        """
        new = self.change()
        if new is not None:
            self._topics.create(new.topic, partitions=new.partitions, config=new.config, exist_ok=True)

    def change(self) -> TopicCreation | None:
        """What ``ensure`` does; None if the topic is there."""
        existing = self._topics.list()
        if self._topic in existing:
            return None
        sources = [each for each in existing if self._source.reads(each)]
        partitions = max((len(self._topics.describe(each).partitions) for each in sources), default=1)
        largest = [int(self._topics.setting(each, "max.message.bytes") or 0) for each in sources]
        config = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        if largest:
            config["max.message.bytes"] = str(max(largest) + ROOM_FOR_HEADERS)
        return TopicCreation(topic=self._topic, partitions=min(MOST_PARTITIONS, partitions), config=config)

    def write(
        self,
        judge: Callable[[DataFrame], DataFrame],
        commit: SourceCommit,
        *,
        spans: Sequence[OffsetRange],
        expected: int,
    ) -> None:
        """Sends the dead letters of a batch.

        Raises:
            CheckpointMismatch: they were not as many as the batch had.
        """
        self._write(judge, commit, spans=spans, expected=expected, there=set())

    def complete(
        self,
        judge: Callable[[DataFrame], DataFrame],
        commit: SourceCommit,
        *,
        spans: Sequence[OffsetRange],
        expected: int,
    ) -> bool:
        """Sends those dead letters of the last commit that the topic has not got, after a crash; False if it has all.

        Raises:
            CheckpointMismatch: they are not as many as the batch had.
        """
        there = self._reader.positions(self._feed, commit.batch_id, since=commit.committed_at)
        within = {each for each in there if any(_holds(span, each) for span in spans)}
        if len(within) >= expected:
            return False
        self._write(judge, commit, spans=spans, expected=expected, there=within)
        return True

    def _write(
        self,
        judge: Callable[[DataFrame], DataFrame],
        commit: SourceCommit,
        *,
        spans: Sequence[OffsetRange],
        expected: int,
        there: set[Position],
    ) -> None:
        from pyspark.sql import functions as sf

        letters = judge(read_batch(self._spark, self._source, ranges=spans, headers=True)).filter(
            sf.col(f"{RECORD}.reason").isNotNull()
        )
        if there:
            written = self._spark.createDataFrame(sorted(there), "t STRING, p INT, o BIGINT")
            record = sf.col(f"{RECORD}.record")
            same = (record["topic"] == sf.col("t")) & (record["partition"] == sf.col("p"))
            letters = letters.join(sf.broadcast(written), same & (record["offset"] == sf.col("o")), "left_anti")
        before = self._topics.end_offsets(self._topic)
        _sent(letters, commit).write.format("kafka").options(**self._producer()).option("topic", self._topic).save()
        found = there | self._reader.positions(self._feed, commit.batch_id, starts=before)
        if len(found) != expected:
            raise CheckpointMismatch(
                f"batch {commit.batch_id} of feed '{self._feed}' made {expected:,} dead letters, and reading its "
                f"records again made {len(found):,}",
                where=f"topic {self._topic}",
                hint="a rule in expect that is not the same each time, or a schema that was changed meanwhile",
            )

    def _producer(self) -> dict[str, str]:
        """How the source is reached, and Kafka's safe defaults; a letter is never too large for the client."""
        shared = {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in self._source.options.items()
            if key.removeprefix(KAFKA) in PRODUCER
        }
        return {
            **PRODUCER_DEFAULTS,
            "kafka.max.request.size": str(LARGEST_LETTER),
            "kafka.buffer.memory": str(LARGEST_LETTER),
            **shared,
            "kafka.bootstrap.servers": self._source.bootstrap_servers,
        }

    def check(self, position: OffsetRanges | None, *, moved: bool) -> None:
        """Nothing: see ``follow``."""

    def follow(self, position: OffsetRanges | None, *, moved: bool) -> int:
        """Nothing: a topic keeps no ledger, and what it has of records that are read again it will have twice."""
        return 0

    def records(self, choice: DeadLetterFilter) -> DataFrame:
        """The unmarked letters that are meant, as the records that they were."""
        return self._records([each for each in self._reader.chosen(choice) if each.replay is None])

    def marked(self, replay_id: str) -> DataFrame:
        """The records of one replay."""
        return self._records(self._of_replay(replay_id))

    def drop(self, choice: DeadLetterFilter) -> int:
        """Notes of the unmarked letters that are meant that they are gone; returns how many."""
        unmarked = [each for each in self._reader.chosen(choice) if each.replay is None]
        self._note(unmarked, state="gone", replay=None)
        return len(unmarked)

    def mark(self, positions: DataFrame, replay_id: str) -> None:
        """Marks the letters at these (topic, partition, offset)."""
        requested = {(row.topic, row.partition, row.offset) for row in positions.collect()}
        letters = [
            each for each in self._reader.letters(self._feed) if each.record in requested and each.replay is None
        ]
        self._note(letters, state="marked", replay=replay_id)

    def unmark(self, replay_id: str) -> None:
        """Takes a replay's marks away."""
        self._note(self._of_replay(replay_id), state="unmarked", replay=replay_id)

    def delete_marked(self, replay_id: str) -> None:
        """Notes of the letters of one replay that they are gone."""
        self._note(self._of_replay(replay_id), state="gone", replay=replay_id)

    def open_replays(self) -> list[str]:
        """Ids of the replays whose marks are still there."""
        return sorted({each.replay for each in self._reader.letters(self._feed) if each.replay is not None})

    def _of_replay(self, replay_id: str) -> list[DeadLetter]:
        return [each for each in self._reader.letters(self._feed) if each.replay == replay_id]

    def _records(self, letters: Sequence[DeadLetter]) -> DataFrame:
        """The letters' records, from the places in the topic where they are."""
        from pyspark.sql import functions as sf

        if not letters:
            return self._spark.createDataFrame([], RECORD_TYPES)
        offsets: dict[int, list[int]] = {}
        for each in letters:
            offsets.setdefault(each.place[0], []).append(each.place[1])
        spans = [OffsetRange(self._topic, partition, min(held), max(held) + 1) for partition, held in offsets.items()]
        requested = self._spark.createDataFrame(
            [(*each.place, *each.record, each.timestamp, each.reason) for each in letters],
            "at_partition INT, at_offset BIGINT, topic STRING, partition INT, offset BIGINT, ms BIGINT, reason STRING",
        )
        stored = read_batch(self._spark, self._source, ranges=spans, headers=True).select(
            sf.col("partition").alias("stored_partition"), sf.col("offset").alias("stored_offset"),
            "key", "value", sf.col("headers").alias("stored_headers"),
        )  # fmt: skip
        there = (stored["stored_partition"] == requested["at_partition"]) & (
            stored["stored_offset"] == requested["at_offset"]
        )
        # A span holds notes too, which have fewer headers than a letter adds.
        own = sf.slice("stored_headers", 1, sf.greatest(sf.size("stored_headers") - len(LETTER), sf.lit(0)))
        return with_bad_timestamp(
            stored.join(sf.broadcast(requested), there)
            .withColumn("timestamp", sf.timestamp_millis("ms"))
            .withColumn("headers", sf.when(sf.size(own) > 0, own))
        )

    def _note(self, letters: Iterable[DeadLetter], *, state: State, replay: str | None) -> None:
        """Sends a note on each letter, to the letter's own partition: it never outlives its notes there."""
        failed: list[Any] = []
        producer = Producer(
            {
                **librdkafka_settings(self._source.options),
                "bootstrap.servers": self._source.bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 20,
                "error_cb": lambda error: None,
            },
            logger=_silence,
        )
        try:
            for each in letters:
                headers = note_headers(self._feed, each, state=state, replay=replay)
                while True:
                    try:
                        producer.produce(
                            self._topic,
                            partition=each.place[0],
                            headers=headers,
                            on_delivery=lambda error, _: failed.append(error) if error else None,
                        )
                        break
                    except BufferError:
                        producer.poll(1.0)
                producer.poll(0)
            left = producer.flush(FLUSH_SECONDS)
        except KafkaException as error:
            failed.append(error.args[0])
            left = 0
        if failed or left:
            why = f": {failed[0].str()}" if failed else ""
            raise Unreachable(f"the broker did not take all notes on dead letters{why}", where=f"topic {self._topic}")


def _sent(letters: DataFrame, commit: SourceCommit) -> DataFrame:
    """Key, value and headers as they go to the topic."""
    from pyspark.sql import functions as sf

    record = sf.col(f"{RECORD}.record")
    values = (
        sf.lit(commit.feed),
        sf.lit(commit.batch_id),
        record["topic"],
        record["partition"],
        record["offset"],
        sf.unix_millis(record["timestamp"]),
        sf.col(f"{RECORD}.reason"),
        sf.col(f"{RECORD}.schema_id"),
        sf.unix_millis(sf.current_timestamp()),
    )
    ours = sf.array(*(_header(name, value) for name, value in zip(LETTER, values, strict=True))).cast(HEADERS_TYPE)
    own = sf.coalesce(record["headers"].cast(HEADERS_TYPE), sf.array().cast(HEADERS_TYPE))
    return letters.select(
        record["key"].alias("key"), record["value"].alias("value"), sf.concat(own, ours).alias("headers")
    )


def _header(name: str, value: Column) -> Column:
    from pyspark.sql import functions as sf

    return sf.struct(sf.lit(f"{PREFIX}{name}").alias("key"), value.cast("string").cast("binary").alias("value"))


def _holds(span: OffsetRange, position: Position) -> bool:
    topic, partition, offset = position
    return (topic, partition) == (span.topic, span.partition) and span.start <= offset < span.end
