"""A job for the PySpark of any line, without lakefeed's Python: ``python line_job.py``.

The fields of ``LineJob`` are a JSON line of stdin. The job runs until it is killed; with ``once`` until the topic is
empty, and then it writes the table's rows to stdout as JSON.
"""

import json
import sys
from dataclasses import dataclass


@dataclass
class LineJob:
    """The settings of a job.

    Attributes:
        conf: the settings of the session, in which the catalog ``trips`` has the decoder.
        topic: a topic of Avro records.
        servers: the brokers' addresses.
        table: the folder of Parquet files that the job writes.
        checkpoint: the checkpoint location.
        once: whether the job ends when the topic is empty.
        records: the most records of a batch.
        only_decode: whether the job decodes one value in SQL, and nothing else.
    """

    conf: dict[str, str]
    topic: str
    servers: str
    table: str
    checkpoint: str
    once: bool = False
    records: int = 40
    only_decode: bool = False


def main() -> None:
    """Run the job that stdin describes."""
    from pyspark.sql import SparkSession

    job = LineJob(**json.loads(sys.stdin.readline()))
    builder = SparkSession.builder
    for key, value in job.conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if job.only_decode:
        spark.sql("SELECT trips.decode(X'00')").collect()
        return
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", job.servers)
        .option("subscribe", job.topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", True)
        .option("maxOffsetsPerTrigger", job.records)
        .load()
        .selectExpr("partition", "offset", "trips.decode(value, headers) AS decoded")
        .select("partition", "offset", "decoded.value.*", "decoded.error")
    )
    writer = records.writeStream.format("parquet").option("checkpointLocation", job.checkpoint)
    writer = writer.trigger(availableNow=True) if job.once else writer.trigger(processingTime="0 seconds")
    writer.start(job.table).awaitTermination()
    rows = spark.read.parquet(job.table).orderBy("partition", "offset").collect()
    print(json.dumps([spark.version, [row.asDict() for row in rows]]))


if __name__ == "__main__":
    main()
