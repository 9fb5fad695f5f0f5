"""A Spark session does not reveal secrets, and ``conf`` prints the arguments of spark-submit without them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakefeed as lf
from lakefeed_local.stack import Endpoints
from tests.support.cli import lakefeed
from tests.support.feed import Feed

PIPELINE = Path(__file__).parents[2] / "examples" / "taxi" / "pipeline.yaml"


def command_lines() -> str:
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # The process has ended since its id was listed.
    return "\n".join(lines)


@pytest.mark.quick
def test_no_secret_is_in_process_lists_spark_settings_or_plans(lake: SparkSession, stack: Endpoints) -> None:
    secret = stack.secret_key.get_secret_value()
    lake.sql("CREATE NAMESPACE IF NOT EXISTS lake.secrets")
    frame = lf.read_topic(lake, "x", decode="raw", bootstrap_servers=stack.bootstrap_servers)
    seen = {
        "ps": command_lines(),
        "SparkConf": str(lake.sparkContext.getConf().getAll()),
        "SET": str(lake.sql("SET").collect()),
        "explain": frame._jdf.queryExecution().toString(),
    }
    assert "lakefeed-jvm.jar" in seen["ps"]
    assert [place for place, text in seen.items() if secret in text] == []


@pytest.mark.quick
def test_conf_prints_all_arguments_of_spark_submit_and_no_secret(feed: Feed) -> None:
    done = lakefeed("deploy", "conf", PIPELINE, "--output", "json", environment=feed.environment)
    settings = json.loads(done.stdout)
    assert settings["spark.sql.catalog.lake.uri"] == feed.stack.catalog_uri
    assert settings["spark.hadoop.fs.s3a.endpoint"] == feed.stack.s3_endpoint
    assert "iceberg-spark-runtime" in settings["spark.driver.extraClassPath"]
    assert feed.stack.secret_key.get_secret_value() not in done.stdout + done.stderr
    on_cluster = lakefeed(
        "deploy", "conf", "--no-pipeline", "--master", "spark://host:7077", environment=feed.environment
    )
    assert "spark.jars file:///" in on_cluster.stdout
    assert feed.stack.access_key not in on_cluster.stdout


def test_a_session_without_the_jars_is_refused(tmp_path: Path, feed: Feed) -> None:
    program = tmp_path / "own_session.py"
    program.write_text(
        "from pyspark.sql import SparkSession\n"
        "SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "import lakefeed\n"
        "try:\n"
        "    lakefeed.session()\n"
        "except lakefeed.LakefeedError as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, program],
        env={**os.environ, **feed.environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "ConfigError the running Spark session does not have lakefeed's jars" in done.stdout, done.stderr
    assert "lakefeed deploy conf" in done.stdout


@pytest.mark.quick
def test_importing_lakefeed_imports_no_engine() -> None:
    engines = {"pyspark", "py4j", "pyiceberg", "pyarrow", "duckdb"}
    program = f"import lakefeed, sys; sys.exit(len({engines} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
