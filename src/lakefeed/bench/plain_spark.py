"""The stream to compare with: plain Structured Streaming, as its documents and the seeds write it.

Nothing of lakefeed takes part, except that the meter is on the class path. Settings are Spark's, S3A's and
Iceberg's defaults; set is only what a job on this store cannot do without.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakefeed.bench.cases import CHECKPOINT_CLASS, RequestCase, Workload
from lakefeed.local import Endpoints
from lakefeed.operations.produce.taxi import taxi_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HEADER_BYTES = 5
"""Confluent's magic byte and schema id, which ``from_avro`` does not know."""


def settings(case: RequestCase, endpoints: Endpoints, *, conf: Mapping[str, str]) -> dict[str, str]:
    """Spark settings. The keys of the store are in the environment, where Spark looks for them."""
    from lakefeed.clients.spark import jars, jvm

    paths = [str(jvm.jar()), *(str(path) for path in jars.fetch(["spark", "bench"]))]
    catalog = "spark.sql.catalog.lake"
    manager = CHECKPOINT_CLASS.get(case.manager)
    return {
        "spark.master": "local[*]",
        "spark.app.name": case.name,
        "spark.driver.extraClassPath": os.pathsep.join(paths),
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.hadoop.fs.s3a.endpoint": endpoints.s3_endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": endpoints.region,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": endpoints.catalog_uri,
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": case.warehouse,
        f"{catalog}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        # Iceberg's default, its apache client, needs a newer SDK than Hadoop's: it does not start.
        f"{catalog}.http-client.type": "urlconnection",
        f"{catalog}.client.region": endpoints.region,
        f"{catalog}.s3.endpoint": endpoints.s3_endpoint,
        f"{catalog}.s3.path-style-access": "true",
        **({"spark.sql.streaming.checkpointFileManagerClass": manager} if manager else {}),
        **conf,
    }


def start_session(case: RequestCase, endpoints: Endpoints, *, conf: Mapping[str, str]) -> SparkSession:
    """A session with :func:`settings`."""
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder()
    for key, value in settings(case, endpoints, conf=conf).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def stream(spark: SparkSession, case: RequestCase, work: Workload, *, bootstrap_servers: str) -> None:
    """Lands the topic and returns when all of it is there."""
    from pyspark.sql.avro.functions import from_avro
    from pyspark.sql.functions import expr

    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", work.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", work.records_a_batch)
        .load()
    )
    value = from_avro(expr(f"substring(value, {_HEADER_BYTES + 1})"), taxi_schema())
    trips = records.select(value.alias("trip")).select("trip.*")
    writer = trips.writeStream.option("checkpointLocation", case.checkpoint).trigger(availableNow=True)
    if case.sink == "parquet":
        query = writer.format("parquet").option("path", case.path).start()
    else:
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
        columns = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in trips.schema.fields)
        spark.sql(f"CREATE TABLE {case.table} ({columns}) USING iceberg")
        query = writer.format("iceberg").outputMode("append").toTable(case.table)
    query.awaitTermination()
