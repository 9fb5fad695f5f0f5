"""The spark-submit command that ``lakefeed deploy submit`` runs."""

import json
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lakefeed.cli.main import root
from lakefeed.config.loading.load import load
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed_deploy.spark_submit.submit import Submission, Variables, locate, submission
from lakefeed_testing.schemas import HttpAnswer, serve_http

CANARY = "the-canary-of-this-test"
ENVIRONMENT = {
    "BROKERS": "broker:9092",
    "KEY": CANARY,
    "AWS_ACCESS_KEY_ID": "id",
    "AWS_SECRET_ACCESS_KEY": CANARY,
    "UNRELATED": CANARY,
    "LAKEFEED_CATALOG_URI": "http://catalog",
    "LAKEFEED_WAREHOUSE": "s3://lake/w",
}


def write(folder: Path, **blocks: Any) -> Path:
    document = {
        "name": "trips",
        "source": {"kafka": {"bootstrap_servers": "${BROKERS}", "topics": ["trips"]}},
        "decode": {"raw": {}},
        "sink": {"iceberg": {"table": "lake.nyc.trips"}},
        "checkpoint": "s3a://lake/checkpoints/trips",
        "spark": {"spark.authenticate.secret": "${KEY}", "spark.executor.cores": 2},
        **blocks,
    }
    path = folder / "pipeline.yaml"
    path.write_text(json.dumps(document))
    return path


def planned(path: Path, *, environment: Mapping[str, str] = ENVIRONMENT, **options: Any) -> Submission:
    variables = Variables(environment)
    config = load(path, environment=variables)
    config.connections(variables)
    given = {"master": "spark://host:7077", "application": "file:/shared/trips.jar", **options}
    return submission(config, variables, **given)


def test_only_the_variables_of_the_driver_have_secrets(tmp_path: Path) -> None:
    found = planned(write(tmp_path), cluster_mode=True, supervise=True, arguments=["--once"])
    command = found.command("spark.properties")
    assert command[-2:] == ["file:/shared/trips.jar", "--once"]
    assert {"--supervise", "--class", "--properties-file"} <= set(command)
    assert CANARY not in " ".join(command) + json.dumps(dict(found.properties))
    assert found.properties["spark.authenticate"] == "true"
    assert found.properties["spark.executor.cores"] == "2"
    assert found.variables["BROKERS"] == "broker:9092"
    assert found.variables["_SPARK_AUTH_SECRET"] == CANARY
    assert "UNRELATED" not in found.variables
    assert "UNRELATED" not in found._environment()


def test_client_mode_runs_the_driver_with_this_python(tmp_path: Path) -> None:
    path = write(tmp_path, spark={"spark.authenticate": False, "spark.pyspark.python": "/opt/python/bin/python3"})
    found = planned(path).properties
    assert found["spark.pyspark.driver.python"] == sys.executable
    assert found["spark.pyspark.python"] == "/opt/python/bin/python3"
    # In cluster mode, the driver uses the Python of a worker.
    assert "spark.pyspark.driver.python" not in planned(path, cluster_mode=True).properties


def test_an_invalid_master_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a master of Spark"):
        planned(write(tmp_path), master="spark//host:7077")


@pytest.mark.parametrize("master", ["yarn", "k8s://https://host"])
def test_cluster_mode_is_refused_if_spark_would_show_the_drivers_variables(
    tmp_path: Path, master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hadoop_configuration(tmp_path)))
    with pytest.raises(ConfigError, match="Spark would show the pipeline's variables"):
        planned(path, master=master, cluster_mode=True)
    assert planned(path, master=master).properties["spark.authenticate"] == "true"


def hadoop_configuration(folder: Path) -> Path:
    """Write the configuration of a YARN client; return its folder."""
    (folder / "yarn-site.xml").write_text("<configuration/>")
    return folder


def test_yarn_gets_pyspark_and_no_s3_keys_that_it_would_write_to_disks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path)
    monkeypatch.setenv("YARN_CONF_DIR", str(hadoop_configuration(tmp_path)))
    found = planned(path, master="yarn").properties
    assert found["spark.yarn.isPython"] == "true"
    # The value is empty, because Spark would write keys of the environment to the nodes' disks.
    assert found["spark.hadoop.fs.s3a.secret.key"] == ""
    assert "spark.yarn.isPython" not in planned(path).properties


def test_submit_to_yarn_is_refused_without_the_address_of_yarn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path)
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="the address of YARN is not set"):
        planned(path, master="yarn")


def test_supervise_without_cluster_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only a standalone cluster in cluster mode"):
        planned(write(tmp_path), supervise=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--deploy-mode", "cluster"], "give --stage or --application"),
        (["--", "--onec"], "No such option '--onec'"),
        (["--application", "http://host/a.jar", "--stage", "."], "without --stage"),
        (["--print", "--", "--master", "local"], "--master belongs before --"),
    ],
)
def test_contradictory_options_are_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = CliRunner(env=ENVIRONMENT).invoke(
        root, ["deploy", "submit", str(write(tmp_path)), "--master", "spark://host:7077", *arguments]
    )
    assert done.exit_code == 2
    assert message in done.output


def test_print_shows_the_command_without_secrets(tmp_path: Path) -> None:
    mode = ["--deploy-mode", "cluster", "--supervise", "--application", "https://host/trips.jar"]
    command = [
        "deploy",
        "submit",
        str(write(tmp_path)),
        "--master",
        "spark://host:7077",
        *mode,
        "--print",
        "--",
        "--once",
    ]
    done = CliRunner(env=ENVIRONMENT).invoke(root, command)
    assert done.exit_code == 0, done.output
    # If another driver replaces a supervised driver, it exits with 0, so that the cluster does not restart it.
    assert "https://host/trips.jar --supervised --exit-when-replaced 0 --once" in done.output
    assert "KEY" in done.output
    assert CANARY not in done.output


def packaged(folder: Path, file: Path, *, text: str | None = None) -> Path:
    """Write an application jar that has only the pipeline file."""
    jar = folder / "trips.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr(f"application/pipeline/{file.name}", file.read_text() if text is None else text)
    return jar


def test_an_application_jar_is_checked_before_the_submission(tmp_path: Path) -> None:
    file = write(tmp_path)
    jar = packaged(tmp_path, file)
    assert locate(str(jar), file, cluster_mode=True) == jar.as_uri()
    assert locate(jar.as_uri(), file, cluster_mode=False) == str(jar)
    assert locate("hdfs://name/trips.jar", file, cluster_mode=True) == "hdfs://name/trips.jar"
    # In cluster mode, a file: URL may name a file that only the workers have.
    assert locate("file:///shared/trips.jar", file, cluster_mode=True) == "file:///shared/trips.jar"
    for application, cluster_mode in (("/shared/trips.jar", True), ("file:///shared/trips.jar", False)):
        with pytest.raises(ResourceMissing, match="there is no application jar"):
            locate(application, file, cluster_mode=cluster_mode)
    packaged(tmp_path, file, text="name: another")
    with pytest.raises(ConfigError, match=r"has another pipeline\.yaml than"):
        locate(str(jar), file, cluster_mode=True)
    jar.write_text("no jar")
    with pytest.raises(ConfigError, match="is not an application jar"):
        locate(str(jar), file, cluster_mode=True)


def test_a_url_without_a_jar_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path)
    with serve_http(lambda request: HttpAnswer(200 if request.path == "/trips.jar" else 404)) as address:
        assert locate(f"{address}/trips.jar", file, cluster_mode=True) == f"{address}/trips.jar"
        with pytest.raises(ResourceMissing, match="HTTP status 404"):
            locate(f"{address}/tripz.jar", file, cluster_mode=True)
    with pytest.raises(ConfigError, match="this is not a valid URL"):
        locate("http://[host/trips.jar", file, cluster_mode=True)
    # In cluster mode, perhaps only the workers can reach the address.
    assert locate("http://127.0.0.1:1/trips.jar", file, cluster_mode=True) == "http://127.0.0.1:1/trips.jar"
