"""The Spark jobs of the measurements: produce taxi trips, and land them with lakefeed or with plain Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from lakefeed.clients.spark import jars, jvm
from lakefeed.clients.spark.session import session
from lakefeed.clients.spark.statements import run
from lakefeed.config.blocks import FastPath
from lakefeed.config.models import PipelineConfig
from lakefeed.pipeline import Pipeline
from lakefeed_bench.harness import Bench, say
from lakefeed_encode.encode import to_records
from lakefeed_local.produce.taxi import KEY, Totals, taxi_schema, taxi_trips, totals
from lakefeed_local.produce.write import produce
from lakefeed_local.stack import Endpoints

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql._typing import OptionalPrimitiveType
    from pyspark.sql.streaming.readwriter import DataStreamReader

Reader = TypeVar("Reader", "DataFrameReader", "DataStreamReader")
Manager = Literal["spark", "abortable", "lakefeed"]
"""``spark``: plain Spark with its defaults. ``abortable``: plain Spark with the checkpoint manager of its hadoop-cloud
module. ``lakefeed``: ``lakefeed run`` with its own settings and checkpoint manager."""
Sink = Literal["parquet", "iceberg"]

_ABORTABLE = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
_SAMPLE_RECORDS = 10_000
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Work:
    """The number of trips in a topic, and the number of batches that land them; a batch writes a file per partition."""

    name: str
    rows: int
    batches: int = 1
    partitions: int

    @property
    def records_a_batch(self) -> int:
        """Spark's ``maxOffsetsPerTrigger``: more than a batch has, because Spark rounds each partition's share down."""
        return -(-self.rows // self.batches) + self.partitions - 1

    @property
    def topic(self) -> str:
        return f"bench-{self.name}"


@dataclass(frozen=True, kw_only=True)
class Filled:
    """A topic with trips: the number of records, their mean size including the key, and the totals of the trips."""

    records: int
    record_bytes: float
    totals: Totals


def fill_topic(bench: Bench, work: Work, csv: Path | None = None) -> Filled:
    """Create the topic that all cases read, and produce the trips."""
    say(f"producing {'the trips of a file' if csv else f'{work.rows:,} trips'} into {work.partitions} partitions")
    bench.topics.create(work.topic, partitions=work.partitions)
    with bench.processes("produce") as processes:
        filled: Filled = processes["produce"](produce_trips, work, bench.endpoints, csv)
    return filled


def produce_trips(work: Work, endpoints: Endpoints, csv: Path | None = None) -> Filled:
    """Produce generated trips, or the trips in a CSV file."""
    rows = taxi_trips(session("bench-produce"), rows=work.rows, csv=csv)
    registry = endpoints.schema_registry_url
    records = to_records(rows, topic=work.topic, registry=registry, schema=taxi_schema(), key=KEY)
    produced = produce(records, work.topic, bootstrap_servers=endpoints.bootstrap_servers)
    [mean] = records.limit(_SAMPLE_RECORDS).selectExpr("avg(length(key) + length(value))").collect()
    return Filled(records=produced.records, record_bytes=round(mean[0], 1), totals=totals(rows, key=None))


def pipeline_document(
    name: str,
    topics: Sequence[str],
    endpoints: Endpoints,
    *,
    sink: Mapping[str, Any],
    most: int | None = None,
    checkpoint: str | None = None,
    **blocks: Any,
) -> dict[str, Any]:
    """Return the document of a pipeline that lands Avro records, at most ``most`` per batch."""
    kafka = {"bootstrap_servers": endpoints.bootstrap_servers, "topics": list(topics), "max_records_per_batch": most}
    document = {
        "name": name,
        "source": {"kafka": {key: value for key, value in kafka.items() if value is not None}},
        "decode": {"avro": {"registry": endpoints.schema_registry_url}},
        "sink": dict(sink),
        "checkpoint": checkpoint,
        **blocks,
    }
    return {key: value for key, value in document.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class LandingCase:
    """A job that lands a topic in its own table or path, with its own checkpoint."""

    name: str
    bucket: str
    manager: Manager
    sink: Sink
    fast_path: FastPath | None = None
    has_checkpoint: bool = True

    @property
    def checkpoint(self) -> str:
        return f"s3a://{self.bucket}/checkpoints/{self.name}"

    @property
    def path(self) -> str:
        return f"s3a://{self.bucket}/{self.name}"

    @property
    def table(self) -> str:
        return f"lake.bench.{self.name.replace('-', '_')}"

    def environment(self, endpoints: Endpoints) -> dict[str, str]:
        return {**endpoints.as_environment(), "LAKEFEED_WAREHOUSE": f"s3://{self.bucket}/warehouse"}

    def pipeline(
        self, topic: str, endpoints: Endpoints, *, most: int, blocks: Mapping[str, Any] = _NOTHING, **sink: Any
    ) -> Pipeline:
        """Return the pipeline that lands the topic; ``blocks`` are further keys of its file, ``sink`` of its sink."""
        place = {"table": self.table} if self.sink == "iceberg" else {"path": self.path}
        document = pipeline_document(
            self.name.replace("-", "_"),
            [topic],
            endpoints,
            sink={self.sink: {**place, **sink}},
            most=most,
            checkpoint=self.checkpoint if self.has_checkpoint else None,
            fast_path=self.fast_path,
            **blocks,
        )
        return Pipeline(PipelineConfig.model_validate(document), environment=self.environment(endpoints))


def start_session(
    case: LandingCase, topic: str, endpoints: Endpoints, conf: Mapping[str, str] = _NOTHING
) -> SparkSession:
    if case.manager != "lakefeed":
        return plain_session({**_plain_settings(case, endpoints), **conf})
    pipeline = case.pipeline(topic, endpoints, most=1)
    # Do not call pipeline.session(): its preflight sends S3 requests from Python, which the JVM does not count.
    return session(case.name, connections=pipeline.connections, conf=conf)


def land(
    spark: SparkSession, case: LandingCase, work: Work, endpoints: Endpoints, options: Mapping[str, str] = _NOTHING
) -> None:
    """Land the topic by lakefeed, or else by plain Spark with ``options`` for its Kafka source."""
    if case.manager == "lakefeed":
        case.pipeline(work.topic, endpoints, most=work.records_a_batch).run(spark=spark, once=True)
        return
    source = topic_source(spark.readStream, work.topic, endpoints).option("startingOffsets", "earliest")
    records = source.option("maxOffsetsPerTrigger", work.records_a_batch).options(**options).load()
    trips = decoded_plainly(records, taxi_schema())
    writer = trips.writeStream.option("checkpointLocation", case.checkpoint).trigger(availableNow=True)
    if case.sink == "parquet":
        writer.start(case.path, format="parquet").awaitTermination()
        return
    columns = ", ".join(f"`{column.name}` {column.dataType.simpleString()}" for column in trips.schema.fields)
    create_table(spark, case, columns)
    writer.format("iceberg").outputMode("append").toTable(case.table).awaitTermination()


def create_table(spark: SparkSession, case: LandingCase, columns: str, *, properties: str = "") -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
    run(spark, f"CREATE TABLE {case.table} ({columns}) USING iceberg {properties}")


def topic_source(reader: Reader, topic: str, endpoints: Endpoints) -> Reader:
    servers = endpoints.bootstrap_servers
    return reader.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)


def decoded_plainly(records: DataFrame, schema: str, *, keep: Sequence[str] = ()) -> DataFrame:
    """Decode the values with Spark's ``from_avro``, without the five bytes of Confluent's header."""
    from pyspark.sql.avro.functions import from_avro
    from pyspark.sql.functions import lit, substr

    value = substr("value", lit(6))
    return records.select(from_avro(value, schema).alias("decoded"), *keep).select("decoded.*", *keep)


def own_classes() -> dict[str, str]:
    """Return the Spark setting that adds the bench's jar to the driver's class path."""
    return {"spark.driver.extraClassPath": str(jvm.jar_of("lakefeed_bench/lakefeed-bench.jar"))}


def plain_session(settings: Mapping[str, OptionalPrimitiveType]) -> SparkSession:
    """Return a session of plain Spark with its connectors.

    lakefeed's jar is on the class path too, but only for counting S3 requests and generating trips.
    """
    from pyspark.sql import SparkSession

    usual: dict[str, OptionalPrimitiveType] = {
        "spark.master": "local[*]",
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": os.pathsep.join(map(str, [jvm.jar(), *jars.fetch(["spark", "bench"])])),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    return SparkSession.Builder().config(map={**usual, **settings}).getOrCreate()


def _plain_settings(case: LandingCase, endpoints: Endpoints) -> dict[str, OptionalPrimitiveType]:
    """Return the settings that a job of plain Spark needs for this store; all other settings keep their defaults.

    Spark reads the store's credentials from the environment.
    """
    catalog = "spark.sql.catalog.lake"
    manager = {"spark.sql.streaming.checkpointFileManagerClass": _ABORTABLE} if case.manager == "abortable" else {}
    return {
        "spark.app.name": case.name,
        "spark.hadoop.fs.s3a.endpoint": endpoints.s3_endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": endpoints.region,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": endpoints.catalog_uri,
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": case.environment(endpoints)["LAKEFEED_WAREHOUSE"],
        f"{catalog}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        # Iceberg's default HTTP client, Apache's, does not start: it needs a newer AWS SDK than Hadoop's.
        f"{catalog}.http-client.type": "urlconnection",
        f"{catalog}.client.region": endpoints.region,
        f"{catalog}.s3.endpoint": endpoints.s3_endpoint,
        f"{catalog}.s3.path-style-access": "true",
        **manager,
    }


def on_progress(spark: SparkSession, report: Any) -> Any:
    """Call ``report`` with the progress of each batch in the session; return a function that removes the listener."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            report(event.progress)

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            pass

    listener = Listener()
    spark.streams.addListener(listener)
    return lambda: spark.streams.removeListener(listener)
