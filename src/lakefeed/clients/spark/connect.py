"""Refuse sessions of Spark Connect: they have no driver JVM, in which lakefeed plans, decodes and commits.

Without this check, such a session would fail later with an error about a missing attribute.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

from lakefeed.errors import ConfigError, install_command
from lakefeed.lazy import DataFrame, SparkSession

if TYPE_CHECKING:
    Given = TypeVar("Given", SparkSession, SparkSession | None, DataFrame)

CLASSIC = {"spark.api.mode": "classic"}
"""The setting that makes PySpark create a session with a JVM, whatever SPARK_API_MODE and SPARK_CONNECT_MODE are."""

_WHAT = "lakefeed plans, decodes and commits in Spark's JVM, which a session of Spark Connect does not offer"
_HINT = (
    "omit the argument spark, or pass the session of lakefeed.session(), in a process without Spark Connect; "
    "on a cluster: lakefeed deploy submit pipeline.yaml --master …"
)


def classic(given: Given) -> Given:
    """Return a session, DataFrame or None unchanged; raise a ConfigError if the object belongs to Spark Connect."""
    if type(given).__module__.startswith("pyspark.sql.connect"):
        raise ConfigError(_WHAT, where=f"the {type(given).__name__} that was given", hint=_HINT)
    return given


def part_of_pyspark(name: str) -> ModuleSpec | None:
    """Find a module of PySpark without importing PySpark: the import takes a second, in which the JVM can start."""
    package = find_spec("pyspark")
    return None if package is None else PathFinder.find_spec(f"pyspark.{name}", package.submodule_search_locations)


def require_classic_mode(conf: Mapping[str, str]) -> None:
    """Raise a ConfigError unless PySpark creates sessions with a JVM in this process."""
    if part_of_pyspark("core") is None:
        what = "the installed PySpark is only a client of Spark Connect and has no JVM"
        raise ConfigError(what, hint=f"use an environment without pyspark-client; {install_command('spark')}")
    where = None
    if "spark.remote" in conf:
        where = "spark.remote"
    elif conf.get("spark.api.mode", "").lower() == "connect":
        where = "spark.api.mode"
    elif os.environ.get("SPARK_REMOTE"):
        where = "SPARK_REMOTE"
    elif "SPARK_CONNECT_MODE_ENABLED" in os.environ:
        # PySpark sets the variable with the first Connect session, and then creates only such sessions in this process.
        where = "a session of Spark Connect was started in this process"
    if where is not None:
        raise ConfigError(_WHAT, where=where, hint=_HINT)
