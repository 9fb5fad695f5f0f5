"""Check and set up a session on a cluster: the master's address, the secret, the executors and their Python."""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lakefeed.errors import ConfigError, WorldError
from lakefeed.lazy import SparkSession, py4j, spark_errors

AUTHENTICATE = "spark.authenticate"
AUTHENTICATION_SECRET = "spark.authenticate.secret"  # noqa: S105 (a name)
PYTHON = "spark.pyspark.python"
# Encryption is on because driver and executors exchange S3 keys, Kafka logins and records.
_SECURED = {AUTHENTICATE: "true", "spark.network.crypto.enabled": "true"}
# Spark copies S3 keys from the environment into these settings, and YARN writes settings to its nodes' disks. Empty
# values prevent that. The session passes the keys to the driver's running JVM, which sends them to the executors.
NO_KEYS_ON_NODES = dict.fromkeys(
    (
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.session.token",
        "spark.hadoop.fs.s3.awsSecretAccessKey",
        "spark.hadoop.fs.s3n.awsSecretAccessKey",
    ),
    "",
)
_TOO_LARGE = re.compile(
    r"Required (executor|AM) memory \((\d+) MB\).*is above the max threshold \((\d+) MB\)", re.DOTALL
)
_CHOOSE = (
    "write the secret of the master and the workers into the pipeline file, spark: {spark.authenticate.secret: "
    "${SPARK_AUTHENTICATE_SECRET}}; or, in a network that you trust, spark: {spark.authenticate: false}"
)
HADOOP_CONFIGURATION = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""The environment variables with the folder of YARN's client configuration."""
_YARN_SITE = "yarn-site.xml"
RESOURCE_MANAGER_PORT = 8032
RESOURCE_MANAGER_SECONDS = 20
"""How long a standby ResourceManager may take to take over."""
EXECUTOR_SECONDS = 90
_PYTHON_HINT = (
    f"set {PYTHON} in the block spark: to a Python {sys.version_info[0]}.{sys.version_info[1]} that all workers have"
)


def is_local(master: str) -> bool:
    """Return whether driver and executors run in one JVM."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def require_one_machine(master: str, folders: Mapping[str, str]) -> None:
    """If executors run on other machines, refuse ``folders`` of this machine, which are given by setting."""
    if folders and not master.startswith("local"):
        key, folder = next(iter(folders.items()))
        what = f"{key} is a folder of this machine, and executors of {master} would write to their own machines"
        raise ConfigError(what, where=folder, hint="name a path in a store, s3://bucket/path; or use --master local[*]")


def is_submitted() -> bool:
    """Return whether spark-submit started this process; then the JVM runs already, with a master and a class path."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def submitted_settings() -> dict[str, str]:
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def secured(master: str) -> dict[str, str]:
    """Return the settings with which a cluster's driver and executors authenticate each other and encrypt."""
    if is_local(master):
        return {}
    return _SECURED | NO_KEYS_ON_NODES if master == "yarn" else dict(_SECURED)


def require_secret(settings: Mapping[str, str]) -> dict[str, str]:
    """Refuse a missing secret of a cluster; return the settings, without encryption if authentication is off.

    YARN and Kubernetes create a secret per application; all applications of a standalone cluster share one.
    """
    master = settings["spark.master"]
    if settings.get(AUTHENTICATE, "true").lower() != "true":
        # Spark refuses encryption without authentication.
        return {key: value for key, value in settings.items() if key not in _SECURED or key == AUTHENTICATE}
    if master.startswith("spark://") and AUTHENTICATION_SECRET not in settings:
        what = f"{master} would get S3 keys and records over connections without authentication and encryption"
        raise ConfigError(what, where=AUTHENTICATION_SECRET, hint=_CHOOSE)
    return dict(settings)


def require_hadoop_configuration(master: str) -> None:
    """Refuse a start on YARN if no variable names the folder of YARN's configuration: Spark's message names none."""
    if master != "yarn":
        return
    folders = {name: os.environ[name] for name in HADOOP_CONFIGURATION if os.environ.get(name)}
    hint = f"set {HADOOP_CONFIGURATION[0]} to the folder of the cluster's client configuration, which has {_YARN_SITE}"
    if not folders:
        raise ConfigError("the address of YARN is not set", where=" or ".join(HADOOP_CONFIGURATION), hint=hint)
    if not any((Path(folder) / _YARN_SITE).is_file() for folder in folders.values()):
        # Without this file, Hadoop would try to connect to 0.0.0.0 for 15 minutes.
        name, folder = next(iter(folders.items()))
        raise ConfigError(f"{name} names a folder without {_YARN_SITE}", where=folder, hint=hint)


def require_resource_manager(settings: Mapping[str, str]) -> None:
    """Raise an error if YARN's ResourceManager does not answer: Hadoop itself would try to connect for 15 minutes."""
    if settings["spark.master"] != "yarn":
        return
    from pyspark import SparkContext

    SparkContext._ensure_initialized()
    java: Any = SparkContext._jvm
    configuration = java.org.apache.hadoop.yarn.conf.YarnConfiguration()
    for key, value in settings.items():
        if key.startswith("spark.hadoop.yarn."):
            configuration.set(key.removeprefix("spark.hadoop."), value)
    addresses = _resource_managers(configuration)
    deadline = time.monotonic() + RESOURCE_MANAGER_SECONDS
    while not any(_listens(host, port) for host, port in addresses):
        if time.monotonic() > deadline:
            where = ", ".join(f"{host}:{port}" for host, port in addresses)
            hint = f"compare {_YARN_SITE} in the folder of {HADOOP_CONFIGURATION[0]} with the cluster's"
            raise WorldError("YARN's ResourceManager does not answer", where=where, hint=hint)
        time.sleep(1)


def _resource_managers(configuration: Any) -> list[tuple[str, int]]:
    names = [""]
    if configuration.getBoolean("yarn.resourcemanager.ha.enabled", False):
        names = [f".{each}" for each in configuration.getTrimmedStrings("yarn.resourcemanager.ha.rm-ids")] or names
    addresses = []
    for name in names:
        host = configuration.get(f"yarn.resourcemanager.hostname{name}") or "0.0.0.0"  # noqa: S104 (Hadoop's default)
        address = configuration.get(f"yarn.resourcemanager.address{name}") or f"{host}:{RESOURCE_MANAGER_PORT}"
        host, _, port = address.rpartition(":") if ":" in address else (address, "", str(RESOURCE_MANAGER_PORT))
        addresses.append((host, int(port)))
    return addresses


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return False
    return True


def refusal(text: str) -> ConfigError | None:
    """Return the error if Spark's text says that a container is too large for YARN; None for any other text."""
    if (match := _TOO_LARGE.search(text)) is None:
        return None
    role, megabytes, largest = match.groups()
    executor = role == "executor"
    what = f"{'an executor' if executor else 'the application master'} of {megabytes} MB and its overhead exceed the "
    what += f"{largest} MB that YARN allows for a container"
    setting = "spark.executor.memory" if executor else "spark.yarn.am.memory"
    return ConfigError(what, where=setting, hint=f"lower {setting} in the block spark:, or raise the cluster's limit")


def require_executors(spark: SparkSession) -> None:
    """Wait for the first executor; raise an error if none starts, because Spark would wait forever and only log it."""
    context: Any = spark.sparkContext
    if str(context.getConf().get("spark.dynamicAllocation.enabled", "false")).lower() == "true":
        return  # With dynamic allocation, executors start with the first job.
    deadline = time.monotonic() + EXECUTOR_SECONDS
    while context._jsc.sc().getExecutorMemoryStatus().size() < 2:  # Spark lists the driver as an executor, too.
        if time.monotonic() > deadline:
            what = f"the cluster has started no executor in {EXECUTOR_SECONDS} s"
            hint = "look at the master's page and Spark's log: no worker has spark.executor.memory and "
            hint += "spark.executor.cores free, or the workers cannot reach the driver (spark.driver.host)"
            raise WorldError(what, where=context.master, hint=hint)
        time.sleep(0.2)


def require_same_python(spark: SparkSession) -> None:
    """Refuse executors whose Python is another version than the driver's, before the first batch."""
    here = _python()

    def there(numbers: Iterable[int]) -> Iterable[str]:
        # ``there`` is pickled by value (its module is ``__main__``), because the executors have no module of lakefeed.
        import platform
        import sys

        yield f"Python {sys.version_info[0]}.{sys.version_info[1]} on {platform.system()} {platform.machine()}"

    there.__module__ = "__main__"
    tasks = max(2, spark.sparkContext.defaultParallelism)
    try:
        found = spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(there).distinct().collect()
    except (spark_errors.PySparkException, py4j.Py4JJavaError) as error:
        what = _python_problem(str(error), here)
        if what is None:
            raise
        raise ConfigError(what, where=spark.sparkContext.master, hint=_PYTHON_HINT) from None
    if others := sorted(set(found) - {here}):
        what = f"the executors have {', '.join(others)}, and the driver has {here}"
        raise ConfigError(what, where=spark.sparkContext.master, hint="run the driver on the same kind of machine")


def _python_problem(text: str, here: str) -> str | None:
    """Return what a task's error shows to be wrong with the executors' Python; None for errors with other causes."""
    if match := re.search(r"Python in worker has different version:? '?\"?\(?([\d., ]+)", text):
        version = match[1].strip(" ,.").replace(", ", ".")
        return f"the executors have Python {version}, and the driver has {here}"
    if match := re.search(r'Cannot run program "([^"]+)"', text):
        return f"the executors have no {match[1]}"
    if match := re.search(r"Error from python worker:\s*(.+?)\s*PYTHONPATH was:", text, re.DOTALL):
        # A Python that is too old fails on PySpark's syntax before it reports its version.
        last = match[1].splitlines()[-1].strip()
        return f"the executors' Python cannot run PySpark, and the driver has {here}: {last}"
    return None


def use_python(settings: Mapping[str, Any]) -> None:
    """Set PYSPARK_PYTHON to the Python that the settings name for executors, because PySpark ignores the setting."""
    if PYTHON in settings:
        os.environ["PYSPARK_PYTHON"] = str(settings[PYTHON])


def _python() -> str:
    return f"Python {sys.version_info[0]}.{sys.version_info[1]} on {platform.system()} {platform.machine()}"
