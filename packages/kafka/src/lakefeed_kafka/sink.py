"""Encode rows as records of another topic, and send them with Spark's Kafka sink.

Guarantee: at-least-once. After an interruption, Spark sends the whole batch again; after a failure of a task, that
task's rows. Headers identify these copies (docs/kafka-sink.md), and ``lakefeed.deduplicated`` drops them:

* ``lakefeed.batch``: ``query/number``, Spark's id of the query and Spark's number of the batch;
* ``lakefeed.source``: ``topic/partition/offset`` of the row's record, if the row has it;
* ``lakefeed.row``: a number that distinguishes equal rows of a batch, if a record may make several rows or the record
is unknown.

A reader has to remember only the newest batch, for two reasons. A batch begins only after the brokers have acknowledged
the whole previous batch. All copies of a row go to the same partition: by the row's key, or without a key by its
content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import and_

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.clients.kafka.topics import Topics
from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.errors import quietly
from lakefeed.clients.spark.statements import expression
from lakefeed.config.kafka_client import PRODUCER_DEFAULTS, option_text
from lakefeed.config.keyed import POSITION_COLUMNS
from lakefeed.config.problem import Problem
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ConfigError
from lakefeed.lazy import Column, DataFrame, SparkSession, StructType, sf, spark_errors, t
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.continuity import NoLedger
from lakefeed.ledger.snapshot_summary import Commit, SnapshotProperties
from lakefeed.offsets.ranges import has_state
from lakefeed.records.decode.registry import SchemaRegistry
from lakefeed.records.sources import HEADERS_TYPE, header
from lakefeed.sinks.base import BatchedSink
from lakefeed.sinks.definition import Check, SinkDefinition, checked
from lakefeed_encode.avro import row_error
from lakefeed_encode.encode import Encoding, Format, id_header_of, settle, value_of
from lakefeed_kafka.settings import KafkaSinkConfig, Value

BATCH, SOURCE, ROW = "lakefeed.batch", "lakefeed.source", "lakefeed.row"
"""The names of headers that ``io.lakefeed.copies.OnceOnly`` reads."""
_FRAMED: dict[str, Format] = {"avro": "confluent-avro", "protobuf": "confluent-protobuf", "json_schema": "json-schema"}
_PLAIN: dict[str, Format] = {"avro": "avro", "protobuf": "protobuf", "json": "json"}


class KafkaDefinition(SinkDefinition[KafkaSinkConfig]):
    def open(self, spark: SparkSession, claim: Claim) -> KafkaSink:
        return KafkaSink(spark, self.settings, claim, source=self.context.source)

    def open_real_time(self, spark: SparkSession, claim: Claim) -> KafkaSink:
        prompt = self.settings.model_copy(update={"options": {"kafka.linger.ms": "0", **self.settings.options}})
        return KafkaSink(spark, prompt, claim, source=self.context.source)

    def check_rows(self, rows: DataFrame, *, stateful: bool) -> Iterator[Problem]:
        try:
            require_columns(self.settings, rows)
        except ConfigError as error:
            place = self.context.place.removesuffix(".kafka")
            yield Problem.of(error, key=f"{place}.{(error.where or '').removeprefix('sink.')}")

    def require_columns(self, spark: SparkSession, rows: StructType) -> None:
        require_columns(self.settings, spark.createDataFrame([], rows))

    def preflight(self, rows: Callable[[], StructType | None]) -> list[Check]:
        """Return checks of the topic and of the schema registry."""
        place, value = self.context.place, self.settings.value
        try:
            topics = _topics(producer_settings(self.settings, self.context.source))
        except ConfigError as error:
            # A failure is only a warning, as for the source: Spark's client can read a Java key store, the client here
            # cannot.
            what = f"the topic cannot be looked up before the run: {error.what}"
            warning = Problem(what=what, key=f"{place}.topic", hint=error.hint, severity="warning")
            return [lambda: [warning]]
        checks = [checked(f"{place}.topic", lambda: self._require_topic(topics))]
        if (registry := _registry(value)) is not None:
            checks.append(checked(f"{place}.value.{value.kind}.registry", registry.subjects))
        return checks

    def _require_topic(self, topics: Topics) -> None:
        name, source = self.settings.topic, self.context.source
        sink_topic = topics.describe(name)
        if source is None or not source.reads(name):
            return
        # Two lists of brokers may belong to one cluster: compare the topics' ids, which are unique across clusters.
        read = Topics(source.bootstrap_servers, options=source.client_options).describe_all([name]).get(name)
        if read is not None and read.topic_id == sink_topic.topic_id:
            raise ConfigError(
                f"the source reads the sink's topic {name} through other brokers of the same cluster: the feed would "
                "read its own rows",
                where=topics.bootstrap_servers,
                hint="name another topic for the sink, or exclude this one from the source",
            )


class KafkaSink(BatchedSink):
    """Sends each batch's rows to a topic; by default, uses the brokers of ``source``."""

    writer: TopicWriter

    def __init__(self, spark: SparkSession, sink: KafkaSinkConfig, claim: Claim, *, source: KafkaSource | None) -> None:
        where = f"topic {sink.topic}"
        super().__init__(TopicWriter(spark, sink, source=source), claim, NoLedger(where), where=where)

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        try:
            return super().land(rows, commit, commit_id=commit_id)
        except Exception as error:
            if (refusal := row_error(str(error))) is not None:
                raise refusal from None
            raise

    def records(self, rows: DataFrame) -> DataFrame:
        rows.sparkSession.conf.set("spark.sql.catalog.lakefeed_batch", "io.lakefeed.topics.BatchCatalog")
        batch = sf.call_function("lakefeed_batch.batch", sf.concat_ws("/", *POSITION_COLUMNS))
        return self.writer.records(rows, batch=batch, one_per_record=True)

    @property
    def options(self) -> dict[str, str]:
        return self.writer.options


class TopicWriter:
    """Encodes rows as records of a topic, and sends them."""

    def __init__(self, spark: SparkSession, sink: KafkaSinkConfig, *, source: KafkaSource | None) -> None:
        self._spark = spark
        self._sink = sink
        self._records: RowRecords | None = None
        self._partitions = 0
        self._producer = producer_settings(sink, source)

    def begin(self, columns: StructType) -> None:
        """Choose the encoding of these rows, and register their schema."""
        self._partitions = len(_topics(self._producer).describe(self._sink.topic).partitions)
        self._records = RowRecords.settle(self._sink, self._spark.createDataFrame([], columns))

    def prepared(self, rows: DataFrame, commit: Commit) -> DataFrame:
        if self._records is None or self._records.schema != rows.schema:
            self._records = RowRecords.settle(self._sink, rows)
        alone = not has_state(commit.ranges) and bool(jvm.java(self._spark).query.StreamingPlan.onePerRecord(rows._jdf))
        # Without a streaming query there is no query id: use the feed's name.
        query = next((query.id for query in self._spark.streams.active if query.name == commit.feed), commit.feed)
        return self.records(rows, batch=sf.lit(f"{query}/{commit.batch_id}"), one_per_record=alone)

    def records(self, rows: DataFrame, *, batch: Column, one_per_record: bool) -> DataFrame:
        settled = self._records or RowRecords.settle(self._sink, rows)
        return settled.of(rows, batch=batch, one_per_record=one_per_record, partitions=self._partitions)

    @property
    def options(self) -> dict[str, str]:
        """Options of Spark's Kafka sink."""
        return {**self._producer, "topic": self._sink.topic}

    def write(self, rows: DataFrame, commit: Commit, *, commit_id: str) -> None:
        """Send the records; return after the brokers have acknowledged them."""
        rows.write.format("kafka").options(**self.options).save()


@dataclass(frozen=True, kw_only=True)
class RowRecords:
    """Makes records of rows that have one schema; ``encoding`` is None if the value is a single column."""

    sink: KafkaSinkConfig
    schema: StructType
    encoding: Encoding | None

    @classmethod
    def settle(cls, sink: KafkaSinkConfig, rows: DataFrame) -> RowRecords:
        """Check that the rows have the sink's columns, and register the value's schema in the registry."""
        require_columns(sink, rows)
        return cls(sink=sink, schema=rows.schema, encoding=_encoding(sink, rows.drop(*POSITION_COLUMNS)))

    def of(self, rows: DataFrame, *, batch: Column, one_per_record: bool, partitions: int) -> DataFrame:
        """Return the rows as records; the column ``batch`` has the query and the batch number.

        The rows have ``POSITION_COLUMNS`` if their records are known. ``one_per_record`` means that a record makes at
        most one row.
        """
        from pyspark.sql import Window

        placed = all(name in rows.columns for name in POSITION_COLUMNS)
        source = sf.lit(None).cast("string")
        if placed:
            is_known = reduce(and_, (sf.col(name).isNotNull() for name in POSITION_COLUMNS))
            source = sf.when(is_known, sf.concat_ws("/", *POSITION_COLUMNS))
        records = rows.select(
            key_of(self.sink, rows).alias("key"),
            self._value(rows).alias("value"),
            source.alias("source"),
            batch.alias("batch"),
            *(
                expression(rows.sparkSession, text).cast("string").alias(f"header_{at}")
                for at, text in enumerate(self.sink.headers.values())
            ),
        )
        headers = [header(BATCH, sf.col("batch"))]
        if placed:
            headers.append(header(SOURCE, sf.col("source")))
        if not (placed and one_per_record):
            equal = Window.partitionBy("key", "value", "source").orderBy("key")
            records = records.withColumn("row", sf.row_number().over(equal) - 1)
            headers.append(header(ROW, sf.col("row")))
        headers += [header(name, sf.col(f"header_{at}")) for at, name in enumerate(self.sink.headers)]
        ids = id_header_of(rows.sparkSession, self.encoding) if self.encoding else {}
        headers += [header(name, sf.lit(bytearray(content))) for name, content in ids.items()]
        # Without a key, the row itself decides the partition, so that all copies are in the same partition.
        hashed = [sf.col("source")] if placed else [sf.col("value"), sf.col("row")]
        own = sf.pmod(sf.xxhash64(*hashed), sf.lit(partitions)).cast("int")
        return records.select(
            sf.when(sf.col("key").isNull(), own).alias("partition"),
            "key",
            "value",
            sf.array(*headers).cast(HEADERS_TYPE).alias("headers"),
        )

    def _value(self, rows: DataFrame) -> Column:
        if self.encoding is not None:
            return value_of(rows.drop(*POSITION_COLUMNS), self.encoding)
        assert self.sink.value.column is not None  # The encoding is None only if the value is a single column.
        return _column_bytes(self.sink.value.column.name, rows)


def require_columns(sink: KafkaSinkConfig, rows: DataFrame) -> None:
    """Raise a ConfigError with the setting if the rows lack a column for the sink's key, value or headers."""
    with _refusals("key", rows):
        _ = rows.select(key_of(sink, rows)).schema
    for name, text in sink.headers.items():
        with _refusals(f"headers.{name}", rows):
            _ = rows.select(expression(rows.sparkSession, text).cast("string")).schema
    if (column := sink.value.column) is None:
        return
    if column.name not in rows.columns:
        raise ConfigError(
            f"value names the column '{column.name}', which the rows do not have",
            where="sink.kafka.value.column",
            hint=f"name one of the rows' columns: {', '.join(rows.columns)}",
        )
    with _refusals("value.column", rows):
        _ = rows.select(_column_bytes(column.name, rows)).schema


@contextmanager
def _refusals(setting: str, rows: DataFrame) -> Iterator[None]:
    try:
        with quietly():
            yield
    except spark_errors.PySparkException as error:
        raise ConfigError(
            f"Spark cannot compute this expression from the rows: {str(error).splitlines()[0]}",
            where=f"sink.kafka.{setting}",
            hint=f"use the rows' columns: {', '.join(rows.columns)}",
        ) from None


def key_of(sink: KafkaSinkConfig, rows: DataFrame) -> Column:
    """Return the column of the record's key: bytes unchanged, other types as text; null if the sink has no key."""
    if sink.key is None:
        return sf.lit(None).cast("binary")
    if isinstance(sink.key, list):
        columns = sf.struct(*(sf.col(quoted((name,))) for name in sink.key))
        return sf.to_json(columns, {"ignoreNullFields": "false"}).cast("binary")
    made = expression(rows.sparkSession, sink.key)
    is_bytes = isinstance(rows.select(made).schema.fields[0].dataType, t.BinaryType)
    return made if is_bytes else made.cast("string").cast("binary")


def _column_bytes(name: str, rows: DataFrame) -> Column:
    type_ = rows.schema[name].dataType
    if isinstance(type_, t.StructType | t.ArrayType | t.MapType):
        raise ConfigError(
            f"the column {name} is {type_.simpleString()}, which has no single form as bytes",
            where="sink.kafka.value.column",
            hint="set value: json, or turn the column into a text in the transform",
        )
    column = sf.col(quoted((name,)))
    return column if isinstance(type_, t.BinaryType) else column.cast("string").cast("binary")


def _encoding(sink: KafkaSinkConfig, rows: DataFrame) -> Encoding | None:
    value, registered, registry = sink.value, sink.value.registered, _registry(sink.value)
    if value.column is not None:
        return None
    return settle(
        rows,
        format=_FRAMED[value.kind] if registry is not None else _PLAIN[value.kind],
        topic=sink.topic,
        registry=registry,
        subject=registered.subject if registered else None,
        schema=registered.schema_file.read_text("utf-8") if registered and registered.schema_file else None,
        message=value.protobuf.message if value.protobuf else None,
        id_place=registered.schema_id if registered else "prefix",
    )


def _registry(value: Value) -> SchemaRegistry | None:
    return None if value.registry is None else SchemaRegistry.of(value.registry)


def producer_settings(sink: KafkaSinkConfig, source: KafkaSource | None) -> dict[str, str]:
    """Return the client options for Spark's Kafka sink; raise a ConfigError if no option names brokers."""
    shared = source.producer_options if source is not None and sink.bootstrap_servers is None else {}
    servers = sink.bootstrap_servers or (source.bootstrap_servers if source is not None else None)
    if servers is None:
        raise ConfigError(
            "sink.kafka.bootstrap_servers is required because the source is not Kafka",
            where="sink.kafka",
            hint="write bootstrap_servers: ${KAFKA_BOOTSTRAP_SERVERS}",
        )
    own = {key: option_text(value) for key, value in sink.client_options.items()}
    return {**PRODUCER_DEFAULTS, **shared, **own, "kafka.bootstrap.servers": servers}


def _topics(options: dict[str, str]) -> Topics:
    return Topics(options["kafka.bootstrap.servers"], options=options)
