"""Every function of lakefeed refuses a session of Spark Connect, and says in one sentence what to do."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakefeed.clients.spark.driver_jvm import require_java
from lakefeed_local.part import LOOPBACK, choose_free
from tests.support.servers.process import running

# Run this script in a separate process, because after a session of Spark Connect PySpark creates only such sessions.
ENTRIES = """
import sys
from pathlib import Path

import lakefeed as lf
from lakefeed_repair.backfill import backfill
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
assert spark.range(3).count() == 3
pipeline = lf.Pipeline.from_file(Path(sys.argv[2]))
frame = spark.range(3)
entries = {
    "session": lambda: lf.session(),
    "read_topic": lambda: lf.read_topic(spark, "trips", bootstrap_servers="127.0.0.1:1", decode="raw"),
    "write_table": lambda: lf.write_table(frame, "lake.a.b"),
    "deduplicated": lambda: lf.deduplicated(frame),
    "read": lambda: pipeline.read(spark),
    "rows": lambda: pipeline.rows(frame),
    "read_batch": lambda: pipeline.read_batch(spark),
    "run": lambda: pipeline.run(spark=spark, once=True),
    "run_batch": lambda: pipeline.run_batch(spark=spark),
    "backfill": lambda: backfill(pipeline, spark=spark),
    "dead_letter_store": lambda: pipeline.dead_letter_store(spark),
}
for name, enter in entries.items():
    try:
        enter()
    except lf.LakefeedError as error:
        print(name, error.exit_status, error.what, error.hint, sep="|")
print(spark.range(3).count())
spark.stop()
"""

PIPELINE = """
name: connected
source: {kafka: {bootstrap_servers: "127.0.0.1:1", topics: [trips]}}
decode: {json: {schema_ddl: "id BIGINT"}}
sink: {iceberg: {table: lake.a.b}}
catalogs: {lake: {uri: "jdbc:sqlite:/tmp/lakefeed-no-catalog.db", warehouse: "s3://lake/warehouse"}}
checkpoint: s3a://lake/checkpoints/connected
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Run Spark Connect's server from PySpark's jars; yield its address."""
    import pyspark

    home, port = Path(pyspark.__file__).parent, choose_free(avoid=())

    def listens() -> bool:
        try:
            socket.create_connection((LOOPBACK, port), timeout=1).close()
        except OSError:
            return False
        return True

    settings = {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.driver.host": LOOPBACK,
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    command: list[str | Path] = [home / "bin" / "spark-submit", "--master", "local[1]"]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    environment = {**os.environ, "JAVA_HOME": str(require_java().resolve().parent.parent), "SPARK_HOME": str(home)}
    with running(command, log=tmp_path / "server.log", ready=listens, environment=environment):
        yield f"sc://{LOOPBACK}:{port}"


def python(script: str, *arguments: str | Path, environment: dict[str, str] | None = None) -> str:
    """Run a script in a separate Python; return its output."""
    given = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        env={**given, **(environment or {})},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_function_refuses_a_session_of_spark_connect(server: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE, "utf-8")
    said = python(ENTRIES, server, file).splitlines()
    # The session of Spark Connect still works after it was refused.
    assert said.pop() == "3"
    found = {name: rest for name, *rest in (line.split("|") for line in said)}
    assert found.keys() == {
        *("session", "read_topic", "write_table", "deduplicated", "read", "rows", "read_batch", "run", "run_batch"),
        *("backfill", "dead_letter_store"),
    }
    for name, (status, what, hint) in found.items():
        assert (status, "a session of Spark Connect does not offer" in what) == ("2", True), (name, what)
        assert "lakefeed deploy submit" in hint, name


def test_variables_that_only_prefer_spark_connect_are_ignored() -> None:
    """A variable with an address of Spark Connect is refused."""
    script = "import lakefeed as lf; print(type(lf.session(master='local[1]')).__module__)"
    wish = {"SPARK_API_MODE": "connect", "SPARK_CONNECT_MODE": "1"}
    assert python(script, environment=wish).split() == ["pyspark.sql.session"]
    script = (
        "import lakefeed as lf\ntry:\n  lf.session()\nexcept lf.LakefeedError as error:\n"
        "  print(error.exit_status, error.where)"
    )
    assert python(script, environment={"SPARK_REMOTE": "sc://127.0.0.1:1"}).split() == ["2", "SPARK_REMOTE"]
