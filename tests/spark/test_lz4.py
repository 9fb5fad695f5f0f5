"""Spark and Kafka's client use lakefeed's fixed LZ4 jar, not the jar that PySpark includes."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.clients.spark.jars import read_lock

pytestmark = pytest.mark.quick


def test_the_fixed_jar_is_loaded_and_decompresses_what_it_compressed(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    origin = (
        loader.loadClass("net.jpountz.lz4.LZ4Factory").getProtectionDomain().getCodeSource().getLocation().toString()
    )
    (locked,) = (
        each.coordinate.rpartition(":")[2] for each in read_lock().artifacts if ":lz4-java:" in each.coordinate
    )
    assert origin.endswith(f"/lz4-java-{locked}.jar")
    # Kafka's client compresses and decompresses a batch of records with LZ4.
    kafka = jvm.org.apache.kafka.common
    gateway: Any = spark.sparkContext._gateway
    records = gateway.new_array(kafka.record.SimpleRecord, 1)
    value = b"the same words again and again, " * 1000
    records[0] = kafka.record.SimpleRecord(value)
    batch = kafka.record.MemoryRecords.withRecords(kafka.compress.Compression.lz4().build(), records)
    assert batch.sizeInBytes() < len(value) / 10
    back = batch.records().iterator().next()
    assert kafka.utils.Utils.toArray(back.value()) == value
    # Between two stages, Spark compresses the shuffle with LZ4.
    assert spark.conf.get("spark.io.compression.codec", "lz4") == "lz4"
    assert spark.range(0, 10_000, 1, 4).repartition(3).groupBy("id").count().count() == 10_000
