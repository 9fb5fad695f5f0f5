"""Settings and checks of a session on a cluster."""

from pathlib import Path

import pytest

from lakefeed.clients.spark.cluster import (
    _python_problem,
    _resource_managers,
    refusal,
    require_hadoop_configuration,
    require_secret,
    secured,
)
from lakefeed.clients.spark.session import settings
from lakefeed.errors import ConfigError

STANDALONE = {"spark.master": "spark://host:7077"}


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host"])
def test_a_cluster_has_authentication_and_encryption(master: str) -> None:
    found = settings(master=master)
    assert (found["spark.authenticate"], found["spark.network.crypto.enabled"]) == ("true", "true")
    assert "spark.authenticate" not in settings(master="local[2]")


def test_yarn_nodes_get_no_s3_keys_from_the_environment() -> None:
    found = settings(master="yarn")
    assert found["spark.hadoop.fs.s3a.secret.key"] == found["spark.hadoop.fs.s3a.session.token"] == ""
    assert "spark.hadoop.fs.s3a.secret.key" not in settings(master="spark://host:7077")


def test_a_standalone_cluster_without_a_secret_is_refused() -> None:
    with pytest.raises(ConfigError, match="without authentication and encryption") as refused:
        require_secret({**STANDALONE, **secured("spark://host:7077")})
    assert "spark.authenticate: false" in str(refused.value)


def test_yarn_needs_no_secret_in_the_settings() -> None:
    given = {"spark.master": "yarn", **secured("yarn")}
    assert require_secret(given) == given


def test_yarn_without_a_configuration_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    require_hadoop_configuration("spark://host:7077")
    with pytest.raises(ConfigError, match="the address of YARN is not set") as refused:
        require_hadoop_configuration("yarn")
    assert "set HADOOP_CONF_DIR to the folder" in str(refused.value)
    # A folder without yarn-site.xml is refused, because Hadoop would use the address 0.0.0.0.
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(ConfigError, match=r"HADOOP_CONF_DIR names a folder without yarn-site.xml"):
        require_hadoop_configuration("yarn")
    (tmp_path / "yarn").mkdir()
    (tmp_path / "yarn" / "yarn-site.xml").write_text("<configuration/>")
    monkeypatch.setenv("YARN_CONF_DIR", str(tmp_path / "yarn"))
    require_hadoop_configuration("yarn")


class Configuration(dict[str, str]):
    """A stand-in for Hadoop's configuration with the methods that Python calls."""

    def getBoolean(self, key: str, default: bool) -> bool:  # noqa: N802 (Java's)
        return self.get(key, str(default)).lower() == "true"

    def getTrimmedStrings(self, key: str) -> list[str]:  # noqa: N802 (Java's)
        return self.get(key, "").split(",")


RM = "yarn.resourcemanager"


@pytest.mark.parametrize(
    ("properties", "addresses"),
    [
        ({f"{RM}.address": "host:18032", f"{RM}.hostname": "other"}, [("host", 18032)]),
        ({f"{RM}.hostname": "host"}, [("host", 8032)]),
        (
            {
                f"{RM}.ha.enabled": "true",
                f"{RM}.ha.rm-ids": "rm1,rm2",
                f"{RM}.hostname.rm1": "one",
                f"{RM}.address.rm2": "two:9032",
            },
            [("one", 8032), ("two", 9032)],
        ),
    ],
)
def test_the_addresses_of_the_resource_managers_are_found(
    properties: dict[str, str], addresses: list[tuple[str, int]]
) -> None:
    assert _resource_managers(Configuration(properties)) == addresses


@pytest.mark.parametrize("no", ["false", "False"])
def test_a_user_can_turn_authentication_off(no: str) -> None:
    given = {**STANDALONE, **secured("spark://host:7077"), "spark.authenticate": no}
    assert require_secret(given) == {**STANDALONE, "spark.authenticate": no}


TOO_LARGE = """java.lang.IllegalArgumentException: Required executor memory (102400 MB), offHeap memory (0) MB, overhead
(10240 MB), and PySpark memory (0 MB) is above the max threshold (4096 MB) of this cluster! Please check the values."""


def test_the_error_for_a_large_yarn_container_names_the_setting() -> None:
    found = refusal(TOO_LARGE)
    assert found is not None
    assert "an executor of 102400 MB and its overhead exceed the 4096 MB" in str(found)
    assert "lower spark.executor.memory" in str(found)
    assert "spark.yarn.am.memory" in str(refusal(TOO_LARGE.replace("executor", "AM")))
    assert refusal("Connection refused") is None


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
def test_the_error_of_a_task_shows_the_python_of_the_executors(error: str, problem: str | None) -> None:
    found = _python_problem(error, "Python 3.11")
    assert found is None if problem is None else found is not None and found.startswith(problem)
