"""A Structured Streaming job without lakefeed: ``python -m tests.support.plain_job``.

The job reads the fields of ``PlainJob`` as a JSON line from stdin. The environment names the servers. The job runs
until it is killed, or with ``once`` until the job's topic is empty.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from lakefeed.clients.spark import jars
from tests.support import plain_process
from tests.support.faults.drivers import SHORT_LIVED

Writer = Literal["stream", "batches"]


@dataclass(frozen=True)
class PlainJob:
    """The settings of a job.

    Attributes:
        topic: a topic of JSON records ``{"id": …}``.
        table: the Iceberg table that the job writes.
        checkpoint: the checkpoint location.
        writer: ``stream`` for Iceberg's streaming sink and a table of ids; ``batches`` for foreachBatch with appends,
            as many jobs have it, and a table with the records' topic, partition and offset.
        records: the most records of a batch.
        once: whether the job ends when the topic is empty.
    """

    topic: str
    table: str
    checkpoint: str
    writer: Writer = "stream"
    records: int = 100
    once: bool = False

    def running(self, environment: Mapping[str, str], log: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """Run the job as a process, which is killed with its JVM when the block ends."""
        variables = {**SHORT_LIVED, **environment, "SPARK_LOCAL_IP": "127.0.0.1"}
        return plain_process.running("tests.support.plain_job", asdict(self), variables, log)

    def batches(self) -> int:
        """Count the planned batches; only for a checkpoint in a local directory."""
        folder = Path(self.checkpoint, "offsets")
        return len([path for path in folder.glob("*") if path.name.isdigit()]) if folder.is_dir() else 0

    def kill_at(self, process: subprocess.Popen[bytes], batches: int, *, then: float, log: Path) -> None:
        """Kill the job `then` seconds after it has planned `batches` batches."""
        deadline = time.monotonic() + 300
        while self.batches() < batches:
            assert process.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(0.02)
        time.sleep(then)
        plain_process.kill(process)


def main() -> None:
    """Run the job that stdin describes."""
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.functions import from_json

    job = PlainJob(**json.loads(sys.stdin.readline()))
    environment, catalog = os.environ, "spark.sql.catalog.lake"
    settings = {
        "spark.master": "local[2]",
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars.fetch(["spark"]))),
        "spark.driver.memory": "700m",
        # The JDK's HTTP client would reuse connections that the server has closed, and after some failures the job
        # would end before the test kills it.
        "spark.driver.extraJavaOptions": "-Dhttp.keepAlive=false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.hadoop.fs.s3a.endpoint": environment["AWS_ENDPOINT_URL_S3"],
        "spark.hadoop.fs.s3a.endpoint.region": environment["AWS_REGION"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": environment["LAKEFEED_CATALOG_URI"],
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": environment["LAKEFEED_WAREHOUSE"].replace("s3a://", "s3://"),
        f"{catalog}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        f"{catalog}.http-client.type": "urlconnection",
        f"{catalog}.client.region": environment["AWS_REGION"],
        f"{catalog}.s3.endpoint": environment["AWS_ENDPOINT_URL_S3"],
        f"{catalog}.s3.path-style-access": "true",
    }
    spark = SparkSession.Builder().appName("plain-job").config(map={**settings}).getOrCreate()
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", environment["KAFKA_BOOTSTRAP_SERVERS"])
        .option("subscribe", job.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", job.records)
        .load()
    )
    decoded = records.withColumn("id", from_json(records.value.cast("string"), "id BIGINT").id)
    kept = ["id"] if job.writer == "stream" else ["id", "topic", "partition", "offset"]
    rows = decoded.select(*kept)
    namespace = job.table.rpartition(".")[0]
    columns = ", ".join(f"`{column.name}` {column.dataType.simpleString()}" for column in rows.schema.fields)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    spark.sql(f"CREATE TABLE IF NOT EXISTS {job.table} ({columns}) USING iceberg")

    def append(batch: DataFrame, number: int) -> None:
        batch.writeTo(job.table).append()

    writer = rows.writeStream.option("checkpointLocation", job.checkpoint)
    writer = writer.trigger(availableNow=True) if job.once else writer.trigger(processingTime="0 seconds")
    if job.writer == "stream":
        query = writer.format("iceberg").outputMode("append").toTable(job.table)
    else:
        query = writer.foreachBatch(append).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
