"""The jobs of ``lakefeed bench produce``, each in a process with a JVM of its own that stays warm between runs."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lakefeed.bench import jobs
from lakefeed.clients.spark import jars
from lakefeed.clients.spark.session import session
from lakefeed.lazy import t
from lakefeed.local import Endpoints
from lakefeed.operations.produce.sources import read_rows
from lakefeed.operations.produce.taxi import KEY, Totals, taxi_rows, taxi_schema, totals
from lakefeed.operations.produce.write import produce
from lakefeed.records.encode.encode import to_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql._typing import OptionalPrimitiveType

Producer = Literal["seed", "lakefeed", "read"]
Input = Literal["csv", "parquet", "generated"]


@dataclass(frozen=True, kw_only=True)
class Trips:
    """The rows that are produced: so many trips, generated or in files below ``folder``."""

    input: Input
    rows: int
    folder: str

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.input}"

    def read(self, spark: SparkSession) -> DataFrame:
        """Read them as ``lakefeed produce`` does: 17 columns, and no key."""
        if self.input == "generated":
            return taxi_rows(spark, self.rows).drop(KEY)
        return read_rows(spark, self.path, format=self.input, schema=taxi_schema())


@dataclass(frozen=True, kw_only=True)
class Took:
    """The time of one run, and the CPU time of its JVM and Python process."""

    seconds: float
    cpu_seconds: float


def write_files(trips: Trips) -> Totals:
    """Write the trips into files, one for each core; return their totals."""
    spark = session("bench-files")
    rows = taxi_rows(spark, trips.rows, slices=spark.sparkContext.defaultParallelism).drop(KEY)
    if trips.input == "csv":
        rows.write.mode("overwrite").csv(Path(trips.path).as_uri(), header=True)
    elif trips.input == "parquet":
        rows.write.mode("overwrite").parquet(Path(trips.path).as_uri())
    return totals(rows, key=None)


def run_producer(producer: Producer, trips: Trips, topic: str, endpoints: Endpoints) -> Took:
    """Produce the trips in one way; ``read`` only reads and drops them."""
    spark = _plain_session() if producer == "seed" else session(f"bench-{producer}")
    began, cpu = time.monotonic(), jobs.cpu_seconds()
    if producer == "lakefeed":
        records = to_records(
            trips.read(spark), topic=topic, registry=endpoints.schema_registry_url, schema=taxi_schema()
        )
        produce(records, topic, bootstrap_servers=endpoints.bootstrap_servers)
    elif producer == "seed":
        _seed(spark, trips, topic, endpoints)
    else:
        trips.read(spark).write.format("noop").mode("overwrite").save()
    return Took(seconds=time.monotonic() - began, cpu_seconds=jobs.cpu_seconds() - cpu)


def _plain_session() -> SparkSession:
    """Return a session of nothing but Spark and its connectors."""
    from pyspark.sql import SparkSession

    connectors = os.pathsep.join(map(str, jars.fetch(["spark"])))
    settings: dict[str, OptionalPrimitiveType] = {**jobs.ON_THIS_MACHINE, "spark.driver.extraClassPath": connectors}
    return SparkSession.Builder().config(map=settings).getOrCreate()


def _seed(spark: SparkSession, trips: Trips, topic: str, endpoints: Endpoints) -> None:
    """Produce as the published job does: the further options that it sets are none of Spark's Kafka sink."""
    from pyspark.sql.avro.functions import to_avro
    from pyspark.sql.functions import struct

    if trips.input == "csv":
        schema = t.StructType([field for field in taxi_rows(spark, 0).schema.fields if field.name != KEY])
        rows = spark.read.option("header", "true").schema(schema).csv(Path(trips.path).as_uri())
    else:
        rows = trips.read(spark)
    records = rows.select(to_avro(struct(*rows.columns), taxi_schema()).alias("value"))
    servers = endpoints.bootstrap_servers
    records.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic).save()


def topic_totals(producer: Producer, topic: str, endpoints: Endpoints) -> Totals:
    """Decode the records of a topic with Spark's ``from_avro``, and add them up."""
    records = jobs.topic_source(session("bench-check").read, topic, endpoints).load()
    return totals(jobs.decoded_plainly(records, taxi_schema(), is_framed=producer == "lakefeed"), key=None)
