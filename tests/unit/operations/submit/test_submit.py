"""The call of spark-submit."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lakefeed.cli.main import root
from lakefeed.config.loading.load import load
from lakefeed.errors import ConfigError
from lakefeed.operations.submit.submit import Submission, Variables, submission

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


def test_secrets_are_variables_of_the_driver_and_nothing_else(tmp_path: Path) -> None:
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


def test_a_driver_in_client_mode_has_the_python_of_its_packages(tmp_path: Path) -> None:
    path = write(tmp_path, spark={"spark.authenticate": False, "spark.pyspark.python": "/opt/python/bin/python3"})
    found = planned(path).properties
    assert found["spark.pyspark.driver.python"] == sys.executable
    assert found["spark.pyspark.python"] == "/opt/python/bin/python3"
    # On the cluster it is the workers' own.
    assert "spark.pyspark.driver.python" not in planned(path, cluster_mode=True).properties


@pytest.mark.parametrize("master", ["yarn", "k8s://https://host"])
def test_no_variables_are_shown_to_other_clusters(tmp_path: Path, master: str) -> None:
    path = write(tmp_path)
    with pytest.raises(ConfigError, match="without showing them"):
        planned(path, master=master, cluster_mode=True)
    assert planned(path, master=master).properties["spark.authenticate"] == "true"


def test_only_a_driver_on_a_standalone_cluster_is_supervised(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="supervised on a standalone cluster"):
        planned(write(tmp_path), supervise=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--deploy-mode", "cluster"], "give --stage or --application"),
        (["--", "--onec"], "No such option '--onec'"),
        (["--application", "http://host/a.jar", "--stage", "."], "without --stage"),
    ],
)
def test_what_cannot_be_submitted_is_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = CliRunner(env=ENVIRONMENT).invoke(
        root, ["submit", str(write(tmp_path)), "--master", "spark://host:7077", *arguments]
    )
    assert done.exit_code == 2
    assert message in done.output


def test_print_shows_the_command_and_no_secret(tmp_path: Path) -> None:
    mode = ["--deploy-mode", "cluster", "--supervise", "--application", "https://host/trips.jar"]
    command = ["submit", str(write(tmp_path)), "--master", "spark://host:7077", *mode, "--print", "--", "--once"]
    done = CliRunner(env=ENVIRONMENT).invoke(root, command)
    assert done.exit_code == 0, done.output
    # A supervised driver that was replaced is not started against its successor.
    assert "https://host/trips.jar --exit-when-replaced 0 --once" in done.output
    assert "KEY" in done.output
    assert CANARY not in done.output
