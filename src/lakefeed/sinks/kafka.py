"""Rows as records of another topic, encoded by Spark and written by its Kafka sink.

Guarantee: at-least-once. A batch that was cut off is sent again from its beginning, and so are the rows of a Spark task
that fails. Headers tell such copies (docs/kafka-sink.md), and ``lakefeed.deduplicated`` leaves them out:

* ``lakefeed.batch``: ``query/number``, Spark's id of the query and its number of the batch;
* ``lakefeed.source``: ``topic/partition/offset`` of the row's record, if the row has it;
* ``lakefeed.row``: where one record may make several rows, or none is known: a number among equal rows of the batch.

That a reader needs no more than the newest batch rests on two things: a batch begins when all of the one before is
acknowledged; and a row goes to the same partition each time, by its key, or without one by what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from lakefeed.clients.kafka.topics import Topics
from lakefeed.clients.spark import jvm
from lakefeed.config.kafka_options import PREFIX, PRODUCER, PRODUCER_DEFAULTS
from lakefeed.config.kafka_sink import KafkaSinkConfig
from lakefeed.config.kafka_source import KafkaSource
from lakefeed.config.problem import Problem
from lakefeed.errors import ConfigError
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.snapshot_summary import Commit, SnapshotProperties
from lakefeed.ledger.stateful_batches import has_state
from lakefeed.records.encode.avro import null_error
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.base import StatelessSink
from lakefeed.sinks.definition import Check, SinkDefinition, checked
from lakefeed.sinks.kafka_records import RowRecords, require_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


PROMPT = {"kafka.linger.ms": "0"}
"""In real time a record waits for no other."""


class KafkaDefinition(SinkDefinition[KafkaSinkConfig]):
    """A topic of Kafka."""

    def open(self, spark: SparkSession, claim: Claim) -> KafkaSink:
        """Open the topic for batches."""
        return KafkaSink(spark, self.settings, claim, source=self.context.source)

    def open_real_time(self, spark: SparkSession, claim: Claim) -> KafkaSink:
        """Open the topic for records one by one, which the producer does not hold back."""
        prompt = self.settings.model_copy(update={"options": {**PROMPT, **self.settings.options}})
        return KafkaSink(spark, prompt, claim, source=self.context.source)

    def check_rows(self, rows: DataFrame, *, stateful: bool) -> Iterator[Problem]:
        """Look for the columns of key, value and headers."""
        try:
            require_columns(self.settings, rows)
        except ConfigError as error:
            place = self.context.place.removesuffix(".kafka")
            yield Problem.of(error, key=f"{place}.{(error.where or '').removeprefix('sink.')}")

    def require_columns(self, spark: SparkSession, rows: StructType) -> None:
        """Refuse rows without the columns of key, value and headers."""
        require_columns(self.settings, spark.createDataFrame([], rows))

    def preflight(self, rows: Callable[[], StructType | None]) -> list[Check]:
        """Look for the topic, and ask the registry of its schema."""
        from lakefeed.records.decode.registry import SchemaRegistry

        place, options = self.context.place, producer_settings(self.settings, self.context.source)
        try:
            topics = topics_of(self.settings, options)
        except ConfigError as error:
            # As for the source: Spark's client can read a Java key store, the one that asks here cannot.
            what = f"the topic cannot be looked up before the run: {error.what}"
            warning = Problem(what=what, key=f"{place}.topic", hint=error.hint, severity="warning")
            return [lambda: [warning]]
        checks = [checked(f"{place}.topic", lambda: self._require_topic(topics))]
        value = self.settings.value
        if (known := value.registry) is not None:
            registry = SchemaRegistry(known.url, username=known.username, password=known.password)
            checks.append(checked(f"{place}.value.{value.kind}.registry", registry.subjects))
        return checks

    def _require_topic(self, topics: Topics) -> None:
        name, source = self.settings.topic, self.context.source
        found = topics.describe(name)
        if source is None or not source.reads(name):
            return
        # Two lists of brokers may be of one cluster. A topic's id is its own in all clusters.
        read = Topics(source.bootstrap_servers, options=source.options).describe_all([name]).get(name)
        if read is not None and read.topic_id == found.topic_id:
            raise ConfigError(
                f"the topic {name} is one that the source reads, at other brokers of the same cluster: rows would go "
                "in a circle",
                where=topics.bootstrap_servers,
                hint="name another topic, or leave it out of the source",
            )


class KafkaSink(StatelessSink):
    """Sends each batch's rows to a topic.

    Args:
        spark: the session.
        sink: its block in the pipeline file.
        claim: the feed's checkpoint.
        source: where records come from, if that is Kafka: how brokers are reached that the sink does not name.
    """

    def __init__(self, spark: SparkSession, sink: KafkaSinkConfig, claim: Claim, *, source: KafkaSource | None) -> None:
        super().__init__(claim)
        self._spark = spark
        self._sink = sink
        self._options = producer_settings(sink, source)
        self._records: RowRecords | None = None
        self._partitions = 0

    def location(self) -> str:
        """What to call it."""
        return f"topic {self._sink.topic}"

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        """Settles how these rows are encoded, and registers their schema.

        Raises:
            ConfigError: the rows lack a column, or do not fit the schema.
            ResourceMissing: there is no such topic.
        """
        described = topics_of(self._sink, self._options).describe(self._sink.topic)
        self._partitions = len(described.partitions)
        self._records = RowRecords.settled(self._sink, self._spark.createDataFrame([], rows))
        super().apply_schema(rows, stored, entries)

    def prepared(self, rows: DataFrame, commit: Commit) -> DataFrame:
        """The rows as records: partition, key, value and headers."""
        from pyspark.sql import functions as sf

        if self._records is None or self._records.schema != rows.schema:
            self._records = RowRecords.settled(self._sink, rows)
        alone = not has_state(commit.ranges) and bool(jvm.java(self._spark).query.StreamingPlan.onePerRecord(rows._jdf))
        batch = sf.lit(f"{self._query(commit.feed)}/{commit.batch_id}")
        return self._records.of(rows, batch=batch, one_per_record=alone, partitions=self._partitions)

    def records(self, rows: DataFrame, *, batch: Column) -> DataFrame:
        """The rows of a stream as records, each of one record and with its position.

        Args:
            rows: as ``apply_schema`` got them.
            batch: the query, and the number of the batch that a row belongs to.
        """
        settled = self._records or RowRecords.settled(self._sink, rows)
        return settled.of(rows, batch=batch, one_per_record=True, partitions=self._partitions)

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Sends a batch: see ``StatelessSink.land``.

        Raises:
            ConfigError: a row has no value for a field that has to have one.
        """
        try:
            return super().land(rows, commit, commit_id=commit_id)
        except Exception as error:
            if (refusal := null_error(str(error))) is not None:
                raise refusal from None
            raise

    def write(self, rows: DataFrame, commit: Commit) -> None:
        """Sends the records, and returns when the brokers have acknowledged them."""
        rows.write.format("kafka").options(**self.options).save()

    @property
    def options(self) -> dict[str, str]:
        """Of Spark's Kafka sink."""
        return {**self._options, "topic": self._sink.topic}

    def _query(self, feed: str) -> str:
        """Spark's id of the query; a run as a batch has none, and its rows are the feed's."""
        return next((str(each.id) for each in self._spark.streams.active if each.name == feed), feed)


def producer_settings(sink: KafkaSinkConfig, source: KafkaSource | None) -> dict[str, str]:
    """Options of Spark's Kafka sink.

    Raises:
        ConfigError: it is not said where the topic is.
    """
    shared = dict(source.options) if source is not None and sink.bootstrap_servers is None else {}
    given = {key: value for key, value in shared.items() if key.removeprefix(PREFIX) in PRODUCER} | sink.options
    servers = sink.bootstrap_servers or (source.bootstrap_servers if source is not None else None)
    if servers is None:
        raise ConfigError(
            "it is not said which brokers the topic is on, and the source is not Kafka",
            where="sink.kafka",
            hint="bootstrap_servers: ${KAFKA_BOOTSTRAP_SERVERS}",
        )
    texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given.items()}
    return {**PRODUCER_DEFAULTS, **texts, "kafka.bootstrap.servers": servers}


def topics_of(sink: KafkaSinkConfig, options: dict[str, str]) -> Topics:
    """The cluster that the sink's topic is on."""
    return Topics(options["kafka.bootstrap.servers"], options=options)
