"""Refuses Spark Connect in one sentence: lakefeed plans, decodes and commits in the JVM of the driver.

A session of Spark Connect has no such JVM in its process, and would fail somewhere for an attribute that it lacks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from lakefeed.errors import ConfigError
from lakefeed.lazy import DataFrame, SparkSession

if TYPE_CHECKING:
    Given = TypeVar("Given", SparkSession, SparkSession | None, DataFrame)

CLASSIC = {"spark.api.mode": "classic"}
"""Asks PySpark for a session with a JVM, whatever SPARK_API_MODE or SPARK_CONNECT_MODE say."""

_WHAT = "a session of Spark Connect has no JVM of its own, in which lakefeed plans, decodes and commits"
_HINT = (
    "leave spark out, or give the session of lakefeed.session(), in a Python process that does not use Spark Connect; "
    "on a cluster: lakefeed deploy submit pipeline.yaml --master …"
)


def classic(given: Given) -> Given:
    """Return a session, a DataFrame or None as it is given; refuse those of Spark Connect with a ConfigError."""
    if type(given).__module__.startswith("pyspark.sql.connect"):
        raise ConfigError(_WHAT, where=f"the {type(given).__name__} that was given", hint=_HINT)
    return given


def require_classic_mode(conf: Mapping[str, str]) -> None:
    """Require that PySpark would start, or has started, a session with a JVM here."""
    from pyspark.util import is_remote_only

    if is_remote_only():
        what = "the PySpark that is installed has no JVM: it is the client of Spark Connect alone"
        raise ConfigError(what, hint="pip install 'lakefeed[spark]', in an environment without pyspark-client")
    where = None
    if "spark.remote" in conf:
        where = "spark.remote"
    elif conf.get("spark.api.mode", "").lower() == "connect":
        where = "spark.api.mode"
    elif os.environ.get("SPARK_REMOTE"):
        where = "SPARK_REMOTE"
    elif "SPARK_CONNECT_MODE_ENABLED" in os.environ:
        # PySpark sets it with the first such session, and then makes no other in this process.
        where = "a session of Spark Connect was started in this process"
    if where is not None:
        raise ConfigError(_WHAT, where=where, hint=_HINT)
