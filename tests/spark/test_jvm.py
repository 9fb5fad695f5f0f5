"""The JVM module apart from decoding: the rate limit, the request meter, executors in separate JVMs."""

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from lakefeed.clients.spark import jvm
from lakefeed.errors import LakefeedError

pytestmark = pytest.mark.quick


def paced(spark: SparkSession, name: str, rate: int) -> str:
    spark.conf.set(f"spark.sql.catalog.{name}.rows-per-second", str(rate))
    spark.conf.set(f"spark.sql.catalog.{name}", "io.lakefeed.local.PaceCatalog")
    return f"{name}.pace(value)"


def test_rows_pass_no_faster_than_the_set_rate(spark: SparkSession) -> None:
    values = spark.range(0, 900, 1, 2).select(sf.col("id").cast("string").cast("binary").alias("value"))
    frame = values.withColumn("value", sf.expr(paced(spark, "pace_300", 300)))
    frame.limit(1).collect()
    began = time.monotonic()
    assert sorted(int(row.value) for row in frame.collect()) == list(range(900))
    assert time.monotonic() - began >= 900 / 300 * 0.97


def test_null_passes_the_rate_limit(spark: SparkSession) -> None:
    frame = spark.sql("SELECT CAST(NULL AS BINARY) AS value").select(sf.expr(paced(spark, "pace_9", 9)).alias("value"))
    assert [row.value for row in frame.collect()] == [None]


def test_waiting_for_the_rate_limit_can_be_cancelled(spark: SparkSession) -> None:
    frame = spark.range(0, 10_000, 1, 1).select(sf.col("id").cast("string").cast("binary").alias("value"))
    frame = frame.select(sf.expr(paced(spark, "pace_1", 1)).alias("value"))
    spark.sparkContext.setJobGroup("paced", "", interruptOnCancel=True)
    timer = threading.Timer(2, spark.sparkContext.cancelJobGroup, ("paced",))
    timer.start()
    began = time.monotonic()
    try:
        with pytest.raises(Exception, match="cancel"):
            frame.collect()
    finally:
        timer.join()
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", "")
    assert time.monotonic() - began < 60


def test_a_missing_jar_is_an_error_with_a_hint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jvm, "files", lambda package: tmp_path)
    with pytest.raises(LakefeedError, match="make jvm"):
        jvm.jar()


CLUSTER = """
import json, os, sys
sys.path.insert(0, os.getcwd())
from pydantic import SecretStr
from lakefeed.clients.spark import jars, jvm
from lakefeed.clients.spark.session import session
from lakefeed.config.connections import Connections
from lakefeed.records.decode import ConfluentAvro, decoded, rows
from tests.support import wire_format
from tests.support.records import avro_bytes, records
from tests.support.registry_in_a_thread import RegistryInAThread

schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
paths = [jvm.jar(), *jars.fetch(["spark"])]
spark = session(
    "cluster",
    connections=Connections(),
    master="local-cluster[2,1,700]",
    conf={
        "spark.executor.memory": "700m",
        # As on any cluster: the jars travel to the executors.
        "spark.jars": ",".join(path.as_uri() for path in paths),
        "spark.driver.extraClassPath": "",
    },
)
try:
    jvm.put_credentials(spark, "mine", username="me", password=SecretStr("right"))
    with RegistryInAThread(credentials="me:right") as registry:
        registry.put(1, schema)
        values = [wire_format.build(1, avro_bytes(schema, {"a": at})) for at in range(100)]
        spec = ConfluentAvro(registry_url=registry.url, reader_schema=json.dumps(schema), credentials="mine")
        frame = rows(decoded(records(spark, values).repartition(8), spec))
        print("SUM", sum(row.a for row in frame.collect()), "ASKED", sum(registry.requests.values()))
finally:
    spark.stop()
"""


@pytest.mark.slow
def test_executors_in_separate_jvms_decode_with_the_credentials() -> None:
    # In local-cluster mode Spark writes the executors' files into its installation folder; the test removes them at the
    # end.
    work = Path(pyspark.__file__).parent / "work"
    before = set(work.glob("app-*"))
    try:
        ran = subprocess.run(
            [sys.executable, "-c", CLUSTER],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    finally:
        for folder in set(work.glob("app-*")) - before:
            shutil.rmtree(folder)
    assert "SUM 4950" in ran.stdout, ran.stderr[-3000:]
    asked = int(ran.stdout.split("ASKED ")[1].split()[0])
    assert 1 <= asked <= 2, "once for each executor's JVM"
