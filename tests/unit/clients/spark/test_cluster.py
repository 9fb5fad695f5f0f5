"""The settings of a cluster's master."""

from __future__ import annotations

import pytest

from lakefeed.clients.spark.cluster import _python_problem, require_secret, secured
from lakefeed.clients.spark.session import settings
from lakefeed.errors import ConfigError

STANDALONE = {"spark.master": "spark://host:7077"}


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host"])
def test_a_cluster_has_authentication_and_encryption(master: str) -> None:
    found = settings(master=master)
    assert (found["spark.authenticate"], found["spark.network.crypto.enabled"]) == ("true", "true")
    assert "spark.authenticate" not in settings(master="local[2]")


def test_a_standalone_cluster_without_a_secret_is_refused() -> None:
    with pytest.raises(ConfigError, match="without authentication and encryption") as refused:
        require_secret({**STANDALONE, **secured("spark://host:7077")})
    assert "spark.authenticate: false" in str(refused.value)


def test_yarn_makes_a_secret_of_its_own() -> None:
    given = {"spark.master": "yarn", **secured("yarn")}
    assert require_secret(given) == given


@pytest.mark.parametrize("no", ["false", "False"])
def test_a_user_can_do_without(no: str) -> None:
    given = {**STANDALONE, **secured("spark://host:7077"), "spark.authenticate": no}
    assert require_secret(given) == {**STANDALONE, "spark.authenticate": no}


TOO_OLD = """Error from python worker:
  Traceback (most recent call last):
    File "/opt/pyspark.zip/pyspark/__init__.py", line 58, in <module>
  SyntaxError: invalid syntax
PYTHONPATH was:
  /opt/pyspark.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number"""


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        ("Python in worker has different version: (3, 9) than that in driver: 3.11", "the executors have Python 3.9,"),
        (
            'java.io.IOException: Cannot run program "/nowhere/python3": error=2',
            "the executors have no /nowhere/python3",
        ),
        (
            TOO_OLD,
            "the executors' Python cannot run PySpark, and the driver has Python 3.11: SyntaxError: invalid syntax",
        ),
        ("Connection refused", None),
    ],
)
def test_the_python_of_executors_is_read_from_a_tasks_error(error: str, problem: str | None) -> None:
    found = _python_problem(error, "Python 3.11")
    assert found is None if problem is None else found is not None and found.startswith(problem)
