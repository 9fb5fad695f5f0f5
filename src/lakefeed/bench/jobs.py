"""The Spark jobs of the bench; each runs in a process of its own (``lakefeed.bench.own_process``)."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from lakefeed.bench import plain_spark
from lakefeed.bench.cases import RequestCase, Workload
from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.session import session
from lakefeed.config.models import PipelineConfig
from lakefeed.local import Endpoints
from lakefeed.operations.produce.taxi import KEY, taxi_rows, taxi_schema
from lakefeed.operations.produce.write import produce
from lakefeed.pipeline import Pipeline
from lakefeed.records.encode.encode import to_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JVM_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Streamed:
    """What a case says when its query has ended.

    Attributes:
        metered: requests by S3 operation that the JVM has counted since it began.
    """

    metered: dict[str, int]


def fill_topic(connection: Connection, work: Workload, endpoints: Endpoints) -> None:
    """Produces the workload's trips into its topic and says how many records there are."""
    spark = session("bench-produce")
    records = to_records(
        taxi_rows(spark, work.rows),
        topic=work.topic,
        format="confluent-avro",
        registry=endpoints.schema_registry_url,
        schema=taxi_schema(),
        key=KEY,
    )
    done = produce(records, work.topic, bootstrap_servers=endpoints.bootstrap_servers)
    connection.send(done.records)
    _end(spark)


def run_case(connection: Connection, case: RequestCase, work: Workload, endpoints: Endpoints) -> None:
    """Lands the topic; says what the meter has counted; on request, counts the rows of a Parquet sink."""
    if case.manager == "lakefeed":
        spark = _lakefeed(case, work, endpoints)
    else:
        spark = plain_spark.start_session(case, endpoints, conf=work.conf)
        plain_spark.stream(spark, case, work, bootstrap_servers=endpoints.bootstrap_servers)
    connection.send(Streamed(metered=jvm.s3_requests(spark)))
    connection.recv()
    if case.sink == "parquet":
        # Through _spark_metadata: the rows that were committed, each once.
        connection.send(spark.read.parquet(case.path).count())
    _end(spark)


def pipeline_of(case: RequestCase, work: Workload, endpoints: Endpoints) -> PipelineConfig:
    """The pipeline of a lakefeed case."""
    sink = {"iceberg": {"table": case.table}} if case.sink == "iceberg" else {"parquet": {"path": case.path}}
    return PipelineConfig.model_validate(
        {
            "name": case.name.replace("-", "_"),
            "source": {
                "kafka": {
                    "bootstrap_servers": endpoints.bootstrap_servers,
                    "topics": [work.topic],
                    "max_records_per_batch": work.records_a_batch,
                }
            },
            "decode": {"avro": {"registry": endpoints.schema_registry_url}},
            "sink": sink,
            "checkpoint": case.checkpoint,
        }
    )


def _lakefeed(case: RequestCase, work: Workload, endpoints: Endpoints) -> SparkSession:
    environment = {**endpoints.as_environment(), "LAKEFEED_WAREHOUSE": case.warehouse}
    pipeline = Pipeline(pipeline_of(case, work, endpoints), environment=environment)
    # Not pipeline.session(): its preflight asks S3 from Python, once for each run, outside the JVM and its meter.
    spark = session(case.name, connections=pipeline.connections, conf=work.conf)
    pipeline.run(spark=spark, once=True)
    return spark


def _end(spark: SparkSession) -> None:
    """Stops Spark and waits for the JVM's end, so that the requests it then makes are not the next case's."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # What the JVM waits for.
    gateway.proc.wait(_JVM_SECONDS)
