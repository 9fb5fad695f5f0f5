"""Checks and settings of a session on a cluster: a shared secret, executors that start, and the driver's Python."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lakefeed.errors import ConfigError, WorldError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AUTHENTICATE = "spark.authenticate"
AUTHENTICATION_SECRET = "spark.authenticate.secret"  # noqa: S105 (a name)
PYTHON = "spark.pyspark.python"
# Between driver and executors go S3 keys, Kafka logins and records.
_SECURED = {AUTHENTICATE: "true", "spark.network.crypto.enabled": "true"}
_CHOOSE = (
    "put the secret that the master and the workers have into the pipeline file, spark: {spark.authenticate.secret: "
    "${SPARK_AUTHENTICATE_SECRET}}; or spark: {spark.authenticate: false} in a network that you trust"
)
EXECUTOR_SECONDS = 90
_PYTHON_HINT = (
    f"set {PYTHON} in the block spark: to a Python {sys.version_info[0]}.{sys.version_info[1]} that all workers have"
)


def is_local(master: str) -> bool:
    """Return whether driver and executors are one JVM."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def require_one_machine(master: str, folders: Mapping[str, str]) -> None:
    """Refuse folders of this machine, by the setting that names each, where executors run on other machines."""
    if folders and not master.startswith("local"):
        key, folder = next(iter(folders.items()))
        what = f"{key} is a folder of this machine, and executors of {master} would write to their own"
        raise ConfigError(
            what, where=folder, hint="name a place in a store, s3://bucket/path; or use --master local[*]"
        )


def is_submitted() -> bool:
    """Return whether spark-submit has started this process: the JVM runs already, with master and class path."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def submitted_settings() -> dict[str, str]:
    """Return the settings that spark-submit has given to the JVM."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def secured(master: str) -> dict[str, str]:
    """Return settings by which driver and executors of a cluster know each other, and encrypt what they send."""
    return {} if is_local(master) else dict(_SECURED)


def require_secret(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for a driver on their master; a ConfigError if the secret of a standalone cluster is missing.

    YARN and Kubernetes make a secret for each application; all applications of a standalone cluster share one.
    """
    found, master = dict(settings), settings["spark.master"]
    if found.get(AUTHENTICATE, "true").lower() != "true":
        # Spark refuses encryption without authentication.
        return {key: value for key, value in found.items() if key not in _SECURED or key == AUTHENTICATE}
    if master.startswith("spark://") and AUTHENTICATION_SECRET not in found:
        what = f"{master} would get S3 keys and records over connections without authentication and encryption"
        raise ConfigError(what, where=AUTHENTICATION_SECRET, hint=_CHOOSE)
    return found


def require_executors(spark: SparkSession) -> None:
    """Wait for the first executor: Spark would wait for ever, and say so only in its log."""
    context: Any = spark.sparkContext
    if str(context.getConf().get("spark.dynamicAllocation.enabled", "false")).lower() == "true":
        return  # They come with the first job.
    deadline = time.monotonic() + EXECUTOR_SECONDS
    while context._jsc.sc().getExecutorMemoryStatus().size() < 2:  # One is the driver.
        if time.monotonic() > deadline:
            what = f"the cluster has started no executor in {EXECUTOR_SECONDS} s"
            hint = (
                "no worker may have the memory or the cores of spark.executor.memory and spark.executor.cores free, or "
            )
            hint += "workers cannot reach the driver (spark.driver.host): the master's page and Spark's log show which"
            raise WorldError(what, where=context.master, hint=hint)
        time.sleep(0.2)


def require_same_python(spark: SparkSession) -> None:
    """Run Python on the executors, so that a missing or another version is found before a batch needs it."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    here = _python()

    def there(numbers: Iterable[int]) -> Iterable[str]:
        # Pickled by value, so that it needs no module of lakefeed.
        import platform
        import sys

        yield f"Python {sys.version_info[0]}.{sys.version_info[1]} on {platform.system()} {platform.machine()}"

    there.__module__ = "__main__"
    tasks = max(2, spark.sparkContext.defaultParallelism)
    try:
        found = spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(there).distinct().collect()
    except (PySparkException, Py4JJavaError) as error:
        what = _python_problem(str(error), here)
        if what is None:
            raise
        raise ConfigError(what, where=spark.sparkContext.master, hint=_PYTHON_HINT) from None
    if others := sorted(set(found) - {here}):
        what = f"the executors have {', '.join(others)}, and the driver has {here}"
        raise ConfigError(what, where=spark.sparkContext.master, hint="run the driver on the same kind of machine")


def _python_problem(text: str, here: str) -> str | None:
    """Return what a task's error says of the executors' Python; None if it is about something else."""
    if match := re.search(r"Python in worker has different version:? '?\"?\(?([\d., ]+)", text):
        version = match[1].strip(" ,.").replace(", ", ".")
        return f"the executors have Python {version}, and the driver has {here}"
    if match := re.search(r'Cannot run program "([^"]+)"', text):
        return f"the executors have no {match[1]}"
    if match := re.search(r"Error from python worker:\s*(.+?)\s*PYTHONPATH was:", text, re.DOTALL):
        # One that is too old ends before it can say its version.
        last = match[1].splitlines()[-1].strip()
        return f"the executors' Python cannot run PySpark, and the driver has {here}: {last}"
    return None


def use_python(settings: Mapping[str, Any]) -> None:
    """Let the executors run the Python that the settings name: PySpark reads the variable, spark-submit the setting."""
    if PYTHON in settings:
        os.environ["PYSPARK_PYTHON"] = str(settings[PYTHON])


def _python() -> str:
    return f"Python {sys.version_info[0]}.{sys.version_info[1]} on {platform.system()} {platform.machine()}"
